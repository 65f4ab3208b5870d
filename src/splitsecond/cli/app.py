"""`splitsecond`: the table of commands, and how a command ends.

Exit codes: 0 done; 1 the thing measured failed, or a gate was missed; 2 the command was used wrongly; 130 interrupted
(what was measured is kept). Command files import what they need inside their functions, so that `--help` is quick.
"""

import os
import sys
from collections.abc import Callable
from functools import wraps
from inspect import cleandoc
from typing import Annotated, Any

import typer

from splitsecond import __version__
from splitsecond.cli.batch import batch
from splitsecond.cli.bench import bench
from splitsecond.cli.capacity import capacity
from splitsecond.cli.compare import compare
from splitsecond.cli.cost import cost
from splitsecond.cli.demo import demo
from splitsecond.cli.doctor import doctor
from splitsecond.cli.explain import explain
from splitsecond.cli.models import models
from splitsecond.cli.providers import providers
from splitsecond.cli.recommend import recommend
from splitsecond.cli.report import report
from splitsecond.cli.serve import serve
from splitsecond.cli.simulate import simulate
from splitsecond.cli.speed import speed
from splitsecond.cli.watch import watch
from splitsecond.errors import CallerFault, Fault

app = typer.Typer(
    name="splitsecond",
    no_args_is_help=True,
    add_completion=False,
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
    """Times LLM inference, and sends each request where the timing says it will be fastest."""


def ending_well(command: Callable[..., None]) -> Callable[..., None]:
    """`command`, where no failure of ours, no Ctrl-C and no reader that left shows a traceback."""

    @wraps(command)
    def ended(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except Fault as fault:
            typer.echo(f"splitsecond: {fault}", err=True)
            raise typer.Exit(2 if isinstance(fault, CallerFault) else 1) from None
        except KeyboardInterrupt:
            typer.echo("splitsecond: interrupted", err=True)
            raise typer.Exit(130) from None
        except BrokenPipeError:  # the reader of our output left (`| head`): nothing is wrong, and nobody to tell
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    return ended


def _help(command: Callable[..., None]) -> str:
    """What `--help` says: the docstring, whose lines end where the terminal's do, but for examples (``\\b``)."""
    paragraphs = cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(each if each.startswith("\b") else each.replace("\n", " ") for each in paragraphs)


COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Measure": (bench, watch, capacity, demo, compare, report, doctor, simulate),
    "Serve": (serve, explain, batch),
    "Learn from what was served": (speed, recommend, cost),
    "Look up": (providers, models),
}
"""By the heading under which `--help` lists them."""

for heading, listed in COMMANDS.items():
    for command in listed:
        app.command(rich_help_panel=heading, help=_help(command))(ending_well(command))


def main() -> None:
    """Runs the command line and exits with its code."""
    for argument in sys.argv[1:]:
        if not argument.isascii() and "\\udc" in ascii(argument):  # how Python keeps bytes that are not UTF-8
            typer.echo(f"splitsecond: got {argument!a}, expected UTF-8 text", err=True)
            sys.exit(2)
    app()
