from typing import Annotated

import typer

from splitsecond.cli.app import app


def help_(
    command: Annotated[
        str, typer.Argument(metavar="[COMMAND]", help="The command to explain.")
    ] = "",
) -> None:
    """Show the help of a command.

    \b
    splitsecond help bench
    """
    code = app(
        [command, "--help"] if command else ["--help"],
        prog_name="splitsecond",
        standalone_mode=False,
    )
    raise typer.Exit(code or 0)
