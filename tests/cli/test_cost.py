"""`splitsecond cost` over a gateway's log."""

from pathlib import Path

import msgspec
import pytest
from tests.cli.conftest import Split
from tests.store.records import answered

from splitsecond.store.log import Log

CONFIGURATION = """
providers:
  quick:
    base_url: "http://127.0.0.1:9/v1"
    api_key: env:NOT_ON_THIS_MACHINE
    price: {{input: 1, output: 5, cached: 0.5}}
  rented: {{base_url: "http://127.0.0.1:9/v1", price: {{per_hour_usd: 2}}}}
routes: {{r: {{policy: '"quick/m"'}}}}
keys: [{{name: team, key: env:NOT_ON_THIS_MACHINE}}]
log: sqlite:///{folder}/gateway.db
"""
"""Whoever reads a log needs neither the providers' keys nor the clients'."""


@pytest.fixture
def log(split: Split, tmp_path: Path) -> None:
    """Three calls to quick/m: 60 fresh, 40 cached, 20 out each, of which one lost a race 12 hours ago to rented/m."""
    Path("splitsecond.yaml").write_text(CONFIGURATION.format(folder=tmp_path))
    with Log.open(f"sqlite:///{tmp_path}/gateway.db") as opened:
        for number in range(2):
            opened.put(answered(number, target="quick/m"))
        raced = answered(2, target="rented/m", ago_s=12 * 3600)
        lost = msgspec.structs.replace(raced.attempts[0], id="req-2.2", target="quick/m", role="loser")
        opened.put(msgspec.structs.replace(raced, attempts=(*raced.attempts, lost), client="other"))


CALL_USD = (60 * 1 + 40 * 0.5 + 20 * 5) / 1e6


@pytest.mark.usefixtures("log")
def test_by_target(split: Split) -> None:
    ended = split("cost", "--days", "1", "--json", "-")
    assert ended.code == 0
    assert ended.json["schema"] == "splitsecond.cost/1"
    quick, rented = sorted(ended.json["rows"], key=lambda row: row["name"])
    assert (quick["name"], quick["calls"], quick["usd"]) == ("quick/m", 3, pytest.approx(3 * CALL_USD))
    assert quick["lost_usd"] == pytest.approx(CALL_USD)
    assert quick["cache_saved_usd"] == pytest.approx(3 * 40 * 0.5 / 1e6)
    assert (rented["rented_usd"], rented["unpriced"]) == (pytest.approx(24.0, rel=0.01), 0)
    assert ended.json["span_s"] == pytest.approx(12 * 3600, rel=0.01)  # of the day that was asked for
    assert ended.json["usd_per_30_days"] == pytest.approx(60 * (24 + 3 * CALL_USD), rel=0.01)
    shown = split("cost", "--days", "1").out
    assert "By the hour: what those machines cost if they ran all of the time." in shown
    assert "Lost: $0.000180 went to attempts that gave no answer" in shown
    assert "At the pace of 0.5 days, 30 days cost $1,440." in shown


@pytest.mark.usefixtures("log")
def test_a_log_alone_knows_no_prices_of_ones_own(split: Split) -> None:
    alone = split("cost", "--log", "gateway.db")
    assert "name it with --config." in alone.words
    whole = split("cost", "--log", "gateway.db", "--config", "splitsecond.yaml")
    assert "--config" not in whole.words
    assert "$0.0005" in whole.words


@pytest.mark.usefixtures("log")
def test_by_client(split: Split) -> None:
    rows = split("cost", "--by", "client", "--json", "-").json["rows"]
    assert {row["name"]: row["calls"] for row in rows} == {"team": 2, "other": 1}


@pytest.mark.usefixtures("log")
def test_wrong_use(split: Split) -> None:
    ended = split("cost", "--by", "hour")
    assert (ended.code, "--by: got 'hour', expected target or model" in ended.err) == (2, True)
    assert split("cost", "--log", "none.db").code == 2
