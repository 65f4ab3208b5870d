"""`splitsecond cost` over a gateway's log."""

import json
import sqlite3
from pathlib import Path
from statistics import median

import msgspec
import pytest
from msgspec.structs import replace
from tests.cli.conftest import Split
from tests.report.page import Page
from tests.store.records import answered

from splitsecond.log.store import columns
from splitsecond.log.store.log import Log

CONFIGURATION = """
providers:
  quick:
    base_url: "http://127.0.0.1:9/v1"
    api_key: env:NOT_ON_THIS_MACHINE
    price: {{input_usd: 1, output_usd: 5, cached_usd: 0.5}}
  rented: {{base_url: "http://127.0.0.1:9/v1", price: {{per_hour_usd: 2}}}}
routes: {{r: {{policy: '"quick/m"'}}}}
keys: [{{name: team, key: env:NOT_ON_THIS_MACHINE}}]
log: sqlite:///{folder}/gateway.db
"""
"""Reading a log needs neither the keys of providers nor those of clients."""


@pytest.fixture
def log(split: Split, tmp_path: Path) -> None:
    """Three calls to quick/m: 60 fresh, 40 cached, 20 out each, of which one lost a race 12 hours
    ago to rented/m."""
    Path("splitsecond.yaml").write_text(CONFIGURATION.format(folder=tmp_path))
    with Log.open(f"sqlite:///{tmp_path}/gateway.db") as opened:
        for number in range(2):
            opened.put(answered(number, target="quick/m"))
        raced = answered(2, target="rented/m", ago_s=12 * 3600)
        lost = msgspec.structs.replace(
            raced.attempts[0], id="req-2.2", target="quick/m", role="loser"
        )
        opened.put(msgspec.structs.replace(raced, attempts=(*raced.attempts, lost), client="other"))


CALL_USD = (60 * 1 + 40 * 0.5 + 20 * 5) / 1e6


@pytest.mark.usefixtures("log")
def test_cost_by_target(split: Split) -> None:
    ended = split("cost", "--days", "1", "--json", "-")
    assert ended.code == 0
    assert ended.json["schema"] == "splitsecond.cost/1"
    quick, rented = sorted(ended.json["rows"], key=lambda row: row["name"])
    assert (quick["name"], quick["calls"], quick["usd"]) == (
        "quick/m",
        3,
        pytest.approx(3 * CALL_USD),
    )
    assert quick["lost_usd"] == pytest.approx(CALL_USD)
    assert quick["tokens_per_usd"] == pytest.approx(20 / CALL_USD)
    assert quick["tps"] > 0
    assert quick["cost_adjusted_tps"] == pytest.approx(quick["tps"] / quick["usd_per_million"])
    assert rented["cost_adjusted_tps"] is None
    assert ended.json["speed_and_price"] is None  # only one has a price for tokens
    assert quick["cache_saved_usd"] == pytest.approx(3 * 40 * 0.5 / 1e6)
    assert (rented["rented_usd"], rented["unpriced"]) == (pytest.approx(24.0, rel=0.01), 0)
    # of the day that was asked for
    assert ended.json["span_s"] == pytest.approx(12 * 3600, rel=0.01)
    assert ended.json["usd_per_30_days"] == pytest.approx(60 * (24 + 3 * CALL_USD), rel=0.01)
    shown = split("cost", "--days", "1").out
    assert "By the hour: the cost of these machines if they ran all of the time." in shown
    assert "Lost: $0.000180 went to attempts whose response was not used" in shown
    assert "At the rate of these 0.5 days, 30 days cost $1,440." in shown


@pytest.mark.usefixtures("log")
def test_configured_prices_need_the_configuration(split: Split) -> None:
    alone = split("cost", "--log", "gateway.db")
    assert "name it with --config." in alone.words
    whole = split("cost", "--log", "gateway.db", "--config", "splitsecond.yaml")
    assert "--config" not in whole.words
    assert "$0.0005" in whole.words


@pytest.mark.usefixtures("log")
def test_cost_by_client(split: Split) -> None:
    rows = split("cost", "--by", "client", "--json", "-").json["rows"]
    assert {row["name"]: row["calls"] for row in rows} == {"team": 2, "other": 1}


TWO_PRICES = """
providers:
  slow: {{base_url: "http://127.0.0.1:9/v1", price: {{input_usd: 2, output_usd: 2}}}}
  quick: {{base_url: "http://127.0.0.1:9/v1", price: {{input_usd: 1, output_usd: 1}}}}
routes: {{r: {{policy: '"quick/m"'}}}}
log: sqlite:///{folder}/two.db
"""


@pytest.fixture
def two_prices(split: Split, tmp_path: Path) -> None:
    """A log of two targets: quick/m writes ten times as much in the same time, at half of the
    price."""
    Path("splitsecond.yaml").write_text(TWO_PRICES.format(folder=tmp_path))
    with Log.open(f"sqlite:///{tmp_path}/two.db") as opened:
        for number in range(30):
            opened.put(answered(number, target="slow/m", ago_s=number * 600))
            quick_call = answered(100 + number, target="quick/m", ago_s=number * 600)
            (attempt,) = quick_call.attempts
            opened.put(replace(quick_call, attempts=(replace(attempt, output_tokens=200),)))


