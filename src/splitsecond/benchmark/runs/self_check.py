"""The instrument's own error on this machine: a benchmark of a simulated provider that logs what it sent when.

The requests are sent by the same worker processes, transport, decoder and timing that `bench` uses.
"""

import asyncio
import urllib.request
from collections.abc import Callable, Mapping, Sequence

import msgspec

from splitsecond.benchmark.load.coordinator import DEFAULT_WORKERS, Calibration, PlanListener, WorkerSettings, run_plan
from splitsecond.benchmark.load.plan import PlannedLoad, make_plan
from splitsecond.benchmark.load.workload import Workload
from splitsecond.benchmark.statistics.accuracy import Accuracy, ServerTruth, accuracy
from splitsecond.core.errors import Fault
from splitsecond.core.observation import ArrivalClock, Observation
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.core.transport.client import Client
from splitsecond.core.transport.exchange import Exchange, Origin, Receiver, Request
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.simulator.process import RunningProvider, run_simulator

YARDSTICK = "steady-100"
TOKENS = 100
LEVELS = (1, 8, 32, 128, 256)
TARGET = "sim"
MIN_REQUESTS = 8


def measure_instrument(
    levels: Sequence[int] = LEVELS,
    *,
    rounds: int = 2,
    tokens: int = TOKENS,
    least: int = MIN_REQUESTS,
    workers: WorkerSettings = DEFAULT_WORKERS,
    progress: Callable[[int], None] = lambda level: None,
) -> list[Accuracy]:
    """Measure the instrument's error at each level, a number of parallel streams of 100 tokens/s.

    Each level sends `rounds` responses of `tokens` per stream (`least` or more in all), after one per stream to warm
    up. `progress` is called when a level begins. Runs an event loop of its own.
    """
    results = []
    with run_simulator(YARDSTICK) as (simulated,):
        for level in levels:
            progress(level)
            results.append(_measure(simulated, level, max(least, rounds * level), tokens, workers))
    return results


def _measure(simulated: RunningProvider, level: int, requests: int, tokens: int, workers: WorkerSettings) -> Accuracy:
    observations: list[Observation] = []
    readings: list[InstrumentReading] = []
    spec = TargetSpec(name=TARGET, base_url=simulated.base_url, model=simulated.model)
    asyncio.run(
        run_plan(
            make_plan({TARGET: spec.base_url}, [PlannedLoad(concurrency=level)], requests=requests, blocks=1),
            {TARGET: spec},
            Calibration(workload=Workload(run=f"self-check-{level}", output_tokens=tokens), input_tokens=64),
            PlanListener(on_observation=observations.append, on_reading=readings.append, on_note=lambda note: None),
            workers,
        )
    )
    truth = {record.request_id: record for record in simulator_truth(simulated.origin)}
    return accuracy(level, observations, truth, readings)


def simulator_truth(origin: str) -> list[ServerTruth]:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"{origin}/truth", timeout=30) as answer:
        records = msgspec.json.decode(answer.read(), type=list[ServerTruth])
    with direct.open(urllib.request.Request(f"{origin}/truth", method="DELETE"), timeout=30):
        return records


class ClockTimes(msgspec.Struct, frozen=True):
    """The arrival of the same bytes by each clock, in monotonic nanoseconds; `packets` None: not available."""

    packets: int | None
    kernel: int
    process: int


class ComparingClient(Client):
    """A client that takes the arrival times of every read from all clocks at once.

    `times` maps the arrival time that the receiver gets to those of all clocks. The kernel's time of a read is that of
    its last packet, and the process's is that of the read itself.
    """

    def __init__(self) -> None:
        super().__init__(gather=True, arrival_clock="packets")
        self.times: dict[int, ClockTimes] = {}

    async def send(
        self, origin: Origin, request: Request, receiver: Receiver, *, connect_deadline_ns: int | None = None
    ) -> Exchange:
        comparing = _ComparingReceiver(receiver, self.times)
        return await super().send(origin, request, comparing, connect_deadline_ns=connect_deadline_ns)


class _ComparingReceiver:
    def __init__(self, receiver: Receiver, times: dict[int, ClockTimes]) -> None:
        self._receiver = receiver
        self._times = times
        self._read: list[int] = []
        self._read_ns = 0

    def head_received(self, at: int, status: int, headers: Mapping[str, str]) -> None:
        self._receiver.head_received(at, status, headers)

    def body_received(self, at: int, lag: int, source: ArrivalClock, data: bytes) -> None:
        if at + lag != self._read_ns:
            self._read, self._read_ns = [], at + lag
        self._read.append(at)
        for packet in self._read:
            self._times[packet] = ClockTimes(packet if source == "packets" else None, at, self._read_ns)
        self._receiver.body_received(at, lag, source, data)

    def ended(self, at: int) -> None:
        self._receiver.ended(at)

    def failed(self, at: int, fault: Fault) -> None:
        self._receiver.failed(at, fault)
