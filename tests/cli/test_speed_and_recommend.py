"""`splitsecond speed` and `recommend` over a gateway's log, written by the log's own writer."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from tests.analysis.made import closed_loop, renamed
from tests.cli.conftest import Split
from tests.noon import noon as noon  # a fixture
from tests.store.records import answered
from tests.waiting import until

from splitsecond.benchmark.rows.records import AskedCondition, Run
from splitsecond.benchmark.runs.concluding import RunRequest
from splitsecond.core import clock
from splitsecond.core.observation import FaultRecord
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.folder import RunFolder
from splitsecond.log.store.log import Log

HOUR_S = 3600.0


def calls() -> Iterator[CallRecord]:
    """Two targets: 20 tokens in 0.5 s is 40 total tokens/s, and 200 in as long are 400. TTFT is
    0.199 s."""
    for number in range(40):
        slow = answered(number, target="slow/m", ago_s=number * HOUR_S)
        yield slow
        quick = answered(100 + number, target="quick/m", ago_s=number * HOUR_S)
        (attempt,) = quick.attempts
        yield msgspec.structs.replace(
            quick, attempts=(msgspec.structs.replace(attempt, output_tokens=200),)
        )
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
    assert (found["schema"], found["by"]) == ("splitsecond.speed/2", "target")
    assert [(each["name"], each["grade"], each["answered"]) for each in found["speeds"]] == [
        ("quick/m", 1, 40),
        ("slow/m", 4, 40),
    ]
    # 1 ms before it was sent
    assert found["speeds"][0]["total_tps"]["p50"] == pytest.approx(200 / 0.501)
    assert "quick/m is the fastest: 399 total tokens/s, grade 1." in found["statements"]
    shown = split("speed", "--log", log, "--least", "40").out
    assert [
        line.split()[:2] for line in shown.splitlines() if "/m" in line and "•" not in line
    ] == [
        ["quick/m", "1"],
        ["slow/m", "4"],
    ]


BY_HAND = """
WITH speeds AS (
  SELECT target, output_tokens * 1e9 / end_ns AS total FROM attempts
  WHERE outcome = 'ok' AND output_tokens > 0 AND came_us >= :since_us
), ranked AS (
  SELECT target, total, row_number() OVER (PARTITION BY target ORDER BY total) AS place,
         count(*) OVER (PARTITION BY target) AS n
  FROM speeds
)
SELECT target, n, avg(total) FROM ranked WHERE place IN ((n + 1) / 2, (n + 2) / 2) GROUP BY target
"""
COUNTS = """
SELECT target, count(*), sum(outcome = 'ok'), sum(outcome = 'failed'), sum(outcome = 'cancelled'),
       avg(CASE WHEN outcome = 'ok' THEN output_tokens END),
       sum(CASE WHEN outcome = 'ok' THEN input_tokens * 1.0 + output_tokens * 2.0 END) / 1e6
FROM attempts WHERE came_us >= :since_us GROUP BY target
"""


def served(number: int, random: Random) -> CallRecord:
    """A call of the last 18 days to one of three targets, of which some fail and some are
    closed."""
    call = answered(number, target=f"p{number % 3}/m", ago_s=random.uniform(0, 18) * 24 * HOUR_S)
    (attempt,) = call.attempts
    ended = attempt.start_ns + 1_000_000 + round(random.lognormvariate(0, 0.5) * 1e9)
    change: dict[str, Any] = {
        "output_tokens": random.randint(2, 400),
        "last_token_ns": ended,
        "end_ns": ended,
    }
    if number % 17 == 0:
        fault = FaultRecord(
            type="ProviderFault", kind="http_429", phase="head", message="", status=429
        )
        change = {
            "outcome": "failed",
            "fault": fault,
            "status": 429,
            "first_token_ns": None,
            "output_tokens": None,
        }
    elif number % 13 == 0:
        change = {
            "outcome": "cancelled",
            "first_token_ns": None,
            "last_token_ns": None,
            "output_tokens": None,
        }
    return msgspec.structs.replace(
        call, attempts=(msgspec.structs.replace(attempt, cached_tokens=None, **change),)
    )


@pytest.mark.usefixtures("noon")
def test_figures_equal_those_of_handwritten_sql(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(7)
    with Log.open(f"sqlite:///{tmp_path}/log.db") as opened:
        for number in range(3000):
            opened.put(served(number, random))
        until(lambda: opened.written == 3000, "the calls are not in the log")
    Path("splitsecond.yaml").write_text(f"""
