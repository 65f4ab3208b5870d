"""`splitsecond key`: what it writes, prints and refuses."""

import re
import stat
from pathlib import Path

import pytest
from tests.cli.conftest import Split
from tests.noon import noon as noon  # a fixture

from splitsecond.routing.configuration.reading import load
from splitsecond.routing.router.settings import SessionBudget

CONFIGURATION = """# our gateway
keys:
  - {name: me, key: file:me.key}   # mine
teams: {research: {usd_per_month: 400}}
routes: {fast: {policy: sim/groq}}
"""
KEY = re.compile(r"sk-[\w-]{43}")


@pytest.fixture(autouse=True)
def configuration(split: Split) -> Path:
    Path("me.key").write_text("a-key-of-mine-that-is-long\n")
    path = Path("splitsecond.yaml")
    path.write_text(CONFIGURATION)
    path.chmod(0o640)
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_added_key_is_printed_once_and_valid(split: Split, configuration: Path) -> None:
    options = ["--team", "research", "--route", "fast", "--usd-per-day", "5"]
    ended = split("key", "add", "alice", *options)
    assert ended.code == 0, ended.err
    (secret,) = KEY.findall(ended.out)
    file = Path("splitsecond.alice.key")
    assert (file.read_text(), mode(file), mode(configuration)) == (f"{secret}\n", 0o600, 0o640)
    assert configuration.read_text() == CONFIGURATION.replace(
        "# mine\n",
        "# mine\n  - {name: alice, key: 'file:splitsecond.alice.key', routes: [fast], "
        "team: research, usd_per_day: 5}\n",
    )
    _, alice = load(configuration, {}).keys
    assert (alice.team and alice.team.name, alice.usd_per_day) == ("research", 5)
    listed = split("key", "list")
    assert "alice research fast 5 USD a file:splitsecond.alice.key" in listed.words
    assert secret not in listed.out + split("key", "list", "--json", "-").out


def test_budgets_of_sessions_are_added_and_listed(split: Split, configuration: Path) -> None:
    options = ["--usd-per-session", "5", "--turns-per-session", "400", "--at-limit", "ask"]
    assert split("key", "add", "web", *options).code == 0
    _, web = load(configuration, {}).keys
    assert web.session == SessionBudget(usd=5, turns=400, at_limit="ask")
    listed = split("key", "list").words
    assert "web * 5 USD a" in listed
    assert "session, 400 turns a session" in listed


def test_the_first_key_of_a_gateway_is_announced(split: Split, configuration: Path) -> None:
    configuration.write_text("routes: {fast: {policy: sim/groq}}\n")
    assert "everyone on this machine" in split("key", "list").words
    assert "every request to the gateway needs a key" in split("key", "add", "alice").words


@pytest.mark.usefixtures("noon")
def test_a_rotated_key_overlaps_with_the_former_one(split: Split, configuration: Path) -> None:
    ended = split("key", "rotate", "me")
    assert ended.code == 0, ended.err
    (secret,) = KEY.findall(ended.out)
    assert "The former key is valid until the end of 2026-01-09 (UTC)." in ended.words
    (me,) = load(configuration, {}).keys
    assert len(me.former) == 1
    assert Path("splitsecond.me.key").read_text() == f"{secret}\n"
    assert "until 2026-01-09" in split("key", "list").words
    ended = split("key", "rotate", "me", "--overlap", "0")
    assert "The former key is not valid any more." in ended.words
    (again,) = load(configuration, {}).keys
    assert again.former == me.former
    assert again.digest != me.digest


def test_a_removed_client_has_no_access(split: Split, configuration: Path) -> None:
    split("key", "add", "alice")
    split("key", "rotate", "alice")
    ended = split("key", "remove", "alice")
    assert ended.code == 0, ended.err
    assert "alice has no access any more" in ended.words
    assert "Not used any more: splitsecond.alice.2.key, splitsecond.alice.key." in ended.words
    assert configuration.read_text() == CONFIGURATION


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("add", "key add needs the name of a client"),
        ("add me", "there is a client me already. A new key for it: splitsecond key rotate me."),
        ("add x --team reserch", "unchanged. keys[1].team: there is no team reserch. Did you mean"),
        ("add x --route fsat", "keys[1].routes: there is no route fsat. Did you mean fast?"),
        ("add x --usd-per-day 0", "keys[1].usd_per_day: Expected `float` > 0"),
        ("add x --turns-per-session 4 --at-limit halt", "keys[1].at_limit: Invalid"),
        ("add x --at-limit ask", "keys[1].at_limit: at_limit has no effect without a budget"),
        ("rotate x", "there is no client x"),
        ("rotate me --at-limit ask", "--at-limit is for key add"),
        ("add x --usd-per-month nan", "--usd-per-month is nan, expected a finite amount"),
        ("rotate me --usd-per-day 3", "--usd-per-day is for key add"),
        ("remove me", "me is the only client"),
        ("drop me", "got 'drop', expected add or list or rotate or remove"),
        ("list --config other.yaml", "cannot read other.yaml"),
    ],
)
def test_a_refused_edit_leaves_the_files(
    split: Split, configuration: Path, arguments: str, words: str
) -> None:
    before = sorted(configuration.absolute().parent.iterdir())
    ended = split("key", *arguments.split())
    assert ended.code == 2
    assert words in ended.complaint
    assert configuration.read_text() == CONFIGURATION
    assert sorted(configuration.absolute().parent.iterdir()) == before


def test_a_key_of_another_environment_is_no_hindrance(split: Split, configuration: Path) -> None:
    """The gateway has the variable, this shell does not."""
    configuration.write_text(CONFIGURATION.replace("file:me.key", "env:ONLY_AT_THE_GATEWAY"))
    assert split("key", "add", "alice").code == 0
    assert split("key", "remove", "me").code == 0


def test_without_a_configuration_key_says_how_to_write_one(split: Split) -> None:
    Path("splitsecond.yaml").unlink()
    assert "there is no splitsecond.yaml. Write one with" in split("key", "list").complaint
