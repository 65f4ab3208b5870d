import os
from pathlib import Path
from socket import socket
from typing import Annotated

import typer
from msgspec.structs import replace

from splitsecond.cli.options import Policies, config_file
from splitsecond.core.errors import CallerFault, say
from splitsecond.core.loading import loading
from splitsecond.core.validation import nearest
from splitsecond.core.wording import counted_as
from splitsecond.gateway.process import supervisor
from splitsecond.gateway.process.reload import ConfigSource
from splitsecond.gateway.process.simulation import bind_simulator, simulator_url
from splitsecond.routing.configuration.defaults import found
from splitsecond.routing.configuration.error_messages import Mistakes, SeveralMistakes
from splitsecond.routing.configuration.file_schema import schema_text
from splitsecond.routing.configuration.settings import GatewaySettings, check_log
from splitsecond.routing.configuration.warnings import problems
from splitsecond.routing.router.settings import SIMULATED, simulated_profiles


def serve(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="The configuration; default: splitsecond.yaml, if it exists.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="The address to listen on.", show_default=False),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, metavar="N", help="The port; 0: any free port.", show_default=False
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=256, metavar="N", help="Processes that share the port.", show_default=False
        ),
    ] = None,
    policies: Policies = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check the configuration, summarise it, and exit.")
    ] = False,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema", help="Print the JSON schema of the configuration, for editors, and exit."
        ),
    ] = False,
) -> None:
    """Run the gateway: routes over your providers and servers.

    \b
    splitsecond serve
    splitsecond serve gateway.yaml --check
    splitsecond serve gateway.yaml --port 9000 --workers 4

    A request's model is a route of the configuration, or PROVIDER/MODEL. Without a configuration,
    the route "default" tries one model of each provider whose key is in the environment. The
    gateway prints "READY url dashboard=url" when it accepts requests. Without client keys it
    listens only on this machine. A changed configuration is applied without a restart.
    """
    if schema:
        typer.echo(schema_text())
        return

    options = {"host": host, "port": port, "workers": workers}
    path = config_file(file)
    listen = {name: value for name, value in options.items() if value is not None}
    source = ConfigSource(path, os.environ, listen, policies)
    if check:
        _check(source)
        return
    with bind_simulator() as simulated:
        source = replace(source, simulator=simulator_url(simulated))
        settings = source.load((check_log, check_profiles))
        _serve(source, settings, simulated)


def _check(source: ConfigSource) -> None:
    """Print the summary of the configuration, or all of its mistakes. Raises `CallerFault` if there
    is one mistake."""
    # not for a gateway that runs, which is this process: it would keep the modules of the check in
    # memory
    from splitsecond.routing.configuration.checkup import check_policies, checkup

    lines: list[str] = []
    try:
        lines = checkup(source.load((check_log, check_profiles, check_policies)))
    except SeveralMistakes as several:
        for fault in several.mistakes:
            typer.echo(f"splitsecond: {fault}", err=True)
        typer.echo(counted_as(len(several.mistakes), "mistake"), err=True)
        raise typer.Exit(2) from None
    typer.echo("\n".join(lines))


def _serve(source: ConfigSource, settings: GatewaySettings, simulated: socket) -> None:
    path = source.path
    if path is None:
        say(found(settings))
    for words in problems(settings) if path is not None else ():
        say(f"{path}: {words}")
    if settings.listen.workers == 1 and settings.shared is None:
        with loading():  # which the supervisor of several workers does not need
            from splitsecond.gateway.process import server
        server.serve(source, settings, simulated)
    else:
        supervisor.serve(source, settings, simulated)


def check_profiles(settings: GatewaySettings) -> None:
    """Raise `CallerFault` if routes name simulated targets that are no shipped profiles: one fault,
    or several."""
    profiles = simulated_profiles(settings)
    if (
        not profiles
    ):  # most gateways simulate nothing, and need not wait for the simulator's modules
        return
    from splitsecond.simulator import profile

    mistakes, shipped = Mistakes(), [*profile.names(), *profile.aliases()]
    for name, route in profiles.items():
        if name in shipped:
            continue
        what, hint = "is not a profile of the simulator", nearest(name, shipped)
        if name.endswith(".toml"):
            what = "is a file, and the gateway simulates only shipped profiles"
            hint = (
                "Start your own with `splitsecond simulate`, and name its address under providers."
            )
        message = f"routes.{route}: {SIMULATED}/{name} {what}"
        with mistakes:
            raise CallerFault(
                message,
                kind="unknown_profile",
                hint=hint or "`splitsecond simulate --list` shows all.",
            )
    mistakes.check()