providers:
  p0: {{base_url: "http://127.0.0.1:9/v1", price: {{input_usd: 1, output_usd: 2}}}}
  p1: {{base_url: "http://127.0.0.1:9/v1", price: {{input_usd: 1, output_usd: 2}}}}
  p2: {{base_url: "http://127.0.0.1:9/v1", price: {{input_usd: 1, output_usd: 2}}}}
routes: {{r: {{policy: '"p0/m"'}}}}
log: sqlite:///{tmp_path}/log.db
""")
    now = clock.wall_time()
    monkeypatch.setattr(clock, "wall_time", lambda: now)
    found = {each["name"]: each for each in split("speed", "--json", "-").json["speeds"]}
    since = {"since_us": round((now - timedelta(days=14)).timestamp() * 1e6)}
    with closing(sqlite3.connect(tmp_path / "log.db")) as database:
        by_hand = list(database.execute(BY_HAND, since))
        counted = list(database.execute(COUNTS, since))
    assert len(by_hand) == 3
    for target, n, median in by_hand:
        assert found[target]["total_tps"]["n"] == n
        assert found[target]["total_tps"]["p50"] == pytest.approx(median, rel=1e-6)
    for target, requests, ok, failed, closed, tokens, cost in counted:
        row = found[target]
        assert (row["requests"], row["answered"], row["failed"], row["closed"]) == (
            requests,
            ok,
            failed,
            closed,
        )
        assert row["output_tokens"] == pytest.approx(tokens)
        assert row["cost_usd"] == pytest.approx(cost)
        assert row["faults"] == {"http_429": failed}
        assert row["period"] == "2 days"  # so that 14 days have seven periods
        assert row["periods"] == 8


def test_too_few_answers_have_no_grade(split: Split, log: str) -> None:
    shown = split("speed", "--log", log).out
    assert "Without a grade: 2 of 2. A grade needs 500 successful requests." in shown
    assert "fastest" not in shown


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["quick"], ["quick/m"]),
        (["--days", "30"], ["quick/m", "slow/m", "old/m"]),
        (["--by", "model"], ["m"]),
        (["--by", "provider"], ["quick", "slow"]),
        (["--by", "maker"], ["unknown maker"]),
        (["--by", "host"], ["quick", "slow"]),
        (["--by", "hosting"], ["unknown maker"]),
        (["--by", "hardware"], ["unknown hardware"]),
        (["--by", "region"], ["no region in the name"]),
        (["--by", "size"], ["under 128 input tokens"]),
        (["--by", "key"], ["team"]),
    ],
)
def test_options_select_the_rows(
    split: Split, log: str, options: list[str], names: list[str]
) -> None:
    found = split("speed", "--log", log, "--json", "-", *options).json
    assert sorted(each["name"] for each in found["speeds"]) == sorted(names)


def test_a_row_for_each_hour_of_the_day(split: Split, log: str) -> None:
    found = split("speed", "--log", log, "--by", "hour", "--json", "-").json["speeds"]
    assert len(found) == 24
    assert sum(each["requests"] for each in found) == 80
    assert all(each["name"].endswith(":00 UTC") for each in found)


def test_a_file_and_a_configuration_name_the_log_too(
    split: Split, log: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "gateway.db")
    Path("splitsecond.yaml").write_text(f"""
providers:
  quick: {{base_url: "http://127.0.0.1:9/v1", price: {{input_usd: 1, output_usd: 2}}}}
  slow: {{base_url: "http://127.0.0.1:9/v1"}}
