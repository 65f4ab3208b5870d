from pathlib import Path
from typing import Annotated

import typer

from splitsecond.core.errors import CallerFault
from splitsecond.simulator import profile, server


def simulate(
    profiles: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROFILE...",
            help="Shipped profiles (see --list), or paths of .toml files.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65535,
            metavar="N",
            help="The port of the first profile; the others follow. 0: any free ports.",
        ),
    ] = 9001,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address to listen on.")
    ] = "127.0.0.1",
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Append planned and actual send times to this file, as JSON lines."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the random draws.")] = 0,
    replies: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Replies for all profiles: a JSONL file with one rule in each line.",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Answer 404 to requests that no reply rule fits.")
    ] = False,
    record: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Forward requests to this provider, and record its responses in --out.",
        ),
    ] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file that --record appends to.")
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Answer with the responses that --record wrote to this file."
        ),
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="List the shipped profiles, and exit.")
    ] = False,
) -> None:
    """Run simulated providers of every API format.

    \b
    splitsecond simulate mock
    splitsecond simulate groq together
    splitsecond simulate --record https://api.openai.com --out openai.jsonl
    splitsecond simulate --replay openai.jsonl
    splitsecond simulate --list

    They have the times of real providers, or serve as a mock for tests. Prints "READY name url
    model=…" for each when it accepts requests. GET /truth returns planned and actual send times. A
    request's header "x-splitsecond-fault: stall; after=5; seconds=2" causes a fault.
    docs/simulator.md describes profiles and faults.
    """
    if show_list:
        short = {name: alias for alias, name in profile.aliases().items()}
        for name in profile.names():
            typer.echo(f"{name:38} {short.get(name, ''):16} {profile.load(name).title}")
        return
    if record:
        if out is None or profiles or replay is not None:
            raise CallerFault("--record needs --out FILE, and no profile", kind="bad_option")
        server.record(record, out, host=host, port=port)
        return
    if out is not None:
        raise CallerFault("--out is for --record only", kind="bad_option")
    if replay is not None and replay.suffix != server.RECORDING:
        raise CallerFault(
            f"--replay {replay}: a recording ends in {server.RECORDING}", kind="bad_option"
        )
    served = [*(profiles or []), *([str(replay)] if replay is not None else [])]
    server.serve(served, host=host, port=port, seed=seed, log=log, replies=replies, strict=strict)
