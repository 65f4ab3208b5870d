"""The `splitsecond` command: its subcommands, and how they end.

Exit codes: 0 success; 1 a measured target or a gate failed; 2 wrong usage; 130 ended by SIGINT
(Ctrl-C), 143 by SIGTERM (what was measured is kept and reported).

The module of a command is imported when the command runs, or its help is shown: all of them take a
second.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from inspect import cleandoc
from typing import Annotated, Any, cast

import typer

from splitsecond import __version__
from splitsecond.cli.help import Command, Group
from splitsecond.cli.interruption import Interrupted, discard_output
from splitsecond.core.errors import CallerFault, Fault, printable
from splitsecond.core.loading import loading

COMMANDS = {
    "Measure": {
        "bench": "Measure the speed of LLM endpoints, with intervals.",
        "watch": "Repeat a benchmark on a schedule, and report drift.",
        "capacity": "Find the highest load at which a server meets its limits.",
        "sweep": "Measure a server under different settings.",
        "demo": "Benchmark three simulated providers, for the limit of a chat.",
        "compare": "Compare two runs: each change with an interval and a test.",
        "report": "Recompute the findings of runs from their observations.",
        "doctor": "Measure the instrument's own error on this machine.",
        "simulate": "Run simulated providers of every API format.",
    },
    "Serve": {
        "init": "Write splitsecond.yaml from the keys and servers found here.",
        "serve": "Run the gateway: routes over your providers and servers.",
        "key": "Add, list, rotate and remove the clients' keys of a gateway.",
        "run": "Run a coding agent, or any program, through a gateway of its own.",
        "explain": "Show where calls to a route would go now, and why.",
        "batch": "Send a file of requests through the gateway's routes.",
    },
    "Reports on served traffic": {
        "speed": "Grade targets by the speed of the requests that they served.",
        "recommend": "Recommend targets for a use, such as voice, chat or batch.",
        "what-if": "Replay the log through another policy: speed, cost, failures.",
        "split": "Compare the two policies of a split route: an A/B of live traffic.",
        "sessions": "Show sessions of agents, and what one waited for.",
        "cost": "Show what calls cost, losers of races included.",
        "import": "Import a log of another program for speed, recommend and cost.",
        "export": "Write the log into Parquet files, one folder a day.",
    },
    "Look up": {
        "providers": "List providers: API format, variable of the key, regions.",
        "models": "List models: price, context window, published speeds.",
        "help": "Show the help of a command.",
    },
}
"""The commands, with the first line of their help, by the headings of `--help`."""
_RUN_PROGRAMS = ("run",)
"""Commands whose argument is the command line of a program: what follows it is not ours."""
_KEYWORDS = ("import", "help")
"""Commands whose function, and its module, end with "_", as Python has such a name."""


class CommandTable(Mapping[str, Command]):
    """The commands by name. Each is imported when it is looked up."""

    def __init__(self) -> None:
        self._headings = {name: heading for heading, listed in COMMANDS.items() for name in listed}
        self._made: dict[str, Command] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._headings)

    def __len__(self) -> int:
        return len(self._headings)

    def __getitem__(self, name: str) -> Command:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Command:
        heading = self._headings[name]
        python_name = f"{name}_" if name in _KEYWORDS else name.replace("-", "_")
        with loading():
            module = import_module(f"splitsecond.cli.commands.{python_name}")
        function = getattr(module, python_name)
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        settings = {"allow_interspersed_args": name not in _RUN_PROGRAMS}
        alone.command(
            name,
            cls=Command,
            rich_help_panel=heading,
            help=_help(function),
            context_settings=settings,
        )(without_tracebacks(function))
        return cast(Command, typer.main.get_command(alone))


class Root(Group):
    """The command `splitsecond`. It lists its commands without importing them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast(Any, CommandTable())  # Typer only reads it

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Command | None:
        """Return what the list of commands shows of one."""
        for heading, listed in COMMANDS.items():
            if cmd_name in listed:
                return Command(
                    name=cmd_name, callback=None, help=listed[cmd_name], rich_help_panel=heading
                )
        return None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else self.commands[name], rest

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _refused_in_one_line(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            with _refused_in_one_line(ctx):
                return super().invoke(ctx)
        except KeyboardInterrupt:  # while the module of the command is imported
            typer.echo("splitsecond: interrupted", err=True)
            raise typer.Exit(130) from None


@contextmanager
def _refused_in_one_line(ctx: Any) -> Iterator[None]:
    """Print what Typer refuses as one line, as our own errors are."""
    from typer._click.exceptions import NoArgsIsHelpError, UsageError

    try:
        yield
    except NoArgsIsHelpError:
        raise
    except UsageError as error:
        command, words = (error.ctx or ctx).command_path, printable(error.format_message())
        end = "" if words.endswith((".", "?")) else "."
        typer.echo(f"splitsecond: {words}{end} `{command} --help` shows the options.", err=True)
        raise typer.Exit(error.exit_code) from None


app = typer.Typer(
    name="splitsecond",
    cls=Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"splitsecond {__version__}")
        raise typer.Exit


@app.callback()
def splitsecond(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Benchmark LLM endpoints with a measured error, and route live traffic to the fastest."""


def without_tracebacks(command: Callable[..., None]) -> Callable[..., None]:
    @wraps(command)
    def wrapped(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except Fault as fault:
            _name_options(fault)
            typer.echo(f"splitsecond: {printable(str(fault))}", err=True)
            raise typer.Exit(2 if isinstance(fault, CallerFault) else 1) from None
        except Interrupted as signalled:
            typer.echo(f"splitsecond: {signalled.words}", err=True)
            raise typer.Exit(signalled.code) from None
        except KeyboardInterrupt:
            typer.echo("splitsecond: interrupted", err=True)
            raise typer.Exit(130) from None
        except BrokenPipeError:
            discard_output()

    return wrapped


_HINTS = {
    "no_target": "Name one, such as groq/openai/gpt-oss-120b or sim/groq, or the URL of a server. "
    "`splitsecond demo` needs neither key nor network.",
    "no_price": "Set it with --price TARGET=INPUT,OUTPUT in US dollars per "
    "million tokens; 0,0 is free.",
    "cost_reached": "Raise the limit with --max-cost, or send less with -n, -c or --output-tokens.",
    "folder_taken": "Name another folder with --out.",
    "unwritable_folder": "Name another folder with --out.",
}
"""Hints that name options, by the kind of the fault."""


def _name_options(fault: Fault) -> None:
    from splitsecond.core.catalog.provider import OWN_SERVER

    fault.hint = _HINTS.get(
        fault.kind, fault.hint.replace(OWN_SERVER, f"{OWN_SERVER} Use --base-url.")
    )
    if (
        isinstance(fault, CallerFault)
        and fault.kind == "bad_option"
        and re.fullmatch("[a-z_]+", fault.param)
    ):
        fault.message = (
            f"--{fault.param.replace('_', '-')}{fault.message.removeprefix(fault.param)}"
        )


def _help(command: Callable[..., None]) -> str:
    """Return the text of `--help`: the docstring, re-wrapped except for examples (``\\b``)."""
    paragraphs = cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(
        each if each.startswith("\b") else each.replace("\n", " ") for each in paragraphs
    )


def main() -> None:
    for argument in sys.argv[1:]:
        # how Python represents bytes that are not UTF-8
        if not argument.isascii() and "\\udc" in ascii(argument):
            typer.echo(f"splitsecond: got {argument!a}, expected UTF-8 text", err=True)
            sys.exit(2)
    _complete_at_first_tab()
    # Typer ignores the name, and asks which shell runs
    if len(sys.argv) == 3 and sys.argv[1] == "--show-completion":
        os.environ["_SPLITSECOND_COMPLETE"] = f"source_{sys.argv[2]}"
    try:
        app(prog_name="splitsecond")  # as completion needs it, however it was started
    except BrokenPipeError:  # output that has lost its reader (`| head`) is no failure
        discard_output()


def _complete_at_first_tab() -> None:
    """Let the completion of zsh answer the first Tab of a shell, too: Typer's script then only
    defines its function."""
    from typer import _completion_shared

    scripts: dict[str, str] = vars(_completion_shared).get("_completion_scripts", {})
    if "zsh" in scripts:
        scripts["zsh"] += '[[ $funcstack[1] != _%(prog_name)s ]] || %(complete_func)s "$@"\n'
