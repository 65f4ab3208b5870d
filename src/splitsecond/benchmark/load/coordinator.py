"""The parent's side of a benchmark: it calibrates the targets, sends the plan's blocks to worker
processes, and passes on their reports.

If a target cannot be measured, or if none answers, the run ends before any load is sent. Lanes run
at the same time; each sends its blocks one after another, and starts workers only between them. A
block with more streams than one process should carry is sliced over several, with nodes over all.

The block of a worker that dies is interrupted, without loss of a report, and the next one gets a
new worker, or if it ran on a node, is split over the other nodes. `run_plan` that is cancelled
stops all workers within two seconds and still passes on their last reports.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from splitsecond.benchmark.load.block import RequestBlock
from splitsecond.benchmark.load.calibration import Calibrated, fault_note
from splitsecond.benchmark.load.cost_lease import Budget, CostLease
from splitsecond.benchmark.load.messages import (
    Calibrate,
    CalibrationDone,
    CalibrationFailed,
    Configure,
    ObservationReport,
    ReadingReport,
    Report,
    SendBlock,
    SetWorkload,
    fault_from_record,
)
from splitsecond.benchmark.load.nodes import Node, NodeWorker, shares
from splitsecond.benchmark.load.plan import RunPlan, slices
from splitsecond.benchmark.load.worker_pool import (
    WORKER_COMMAND,
    WorkerHandle,
    WorkerLost,
    WorkerPool,
)
from splitsecond.benchmark.workload.workload import Workload
from splitsecond.core import clock
from splitsecond.core.errors import Fault
from splitsecond.core.observation import ArrivalClock, Observation
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.wording import counted_as
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.construction.expression import targets as targets_of
from splitsecond.routing.construction.user_policies import PolicyFile

MAX_CRASHES = 3
TICK_S = 1.0
"""Time between two reports of how long a pause will still take."""


class RunNote(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    target: str
    condition: str = ""


class PlanResult(msgspec.Struct, kw_only=True):
    """The result of a plan that ran to its end.

    `abandoned` and `interrupted` map a condition to the reason why not all of its requests were
    sent.
    """

    calibrated: dict[str, Calibrated] = {}
    abandoned: dict[str, str] = {}
    interrupted: dict[str, str] = {}


async def _at_once() -> None:
    """Return at once."""


class PlanListener(msgspec.Struct, frozen=True, kw_only=True):
    """Callbacks of a run, in its event loop and in the order of the reports.

    `on_pause` gets the first block of a round that begins later and the seconds until then, about
    once a second; 0: it begins. `at_edge` is awaited before each block, and after the last one.
    `budget` leases its cost to each block. An exception from one of them stops the workers and is
    raised.
    """

    on_observation: Callable[[Observation], None]
    on_reading: Callable[[InstrumentReading], None]
    on_note: Callable[[RunNote], None]
    on_pause: Callable[[RequestBlock, float], None] = lambda block, left_s: None
    at_edge: Callable[[], Awaitable[None]] = _at_once
    budget: Budget | None = None


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Synthetic prompts of `workload` are made `input_tokens` long. `pilot`: also send a request of
    full length."""

    workload: Workload
    input_tokens: int
    pilot: bool = False


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the worker processes that `command` starts, on `nodes` one on each for each lane.

    `arrival_clock` is the best clock for arrival times; with `exact_itl` no stream is read so
    seldom that its ITL is not exact. A block uses at most `most_processes`, by default the number
    of processors. `policy_file` has the policies of the user.
    """

    command: Sequence[str] = WORKER_COMMAND
    arrival_clock: ArrivalClock = "packets"
    exact_itl: bool = False
    most_processes: int | None = None
    policy_file: PolicyFile | None = None
    nodes: Sequence[Node] = ()

    @property
    def arguments(self) -> list[str]:
        return [self.arrival_clock, *(["exact"] if self.exact_itl else [])]


DEFAULT_WORKERS = WorkerSettings()


async def run_plan(
    plan: RunPlan,
    specs: Mapping[str, TargetSpec],
    calibration: Calibration,
    listener: PlanListener,
    workers: WorkerSettings = DEFAULT_WORKERS,
    *,
    blocks: Callable[[Mapping[str, Calibrated]], Sequence[Iterable[RequestBlock]]] | None = None,
) -> PlanResult:
    """Run the plan.

    `specs` maps names to targets. A target of the plan without a spec is a policy, named by its
    expression; `specs` has the targets in it.

    `blocks` decides about the blocks later than `plan`: it is called once, when all targets are
    calibrated, and returns the blocks of each lane, which are asked for the next one when all
    reports of the last one were passed on. A plan without lanes has one lane. Raises the `Fault` of
    the first target that cannot be measured, or of the first target if none answers; the faults of
    the others are noted first.
    """
    reports = _Reports(listener)
    most = workers.most_processes or os.cpu_count() or 1
    async with WorkerPool((*workers.command, *workers.arguments), reports.take) as pool:
        all_targets = dict.fromkeys(condition.target for condition in plan.conditions)
        targets = [dict.fromkeys(block.target for block in lane) for lane in plan.lanes] or [
            all_targets
        ]
        kind = (
            partial(_NodeLane, nodes=workers.nodes, arguments=workers.arguments)
            if workers.nodes
            else _Lane
        )
        lanes = [
            kind(names, specs, pool, reports.result, listener, most, workers.policy_file)
            for names in targets
        ]
        await _together([lane.prepare(calibration) for lane in lanes])
        reports.check(all_targets)
        sent = plan.lanes if blocks is None else blocks(reports.result.calibrated)
        if listener.budget is not None:
            listener.budget.begin([list(names) for names in targets])
        await _together([lane.run(each) for lane, each in zip(lanes, sent, strict=True)])
    return reports.result


class _Reports:
    def __init__(self, listener: PlanListener) -> None:
        self._listener = listener
        self.result = PlanResult()
        self._refused: dict[str, Fault] = {}

    def take(self, report: Report) -> None:
        match report:
            case ObservationReport(observation):
                self._listener.on_observation(observation)
            case ReadingReport(reading):
                self._listener.on_reading(reading)
            case CalibrationDone(target, calibrated):
                self.result.calibrated[target] = calibrated
            case CalibrationFailed(target, fault):
                self._refused[target] = fault_from_record(fault, target)

    def check(self, targets: Iterable[str]) -> None:
        """Note the results of calibration. Raises the first `Fault` that keeps the plan from
        running."""
        if faults := _fatal_faults(targets, self._refused, self.result.calibrated):
            for fault in faults[1:]:
                self._listener.on_note(RunNote(text=fault_note(fault), target=fault.target))
            raise faults[0]
        for target, calibrated in self.result.calibrated.items():
            if calibrated.note:
                self._listener.on_note(RunNote(text=calibrated.note, target=target))


def _fatal_faults(
    targets: Iterable[str], refused: Mapping[str, Fault], calibrated: Mapping[str, Calibrated]
) -> list[Fault]:
    silent = {
        target: fault_from_record(calibration.fault, target)
        for target, calibration in calibrated.items()
        if calibration.fault is not None
    }
    faults = refused or (silent if len(silent) == len(calibrated) else {})
    return [faults[target] for target in targets if target in faults]


class _Lane:
    def __init__(
        self,
        targets: Iterable[str],
        specs: Mapping[str, TargetSpec],
        pool: WorkerPool,
        result: PlanResult,
        listener: PlanListener,
        most_processes: int,
        policy_file: PolicyFile | None,
    ) -> None:
        self._targets = list(targets)
        self._specs = specs
        self._pool = pool
        self._result = result
        self._listener = listener
        self._most_processes = most_processes
        self._policy_file = policy_file
        self._workers: dict[int, WorkerHandle] = {}
        self._crashes = 0
        self._lease_spent = False

    async def prepare(self, task: Calibration) -> None:
        """Calibrate the lane's targets. Raises `WorkerLost`."""
        await self._calibrate(
            Calibrate(self._targets, task.workload, task.input_tokens, task.pilot)
        )

    async def run(self, blocks: Iterable[RequestBlock]) -> None:
        number, begun_ns, budget = 0, clock.now_ns(), self._listener.budget
        for block in blocks:
            if block.condition in self._result.abandoned:
                continue
            if block.round != number:
                await self._pause(block, begun_ns)
                number, begun_ns = block.round, clock.now_ns()
            parts = await self._parts(block)
            await self._listener.at_edge()
            if len(parts) > 1:
                begin_ns = clock.now_ns() + max(
                    self._workers[place].starts_in_ns for place in parts
                )
                parts = {place: replace(part, begin_ns=begin_ns) for place, part in parts.items()}
            lease = None if budget is None else budget.lease(block)
            await self._send_parts(parts, lease)
            if budget is not None:
                budget.ended(block, spent=self._lease_spent)
        if budget is not None:
            budget.lane_ended(self._targets)
        await self._listener.at_edge()

    async def _pause(self, block: RequestBlock, begun_ns: int) -> None:
        """Wait until the round of `block` begins. `begun_ns`: when the round before it did."""
        paused, begin_ns = False, begun_ns + round(block.apart_s * clock.NS_PER_S)
        while (left_s := (begin_ns - clock.now_ns()) / clock.NS_PER_S) > 0:
            paused = True
            self._listener.on_pause(block, left_s)
            await asyncio.sleep(min(left_s, TICK_S))
        if paused:
            self._listener.on_pause(block, 0.0)

    async def _calibrate(self, task: Calibrate) -> None:
        await self._calibrate_from(0, task)

    async def _calibrate_from(self, place: int, task: Calibrate) -> None:
        worker = await self._start(place)
        await worker.do(task)
        await self._send_workloads(worker)

    async def _send_parts(self, parts: Mapping[int, RequestBlock], lease: CostLease | None) -> None:
        """Send the parts of a block; all keep their load up until the last measured request of all
        has ended. They share the `lease`."""
        if lease is not None and len(parts) > 1:
            lease = replace(lease, usd=lease.usd / len(parts))
        measuring = set(parts)
        measured = asyncio.Event()

        def ended(place: int) -> None:
            measuring.discard(place)
            if not measuring:
                measured.set()

        async def release() -> None:
            await measured.wait()
            await _together(
                [self._workers[place].release() for place in parts if place in self._workers]
            )

        held = len(parts) > 1
        sending = [
            self._send(place, SendBlock(part, held, lease), partial(ended, place))
            for place, part in parts.items()
        ]
        await _together([*sending, release()] if held else sending)

    async def _parts(self, block: RequestBlock) -> dict[int, RequestBlock]:
        if self._crashes >= MAX_CRASHES:
            self._lost(
                block,
                "not sent: "
                f"{counted_as(self._crashes, 'worker process has', 'worker processes have')} died",
            )
            return {}
        parts = slices(block, self._most_processes)
        for place in range(len(parts)):
            if place not in self._workers:
                await self._ready(place)
        return dict(enumerate(parts))

    async def _send(self, place: int, task: SendBlock, on_measured: Callable[[], object]) -> None:
        part = task.block
        try:
            ended = await self._workers[place].do(task, on_measured)
        except WorkerLost as fault:
            self._drop(place)
            self._lost(part, f"interrupted: {fault}")
        else:
            self._lease_spent |= ended.spent
            if ended.spent:
                return
            if ended.abandoned and part.condition not in self._result.abandoned:
                self._result.abandoned[part.condition] = ended.abandoned
                self._note(part, f"given up{self._workers[place].where}: {ended.abandoned}")
        finally:
            on_measured()  # nothing more will be measured

    def _drop(self, place: int) -> None:
        self._workers.pop(place, None)
        self._crashes += 1

    async def _start(self, place: int) -> WorkerHandle:
        worker = self._workers[place] = await self._started(place)
        policies = {target: parse(target) for target in self._targets if target not in self._specs}
        inside = [name for policy in policies.values() for name in targets_of(policy)]
        specs = [
            self._specs[name]
            for name in dict.fromkeys((*self._targets, *inside))
            if name in self._specs
        ]
        await worker.configure(Configure(specs, worker.number, list(policies), self._policy_file))
        return worker

    async def _started(self, place: int) -> WorkerHandle:
        return await self._pool.start()

    async def _ready(self, place: int) -> None:
        await self._send_workloads(await self._start(place))

    async def _send_workloads(self, worker: WorkerHandle) -> None:
        for target in self._targets:
            # the others cannot be measured, which ends the run
            if target in self._result.calibrated:
                await worker.configure(
                    SetWorkload(target, self._result.calibrated[target].workload)
                )

    def _lost(self, block: RequestBlock, why: str) -> None:
        if self._result.interrupted.get(block.condition) != why:
            self._result.interrupted[block.condition] = why
            self._note(block, why)

    def _note(self, block: RequestBlock, text: str) -> None:
        self._listener.on_note(RunNote(text=text, target=block.target, condition=block.condition))


