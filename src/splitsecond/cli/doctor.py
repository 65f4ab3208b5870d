"""`splitsecond doctor`: can this machine measure, do the targets answer, does the decoder see what was sent?"""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from splitsecond.analysis.accuracy import Accuracy
    from splitsecond.cli.targets import Endpoint
    from splitsecond.timing.observation import Observation
    from splitsecond.upstream.spec import TargetSpec


def doctor(
    targets: Annotated[
        list[str] | None, typer.Argument(metavar="TARGET...", help="Targets to try, as for bench.", show_default=False)
    ] = None,
    base_url: Annotated[str, typer.Option(metavar="URL", help="Any OpenAI-compatible endpoint.")] = "",
    model: Annotated[str, typer.Option(metavar="NAME", help="Its model.")] = "",
    api_key_env: Annotated[str, typer.Option(metavar="VAR", help="The variable that holds its key.")] = "",
    dialect: Annotated[str, typer.Option(help="What it speaks: openai, anthropic, …", show_default="openai")] = "",
    levels: Annotated[str, typer.Option(metavar="N,N", help="Streams at once to measure at.")] = "1,8,32,128,256",
    streams: Annotated[
        bool, typer.Option("--streams", help="Time the corpus of adversarial streams and compare with its truth.")
    ] = False,
    json: Annotated[str, typer.Option(metavar="FILE", help="The results as JSON; - for standard output.")] = "",
) -> None:
    """Measure the instrument itself: its error of TTFT and TPOT, and the highest load to trust on this machine.

    With targets: where the time to each goes, and whether its key and model work. With --streams: the decoder. Each of
    these alone leaves out the first; it takes about half a minute. Exit code 1 where something is not as it should be.
    """
    from rich.console import Console

    from splitsecond.cli import asking
    from splitsecond.cli.results import check_json, write_json
    from splitsecond.cli.targets import Endpoint
    from splitsecond.report.checkup import accuracy_table, target_table

    check_json(json)
    endpoint = Endpoint.asked(base_url=base_url, model=model, api_key_env=api_key_env, dialect=dialect)
    asked = sorted(int(n) for n in asking.numbers(levels, "--levels", whole=True))
    console = Console(stderr=json == "-")
    result: dict[str, object] = {}
    healthy = True
    if targets or endpoint:
        checks = _try_targets(targets or [], endpoint)
        target_table(checks, console)
        result["targets"] = [
            {"target": name, "works": not fault, "fault": fault, "observations": seen} for name, seen, fault in checks
        ]
        healthy &= not any(fault for _, _, fault in checks)
    if streams:
        wrong = _try_streams(console)
        result["streams"] = wrong
        healthy &= not any(wrong.values())
    if not result:
        accuracy = _measure(asked)
        accuracy_table(accuracy, console)
        result["instrument"] = accuracy
        healthy &= accuracy[0].trusted
    write_json(result, json)
    raise typer.Exit(0 if healthy else 1)


def _measure(levels: list[int]) -> "list[Accuracy]":
    """Measures the instrument, saying on a terminal how far it is."""
    from rich.console import Console

    from splitsecond.cli.self_check import measure_instrument

    progress = Console(stderr=True)
    with progress.status("Measuring the instrument") as status:
        return measure_instrument(
            levels,
            progress=lambda level: status.update(f"Measuring the instrument with {level} of {levels[-1]} streams"),
        )


def _try_targets(names: list[str], endpoint: "Endpoint | None") -> "list[tuple[str, list[Observation], str]]":
    """Two small requests to each target: its name, what was observed, and the fault in words, "" if it works."""
    import asyncio
    from contextlib import ExitStack

    from splitsecond.cli.targets import resolve
    from splitsecond.errors import CallerFault

    found: list[tuple[str, list[Observation], str]] = []
    wanted: list[tuple[list[str], Endpoint | None]] = [([name], None) for name in names]
    if endpoint:
        wanted.append(([], endpoint))
    with ExitStack() as started:
        for listed, unlisted in wanted:
            try:
                specs = resolve(listed, unlisted, started)
            except CallerFault as fault:  # the others may work
                found.append((listed[0] if listed else fault.target, [], str(fault)))
            else:
                found += [(spec.name, *asyncio.run(_try(spec))) for spec in specs.values()]
    return found


async def _try(spec: "TargetSpec") -> "tuple[list[Observation], str]":
    """A cold request and a warm one, for eight tokens each."""
    from contextlib import closing

    from splitsecond import clock
    from splitsecond.cli.targets import advised
    from splitsecond.errors import Fault
    from splitsecond.service import Call
    from splitsecond.upstream.target import connect

    seen: list[Observation] = []
    body = {"messages": [{"role": "user", "content": "Count from one to ten."}], "max_tokens": 8}
    try:
        with closing(connect(spec, seen.append)) as target:
            for turn in ("cold", "warm"):
                async with await target(Call(id=turn, body=body, start_ns=clock.now_ns())) as reply:
                    await reply.finished()
                if not seen[-1].ok and seen[-1].fault is not None:
                    return seen, f"{spec.name}: {seen[-1].fault.message}. {seen[-1].fault.hint}".rstrip()
    except Fault as fault:
        return seen, str(advised(fault, spec))
    return seen, ""


def _try_streams(console: "Console") -> dict[str, list[str]]:
    """Serves the corpus on the loopback and times it; by stream, what was seen wrong."""
    import numpy as np
    import uvloop

    from splitsecond.clock import NS_PER_MS
    from splitsecond.testing.streams import load
    from splitsecond.testing.streams.sockets import check_over_sockets

    checks = uvloop.run(check_over_sockets(load()))
    for check in checks:
        for line in check.wrong:
            console.print(f"  {check.stream.name}: {line}", style="red", markup=False)
    errors = np.concatenate([check.error_ns for check in checks]) / NS_PER_MS
    right = sum(not check.wrong for check in checks)
    console.print(f"Streams: {right} of {len(checks)} seen for what they are.", style="bold")
    console.print(
        f"Their {len(errors)} tokens were stamped {np.percentile(errors, 50):.3f} ms (p50) and at most "
        f"{errors.max():.3f} ms after the server began to write them.",
        style="dim",
    )
    return {check.stream.name: check.wrong for check in checks}