routes: {{r: {{policy: '"quick/m"'}}}}
log: sqlite:///{file}
""")
    by_configuration = split("speed", "--json", "-").json["speeds"]
    by_file = split("speed", "--log", file, "--json", "-").json["speeds"]
    assert (
        [each["name"] for each in by_configuration]
        == [each["name"] for each in by_file]
        == ["quick/m", "slow/m"]
    )
    priced, unpriced = by_configuration
    assert priced["cost_usd"] == pytest.approx(40 * (100 * 1 + 200 * 2) / 1e6)
    assert unpriced["cost_usd"] is None


def test_recommendations(split: Split, log: str) -> None:
    ended = split("recommend", "--log", log, "--json", "-")
    assert ended.code == 0
    uses = {each["use"]: each for each in ended.json["uses"]}
    assert list(uses) == [
        "edge",
        "translation",
        "voice",
        "completion",
        "chat",
        "agent",
        "long-form",
        "batch",
    ]
    assert uses["edge"]["fastest"] == ""
    assert {c["target"]: c["keeps"] for c in uses["voice"]["candidates"]} == {
        "slow/m": "unsure",
        "quick/m": "unsure",
    }
    assert json.dumps(uses["voice"]["policy"]).count("/m") == 2
    shown = split("recommend", "voice", "edge", "--log", log).out
    assert "No measured target can be recommended." in shown
    assert "Recommended: quick/m." in shown
    assert shown.count("cannot tell") == 2


def test_smallest_target_of_sufficient_quality_is_named(
    split: Split, log: str, tmp_path: Path
) -> None:
    (tmp_path / "quality.toml").write_text("""
