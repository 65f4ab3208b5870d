"""What holds for every command: help, a quick start, how it ends."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cases import each_case, sampled_cases
from tests.cli.conftest import Split
from tests.golden import Golden
from tests.processes import Process
from tests.waiting import WITHIN_S
from typer.main import get_command

from splitsecond import __version__
from splitsecond.cli.app import COMMANDS as COMMANDS_BY_HEADING
from splitsecond.cli.app import CommandTable, app, main, without_tracebacks
from splitsecond.cli.options import API_FORMATS as API_FORMAT_NAMES
from splitsecond.core.errors import CallerFault, NetworkFault
from splitsecond.core.timing.uses import USE_NAMES, USES
from splitsecond.core.upstream.target import API_FORMATS

NAMES = [name for listed in COMMANDS_BY_HEADING.values() for name in listed]
COMMANDS = ("bench", "watch", "demo", "compare", "report", "doctor", "simulate")
HEAVY = ("numpy", "jinja2", "uvloop", "httptools", "msgspec", "rich.live", "asyncio")


@sampled_cases(2)
@each_case("flag", ["--help", "-h"])
@each_case("command", COMMANDS)
def test_every_command_has_help(split: Split, command: str, flag: str) -> None:
    ended = split(command, flag)
    assert ended.code == 0
    assert f"Usage: splitsecond {command}" in ended.words


@pytest.mark.parametrize("command", NAMES)
def test_the_text_of_help(
    split: Split, command: str, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("TERM", "dumb")
    text = split(command, "--help").out
    golden.check("\n".join(line.rstrip() for line in text.splitlines()) + "\n")
    before_the_options = text.split("╭")[0].splitlines()
    assert any(line.strip().startswith(f"splitsecond {command}") for line in before_the_options), (
        "an example"
    )


@sampled_cases(5)
@each_case("columns", [60, 80, 120])
@each_case("command", NAMES)
def test_help_fits_the_terminal(
    split: Split, command: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text fills the lines, examples can be copied, and no Python type is shown."""
    monkeypatch.setenv("COLUMNS", str(columns))
    text = split(command, "--help").out
    assert max(map(len, text.splitlines())) <= columns
    assert re.findall(r"<(?:bool|str|int|float|path|list)\b|\{|\[\[", text.replace('{"', "")) == []
    shown = " ".join(re.sub(r" \\\s+", " ", text).split())
    root: Any = get_command(app)
    written = root.commands[command].callback.__doc__ or ""
    examples = re.findall(r"(?m)^    (splitsecond .*)$", written)
    assert [each for each in examples if each not in shown] == []
    words = set(written.split()) - {"\b", "\\"}
    # Rich drops what looks like [markup]
    assert [word for word in words if word not in shown] == []


def test_every_option_names_its_value() -> None:
    root: Any = get_command(app)
    options = [(name, each) for name, command in root.commands.items() for each in command.params]
    assert len(options) > 100
    assert [
        (name, each.opts)
        for name, each in options
        if not each.metavar and not getattr(each, "is_flag", False)
    ] == []


def test_list_of_commands_shows_first_line_of_their_help() -> None:
    root: Any = get_command(app)
    listed = {name: words for each in COMMANDS_BY_HEADING.values() for name, words in each.items()}
    assert listed == {
        name: command.help.partition("\n\n")[0] for name, command in root.commands.items()
    }


def test_the_help_lists_every_command(split: Split) -> None:
    ended = split("--help")
    assert ended.code == 0
    assert all(command in ended.out for command in COMMANDS)
    assert split().code == 2


def test_the_version(split: Split) -> None:
    assert split("--version").out == f"splitsecond {__version__}\n"


def test_the_completion_of_another_shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for shell, beginning in (
        ("fish", "complete --command splitsecond"),
        ("zsh", "#compdef splitsecond"),
    ):
        monkeypatch.setenv("_SPLITSECOND_COMPLETE", "")
        monkeypatch.setattr(sys, "argv", ["splitsecond", "--show-completion", shell])
        with pytest.raises(SystemExit):
            main()
        assert capsys.readouterr().out.lstrip().startswith(beginning)


