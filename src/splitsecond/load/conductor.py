"""The parent's side of a benchmark: prepares the targets, sends the plan's blocks to worker processes, passes on what
they report.

Each lane has worker processes of its own, started before they are needed and between blocks, never inside one. First
every lane prepares its targets. A target that cannot be measured ends the run before any load was put on the others;
so do targets of which not one answers; where some do, the run goes on. Then the lanes run at the same time, each
sending its blocks one after another; a block of more streams than one process should carry goes out in slices to
several.

Nothing that was reported is lost: not when a worker dies (its block is interrupted, the next one gets a new worker),
and not when `conduct` is cancelled, which stops all workers within two seconds and still passes on their last reports.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from splitsecond import clock
from splitsecond.errors import Fault
from splitsecond.load.block import Block
from splitsecond.load.calibration import Calibrated, in_words
from splitsecond.load.crew import WORKER_COMMAND, Crew, Member, WorkerLost
from splitsecond.load.messages import Begin, Learn, Observed, Prepare, Prepared, Read, Refused, Report, Send, revive
from splitsecond.load.plan import Plan, slices
from splitsecond.load.workload import Workload
from splitsecond.policy.expression import parse
from splitsecond.policy.expression import targets as targets_of
from splitsecond.timing.instrument import InstrumentReading
from splitsecond.timing.observation import Observation
from splitsecond.upstream.spec import TargetSpec

MOST_CRASHES = 3
"""Workers that one lane may lose before the rest of it is given up."""
SLICES_START_AFTER_NS = 100 * clock.NS_PER_MS
"""Time for every process to have its slice, before the moment at which all of them start."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a reader of the run should know of a target, or of one condition."""

    text: str
    target: str
    condition: str = ""


class Outcome(msgspec.Struct, kw_only=True):
    """What became of a plan that ran to its end.

    `calibrated` per target; `abandoned` and `interrupted` map conditions to why not all of their requests were sent.
    """

    calibrated: dict[str, Calibrated] = {}
    abandoned: dict[str, str] = {}
    interrupted: dict[str, str] = {}


async def conduct(
    plan: Plan,
    specs: Mapping[str, TargetSpec],
    workload: Workload,
    *,
    input_tokens: int,
    on_observation: Callable[[Observation], None],
    on_reading: Callable[[InstrumentReading], None],
    on_note: Callable[[Note], None],
    decided_later: Iterable[Block] = (),
    command: Sequence[str] = WORKER_COMMAND,
    most_processes: int | None = None,
) -> Outcome:
    """Runs the plan. `specs` by target name; `workload` as asked, with synthetic prompts made `input_tokens` long.

    A target of the plan that has no spec is a policy, its name the expression; `specs` has those of the targets in it.

    A plan without lanes is one whose blocks nobody knows yet: `decided_later` is asked for the next one when the last
    has ended and all that it reported was passed on. They go to the targets of the plan's conditions.

    The callbacks run in this task's loop, in the order of the reports. What one of them raises stops the workers and
    passes through. `most_processes` for one block: by default as many as there are processors. Raises the `Fault` of
    the first target that cannot be measured at all, or of the first one where none answers; those of other targets
    are noted before.
    """
    outcome = Outcome()
    refused: dict[str, Fault] = {}

    def on_report(report: Report) -> None:
        match report:
            case Observed(observation):
                on_observation(observation)
            case Read(reading):
                on_reading(reading)
            case Prepared(target, calibrated):
                outcome.calibrated[target] = calibrated
            case Refused(target, fault):
                refused[target] = revive(fault, target)

    most = most_processes or os.cpu_count() or 1
    async with Crew(command, on_report) as crew:
        asked = dict.fromkeys(condition.target for condition in plan.conditions)
        lanes = [
            _Lane(dict.fromkeys(block.target for block in blocks), blocks, specs, crew, outcome, on_note, most)
            for blocks in plan.lanes
        ] or [_Lane(asked, decided_later, specs, crew, outcome, on_note, most)]
        await _together([lane.prepare(workload, input_tokens) for lane in lanes])
        if faults := _hopeless(asked, refused, outcome.calibrated):
            for fault in faults[1:]:
                on_note(Note(text=in_words(fault), target=fault.target))
            raise faults[0]
        for target, calibrated in outcome.calibrated.items():
            if calibrated.note:
                on_note(Note(text=calibrated.note, target=target))
        await _together([lane.run() for lane in lanes])
    return outcome


