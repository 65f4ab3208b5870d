"""The client's cost and error with long sessions: `python -m benchmarks.sessions` (about five
minutes).

1 to 64 sessions at a time, each with prompts that grow by 700 tokens a turn, go to a simulated
provider in a process of its own, over sockets. By the simulator's own record, the table of
docs/accuracy.md shows by how much TTFT from the last byte of a request is off, and how long a
request takes to reach the server from its first byte on, which TTFT from the first byte contains.
It also shows the processor time of the client for a turn (with the reading of an answer of 216
tokens) and its memory. `--tokens` and `--sessions` take others.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import mean

import msgspec

from splitsecond.benchmark.load.coordinator import Calibration, PlanListener, run_plan
from splitsecond.benchmark.load.plan import PlannedLoad, PlanSettings, make_plan
from splitsecond.benchmark.load.session_player import SessionPrompts
from splitsecond.benchmark.runs.self_check import simulator_truth
from splitsecond.benchmark.statistics.accuracy import ServerTruth, accuracy
from splitsecond.benchmark.workload.sessions import Session, SessionSet, Turn
from splitsecond.benchmark.workload.workload import Workload
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.wire import openai
from splitsecond.core.wire.api_format import Quirks
from splitsecond.log.statistics.summary import Summary, summary_of
from splitsecond.simulator.process import run_simulator

TURNS = 40
FEW, MORE = 1, 4
"""Turns of each session in the first of two blocks, and how many more in the second. Their
difference in processor time is that of turns alone, without the requests that fill the cache."""
ADDED, ANSWER = 700, 216
WAIT_NS = 4 * NS_PER_S
PROFILE = """
title = "Long prompts"
model = "long"
[prompt_cache]
block_tokens = 1024
saves = 0.5
[[table]]
concurrency = 1
ttft_ms = { p50 = 500, p95 = 500 }
tps = { p50 = 100, p95 = 100 }
"""


def sessions_of(tokens: int) -> SessionSet:
    turns = [
        Turn(
            input_tokens=tokens + ADDED * number,
            output_tokens=ANSWER,
            shared_tokens=tokens + ADDED * (number - 1) if number else 0,
            wait_ns=WAIT_NS,
        )
        for number in range(TURNS)
    ]
    return SessionSet(name="long", format="made", sessions=[Session(id="long", turns=turns)])


def building_ms(tokens: int) -> tuple[float, float]:
    """Return the processor time to build the request of a turn, and to encode it, as means."""
    player = SessionPrompts(Workload(run="r", sessions=sessions_of(tokens)), "c", 1).player(
        sessions_of(tokens).sessions[0], 0
    )
    player.skip(2)
    built: list[float] = []
    encoded: list[float] = []
    for number in range(2, TURNS + 1):
        begin = time.process_time()
        body = player.body(number)
        middle = time.process_time()
        openai.encode(Call(id="x", body=body), "m", Quirks())
        end = time.process_time()
        del body
        player.answered(number, "word " * ANSWER, [], None)
        built.append(middle - begin + time.process_time() - end)
        encoded.append(end - middle)
    return mean(built) * 1000, mean(encoded) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[100_000, 300_000])
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 4, 16, 64])
    options = parser.parse_args()
    for tokens in options.tokens:
        built, encoded = building_ms(tokens)
        print(
            f"{tokens:,} tokens: {built:.2f} ms of processor time to build a turn, {encoded:.2f} "
            f"ms to encode it\n"
        )
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}")
    for tokens in options.tokens:
        for count in options.sessions:
            print(f"| {tokens:,} | {count} | {' | '.join(row(tokens, count))} |", flush=True)


HEADINGS = (
    "tokens",
    "sessions",
    "error of TTFT from the last byte",
    "part from sending",
    "part from reading",
    "first byte to server",
    "sent after due",
    "client's ms a turn",
    "MB",
    "trusted",
)


def row(tokens: int, count: int) -> tuple[str, ...]:
    """Measure `count` sessions, and return the cells of their row. Errors are in ms: p50 / p99 /
    max."""
    observations: list[Observation] = []
    readings: list[InstrumentReading] = []
    memory_mb: list[float] = []

    def read(reading: InstrumentReading) -> None:
        readings.append(reading)
        status = Path(f"/proc/{reading.pid}/status").read_text()
        memory_mb.append(int(status.partition("VmHWM:")[2].split()[0]) / 1024)

    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "long.toml"
        profile.write_text(PROFILE)
        with run_simulator(str(profile)) as (simulated,):
            spec = TargetSpec(name="long", base_url=simulated.base_url, model=simulated.model)
            sessions = sessions_of(tokens)
            plan = make_plan(
                {"long": spec.base_url},
                [PlannedLoad(concurrency=count)],
                PlanSettings(
                    requests=2,
                    blocks=2,
                    sessions=sessions,
                ),
            )
            blocks = [
                msgspec.structs.replace(block, requests=count * turns)
                for block, turns in zip(plan.lanes[0], (FEW, FEW + MORE), strict=True)
            ]
            asyncio.run(
                run_plan(
                    msgspec.structs.replace(plan, lanes=[blocks]),
                    {"long": spec},
                    Calibration(workload=Workload(run="long", sessions=sessions), input_tokens=0),
                    PlanListener(
                        on_observation=observations.append, on_reading=read, on_note=print
                    ),
                )
            )
            truth = {record.request_id: record for record in simulator_truth(simulated.origin)}
    found = accuracy(count, observations, truth, readings)
    measured = [o for o in observations if o.role == "measured" and o.ok]
    late = [(o.sent_ns or 0) - o.due_ns for o in measured]
    leaving = [_leaving_ms(o, truth[o.id]) for o in measured if o.id in truth]
    few, more = readings
    return (
        *(
            _of(error)
            for error in (found.ttft_error_ms, found.send_error_ms, found.receive_error_ms)
        ),
        _of(summary_of(leaving)),
        _of(summary_of([each / NS_PER_MS for each in late])),
        f"{(more.cpu_ns - few.cpu_ns) / NS_PER_MS / (count * MORE):.1f}",
        f"{max(memory_mb):,.0f}",
        "yes" if found.trusted else f"no: {found.why_not}",
    )


def _leaving_ms(o: Observation, true: ServerTruth) -> float:
    """Return how long the request took from its first byte to its last one at the server."""
    assert o.sent_ns is not None
    return (true.received_ns - o.sent_ns) / NS_PER_MS


def _of(summary: Summary) -> str:
    return " / ".join(
        "–" if value is None else f"{value:.2f}"
        for value in (summary.p50, summary.p99, summary.max)
    )


if __name__ == "__main__":
    main()
