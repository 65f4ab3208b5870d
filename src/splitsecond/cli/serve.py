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
    check: Annotated[bool, typer.Option("--check", help="Check the configuration, and end.")] = False,
) -> None:
    """Serve an OpenAI-compatible gateway: a request's model is a route of the configuration, or PROVIDER/MODEL.

    Providers of the catalogue need no configuration where their key is in the environment. Prints "READY url" when it
    answers. Without keys for clients it listens only on this machine.
    """
    import msgspec

    from splitsecond.gateway import server
    from splitsecond.gateway.settings import check_reach, load

    settings = load(file or (DEFAULT if DEFAULT.exists() else None), os.environ)
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = msgspec.structs.replace(settings, listen=msgspec.structs.replace(settings.listen, **given))
    if check:
        check_reach(settings)
        for name, policy in settings.routes.items():
            typer.echo(f"route {name}: {policy!r}")
        where = f"{settings.listen.host}:{settings.listen.port}"
        typer.echo(f"ok: {len(settings.routes)} routes, {len(settings.keys)} keys, listens on {where}")
        return
    server.serve(settings)
