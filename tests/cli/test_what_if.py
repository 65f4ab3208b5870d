"""`splitsecond what-if` over a log of two targets, and the same in Python."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Ended, Split, run_splitsecond
from tests.replay.logs import alternating, write

import splitsecond
import splitsecond.sync as ss
from splitsecond.log.store.kept_answer import kept_answer

TODAY = 'weighted("a/m", "b/m")'
ONLY_A = 'fallback("a/m", "b/m")'
AS_TODAY = ("--today", TODAY, "--any-load")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("what-if") / "log.db"
    write(f"sqlite:///{file}", alternating(600))
    return file


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture(scope="module")
def answered(log: Path) -> Ended:
    """The command, which writes its answer as text, JSON and CSV."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        patch.chdir(log.parent)
        files = ("--json", "found.json", "--csv", "found.csv")
        return run_splitsecond("what-if", ONLY_A, "--log", log, *AS_TODAY, *files)


def test_the_answer_begins_with_todays_policy(answered: Ended) -> None:
    ended = answered
    assert ended.code == 0
    assert ended.out.startswith(
        "✓ Today's policy, replayed over its own log, gives the log's figures: TTFT p50"
    )
    assert "Route chat," in ended.words
    assert "100% of 600 calls rest on at least 20 similar attempts." in ended.words
    assert "answered by a/m" in ended.words
    assert "+50 points (+49 to +51)" in ended.words
    assert max(map(len, ended.out.splitlines())) <= 80


def test_another_policy_in_the_log_ends_with_1(split: Split, tmp_path: Path) -> None:
    file = tmp_path / "log.db"
    write(f"sqlite:///{file}", alternating(200))
    ended = split("what-if", TODAY, "--log", file, "--today", ONLY_A)
    assert ended.code == 1
    assert ended.out.startswith(
        "✗ Today's policy, replayed over its own log, does not give the log's figures:"
    )
    assert "share of b/m 0% for 50%" in ended.words
    assert "Name it with --today" in ended.words


def test_too_few_similar_attempts_end_with_1(split: Split, log: Path) -> None:
    ended = split("what-if", ONLY_A, "--log", log, "--today", TODAY)
    assert ended.code == 1
    assert "more calls at a target than it ever had in the log" in ended.words
    assert "No answer" in ended.words
    assert "--any-load" in ended.words


@pytest.mark.usefixtures("answered")
def test_json_has_the_figures(log: Path) -> None:
    found = json.loads(log.with_name("found.json").read_text())
    assert (found["schema"], found["route"], found["calls"]) == (
        "splitsecond.what-if/1",
        "chat",
        600,
    )
    (answer,) = found["answers"]
    assert answer["figures"][0]["name"] == "ttft_p50_ms"
    assert answer["coverage"]["covered"] == 600


@pytest.mark.usefixtures("answered")
def test_the_answer_is_kept_for_the_dashboard(log: Path) -> None:
    kept = json.loads(kept_answer(f"sqlite:///{log}") or b"")
    assert (kept["answer"]["today"], kept["answer"]["calls"]) == (TODAY, 600)
    assert kept["at"].endswith("Z")
    assert kept_answer(f"sqlite:///{log}.other") is None


@pytest.mark.usefixtures("answered")
def test_csv_has_a_row_for_each_figure(log: Path) -> None:
    rows = log.with_name("found.csv").read_text().splitlines()
    assert rows[0].startswith("policy,name,today,what_if,difference")
    assert len(rows) == 9


@pytest.mark.system
def test_most_calls_are_whole_hours(split: Split, tmp_path: Path) -> None:
    file = tmp_path / "log.db"
    write(f"sqlite:///{file}", alternating(3000, hours=9.0))
    found = split(
        "what-if", ONLY_A, "--log", file, *AS_TODAY, "--calls", "1000", "--json", "-"
    ).json
    assert found["logged_calls"] == 3000
    assert 600 < found["replayed_calls"] < 1100


def test_a_small_log_says_how_far_off_figures_may_be(split: Split, tmp_path: Path) -> None:
    file = tmp_path / "log.db"
    records = alternating(300)
    failing = alternating(300, fails_at="b/m")
    write(f"sqlite:///{file}", [failing[n] if n % 6 == 1 else records[n] for n in range(300)])
    ended = split("what-if", ONLY_A, "--log", file, *AS_TODAY)
    assert ended.code == 0
    assert ended.out.startswith("✓ Today's policy")
    assert "But 300 calls prove little. These may be off: " in ended.words
    assert "failed by up to " in ended.words


def test_fewer_than_200_calls_are_refused(split: Split, tmp_path: Path) -> None:
    file = tmp_path / "log.db"
    write(f"sqlite:///{file}", alternating(150))
    ended = split("what-if", ONLY_A, "--log", file, *AS_TODAY)
    assert ended.code == 2
    assert "150 calls to the route 'chat'; 200 are needed. Look further back" in ended.complaint


def test_exploration_is_a_route(split: Split, log: Path) -> None:
    ended = split("what-if", ONLY_A, "--log", log, "--today", TODAY, "--explore", "1%")
    assert ended.code == 0
    assert f'chat: weighted({TODAY}, weighted("a/m", "b/m"), weights="99,1")' in ended.words
    assert "would be enough for 80% of the calls" in ended.words


def test_wrong_use_says_what_is_expected(split: Split, log: Path) -> None:
    share = split("what-if", ONLY_A, "--log", log, "--explore", "200%")
    route = split("what-if", ONLY_A, "--log", log, "--route", "chta")
    unknown = split("what-if", ONLY_A, "--log", log)
    assert [each.code for each in (share, route, unknown)] == [2, 2, 2]
    assert "expected a share such as 1%" in share.complaint
    assert "chat" in route.complaint
    assert "Name it with --today" in unknown.complaint


@pytest.mark.system
def test_python_returns_the_same_answer(log: Path) -> None:
    found = ss.what_if(log, ONLY_A, today=TODAY, any_load=True)
    assert found.identity.agrees
    assert found.answers[0].figures[0].name == "ttft_p50_ms"
    with pytest.raises(splitsecond.CallerFault, match="no attempt at c/m"):
        ss.what_if(log, 'race("a/m", "c/m")', today=TODAY)