[scores]
"quick/m" = 80
"slow/m" = 70
[billions]
"quick/m" = 70
"slow/m" = 8
""")
    asked = ("recommend", "chat", "--log", log, "--quality", "quality.toml")
    (found,) = split(*asked, "--least-quality", 65, "--json", "-").json["uses"]
    assert (found["fastest"], found["smallest"]) == ("quick/m", "slow/m")
    assert "Smallest that is good enough: slow/m." in split(*asked).out
    (found,) = split(*asked, "--least-quality", 75, "--json", "-").json["uses"]
    assert (found["fastest"], found["smallest"]) == ("quick/m", "quick/m")
    assert {c["target"]: c["why"] for c in found["candidates"]}[
        "slow/m"
    ] == "its quality is 70, at least 75 is required"


def test_drivers_of_speed(split: Split, log: str) -> None:
    ended = split("speed", "--log", log, "--drivers", "--html", "speed.html")
    assert "TTFT goes with none of" in ended.words  # both targets are alike
    assert "What speed goes with" in Path("speed.html").read_text()
    found = split("speed", "--log", log, "--drivers", "--json", "-").json["drivers"]
    assert [each["figure"] for each in found] == ["ttft_ms", "tps"]


def made_run(folder: Path, target: str = "quick") -> Path:
    """The folder of a run of one target at concurrency 1 and 4, 24 requests each, without any
    noise."""
    conditions, observations = [], []
    for concurrency in (1, 4):
        name = f"quick@c{concurrency}"
        conditions.append(AskedCondition(condition=name, target=target, concurrency=concurrency))
        observations += renamed(
            closed_loop(concurrency, 24 // concurrency, ttft_ms=20, tokens=50), name, target
        )
    asked = RunRequest(command=[], settings={}, targets=[], conditions=conditions)
    with RunFolder.create(folder) as kept:
        for o in observations:
            kept.add(o)
        kept.write_run(
            Run(id="r", began="2026-01-01T00:00:00Z", began_ns=0, asked=msgspec.to_builtins(asked))
        )
    return folder


def test_production_is_held_against_a_run(split: Split, log: str, tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", "slow/m")
    (found,) = split("speed", "--log", log, "--against", run, "--json", "-").json["against"]
    assert (found["target"], found["load"]) == ("slow/m", "at concurrency 1")
    ttft = found["figures"][0]
    assert (ttft["figure"], ttft["verdict"]) == ("ttft_ms", "slower")
    assert ttft["ratio"] == pytest.approx(199 / 20)  # 199 ms in production, 20 ms in the run
    ended = split("speed", "--log", log, "--against", run, "--html", "speed.html")
    assert "TTFT slower, 199 against 20 ms" in ended.words
    assert "9.95×" in Path("speed.html").read_text()


def test_recommendations_from_a_run(split: Split, tmp_path: Path) -> None:
    run = made_run(tmp_path / "run")
    ended = split("recommend", run, "completion", "batch", "--json", "-")
    assert (ended.code, ended.json["runs"]) == (0, [str(run)])
    completion, batch = ended.json["uses"]
    (rating,) = completion["candidates"]
    assert (rating["target"], rating["load"], len(rating["rows"])) == ("quick", "concurrency 1", 2)
    assert batch["candidates"][0]["load"] == "concurrency 4"
    shown = split("recommend", run, "completion").out
    assert "Recommended: quick." in shown
    assert "More requests would decide on quick." in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["speed"], "no log is given, and there is no splitsecond.yaml here. Name it with --log"),
        (["speed", "--log", "missing.db"], "there is no log"),
        (["speed", "--log", "mysql://host/db"], "sqlite and postgresql are known"),
        (
            ["speed", "--log", "LOG", "--by", "client"],
            "--by: got 'client', expected target or model or provider or maker",
        ),
        (["speed", "--log", "LOG", "--days", "0"], "--days: got 0, expected more than 0"),
        (["speed", "--log", "LOG", "--days", "nan"], "--days: got nan"),
        (["speed", "--log", "LOG", "--days", "0.0001", "old"], "the log has no calls from"),
        (["speed", "--log", "LOG", "--against", "runs/none"], "runs/none"),
        (
            ["speed", "--log", "LOG", "--against", "published"],
            "--against published: it has no speed of a target of the log. The log has quick/m",
        ),
        (
            ["speed", "--log", "LOG", "--against", "published", "--by", "host"],
            "--by: got 'host', expected target, which is what --against compares",
        ),
        (["speed", "--log", "LOG", "nobody"], "the log has no target like 'nobody'"),
        (
            ["recommend", "lunch", "--log", "LOG"],
            "'lunch' is neither a use nor the folder of a run. Uses: edge, ",
        ),
        (["recommend", "voise", "--log", "LOG"], "Did you mean voice?"),
        (
            ["recommend", "runs/nothing", "voice", "--log", "LOG"],
            "there is no folder runs/nothing.\n",
        ),
        (
            ["recommend", "--log", "LOG", "--least-quality", "3"],
            "--least-quality: got 3.0, expected --quality FILE",
        ),
        (["recommend", "--log", "LOG", "--quality", "none.toml"], "cannot read none.toml"),
        (
            ["recommend", "--log", "LOG", "--needs", "wings"],
            "--needs: got 'wings', expected tools or images",
        ),
        (
            ["recommend", "--log", "LOG", "--context", "big"],
            "--context: got 'big', expected a number of tokens",
        ),
        (
            ["recommend", "--log", "LOG", "--json", "no/such/folder.json"],
            "there is no folder no/such",
        ),
    ],
)
def test_wrong_use_is_reported(
    split: Split,
    log: str,
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))  # without a log of `splitsecond run`
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
    assert (ended.code, "has no log. Add log: sqlite:///splitsecond.db to it." in ended.err) == (
        2,
        True,
    )


def test_a_page_and_a_picture(split: Split, log: str, tmp_path: Path) -> None:
    page, picture = tmp_path / "speed.html", tmp_path / "speed.png"
    ended = split(
        "speed", "--log", log, "--least", "40", "--html", str(page), "--png", str(picture)
    )
    assert ended.code == 0
    assert "quick/m is the fastest" in page.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("option", ["--html", "--png"])
def test_unwritable_page_is_refused_before_reading_the_log(split: Split, option: str) -> None:
    ended = split("speed", "--log", "missing.db", option, "no/such/file")
    assert (
        ended.code,
        f"there is no folder no/such. Name another file with {option}" in ended.err,
    ) == (2, True)
