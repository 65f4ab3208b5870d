"""`splitsecond serve`: the gateway, until interrupted."""

import os
from pathlib import Path
from typing import Annotated

import typer

DEFAULT = Path("splitsecond.yaml")


def serve(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="The configuration; splitsecond.yaml where there is one.", show_default=False
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on.", show_default=False)] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port. 0: a free one.", show_default=False)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes that share the port.", show_default=False)
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check the configuration, say what is in it, and end.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of the configuration, for editors, and end.")
    ] = False,
) -> None:
    """Serve an OpenAI-compatible gateway: a request's model is a route of the configuration, or PROVIDER/MODEL.

    Without a configuration the route "default" tries one model of each provider whose key is in the environment. Prints
    "READY url" when it answers. Without keys for clients it listens only on this machine. A configuration that changes
    is put in force while it runs.
    """
    if schema:
        from splitsecond.gateway.configuration.schema import schema_text

        typer.echo(schema_text())
        return
    from splitsecond.gateway.configuration.defaults import found
    from splitsecond.gateway.configuration.problems import problems
    from splitsecond.gateway.process import server, supervisor
    from splitsecond.gateway.process.reload import Source, say

    asked = {"host": host, "port": port, "workers": workers}
    path = file or (DEFAULT if DEFAULT.exists() else None)
    source = Source(path, os.environ, {name: value for name, value in asked.items() if value is not None})
    settings = source.load()
    if check:
        from splitsecond.gateway.configuration.checkup import checkup

        server.tried(settings)
        typer.echo("\n".join(checkup(settings)))
        return
    if path is None:
        say(found(settings))
    for words in problems(settings) if path is not None else ():
        say(f"{path}: {words}")
    if settings.listen.workers == 1:
        server.serve(source, settings)
    else:
        supervisor.serve(source, settings)
