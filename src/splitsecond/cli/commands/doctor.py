import asyncio
from contextlib import ExitStack, closing
from typing import Annotated

import msgspec
import typer

from splitsecond.benchmark.load.coordinator import WorkerSettings
from splitsecond.benchmark.report.checkup import (
    TargetCheck,
    accuracy_table,
    card_advice,
    packet_clock_advice,
    send_advice,
    target_table,
)
from splitsecond.benchmark.runs.option_forms import WHOLE_NUMBERS
from splitsecond.benchmark.runs.self_check import ComparingClient, measure_instrument
from splitsecond.benchmark.runs.settings import RunSettings, Server
from splitsecond.benchmark.runs.targets import LocalServers, advised, resolve
from splitsecond.benchmark.statistics.accuracy import Accuracy
from splitsecond.cli import option_values
from splitsecond.cli.console import Console
from splitsecond.cli.files import check_json, write_json
from splitsecond.cli.options import ApiFormat, ApiKeyEnv, BaseUrl, Json, Model, option
from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.errors import CallerFault, Fault
from splitsecond.core.observation import ArrivalClock, Observation
from splitsecond.core.service import Call
from splitsecond.core.transport.kernel import stamping
from splitsecond.core.transport.packets import packet_clock_refusal
from splitsecond.core.transport.timestamping import card_stamps, loopback_send_delays_ns
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.upstream.target import connect
from splitsecond.log.statistics.summary import Summary, summary_of


def doctor(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET...", help="Targets to try, as for bench.", show_default=False
        ),
    ] = None,
    base_url: BaseUrl = None,
    model: Model = "",
    api_key_env: ApiKeyEnv = "",
    api_format: ApiFormat = "",
    levels: Annotated[
        str, typer.Option(metavar="N,N", help="Numbers of parallel streams to measure with.")
    ] = "1,8,32,128,256",
    clock: Annotated[
        str,
        option(
            metavar="CLOCK",
            help="What arrival times are taken from: packets, kernel or process.",
            default="packets where allowed",
        ),
    ] = "",
    json: Json = "",
) -> None:
    """Measure the instrument's own error on this machine.

    \b
    splitsecond doctor
    splitsecond doctor groq/openai/gpt-oss-120b
    splitsecond doctor --base-url http://127.0.0.1:8000/v1 --model mine

    The error is that of TTFT and TPOT, for each number of streams. This takes about half a minute.
    With targets: test each key and model, show the phases of a request, and compare the clocks that
    arrival times can be taken from. Then the instrument is not measured. It also says how late
    requests leave the kernel, and which network cards have timestamps of their own. Exit code 1 if
    a check fails.
    """
    check_json(json)
    settings = RunSettings(clock=clock)
    settings.check()
    addresses = [*map(option_values.full_address, targets or [])]
    names = [each for each in addresses if "://" not in each]
    urls = [*(base_url or []), *(each for each in addresses if "://" in each)]
    servers = option_values.servers(urls, model, api_key_env=api_key_env, api_format=api_format)
    stream_counts = sorted(WHOLE_NUMBERS.read(levels, "--levels"))
    console = Console(stderr=json == "-")
    result: dict[str, object] = {}
    healthy = True
    if names or servers:
        checks = _try_targets(names, servers)
        target_table(checks, console)
        result["targets"] = [
            {
                "target": check.name,
                "works": not check.fault,
                "fault": check.fault,
                "observations": check.observations,
                "first_token": check.first_token,
                "left_after_ns": check.left_after_ns,
            }
            for check in checks
        ]
        healthy &= not any(check.fault for check in checks)
    if not result:
        accuracy = _measure(stream_counts, settings.arrival_clock)
        accuracy_table(accuracy, console)
        result["instrument"] = accuracy
        healthy &= accuracy[0].trusted
    refusal = packet_clock_refusal()
    result["packet_clock"] = {"available": not refusal, "refusal": refusal}
    sending, cards = _sending(), card_stamps()
    result["send_delay_ms"] = sending
    result["hardware_stamps"] = cards
    for advice in (packet_clock_advice(refusal), send_advice(sending), card_advice(cards)):
        console.print(advice, style="dim")
    write_json(result, json)
    raise typer.Exit(0 if healthy else 1)


def _measure(levels: list[int], arrival_clock: ArrivalClock) -> list[Accuracy]:
    progress = Console(stderr=True)
    with progress.status("Measuring the instrument") as status:
        return measure_instrument(
            levels,
            workers=WorkerSettings(arrival_clock=arrival_clock),
            progress=lambda level: status.update(
                f"Measuring the instrument with {level} of {levels[-1]} streams"
            ),
        )


def _sending() -> Summary:
    try:
        delays = loopback_send_delays_ns()
    except OSError:  # no loopback: then nothing is known
        delays = []
    return summary_of([delay / NS_PER_MS for delay in delays])


def _try_targets(names: list[str], servers: list[Server]) -> list[TargetCheck]:
    checks: list[TargetCheck] = []
    candidates: list[tuple[str, list[str], list[Server]]] = [(name, [name], []) for name in names]
    candidates += [(server.name or server.base_url, [], [server]) for server in servers]
    with ExitStack() as started:
        for name, listed, own in candidates:
            try:
                specs = resolve(listed, own, LocalServers(started))
            except CallerFault as fault:  # the others may work
                checks.append(TargetCheck(name, fault=str(fault)))
            else:
                checks += [asyncio.run(_try(spec)) for spec in specs.values()]
    return checks


async def _try(spec: TargetSpec) -> TargetCheck:
    """Send a cold request and a warm one, for eight tokens each, timed by all clocks."""
    seen: list[Observation] = []
    client = ComparingClient()
    body = {"messages": [{"role": "user", "content": "Count from one to ten."}], "max_tokens": 8}
    try:
        with (
            stamping(),
            closing(client),
            closing(connect(spec, seen.append, client=client)) as target,
        ):
            for turn in ("cold", "warm"):
                async with await target(Call(id=turn, body=body, start_ns=clock.now_ns())) as reply:
                    await reply.finished()
                if not seen[-1].ok and seen[-1].fault is not None:
                    words = f"{spec.name}: {seen[-1].fault.message}. {seen[-1].fault.hint}".rstrip()
                    return TargetCheck(spec.name, seen, fault=words)
    except Fault as fault:
        return TargetCheck(spec.name, seen, fault=str(advised(fault, spec)))
    first, sent = client.times.get(seen[-1].first_token_ns or 0), seen[-1].sent_ns or 0
    after = (
        {name: at - sent for name, at in msgspec.structs.asdict(first).items() if at is not None}
        if first
        else {}
    )
    return TargetCheck(spec.name, seen, first_token=after, left_after_ns=client.left_after_ns)
