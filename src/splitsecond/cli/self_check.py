"""Measures this machine's instrument: the bench's own workers against a simulated provider that keeps the truth.

Nothing here is a copy of the measurement: the same worker processes, transport, decoder and timing that `bench` uses
send the requests. The simulator logs when it handed each token to the kernel; `analysis.accuracy` compares.
"""

import asyncio
import urllib.request
from collections.abc import Callable, Sequence

import msgspec

from splitsecond.analysis.accuracy import Accuracy, accuracy
from splitsecond.load.conductor import conduct
from splitsecond.load.plan import Load, make_plan
from splitsecond.load.workload import Workload
from splitsecond.simulator.process import running
from splitsecond.timing.instrument import InstrumentReading
from splitsecond.timing.observation import Observation
from splitsecond.upstream.spec import TargetSpec

YARDSTICK = "steady-100"
TOKENS = 100
LEVELS = (1, 8, 32, 128, 256)
TARGET = "sim"


class _Sent(msgspec.Struct):
    """What we need of a record of the simulator."""

    request_id: str
    actual_ns: list[int]


def measure_instrument(
    levels: Sequence[int] = LEVELS,
    *,
    rounds: int = 2,
    tokens: int = TOKENS,
    processes: int | None = None,
    progress: Callable[[int], None] = lambda level: None,
) -> list[Accuracy]:
    """The instrument's error with so many streams of 100 tokens/s, level by level; `progress` hears each level begin.

    Each level sends `rounds` answers of `tokens` per stream (at least 8 in all), after one per stream to warm up.
    """
    results = []
    with running(YARDSTICK) as (simulated,):
        spec = TargetSpec(name=TARGET, base_url=simulated.base_url, model=simulated.model)
        for level in levels:
            progress(level)
            results.append(_measure(spec, level, max(8, rounds * level), tokens, simulated.origin, processes))
    return results


def _measure(spec: TargetSpec, level: int, requests: int, tokens: int, origin: str, processes: int | None) -> Accuracy:
    observations: list[Observation] = []
    readings: list[InstrumentReading] = []
    run_id = f"self-check-{level}"
    asyncio.run(
        conduct(
            make_plan({TARGET: spec.base_url}, [Load(concurrency=level)], requests=requests),
            {TARGET: spec},
            Workload(run=run_id, output_tokens=tokens),
            input_tokens=64,
            on_observation=observations.append,
            on_reading=readings.append,
            on_note=lambda note: None,
            most_processes=processes,
        )
    )
    sent = {record.request_id: record.actual_ns for record in _truth(origin)}
    return accuracy(level, observations, sent, readings)


def _truth(origin: str) -> list[_Sent]:
    """What the simulator sent when, by the id that each request carried; it forgets it."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"{origin}/truth", timeout=30) as answer:
        records = msgspec.json.decode(answer.read(), type=list[_Sent])
    with direct.open(urllib.request.Request(f"{origin}/truth", method="DELETE"), timeout=30):
        return records