def _hopeless(
    targets: Iterable[str], refused: Mapping[str, Fault], calibrated: Mapping[str, Calibrated]
) -> list[Fault]:
    """Why the plan cannot be carried out, a fault for each target to blame, in the order asked; empty if it can."""
    mute = {target: revive(found.fault, target) for target, found in calibrated.items() if found.fault is not None}
    faults = refused or (mute if len(mute) == len(calibrated) else {})
    return [faults[target] for target in targets if target in faults]


class _Lane:
    """Blocks that are sent one after another, and the workers that send them."""

    def __init__(
        self,
        targets: Iterable[str],
        blocks: Iterable[Block],
        specs: Mapping[str, TargetSpec],
        crew: Crew,
        outcome: Outcome,
        on_note: Callable[[Note], None],
        most_processes: int,
    ) -> None:
        self._blocks = blocks
        self._targets = list(targets)
        self._specs = specs
        self._crew = crew
        self._outcome = outcome
        self._on_note = on_note
        self._most_processes = most_processes
        self._members: dict[int, Member] = {}
        self._crashes = 0

    async def prepare(self, workload: Workload, input_tokens: int) -> None:
        """Sends the first requests to the lane's targets. Raises `WorkerLost`."""
        member = await self._hire(0)
        await member.do(Prepare(self._targets, workload, input_tokens))
        await self._teach(member)

    async def run(self) -> None:
        """Sends the blocks."""
        for block in self._blocks:
            if block.condition in self._outcome.abandoned:
                continue
            if self._crashes >= MOST_CRASHES:
                self._lost(block, f"not sent: this lane has lost {self._crashes} worker processes")
                continue
            parts = slices(block, self._most_processes)
            for place in range(len(parts)):
                if place not in self._members:
                    await self._teach(await self._hire(place))
            if len(parts) > 1:
                begin_ns = clock.now_ns() + SLICES_START_AFTER_NS
                parts = [msgspec.structs.replace(part, begin_ns=begin_ns) for part in parts]
            await _together([self._send(place, part) for place, part in enumerate(parts)])

    async def _send(self, place: int, part: Block) -> None:
        try:
            ended = await self._members[place].do(Send(part))
        except WorkerLost as fault:
            del self._members[place]
            self._crashes += 1
            self._lost(part, f"interrupted: {fault}")
        else:
            if ended.abandoned and part.condition not in self._outcome.abandoned:
                self._outcome.abandoned[part.condition] = ended.abandoned
                self._note(part, f"given up: {ended.abandoned}")

    async def _hire(self, place: int) -> Member:
        member = await self._crew.hire()
        self._members[place] = member
        policies = {target: parse(target) for target in self._targets if target not in self._specs}
        inside = [name for policy in policies.values() for name in targets_of(policy)]
        called = dict.fromkeys(name for name in (*self._targets, *inside) if name in self._specs)
        await member.tell(Begin([self._specs[name] for name in called], self._crew.hired - 1, list(policies)))
        return member

    async def _teach(self, member: Member) -> None:
        for target in self._targets:
            if target in self._outcome.calibrated:  # else it refused, which ends the run
                await member.tell(Learn(target, self._outcome.calibrated[target].workload))

    def _lost(self, block: Block, why: str) -> None:
        self._outcome.interrupted[block.condition] = why
        self._note(block, why)

    def _note(self, block: Block, text: str) -> None:
        self._on_note(Note(text=text, target=block.target, condition=block.condition))


async def _together(doing: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Runs all; the first error cancels the others and is raised as itself."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in doing:
                group.create_task(each)
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
