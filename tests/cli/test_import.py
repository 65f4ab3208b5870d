"""`splitsecond import`, and what `speed` makes of it."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Split
from tests.store.test_import import OPENROUTER, as_csv

from splitsecond.core import clock


@pytest.fixture
def activity(tmp_path: Path) -> str:
    now = clock.wall_time()
    rows = [
        {**OPENROUTER, "generation_id": f"gen-{n}", "created_at": f"{now:%Y-%m-%d %H:%M:%S}.{n:03}"}
        for n in range(30)
    ]
    return str(as_csv(tmp_path / "activity.csv", [*rows, {**OPENROUTER, "created_at": "x"}]))


def test_speed_of_an_imported_log(split: Split, activity: str) -> None:
    ended = split("import", activity, "--log", "calls.db", "--json", "-")
    assert ended.code == 0
    assert "refused line 32: its time is 'x'" in ended.err
    result = ended.json["result"]
    assert (result["written"], result["present"], result["refused"]) == (30, 0, 1)
    assert result["title"] == "OpenRouter's activity"
    assert (result["days"], result["stated_usd"]) == (1, pytest.approx(0.03))
    assert "0 calls imported, 30 already in the log, 1 refused" in " ".join(
        split("import", activity, "--log", "calls.db").out.split()
    )
    (found,) = split("speed", "--log", "calls.db", "--least", "10", "--json", "-").json["speeds"]
    assert (found["name"], found["grade"]) == ("bedrock/meta-llama/llama-3.3-70b-instruct", 3)
    assert found["total_tps"]["p50"] == pytest.approx(50)
    assert found["ttft_ms"]["p50"] == pytest.approx(500)


def test_many_refused_lines_are_counted(split: Split) -> None:
    good = {"time": 1_790_000_000, "model": "a/x", "duration_s": 1}
    lines = [json.dumps(each) for each in (good, *[{**good, "time": "x"}] * 9)]
    Path("calls.jsonl").write_text("\n".join(lines))
    ended = split("import", "calls.jsonl")
    assert ended.code == 0
    assert "4 more lines were refused" in ended.err


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ("a,b\n1,2\n", [], "no column is known to be model; the file's columns are a, b."),
        ("a,b\n1,2\n", ["--map", "modell=a"], "--map: unknown field 'modell'. Did you mean model?"),
        ("model,time,duration_s\nm,x,1\n", [], "has no call that can be imported"),
        (
            "model,time,duration_s\nm,1790000000,1\n",
            ["--log", "mysql://x/y"],
            "sqlite and postgresql are known",
        ),
        (
            "model,time,duration_s\nm,1790000000,1\n",
            ["--json", "no/such/file"],
            "there is no folder no/such",
        ),
    ],
)
def test_wrong_use(split: Split, text: str, arguments: list[str], words: str) -> None:
    Path("calls.csv").write_text(text)
    ended = split("import", "calls.csv", *arguments)
    assert ended.code == 2
    assert words in ended.err
    assert "Traceback" not in ended.err


PRICED = """
providers: {bedrock: {base_url: "http://127.0.0.1:9/v1", price: {input_usd: 1, output_usd: 4}}}
routes: {r: {policy: '"bedrock/m"'}}
log: sqlite:///calls.db
"""


def test_stated_cost_is_compared_by_team_and_tag(split: Split, tmp_path: Path) -> None:
    """Each call has 100 and 200 tokens, so it costs 0.0009 by our prices."""
    now = clock.wall_time()
    rows = [
        {
            "time": now.timestamp() - n / 1000,
            "duration_s": 1,
            "model": "m",
            "provider": "bedrock",
            "input_tokens": 100,
            "output_tokens": 200,
            "cost_usd": 0.001,
            "team": ("search", "chat")[n % 2],
            "tags": "prod,eu",
        }
        for n in range(30)
    ]
    Path("splitsecond.yaml").write_text(PRICED)
    imported = split("import", str(as_csv(tmp_path / "calls.csv", rows)), "--log", "calls.db")
    assert f"Its calls are of 1 day, {now:%Y-%m-%d} (UTC)" in imported.words
    assert "the file states a cost of $0.0300." in imported.words
    said = "The imported log states $0.0300 for 30 calls; our prices give $0.0270, −10.0%."
    for command in ("cost", "speed"):
        ended = split(command, "--config", "splitsecond.yaml", "--by", "team", "--json", "-")
        assert ended.json["stated"] == [said]
    ended = split("cost", "--config", "splitsecond.yaml", "--by", "team", "--json", "-")
    found = {each["name"]: (each["calls"], each["stated_usd"]) for each in ended.json["rows"]}
    assert found == {"search": (15, pytest.approx(0.015)), "chat": (15, pytest.approx(0.015))}
    shown = split("cost", "--config", "splitsecond.yaml", "--by", "tag")
    assert "eu, prod" in shown.words
    assert said in shown.words
