"""The command line as a user has it, in a folder of its own; one run of a quick provider to look
at."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main
import typer.testing
from msgspec import Struct
from typer.testing import CliRunner

from splitsecond.cli.app import app
from splitsecond.simulator.process import RunningProvider


class Ended(Struct):
    """How a command ended: its exit code, and what it printed, with the line breaks of tables taken
    out of `words`."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """Everything it printed, on one line."""
        return " ".join((self.out + " " + self.err).split())

    @property
    def complaint(self) -> str:
        """The one line on standard error that says what went wrong. Fails where there is not
        exactly one."""
        (line,) = self.err.splitlines()
        assert line.startswith("splitsecond: ")
        return line

    @property
    def json(self) -> Any:
        """Standard output, read as JSON."""
        return json.loads(self.out)


Split = Callable[..., Ended]

_command = functools.cache(typer.main.get_command)
"""Making the commands takes as long as most of them run."""


def run_splitsecond(*arguments: object) -> Ended:
    """Run `splitsecond` in this process. An error that a user would see as a traceback is
    raised."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", _command)
        result = CliRunner().invoke(
            app, [str(argument) for argument in arguments], prog_name="splitsecond"
        )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Split:
    """`splitsecond` in an empty folder, without any key."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    return run_splitsecond


@pytest.fixture(scope="session")
def endpoint(simulated: RunningProvider) -> list[str]:
    """The options that name the quick provider."""
    return ["--base-url", simulated.base_url, "--model", simulated.model, "--name", "quick"]


@pytest.fixture(scope="session")
def kept_run(endpoint: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run at concurrency 1 and 4, with its findings in out.json besides. Copy it
    before changing it."""
    folder = tmp_path_factory.mktemp("kept") / "run"
    load = ["-c", "1,4", "-n", 8, "--input-tokens", 64, "--output-tokens", 20, "--slo", "ttft=1s"]
    ended = run_splitsecond(
        "bench", *endpoint, *load, "--out", folder, "--json", folder.with_name("out.json")
    )
    assert ended.code == 0
    assert ended.err.startswith("This run takes about ")
    return folder
