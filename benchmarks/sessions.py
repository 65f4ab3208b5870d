"""The client's cost and error with long sessions: `python -m benchmarks.sessions` (about three minutes).

64 sessions at a time, each with prompts of 300,000 tokens that grow by 700 a turn, go to a simulated provider in a
process of its own, over sockets. Printed are the processor time of the client for a turn (with the reading of an answer
of 216 tokens), the time of building and encoding one alone, the client's memory, and the error of its times by the
simulator's own record. `--tokens` and `--sessions` take others.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import mean

import msgspec

from splitsecond.benchmark.load.coordinator import Calibration, PlanListener, run_plan
from splitsecond.benchmark.load.plan import PlannedLoad, make_plan
from splitsecond.benchmark.load.session_player import SessionPrompts
from splitsecond.benchmark.load.sessions import Session, SessionSet, Turn
from splitsecond.benchmark.load.workload import Workload
from splitsecond.benchmark.runs.self_check import simulator_truth
from splitsecond.benchmark.statistics.accuracy import accuracy
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.wire import openai
from splitsecond.core.wire.api_format import Quirks
from splitsecond.simulator.process import run_simulator

TURNS = 40
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
    parser.add_argument("--tokens", type=int, default=300_000)
    parser.add_argument("--sessions", type=int, default=64)
    given = parser.parse_args()
    built, encoded = building_ms(given.tokens)
    print(f"{given.tokens:,} tokens: {built:.2f} ms to build a turn, {encoded:.2f} ms to encode it")
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
            sessions = sessions_of(given.tokens)
            plan = make_plan(
                {"long": spec.base_url},
                [PlannedLoad(concurrency=given.sessions)],
                requests=given.sessions * 4,
                blocks=1,
                sessions=sessions,
            )
            asyncio.run(
                run_plan(
                    plan,
                    {"long": spec},
                    Calibration(workload=Workload(run="long", sessions=sessions), input_tokens=0),
                    PlanListener(on_observation=observations.append, on_reading=read, on_note=print),
                )
            )
            truth = {record.request_id: record for record in simulator_truth(simulated.origin)}
    found = accuracy(given.sessions, observations, truth, readings)
    sent = sum(o.role != "calibration" for o in observations)
    late = sorted((o.sent_ns or 0) - o.due_ns for o in observations if o.role == "measured")
    print(f"{sent} turns, {found.failed} failed, with up to {found.in_flight} in flight, clock {found.clock}")
    print(f"client: {sum(each.cpu_ns for each in readings) / sent / NS_PER_MS:.2f} ms a turn, {max(memory_mb):,.0f} MB")
    print(f"sent after due: p50 {late[len(late) // 2] / NS_PER_MS:.2f} ms, max {late[-1] / NS_PER_MS:.2f} ms")
    for name, error in (("TTFT", found.ttft_error_ms), ("send", found.send_error_ms), ("read", found.receive_error_ms)):
        print(f"error of {name}: p50 {error.p50} ms, p99 {error.p99} ms, max {error.max} ms")
    print(msgspec.json.encode({"trusted": found.trusted, "why_not": found.why_not}).decode())


if __name__ == "__main__":
    main()
