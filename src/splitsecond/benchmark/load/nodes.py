"""Load from several machines: nodes, each with a worker process and a clock of its own.

Only the start of a block and the steady window of a condition relate the times of several nodes. So
the offset of each node's clock is measured before and after each block, and the times of the block
are shifted by it. The shortest of several round trips counts, so the offset is known to half its
length (F. Cristian, "Probabilistic clock synchronization", Distributed Computing 3, 1989), and
`MAX_DRIFT_PPM` of the time since.

In a closed loop each node keeps its share of the requests in flight. In an open loop each arrival
of the schedule goes to a random node, which splits a Poisson process at rate λ into N independent
ones at λ/N (J. Kingman, "Poisson Processes", 1993, the colouring theorem).
"""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

import msgspec
from msgspec.structs import replace

from splitsecond.benchmark.load.block import RequestBlock
from splitsecond.benchmark.load.messages import (
    Calibrate,
    ClockReport,
    ObservationReport,
    ReadClock,
    ReadingReport,
    Report,
    SendBlock,
    TaskEnded,
)
from splitsecond.benchmark.load.plan import sliced
from splitsecond.benchmark.load.worker_pool import OnReport, Pipe, WorkerHandle, WorkerLost
from splitsecond.core import clock
from splitsecond.core.observation import Observation
from splitsecond.core.timing.instrument import InstrumentReading

PROBES = 10
MAX_DRIFT_PPM = 500
"""Largest difference of the rates of two clocks: the most by which NTP slews a clock (RFC 5905,
MAXFREQ)."""
START_AFTER_NS = 500 * clock.NS_PER_MS
"""Least time for every node to receive its share before all of them start together."""
START_AFTER_ROUND_TRIPS = 10

_MOMENTS = (
    "due_ns",
    "start_ns",
    "sent_ns",
    "written_ns",
    "head_ns",
    "first_event_ns",
    "first_token_ns",
    "first_answer_ns",
    "last_token_ns",
    "end_ns",
)
"""The fields of an observation that are moments; 0 and None mean that there is none."""


class Node(Protocol):
    """A machine that can start workers. `name` is unique among the nodes of a run."""

    @property
    def name(self) -> str: ...

    async def start(self, arguments: Sequence[str]) -> Pipe:
        """Start a worker with these command-line arguments. Raises `WorkerLost` if the node is
        lost."""
        ...


class ClockOffset(msgspec.Struct, frozen=True):
    """A node's monotonic clock minus ours, which was known to ± `error_ns` at `at_ns`."""

    offset_ns: int = 0
    error_ns: int = 0
    at_ns: int = 0

    def error_at(self, moment_ns: int) -> int:
        return self.error_ns + abs(moment_ns - self.at_ns) * MAX_DRIFT_PPM // 1_000_000


_UNKNOWN = ClockOffset()


