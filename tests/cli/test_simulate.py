"""`splitsecond simulate`: what it passes on, lists and refuses. Serving is tested with the
simulator."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.processes import Process
from tests.waiting import WITHIN_S
from typer.testing import CliRunner

from splitsecond.cli.commands.simulate import simulate
from splitsecond.core.errors import CallerFault
from splitsecond.simulator import profile, server


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(simulate)
    return made


def test_the_list_names_every_shipped_profile(app: typer.Typer) -> None:
    shown = CliRunner().invoke(app, ["--list"])
    assert shown.exit_code == 0
    lines = shown.output.splitlines()
    assert [line.split()[0] for line in lines] == profile.names()
    assert any(line.split()[:2] == ["groq-llama-3.1-70b", "groq"] for line in lines)


def test_flags_are_passed_on(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []
    monkeypatch.setattr(server, "serve", lambda profiles, **flags: served.append((profiles, flags)))
    flags = ["--port", "0", "--host", "::1", "--seed", "7", "--log", "x.jsonl", "--strict"]
    CliRunner().invoke(app, ["groq", "together", *flags])
    expected = {
        "host": "::1",
        "port": 0,
        "seed": 7,
        "log": Path("x.jsonl"),
        "replies": None,
        "strict": True,
    }
    assert served == [(["groq", "together"], expected)]


def test_recording_and_replay_are_passed_on(
    app: typer.Typer, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[Any] = []
    monkeypatch.setattr(server, "serve", lambda profiles, **flags: called.append(profiles))
    monkeypatch.setattr(server, "record", lambda *given, **flags: called.append((given, flags)))
    CliRunner().invoke(app, ["mock", "--replay", "x.jsonl"])
    CliRunner().invoke(app, ["--record", "http://x/v1", "--out", "y.jsonl", "--port", "7"])
    assert called == [
        ["mock", "x.jsonl"],
        (("http://x/v1", Path("y.jsonl")), {"host": "127.0.0.1", "port": 7}),
    ]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ([], "no_profile"),
        (["grok"], "unknown_profile"),
        (["--record", "http://x"], "bad_option"),
        (["mock", "--record", "http://x", "--out", "x.jsonl"], "bad_option"),
        (["mock", "--out", "x.jsonl"], "bad_option"),
        (["--replay", "x.json"], "bad_option"),
        (["--replay", "absent.jsonl"], "bad_recording"),
        (["mock", "--replies", "absent.jsonl"], "bad_reply"),
    ],
)
def test_wrong_use_is_a_caller_fault(app: typer.Typer, given: list[str], kind: str) -> None:
    ended = CliRunner().invoke(app, given)
    assert isinstance(ended.exception, CallerFault)
    assert ended.exception.kind == kind


def test_negative_port_is_refused(app: typer.Typer) -> None:
    assert CliRunner().invoke(app, ["groq", "--port", "-1"]).exit_code == 2


@pytest.mark.system
def test_simulator_ends_when_its_input_closes() -> None:
    command = [sys.executable, "-m", "splitsecond.simulator", "groq", "--port", "0", "--until-eof"]
    with Process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.read_line().startswith("READY ")
        process.stdin.close()
        assert process.wait(WITHIN_S) == 0