class _NodeLane(_Lane):
    """A lane with a worker on each node. A node whose worker was lost is not used again."""

    def __init__(self, *lane: Any, nodes: Sequence[Node], arguments: Sequence[str]) -> None:
        super().__init__(*lane)
        self._nodes = nodes
        self._arguments = arguments
        self._left = list(range(len(nodes)))

    async def _calibrate(self, task: Calibrate) -> None:
        """Calibrate from the first node, or if it is lost, from the next one. Raises
        `WorkerLost`."""
        while True:
            place = self._left[0]
            try:
                await self._calibrate_from(place, task)
            except WorkerLost as fault:
                self._drop(place)
                if not self._left:
                    raise
                text = f"calibrated again, without node {self._nodes[place].name}: {fault}"
                self._listener.on_note(RunNote(text=text, target=self._targets[0]))
            else:
                return

    async def _parts(self, block: RequestBlock) -> dict[int, RequestBlock]:
        starting = [place for place in self._left if place not in self._workers]
        await _together([self._try_ready(place, block) for place in starting])
        if not self._left:
            self._lost(block, "not sent: all nodes are lost")
            return {}
        return dict(zip(self._left, shares(block, len(self._left)), strict=False))

    async def _try_ready(self, place: int, block: RequestBlock) -> None:
        try:
            await self._ready(place)
        except WorkerLost as fault:
            self._drop(place)
            self._note(block, f"sent without node {self._nodes[place].name}: {fault}")

    def _drop(self, place: int) -> None:
        super()._drop(place)
        self._left.remove(place)

    async def _started(self, place: int) -> WorkerHandle:
        node = self._nodes[place]
        pipe = await node.start(self._arguments)
        worker = self._pool.add(
            NodeWorker(pipe, self._pool.on_report, self._pool.next_number(), node.name)
        )
        await worker.read_clock()
        return worker


async def _together(doing: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all at once. The first error cancels the others and is raised, without an exception
    group."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in doing:
                group.create_task(each)
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
