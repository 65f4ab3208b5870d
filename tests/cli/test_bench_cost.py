"""The cost of a benchmark on the command line: its estimate, its limit, its report."""

import pytest
from tests.cli.conftest import Split

pytestmark = pytest.mark.system


def test_bench_announces_and_stores_its_cost(split: Split, endpoint: list[str]) -> None:
    options = [
        "-c",
        1,
        "-n",
        6,
        "--warmup",
        0,
        "--output-tokens",
        20,
        "--input-tokens",
        64,
        "--no-html",
    ]
    ended = split(
        "bench", *endpoint, *options, "--price", "100,200", "--json", "out.json", "--out", "run"
    )
    assert ended.code == 0
    assert (
        "This run costs about $0.0624 with full-length responses, for 6 requests plus a few"
        in ended.words
    )
    (row,) = split("report", "run", "--no-html", "--json", "-").json["conditions"]
    assert row["price"]["source"] == "the command line"
    tokens = row["input_tokens"], row["output_tokens"]
    assert row["cost_usd"] == pytest.approx(6 * (tokens[0] * 100e-6 + tokens[1] * 200e-6), rel=0.02)
    assert row["usd_per_million"] == pytest.approx(
        1e6 * row["cost_usd"] / 6 / sum(tokens), rel=0.02
    )


def test_bench_refuses_a_negative_cost_limit(split: Split, endpoint: list[str]) -> None:
    ended = split("bench", *endpoint, "-n", "1", "--max-cost", "-1")
    assert ended.code == 2
    assert "--max-cost: got -1.0, expected US dollars, 0 or more" in ended.complaint


def test_bench_stops_at_the_cost_limit_and_keeps_its_rows(
    split: Split, endpoint: list[str]
) -> None:
    """The requests leave the length of the answers to the provider, which gives 20 tokens."""
    options = [
        "-c",
        "2",
        "-n",
        "200",
        "--output-tokens",
        "10",
        "--body",
        '{"max_tokens": null}',
        "--input-tokens",
        "64",
    ]
    ended = split(
        "bench",
        *endpoint,
        *options,
        "--price",
        "0,1000",
        "--max-cost",
        "1.2",
        "--no-html",
        "--out",
        "run",
    )
    assert ended.code == 1
    assert "It stops at $1.20." in ended.words
    assert "and the next request could exceed the limit of $1.20" in ended.words
    (row,) = split("report", "run", "--no-html", "--json", "-").json["conditions"]
    assert 40 <= row["requests"] < 60
    assert 1.1 <= row["cost_usd"] <= 1.2  # the pilot is part of the limit, but of no row
    assert any(
        f"ended early, after {row['requests']} of 200 requests: the cost limit was reached." in n
        for n in row["notes"]
    )
