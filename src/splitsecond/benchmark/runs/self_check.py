"""The instrument's own error on this machine: a benchmark of a simulated provider that logs what it
sent when.

The requests are sent by the same worker processes, transport, decoder and timing that `bench` uses.
"""

import asyncio
import math
import socket
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import msgspec

from splitsecond.benchmark.load.coordinator import (
    DEFAULT_WORKERS,
    Calibration,
    PlanListener,
    WorkerSettings,
    run_plan,
)
from splitsecond.benchmark.load.plan import PlannedLoad, PlanSettings, make_plan
from splitsecond.benchmark.server_view.reader import MetricsPage
from splitsecond.benchmark.server_view.watcher import ServerWatcher
from splitsecond.benchmark.statistics.accuracy import Accuracy, ServerTruth, accuracy
from splitsecond.benchmark.workload.workload import Workload
from splitsecond.core.errors import Fault
from splitsecond.core.observation import ArrivalClock, Observation
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.core.transport.client import Client
from splitsecond.core.transport.exchange import Exchange, Origin, Receiver, Request
from splitsecond.core.transport.timestamping import sent_stamps, stamp_sends
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.simulator.process import RunningProvider, run_simulator

YARDSTICK, SERVER_TPS = "steady-100", 100.0
TOKENS = 100
LEVELS = (1, 8, 32, 128, 256)
TARGET = "sim"
MIN_REQUESTS = 8
STAMP_TRIES, STAMP_WAIT_S = 10, 0.0005
"""How often to look for the stamp of a packet that leaves later, and the time between."""


def measure_instrument(
    levels: Sequence[int] = LEVELS,
    *,
    rounds: int = 2,
    tokens: int = TOKENS,
    least: int = MIN_REQUESTS,
    workers: WorkerSettings = DEFAULT_WORKERS,
    progress: Callable[[int], None] = lambda level: None,
    servers: int = 1,
    pages: Sequence[MetricsPage] = (),
) -> list[Accuracy]:
    """Measure the instrument's error at each level, a number of parallel streams of 100 tokens/s.

    Each level sends `rounds` responses of `tokens` per stream (`least` or more in all), after one
    per stream to warm up. `progress` is called when a level begins. The streams are those of so
    many simulated `servers`, each a process that other measuring processes measure. `pages` of
    metrics are read meanwhile, as a bench does. Runs an event loop of its own.
    """
    results = []
    with ExitStack() as started:
        simulated = [started.enter_context(run_simulator(YARDSTICK))[0] for _ in range(servers)]
        for level in levels:
            progress(level)
            results.append(
                _measure(simulated, level, max(least, rounds * level), tokens, workers, pages)
            )
    return results


def _measure(
    servers: Sequence[RunningProvider],
    level: int,
    requests: int,
    tokens: int,
    workers: WorkerSettings,
    pages: Sequence[MetricsPage],
) -> Accuracy:
    observations: list[Observation] = []
    readings: list[InstrumentReading] = []
    specs = {
        name: TargetSpec(name=name, base_url=server.base_url, model=server.model)
        for number, server in enumerate(servers, 1)
        for name in [f"{TARGET}-{number}"]
    }
    of_each, requests_each = (math.ceil(count / len(servers)) for count in (level, requests))
    plan = make_plan(
        {name: spec.base_url for name, spec in specs.items()},
        [PlannedLoad(concurrency=of_each)],
        PlanSettings(
            requests=requests_each,
            blocks=1,
            side_by_side=True,
        ),
    )

    async def measure() -> None:
        async with ServerWatcher(pages, lambda sample: None) as watcher:
            await run_plan(
                plan,
                specs,
                Calibration(
                    workload=Workload(run=f"self-check-{level}", output_tokens=tokens),
                    input_tokens=64,
                ),
                PlanListener(
                    on_observation=observations.append,
                    on_reading=readings.append,
                    on_note=lambda note: None,
                    at_edge=watcher.read_now,
                ),
                workers,
            )

    asyncio.run(measure())
    truth = {
        record.request_id: record for server in servers for record in simulator_truth(server.origin)
    }
    return accuracy(of_each * len(servers), observations, truth, readings, server_tps=SERVER_TPS)


def simulator_truth(origin: str) -> list[ServerTruth]:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"{origin}/truth", timeout=30) as answer:
        records = msgspec.json.decode(answer.read(), type=list[ServerTruth])
    with direct.open(urllib.request.Request(f"{origin}/truth", method="DELETE"), timeout=30):
        return records


class ClockTimes(msgspec.Struct, frozen=True):
    """The arrival of the same bytes by each clock, in monotonic nanoseconds; `packets` None: not
    available."""

    packets: int | None
    kernel: int
    process: int


class ComparingClient(Client):
    """A client that takes the arrival times of every read from all clocks at once.

    `times` maps the arrival time that the receiver gets to those of all clocks. The kernel's time
    of a read is that of its last packet, and the process's is that of the read itself.
    `left_after_ns`: how long after it was written the last request left the kernel; None: not
    known.
    """

    def __init__(self) -> None:
        super().__init__(gather=True, arrival_clock="packets", opened=self._stamp)
        self.times: dict[int, ClockTimes] = {}
        self.left_after_ns: int | None = None
        self._stamped: socket.socket | None = None

    async def send(
        self,
        origin: Origin,
        request: Request,
        receiver: Receiver,
        *,
        connect_deadline_ns: int | None = None,
    ) -> Exchange:
        comparing = _ComparingReceiver(receiver, self.times)
        exchange = await super().send(
            origin, request, comparing, connect_deadline_ns=connect_deadline_ns
        )
        self.left_after_ns = await self._left_after(exchange)
        return exchange

    async def _left_after(self, exchange: Exchange) -> int | None:
        if self._stamped is None:
            return None
        for _ in range(STAMP_TRIES):
            left_ns = sent_stamps(self._stamped).left_ns
            if left_ns is not None:
                return left_ns - exchange.sent_ns
            await asyncio.sleep(STAMP_WAIT_S)
        return None

    def _stamp(self, sock: socket.socket) -> None:
        self._stamped = sock if stamp_sends(sock) else None


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
            self._times[packet] = ClockTimes(
                packet if source == "packets" else None, at, self._read_ns
            )
        self._receiver.body_received(at, lag, source, data)

    def ended(self, at: int) -> None:
        self._receiver.ended(at)

    def failed(self, at: int, fault: Fault) -> None:
        self._receiver.failed(at, fault)
