"""`splitsecond split` over a log of sessions at two targets."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Split
from tests.replay.logs import write
from tests.replay.test_arms import SPLIT, sessions


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("split") / "log.db"
    write(f"sqlite:///{file}", sessions(200, turns=3))
    return file


def test_the_arms_have_verdicts(
    split: Split, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    file = tmp_path / "found.json"
    ended = split("split", "--log", log, "--today", SPLIT, "--json", file)
    assert ended.code == 0
    assert ended.out.startswith("Route chat, ")
    assert 'first: "a/m", ' in ended.words
    assert "worse" in ended.words
    assert "cannot tell" not in ended.words
    assert max(map(len, ended.out.splitlines())) <= 100
    found = json.loads(file.read_text())
    assert (found["schema"], found["by"]) == ("splitsecond.split/1", "session")


def test_the_route_of_a_split_is_that_of_the_configuration(
    split: Split, log: Path, tmp_path: Path
) -> None:
    config = tmp_path / "splitsecond.yaml"
    config.write_text(f"log: sqlite:///{log}\nroutes:\n  chat: {{policy: '{SPLIT}'}}\n")
    ended = split("split", "--config", config, "--csv", "-")
    assert ended.code == 0
    assert ended.out.startswith("name,first,second,change")


def test_wrong_use_says_what_is_expected(split: Split, log: Path) -> None:
    unsplit = split("split", "--log", log, "--today", 'weighted("a/m", "b/m")')
    share = split("split", "--log", log, "--today", SPLIT, "--within", "much")
    unnamed = split("split", "--log", log)
    assert [unsplit.code, share.code, unnamed.code] == [2, 2, 2]
    assert "Name it with --today" in unnamed.complaint
    assert "is no split" in unsplit.complaint
    assert "--within" in share.complaint