@pytest.mark.usefixtures("two_prices")
def test_speed_against_price_as_sentences_a_page_and_a_picture(
    split: Split, tmp_path: Path
) -> None:
    html, png = tmp_path / "cost.html", tmp_path / "cost.png"
    ended = split("cost", "--html", html, "--png", png, "--json", tmp_path / "cost.json")
    assert ended.code == 0, ended.err
    first, second, third = json.loads((tmp_path / "cost.json").read_text())["statements"]
    assert first.startswith("No other target is both faster and cheaper than quick/m (")
    assert second.startswith("quick/m has the highest cost-adjusted TPS: ")
    assert third == "2 targets are too few to tell whether speed goes with price: it takes 5."
    assert "Frontier, TPS at $/M tokens: quick/m " in ended.words
    assert third in ended.words
    page = Page(html.read_text())
    assert {first, second, third} <= {*page.text.split("\n")} or all(
        each in page.words for each in (first, second, third)
    )
    assert "cost-adj. TPS" in page.text
    assert (
        "quick/m is the cheapest: $1.00 per million tokens, $2.00 at the next, slow/m."
        in page.words
    )
    assert png.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("log")
def test_the_page_of_other_rows_has_no_plot(split: Split, tmp_path: Path) -> None:
    html = tmp_path / "cost.html"
    assert split("cost", "--by", "client", "--html", html).code == 0
    page = Page(html.read_text())
    assert "Speed and price" not in page.text
    assert "other has 100% of the cost." in page.words, "its machine is paid by the hour"


@pytest.mark.usefixtures("log")
def test_png_that_cannot_be_drawn_is_refused(split: Split) -> None:
    ended = split("cost", "--png", "cost.png")
    assert (ended.code, "fewer than two targets have a speed and a price" in ended.err) == (2, True)
    assert "quick/m" in ended.out  # the table is printed all the same
    assert (
        "--png compares targets, not each client"
        in split("cost", "--by", "client", "--png", "cost.png").err
    )
    assert not Path("cost.png").exists()


@pytest.mark.usefixtures("log")
def test_wrong_use(split: Split) -> None:
    ended = split("cost", "--by", "hour")
    assert (ended.code, "--by: got 'hour', expected target or model" in ended.err) == (2, True)
    assert split("cost", "--log", "none.db").code == 2


BY_HAND = """
SELECT target, count(DISTINCT call), count(*), sum(input_tokens), sum(output_tokens),
  sum(60e-6 + 40 * 0.5e-6 + output_tokens * 5e-6),
    sum(CASE WHEN role = 'loser' THEN 120e-6 + output_tokens * 5e-6
  - 40e-6 END) FROM attempts WHERE target LIKE 'quick/%' GROUP BY target"""
"""Each attempt has 60 fresh and 40 cached input tokens."""


def test_figures_equal_those_of_handwritten_sql(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is read in blocks of seven rows. Some rows have no packed numbers."""
    monkeypatch.setattr(columns, "ROWS", 7)
    Path("splitsecond.yaml").write_text(CONFIGURATION.format(folder=tmp_path))
    with Log.open(f"sqlite:///{tmp_path}/gateway.db") as opened:
        for number in range(60):
            call = answered(number, target=f"quick/{number % 4}", ago_s=number * 900)
            (won,) = call.attempts
            lost = [
                replace(
                    won,
                    id=f"lost.{place}",
                    target=f"quick/{place}",
                    role="loser",
                    output_tokens=number,
                )
                for place in range(number % 3)
            ]
            opened.put(replace(call, attempts=(*lost, won)))
    with sqlite3.connect(tmp_path / "gateway.db") as connection:
        connection.execute("UPDATE attempts SET packed = NULL WHERE n % 5 = 0")
        by_hand = connection.execute(BY_HAND).fetchall()
        speeds = connection.execute(
            "SELECT target, output_tokens * 1e9 / end_ns FROM attempts"
        ).fetchall()
    connection.close()
    found = split("cost", "--json", "-").json
    names = ("name", "calls", "attempts", "input_tokens", "output_tokens", "usd", "lost_usd")
    rows = sorted(tuple(row[name] for name in names) for row in found["rows"])
    assert len(rows) == len(by_hand) == 4
    for row, expected in zip(rows, sorted(by_hand), strict=True):
        assert row[0] == expected[0]
        assert row[1:] == pytest.approx(tuple(value or 0 for value in expected[1:]))
    assert found["total"]["calls"] == 60
    for row in split("speed", "--json", "-").json["speeds"]:
        own = [tps for target, tps in speeds if target == row["name"] and tps]
        assert row["total_tps"]["n"] == len(own)
        assert row["total_tps"]["p50"] == pytest.approx(median(own), rel=1e-6)
