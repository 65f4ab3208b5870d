"""What holds for every command: help, a quick start, how it ends."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Split

from splitsecond import __version__
from splitsecond.cli.app import ending_well, main
from splitsecond.errors import CallerFault, NetworkFault

COMMANDS = ("bench", "watch", "demo", "compare", "report", "doctor", "simulate")
HEAVY = ("numpy", "altair", "uvloop", "httptools", "uvicorn", "msgspec", "rich.live", "asyncio")


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(split: Split, command: str, flag: str) -> None:
    ended = split(command, flag)
    assert ended.code == 0
    assert f"Usage: splitsecond {command}" in ended.words


def test_lines_of_help_end_where_the_terminals_do_but_for_examples(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.strip() for line in split("batch", "--help").out.split("╭")[0].splitlines()]
    assert "splitsecond batch requests.jsonl --model groq/openai/gpt-oss-120b" in lines
    about = lines[next(at for at, line in enumerate(lines) if line.startswith("Requests go")) :]
    assert all(len(line) > 60 for line in about[: about.index("") - 1]), "but for the last of a paragraph"


def test_the_help_lists_every_command(split: Split) -> None:
    ended = split("--help")
    assert ended.code == 0
    assert all(command in ended.out for command in COMMANDS)
    assert split().code == 2


def test_the_version(split: Split) -> None:
    assert split("--version").out == f"splitsecond {__version__}\n"


def test_help_needs_nothing_that_is_slow_to_import() -> None:
    look = f"import splitsecond.cli.app, sys; print([name for name in {HEAVY} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=20).stdout == "[]\n"


def test_whose_fault_it_is_decides_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    def failing(fault: BaseException) -> int:
        def command() -> None:
            raise fault

        with pytest.raises(Exception, match=r"\d+") as raised:
            ending_well(command)()
        return int(raised.value.exit_code)  # type: ignore[attr-defined]

    assert failing(CallerFault("what is this", hint="Try that.")) == 2
    assert failing(NetworkFault("nobody there", kind="refused", phase="connect", target="a/b")) == 1
    assert failing(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err.splitlines() == [
        "splitsecond: what is this. Try that.",
        "splitsecond: a/b: nobody there (while: connect).",
        "splitsecond: interrupted",
    ]


def test_bytes_that_are_no_text_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["splitsecond", "bench", "groq/\udcff"])
    with pytest.raises(SystemExit) as raised:
        main()
    assert raised.value.code == 2
    assert "expected UTF-8 text" in capsys.readouterr().err


def test_a_reader_that_leaves_is_no_failure(kept_run: Path) -> None:
    command = [sys.executable, "-m", "splitsecond.cli", "compare", str(kept_run), str(kept_run), "--json", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr  # noqa: PT018
        process.stdout.close()
        assert process.wait(20) == 0
        assert "Error" not in process.stderr.read()
