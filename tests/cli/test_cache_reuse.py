"""`bench --cache reuse`, from the command line to the files: the reported saving is the true
one."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.conftest import Ended, Split, run_splitsecond
from tests.cli.peer import Peer, ReceivedRequest, stream

from splitsecond.benchmark.money.caching import cache_savings
from splitsecond.benchmark.rows.records import Run
from splitsecond.core.catalog.price import Price
from splitsecond.log.store.folder import read_observations
from splitsecond.simulator.process import RunningProvider, run_simulator

pytestmark = pytest.mark.system

SAVES = 0.6
"""The share of the TTFT that a prompt which is cached in full saves at the simulated provider."""
PROFILE = """
title = "Remembers"
model = "m"
source = "a test"
measured = "2026-11"
output_tokens = 4
[[table]]
concurrency = 1
ttft_ms = { p50 = 150, p95 = 180 }
tps = { p50 = 400, p95 = 380 }
"""
CACHE = f"[prompt_cache]\nfrom_tokens = 64\nblock_tokens = 16\nsaves = {SAVES}\n"
PRICE = Price(input_usd=10, output_usd=20, cached_usd=1)
FEW = ("--input-tokens", 256, "--output-tokens", 4)


@pytest.fixture(scope="module")
def providers(
    system: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[RunningProvider]]:
    """One that remembers prompts, and one that does not."""
    folder = tmp_path_factory.mktemp("profiles")
    (folder / "remembers.toml").write_text(PROFILE + CACHE)
    (folder / "forgets.toml").write_text(PROFILE)
    with run_simulator(str(folder / "remembers.toml"), str(folder / "forgets.toml")) as found:
        yield found


def bench(provider: RunningProvider, *more: object) -> Ended:
    endpoint = ("--base-url", provider.base_url, "--model", provider.model, "--name", "a/x")
    return run_splitsecond("bench", *endpoint, "--cache", "reuse", "-c", 6, "-n", 24, *FEW, *more)


@pytest.fixture(scope="module")
def kept(providers: list[RunningProvider], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose provider caches, with its findings in out.json besides. Copy it
    before changing it."""
    folder = tmp_path_factory.mktemp("kept") / "run"
    ended = bench(
        providers[0], "--price", "10,20,1", "--out", folder, "--json", folder.with_name("out.json")
    )
    assert ended.code == 0
    folder.with_name("words").write_text(ended.words)
    return folder


def found_in(kept: Path) -> Any:
    return json.loads((kept / "run.json").read_text())


def verdict_of(folder: Path) -> str:
    """The verdict of a run, had it been measured on a machine with nothing else to do: no row is
    INVALID."""
    run = msgspec.json.decode((folder / "run.json").read_bytes(), type=Run)
    rows = [msgspec.structs.replace(row, invalid=[]) for row in run.conditions]
    (saving,) = cache_savings(rows, read_observations(folder), {"a/x": PRICE})
    return saving.verdict


def test_interval_of_the_saving_contains_the_truth(kept: Path) -> None:
    (saving,) = found_in(kept)["cache_savings"]
    truth = -SAVES * saving["cached_share"]
    median = saving["ttft"][0]
    low, high = median["ci95"]
    # nor does a busy machine make a provider that is not simulated
    assert low - 0.05 < truth < high + 0.05
    assert (median["real"], median["better"], saving["hits"]) == (True, True, 24)
    assert 0.8 < saving["cached_share"] < 1


def test_cost_saving_is_that_of_the_cached_input(kept: Path) -> None:
    found = found_in(kept)
    (saving,) = found["cache_savings"]
    fresh, reuse = found["conditions"]
    assert saving["usd_per_request_fresh"] == pytest.approx(fresh["input_tokens"] * 10e-6, rel=0.02)
    cached = reuse["cached_tokens"]
    about = (reuse["input_tokens"] - cached) * 10e-6 + cached * 1e-6
    # the warm-ups that fill it are in it
    assert saving["usd_per_request_reuse"] == pytest.approx(about, rel=0.25)
    assert saving["usd_per_request_reuse"] > about
    assert fresh["cost_usd"] > reuse["cost_usd"]
    assert "This run costs about $" in kept.with_name("words").read_text()


def test_saving_is_in_a_sentence_and_in_a_table(kept: Path) -> None:
    found, words = found_in(kept), kept.with_name("words").read_text()
    assert found["statements"][1] == found["cache_savings"][0]["verdict"]
    printed = " ".join(found["short_statements"][1].split())
    assert printed == " ".join(found["cache_savings"][0]["short_verdict"].split())
    assert printed in words
    verdict = verdict_of(kept)
    assert verdict.startswith("a/x at concurrency 6: the prompt cache saves ")
    assert " per 1,000 requests; " in verdict
    assert words.index("What prompt caching saves") < words.index(printed)
    assert "What prompt caching saves" in (kept / "report.html").read_text()


def test_each_row_states_whether_it_reused_the_cache(kept: Path) -> None:
    rows = found_in(kept)["conditions"]
    assert [(row["condition"], row["cache_reuse"]) for row in rows] == [
        ("a/x@c6", False),
        ("a/x@c6-reuse", True),
    ]
    assert [(row["requests"], row["errors"]) for row in rows] == [(24, 0)] * 2
    assert rows[0]["input_tokens"] == pytest.approx(rows[1]["input_tokens"], rel=0.02)
    assert (rows[0]["cached_tokens"] or 0, rows[1]["cached_tokens"] > 200) == (0, True)


def test_the_same_findings_come_out_of_the_observations(
    kept: Path, split: Split, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(kept, tmp_path / "run"))
    before = found_in(kept)
    (run / "run.json").write_text(
        json.dumps({**before, "conditions": [], "statements": [], "cache_savings": []})
    )
    assert split("report", run, "--no-html", "--json", "-").json == before


