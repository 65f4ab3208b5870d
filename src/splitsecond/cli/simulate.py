"""`splitsecond simulate`: simulated providers on ports of this machine, until interrupted."""

from pathlib import Path
from typing import Annotated

import typer


def simulate(
    profiles: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROFILE...", help="Shipped profiles (see --list), or paths of .toml files.", show_default=False
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The first one's port; the others follow. 0: free ones.")
    ] = 9001,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    log: Annotated[
        Path | None, typer.Option(help="Append planned and actual send times to this file, as JSON lines.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides the draws of the table profiles.")] = 0,
    show_list: Annotated[bool, typer.Option("--list", help="List the shipped profiles, and end.")] = False,
) -> None:
    """Serve simulated providers in every dialect: known times, prompt caches, rate limits, and faults on demand.

    Prints "READY name url model=…" for each as soon as it answers. GET /truth gives planned and actual send times.
    A request's header "x-splitsecond-fault: stall; after=5; seconds=2" asks for a fault.
    docs/simulator.md has all that a profile may say.
    """
    from splitsecond.simulator import profile, server

    if show_list:
        short = {name: alias for alias, name in profile.aliases().items()}
        for name in profile.names():
            typer.echo(f"{name:38} {short.get(name, ''):16} {profile.load(name).title}")
        return
    server.serve(profiles or [], host=host, port=port, seed=seed, log=log)