class NodeWorker(WorkerHandle):
    """The worker of a node. Its reports name the node, and their times are on our clock."""

    def __init__(self, pipe: Pipe, on_report: OnReport, number: int, node: str) -> None:
        super().__init__(pipe, self._take, number)
        self.node = node
        self.where = f" on node {node}"
        self.clock = _UNKNOWN
        self._report_on = on_report
        self._readings: list[InstrumentReading] = []

    @property
    def starts_in_ns(self) -> int:
        return max(START_AFTER_NS, START_AFTER_ROUND_TRIPS * 2 * self.clock.error_ns)

    async def read_clock(self) -> ClockOffset:
        """Measure the offset of the clock. The best known one is kept in `clock`. Raises
        `WorkerLost`."""
        measured = []
        for _ in range(PROBES):
            sent_ns = clock.now_ns()
            writing = asyncio.create_task(self._write(ReadClock()))
            report = await self._read()
            received_ns = clock.now_ns()
            await writing
            if not isinstance(report, ClockReport):
                raise await self._lost("while its clock was read")
            error_ns = -(-(received_ns - sent_ns) // 2)
            measured.append(
                ClockOffset(report.now_ns - (sent_ns + received_ns) // 2, error_ns, received_ns)
            )
        best = min(measured, key=lambda each: each.error_ns)
        if self.clock is _UNKNOWN or best.error_ns < self.clock.error_at(received_ns):
            self.clock = best
        return best

    async def do(
        self, task: Calibrate | SendBlock, on_measured: Callable[[], object] = lambda: None
    ) -> TaskEnded:
        """As `WorkerHandle.do`. The loss of a worker in a block leaves a reading that says so."""
        if not isinstance(task, SendBlock):
            return await super().do(task, on_measured)
        block, before, begin_ns = task.block, self.clock, clock.now_ns()
        starts_ns = block.begin_ns + before.offset_ns if block.begin_ns else 0
        try:
            part = replace(block, begin_ns=starts_ns)
            ended = await super().do(replace(task, block=part), on_measured)
        except WorkerLost as lost:
            reading = InstrumentReading(
                condition=block.condition,
                worker=self.number,
                begin_ns=begin_ns,
                end_ns=clock.now_ns(),
                node=self.node,
                clock_offset_ns=before.offset_ns,
                clock_error_ns=before.error_at(clock.now_ns()),
                lost=lost.message,
            )
            self._report_on(ReadingReport(reading))
            raise
        try:
            after = await self.read_clock()
        except WorkerLost:  # the block is complete; the next task fails
            after = before
        by_the_later = abs(after.offset_ns - before.offset_ns) + after.error_at(begin_ns)
        self._pass_on(min(before.error_at(clock.now_ns()), by_the_later))
        return ended

    async def stop(self) -> None:
        await super().stop()
        self._pass_on(self.clock.error_at(clock.now_ns()))

    def _take(self, report: Report) -> None:
        offset_ns = self.clock.offset_ns
        match report:
            case ObservationReport(observation):
                self._report_on(ObservationReport(on_our_clock(observation, self.node, offset_ns)))
            case ReadingReport(reading):
                shifted = replace(
                    reading,
                    begin_ns=reading.begin_ns - offset_ns,
                    end_ns=reading.end_ns - offset_ns,
                    frozen=[(begin - offset_ns, end - offset_ns) for begin, end in reading.frozen],
                    node=self.node,
                    clock_offset_ns=offset_ns,
                )
                self._readings.append(shifted)
            case _:
                self._report_on(report)

    def _pass_on(self, error_ns: int) -> None:
        readings, self._readings = self._readings, []
        for reading in readings:
            self._report_on(ReadingReport(replace(reading, clock_error_ns=error_ns)))


def on_our_clock(observation: Observation, node: str, offset_ns: int) -> Observation:
    """Return an observation of `node` with its times shifted by `offset_ns`, its clock minus
    ours."""
    moments = {name: at - offset_ns for name in _MOMENTS if (at := getattr(observation, name))}
    token_at = [at - offset_ns for at in observation.token_at]
    return replace(observation, node=node, token_at=token_at, **moments)


def shares(block: RequestBlock, nodes: int) -> list[RequestBlock]:
    """Split `block` over at most `nodes`. A share without requests is left out."""
    if not block.due or block.concurrency is not None:
        return sliced(block, max(1, min(nodes, block.concurrency or 1, block.requests)))
    random = Random(f"{block.condition}/{block.round}/{nodes}")
    chosen: list[list[int]] = [[] for _ in range(nodes)]
    for place in range(len(block.due)):
        chosen[random.randrange(nodes)].append(place)
    numbers = block.numbers or range(
        block.first, block.first + len(block.due) * block.stride, block.stride
    )
    measured_from, cooldowns_from = block.warmups, block.warmups + block.requests
    return [
        replace(
            block,
            warmups=sum(place < measured_from for place in own),
            requests=sum(measured_from <= place < cooldowns_from for place in own),
            cooldowns=sum(place >= cooldowns_from for place in own),
            due=[block.due[place] for place in own],
            numbers=[numbers[place] for place in own],
        )
        for own in chosen
        if own
    ]
