"""The `splitsecond` command: its subcommands, and how they end.

Exit codes: 0 success; 1 a measured target or a gate failed; 2 wrong usage; 130 ended by SIGINT (Ctrl-C), 143 by SIGTERM
(what was measured is kept and reported). The modules of commands import what they need inside functions, so that
`--help` is fast.
"""

import os
import re
import sys
from collections.abc import Callable
from functools import wraps
from inspect import cleandoc
from typing import Annotated, Any

import typer

from splitsecond import __version__
from splitsecond.cli.commands.batch import batch
from splitsecond.cli.commands.bench import bench
from splitsecond.cli.commands.capacity import capacity
from splitsecond.cli.commands.catalogue import models, providers
from splitsecond.cli.commands.compare import compare
from splitsecond.cli.commands.cost import cost
from splitsecond.cli.commands.demo import demo
from splitsecond.cli.commands.doctor import doctor
from splitsecond.cli.commands.explain import explain
from splitsecond.cli.commands.export_log import export
from splitsecond.cli.commands.import_log import import_
from splitsecond.cli.commands.init import init
from splitsecond.cli.commands.recommend import recommend
from splitsecond.cli.commands.report import report
from splitsecond.cli.commands.serve import serve
from splitsecond.cli.commands.simulate import simulate
from splitsecond.cli.commands.speed import speed
from splitsecond.cli.commands.watch import watch
from splitsecond.cli.help import Command, Group
from splitsecond.cli.interruption import Interrupted, discard_output
from splitsecond.core.errors import CallerFault, Fault, printable

app = typer.Typer(
    name="splitsecond",
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"splitsecond {__version__}")
        raise typer.Exit


@app.callback()
def splitsecond(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
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
    "no_price": "Set it with --price TARGET=INPUT,OUTPUT in US dollars per million tokens; 0,0 is free.",
    "cost_reached": "Raise the limit with --max-cost, or send less with -n, -c or --output-tokens.",
    "folder_taken": "Name another folder with --out.",
    "unwritable_folder": "Name another folder with --out.",
}
"""Hints that name options, by the kind of the fault."""


def _name_options(fault: Fault) -> None:
    from splitsecond.core.catalog.provider import OWN_SERVER

    fault.hint = _HINTS.get(fault.kind, fault.hint.replace(OWN_SERVER, f"{OWN_SERVER} Use --base-url."))
    if isinstance(fault, CallerFault) and fault.kind == "bad_option" and re.fullmatch("[a-z_]+", fault.param):
        fault.message = f"--{fault.param.replace('_', '-')}{fault.message.removeprefix(fault.param)}"


def _help(command: Callable[..., None]) -> str:
    """Return the text of `--help`: the docstring, re-wrapped except for examples (``\\b``)."""
    paragraphs = cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(each if each.startswith("\b") else each.replace("\n", " ") for each in paragraphs)


def help_(
    command: Annotated[str, typer.Argument(metavar="[COMMAND]", help="The command to explain.")] = "",
) -> None:
    """Show the help of a command.

    \b
    splitsecond help bench
    """
    app([command, "--help"] if command else ["--help"], prog_name="splitsecond", standalone_mode=False)


COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Measure": (bench, watch, capacity, demo, compare, report, doctor, simulate),
    "Serve": (init, serve, explain, batch),
    "Reports on served traffic": (speed, recommend, cost, import_, export),
    "Look up": (providers, models, help_),
}
for heading, listed in COMMANDS.items():
    for command in listed:
        name = command.__name__.removesuffix("_")  # "import" is a keyword of Python
        app.command(name, cls=Command, rich_help_panel=heading, help=_help(command))(without_tracebacks(command))


def main() -> None:
    for argument in sys.argv[1:]:
        if not argument.isascii() and "\\udc" in ascii(argument):  # how Python represents bytes that are not UTF-8
            typer.echo(f"splitsecond: got {argument!a}, expected UTF-8 text", err=True)
            sys.exit(2)
    _complete_at_first_tab()
    if len(sys.argv) == 3 and sys.argv[1] == "--show-completion":  # Typer ignores the name, and asks which shell runs
        os.environ["_SPLITSECOND_COMPLETE"] = f"source_{sys.argv[2]}"
    _without_failure_of_pipes()


def _complete_at_first_tab() -> None:
    """Let the completion of zsh answer the first Tab of a shell, too: Typer's script then only defines its function."""
    from typer import _completion_shared

    scripts: dict[str, str] = vars(_completion_shared).get("_completion_scripts", {})
    if "zsh" in scripts:
        scripts["zsh"] += '[[ $funcstack[1] != _%(prog_name)s ]] || %(complete_func)s "$@"\n'


def _without_failure_of_pipes() -> None:
    """Output that has lost its reader (`| head`) is no failure."""
    from rich.console import Console

    def on_broken_pipe(console: Console) -> None:
        raise BrokenPipeError

    Console.on_broken_pipe = on_broken_pipe  # type: ignore[method-assign, assignment]  # Rich exits with code 1
    try:
        app(prog_name="splitsecond")  # as completion needs it, however it was started
    except BrokenPipeError:
        discard_output()