def test_comparison_keeps_rows_with_cache_reuse_apart(kept: Path, split: Split) -> None:
    ended = split("compare", kept, kept, "--json", "-", "--fail-if", "ttft_ms.p50 > +1%")
    assert ended.code == 0
    assert [changed["cache_reuse"] for changed in ended.json["conditions"]] == [False, True]
    for changed in ended.json["conditions"]:
        assert {figure["change"] for figure in changed["figures"]} == {0}
    # no busy machine changes this figure
    missed = split("compare", kept, kept, "--fail-if", "cached_tokens < 100")
    assert (missed.code, missed.words.count("FAILED")) == (1, 1)
    assert "a/x at concurrency 6: cached_tokens is" in missed.words


def test_older_run_with_only_cache_reuse_is_read(kept: Path, split: Split, tmp_path: Path) -> None:
    run = Path(shutil.copytree(kept, tmp_path / "run"))
    changed_run = found_in(kept)
    del changed_run["cache_savings"]
    changed_run["asked"]["conditions"] = changed_run["asked"]["conditions"][1:]
    changed_run["conditions"] = [
        {k: v for k, v in row.items() if k != "cache_reuse"}
        for row in changed_run["conditions"][1:]
    ]
    (run / "run.json").write_text(json.dumps(changed_run))
    ended = split("report", run, "--no-html", "--json", "-")
    assert [(row["condition"], row["cache_reuse"]) for row in ended.json["conditions"]] == [
        ("a/x@c6-reuse", True)
    ]
    assert ended.json["cache_savings"] == []


def test_provider_without_a_cache_gets_no_saving(
    providers: list[RunningProvider], tmp_path: Path
) -> None:
    ended = bench(providers[1], "--out", tmp_path / "run", "--no-html", "--json", "-")
    (saving,) = ended.json["cache_savings"]
    assert (saving["hits"], saving["cached_share"], saving["usd_per_request_fresh"]) == (
        0,
        None,
        None,
    )
    assert verdict_of(tmp_path / "run").startswith(
        "a/x at concurrency 6: the provider reports no cached tokens, "
    )
    assert "$" not in verdict_of(tmp_path / "run")
    assert any(
        "although all share a beginning" in note for note in ended.json["conditions"][1]["notes"]
    )


def test_anthropic_prompts_are_marked_for_caching(
    providers: list[RunningProvider], tmp_path: Path
) -> None:
    ended = bench(
        providers[0], "--api-format", "anthropic", "--price", "10,20,1,12.5", "--out",
        tmp_path / "run", "--no-html",
        "--json", "-",
    )  # fmt: skip
    (saving,) = ended.json["cache_savings"]
    assert (saving["hits"], saving["cached_share"] > 0.8) == (24, True)
    assert saving["usd_per_request_reuse"] < saving["usd_per_request_fresh"]


@pytest.mark.system
def test_cache_reuse_changes_only_the_beginning_of_prompts(split: Split) -> None:
    with Peer(lambda asked: stream(asked, cached=48)) as peer:
        ended = split(
            "bench", "--base-url", peer.base_url, "--model", "m", "--cache", "reuse", "-c", 1,
            "-n", 4, "--warmup", 0,
            "--rounds", 1, "--input-tokens", 64, "--output-tokens", 20, "--no-html",
        )  # fmt: skip
    assert ended.code == 0
    sent = [asked.body["messages"] for asked in peer.asked[-10:]]
    beginnings = [system["content"].split(".\n")[0] for system, _ in sent]
    alike = {beginning for beginning in beginnings if beginnings.count(beginning) > 1}
    assert (len(sent), len(alike), len(set(beginnings))) == (10, 1, 6)  # 4 and a warm-up each way
    assert len({system["content"].split(".\n")[1] for system, _ in sent}) == 1
    assert len({user["content"] for _, user in sent}) == 10
    assert "Prompts of 64 tokens may be too short for a prompt cache: many" in ended.words


@pytest.mark.system
def test_default_prompts_with_cache_reuse_are_long_enough(split: Split) -> None:
    with Peer(stream) as peer:
        at = (
            "--base-url",
            peer.base_url,
            "--model",
            "m",
            "-c",
            1,
            "-n",
            1,
            "--output-tokens",
            2,
            "--no-html",
        )
        reuse, fresh = (
            split("bench", *at, *more, "--json", "-") for more in (("--cache", "reuse"), ())
        )
    for ended, tokens in ((reuse, 4608), (fresh, 512)):
        assert ended.json["asked"]["settings"]["input_tokens"] == tokens
        assert ended.json["conditions"][0]["input_tokens"] == pytest.approx(tokens, rel=0.02)
        assert "too short" not in ended.words


@pytest.mark.system
def test_prompts_of_a_file_share_their_beginning_with_reuse(split: Split, tmp_path: Path) -> None:
    lines = [[{"role": "user", "content": text}] for text in ("one", "two")]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))

    with Peer(stream) as peer:
        ended = split(
            "bench", "--base-url", peer.base_url, "--model", "m", "-c", 1, "-n", 4, "--cache",
            "reuse",
            "--prompts", "prompts.jsonl", "--output-tokens", 5, "--rounds", 1, "--no-html",
        )  # fmt: skip
    assert ended.code == 0
    texts = [text_of(asked) for asked in peer.asked[-10:]]
    assert [rest for _, rest in texts] == ["one", "two", "one", "two", "one"] * 2
    assert sorted(len({beginning for beginning, _ in half}) for half in (texts[:5], texts[5:])) == [
        1,
        5,
    ]


def text_of(asked: ReceivedRequest) -> tuple[str, str]:
    beginning, _, rest = asked.body["messages"][0]["content"].partition(".\n")
    return beginning, rest
