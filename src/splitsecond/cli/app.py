"""`splitsecond`: the table of commands, and how a command ends.

Exit codes: 0 done; 1 the thing measured failed, or a gate was missed; 2 the command was used wrongly; 130 interrupted
(what was measured is kept). Command files import what they need inside their functions, so that `--help` is quick.
"""

import os
import sys
from typing import Annotated

import typer

from splitsecond import __version__
from splitsecond.cli.bench import bench
from splitsecond.cli.compare import compare
from splitsecond.cli.demo import demo
from splitsecond.cli.doctor import doctor
from splitsecond.cli.report import report
from splitsecond.cli.simulate import simulate
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


for command in (bench, demo, compare, report, doctor, simulate):
    app.command()(command)


def main() -> None:
    """Runs the command line and exits with its code. No failure of ours shows a traceback."""
    try:
        app()
    except Fault as fault:
        typer.echo(f"splitsecond: {fault}", err=True)
        sys.exit(2 if isinstance(fault, CallerFault) else 1)
    except KeyboardInterrupt:
        typer.echo("splitsecond: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output left (`| head`): nothing is wrong, and nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
