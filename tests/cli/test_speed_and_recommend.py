"""`splitsecond speed` and `recommend` over a gateway's log, written by the log's own writer."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.cli.conftest import Split
from tests.store.records import answered

from splitsecond.store.log import Log
from splitsecond.store.served import Served

HOUR_S = 3600.0


def calls() -> Iterator[Served]:
    """Two targets: 20 tokens in 0.5 s is 40 total tokens/s, and 200 in as long are 400. TTFT is 0.199 s."""
    for number in range(40):
        slow = answered(number, target="slow/m", ago_s=number * HOUR_S)
        yield slow
        quick = answered(100 + number, target="quick/m", ago_s=number * HOUR_S)
        (attempt,) = quick.attempts
        yield msgspec.structs.replace(quick, attempts=(msgspec.structs.replace(attempt, output_tokens=200),))
    yield answered(999, target="old/m", ago_s=20 * 24 * HOUR_S)


@pytest.fixture
def log(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/gateway.db"
    with Log.open(url) as opened:
        for call in sorted(calls(), key=lambda call: call.start_ns):
            opened.put(call)
    return url


def test_targets_are_graded(split: Split, log: str) -> None:
    ended = split("speed", "--log", log, "--least", "40", "--json", "-")
    assert ended.code == 0
    found = ended.json
    assert (found["schema"], found["by"]) == ("splitsecond.speed/1", "target")
    assert [(each["name"], each["grade"], each["answered"]) for each in found["speeds"]] == [
        ("quick/m", 1, 40),
        ("slow/m", 4, 40),
    ]
    assert found["speeds"][0]["total_tps"]["p50"] == pytest.approx(400)
    assert "quick/m is the fastest: 400 total tokens/s, grade 1." in found["statements"]
    shown = split("speed", "--log", log, "--least", "40").out
    assert [line.split()[:2] for line in shown.splitlines() if "/m" in line and "•" not in line] == [
        ["quick/m", "1"],
        ["slow/m", "4"],
    ]


def test_too_few_answers_have_no_grade(split: Split, log: str) -> None:
    shown = split("speed", "--log", log).out
    assert "No grade below 500 answers: 2 of 2." in shown
    assert "fastest" not in shown


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["quick"], ["quick/m"]),
        (["--days", "30"], ["quick/m", "slow/m", "old/m"]),
        (["--by", "model"], ["m"]),
        (["--by", "provider"], ["quick", "slow"]),
    ],
)
def test_which_rows(split: Split, log: str, options: list[str], names: list[str]) -> None:
    found = split("speed", "--log", log, "--json", "-", *options).json
    assert sorted(each["name"] for each in found["speeds"]) == sorted(names)


def test_a_file_and_a_configuration_name_the_log_too(split: Split, log: str, tmp_path: Path) -> None:
    file = str(tmp_path / "gateway.db")
    Path("splitsecond.yaml").write_text(f"""
providers:
  quick: {{base_url: "http://127.0.0.1:9/v1", price: {{input: 1, output: 2}}}}
  slow: {{base_url: "http://127.0.0.1:9/v1"}}
routes: {{r: {{policy: '"quick/m"'}}}}
log: sqlite:///{file}
""")
    by_configuration = split("speed", "--json", "-").json["speeds"]
    by_file = split("speed", "--log", file, "--json", "-").json["speeds"]
    assert [each["name"] for each in by_configuration] == [each["name"] for each in by_file] == ["quick/m", "slow/m"]
    priced, unpriced = by_configuration
    assert priced["cost_usd"] == pytest.approx(40 * (100 * 1 + 200 * 2) / 1e6)
    assert unpriced["cost_usd"] is None


def test_recommendations(split: Split, log: str) -> None:
    ended = split("recommend", "--log", log, "--json", "-")
    assert ended.code == 0
    uses = {each["use"]: each for each in ended.json["uses"]}
    assert list(uses) == ["edge", "translation", "voice", "completion", "chat", "batch"]
    assert uses["edge"]["fastest"] == ""
    assert {c["target"]: c["keeps"] for c in uses["voice"]["candidates"]} == {"slow/m": "unsure", "quick/m": "unsure"}
    assert json.dumps(uses["voice"]["policy"]).count("/m") == 2
    shown = split("recommend", "voice", "edge", "--log", log).out
    assert "Nothing that was measured can be recommended for it." in shown
    assert "Take quick/m." in shown
    assert shown.count("perhaps") == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["speed"], "which log? There is no splitsecond.yaml here. Name it with --log"),
        (["speed", "--log", "missing.db"], "there is no log"),
        (["speed", "--log", "mysql://host/db"], "sqlite and postgresql are known"),
        (["speed", "--log", "LOG", "--by", "client"], "--by: got 'client', expected target or model or provider"),
        (["speed", "--log", "LOG", "--days", "0"], "--days: got 0, expected more than 0"),
        (["speed", "--log", "LOG", "--days", "nan"], "--days: got nan"),
        (["speed", "--log", "LOG", "--days", "0.0001", "old"], "nothing was asked from"),
        (["speed", "--log", "LOG", "nobody"], "there is no target like 'nobody' in the log"),
        (["recommend", "lunch", "--log", "LOG"], "USE: got 'lunch', expected edge or translation"),
        (["recommend", "--log", "LOG", "--json", "no/such/folder.json"], "there is no folder no/such"),
    ],
)
def test_wrong_use_is_said(split: Split, log: str, arguments: list[str], words: str) -> None:
    ended = split(*[log if argument == "LOG" else argument for argument in arguments])
    assert ended.code == 2
    assert words in ended.err
    assert "Traceback" not in ended.err
    assert not Path("missing.db").exists()


def test_a_configuration_without_a_log(split: Split) -> None:
    Path("splitsecond.yaml").write_text("""
providers: {quick: {base_url: "http://127.0.0.1:9/v1"}}
routes: {r: {policy: '"quick/m"'}}
""")
    ended = split("recommend")
    assert (ended.code, "keeps no log. Add log: sqlite:///splitsecond.db to it." in ended.err) == (2, True)