@pytest.mark.system
def test_help_imports_no_heavy_module() -> None:
    look = (
        f"import splitsecond.cli.app, sys; print([name for name in {HEAVY} if name in sys.modules])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, timeout=WITHIN_S
    )
    assert ended.stdout == "[]\n"


@pytest.mark.system
def test_a_command_converts_its_options_without_pydantic() -> None:
    look = (
        "import sys; from splitsecond.cli.app import app;"
        "code = app(['bench', 'x/y', '-c', '1', '-n', '2', '--json', '-'], standalone_mode=False);"
        "print(code, 'pydantic' in sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, timeout=WITHIN_S
    )
    assert ended.stdout == "2 False\n"


@pytest.mark.system
def test_gateway_without_simulated_targets_loads_no_simulator() -> None:
    look = (
        "import sys; from splitsecond.cli.commands.serve import check_profiles;"
        "from splitsecond.routing.configuration.reading import read;"
        "check_profiles(read('routes: {}', {})); print('splitsecond.simulator' in sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, timeout=WITHIN_S
    )
    assert ended.stdout == "False\n"


def test_fault_type_decides_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    def failing(fault: BaseException) -> int:
        def command() -> None:
            raise fault

        with pytest.raises(Exception, match=r"\d+") as raised:
            without_tracebacks(command)()
        return int(raised.value.exit_code)  # type: ignore[attr-defined]

    assert failing(CallerFault("what is this", hint="Try that.")) == 2
    assert failing(NetworkFault("nobody there", kind="refused", phase="connect", target="a/b")) == 1
    assert failing(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err.splitlines() == [
        "splitsecond: what is this. Try that.",
        "splitsecond: a/b: nobody there (while: connect).",
        "splitsecond: interrupted",
    ]


def test_arguments_that_are_not_utf8_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["splitsecond", "bench", "groq/\udcff"])
    with pytest.raises(SystemExit) as raised:
        main()
    assert raised.value.code == 2
    assert "expected UTF-8 text" in capsys.readouterr().err


@pytest.mark.system
@pytest.mark.parametrize(
    "arguments", ["--help", "bench --help", "models", "providers --json -", "serve --schema"]
)
def test_closed_output_pipe_is_not_a_failure(arguments: str) -> None:
    ends_well_without_reader(*arguments.split())


@pytest.mark.system
def test_closed_output_pipe_does_not_hide_the_result(kept_run: Path, tmp_path: Path) -> None:
    ends_well_without_reader("compare", str(kept_run), str(kept_run), "--json", "-")
    copy = shutil.copytree(kept_run, tmp_path / "run")
    ends_well_without_reader("report", str(copy))


def ends_well_without_reader(*arguments: str) -> None:
    command = [sys.executable, "-m", "splitsecond.cli", *arguments]
    with Process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr  # noqa: PT018
        process.stdout.close()
        assert process.wait(WITHIN_S) == 0
        assert "Error" not in process.stderr.read()


def test_interruption_while_a_command_is_imported_is_reported(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(CommandTable, "__getitem__", interrupted)
    ended = split("bench", "sim/groq")
    assert (ended.code, ended.complaint) == (130, "splitsecond: interrupted")


def test_help_names_a_command(split: Split) -> None:
    assert "Usage: splitsecond compare" in split("help", "compare").words
    assert "Usage: splitsecond [OPTIONS] COMMAND" in split("help").words
    unknown = split("help", "benhc")
    assert unknown.code == 2
    assert "No such command 'benhc'" in unknown.words


def test_help_names_all_allowed_values() -> None:
    for words, known in ((API_FORMAT_NAMES, API_FORMATS), (USE_NAMES, USES)):
        assert words.replace(" or ", ", ").split(", ") == list(known)
