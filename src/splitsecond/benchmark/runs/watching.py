"""A watch: rounds at fixed intervals, each one a run of its own that is judged by the rounds before
it.

Rounds begin at absolute times, whole multiples of one interval after the start; one that is due
while another runs is skipped. A round that fails as a whole (no network, a withdrawn key) is kept
as such, and the watch continues; if only some targets cannot be measured, the others are. A folder
that cannot be written and a reached cost limit end the watch.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from splitsecond.benchmark.findings.gate import Gate
from splitsecond.benchmark.findings.watching import (
    RoundNews,
    WatchFindings,
    WatchHistory,
    WatchRound,
)
from splitsecond.benchmark.load.calibration import fault_note
from splitsecond.benchmark.load.plan import without
from splitsecond.benchmark.rows.records import ConditionFindings, Run
from splitsecond.benchmark.rows.usable_rows import row
from splitsecond.benchmark.runs.cost_limit import announce_rounds
from splitsecond.benchmark.runs.cost_meter import CostLimit, CostMeter, CostReached
from splitsecond.benchmark.runs.measuring import (
    FolderFailed,
    Job,
    Measurement,
    NoProgress,
    Progress,
)
from splitsecond.benchmark.runs.targets import advised
from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, Fault, cannot_write, content_faults, file_faults
from splitsecond.core.money.cost import usd
from splitsecond.core.pacing import Pacer
from splitsecond.core.validation import wrong
from splitsecond.core.wording import counted_as, listed
from splitsecond.log.store.folder import RUN, RunFolder, read_run

T = TypeVar("T")

ACCEPTED = "accepted.json"
"""The file of a watch's folder with the moments at which its drifts were accepted (RFC 3339,
UTC)."""
REMEMBERED = 2000
"""Most past rounds that a new one is judged by: almost three months of hourly ones."""
S_PER_DAY = 24 * 3600


class _Spent(msgspec.Struct):
    cost_usd: float | None = None


class MeasuredRound(msgspec.Struct, frozen=True, kw_only=True):
    """A round that has ended. `news` maps each condition to what the round says about it.

    `breaches` has a sentence for each gate that failed, `unchecked` one for each gate that cannot
    be checked yet.
    """

    run: Run
    folder: Path
    judged: WatchRound
    news: dict[str, list[RoundNews]]
    breaches: list[str]
    unchecked: list[str]


class WatchListener:
    def progress(self, meter: CostMeter) -> Progress:
        return NoProgress()

    def waiting(self, due_ns: int) -> None:
        """The watch waits for the next round, which begins at `due_ns` on the monotonic clock."""

    def note(self, text: str, *, warning: bool = False) -> None:
        """Something the user should know about the watch itself."""

    def ended(self, ended: MeasuredRound) -> None:
        """A round has ended and is stored; also a round that was cancelled after load had reached a
        target."""


class Watch:
    """The rounds of a watch in `folder`. `job` makes the job of each round from its number, counted
    from 0.

    `findings` covers all rounds, those of earlier watches in the same folder included.
    """

    def __init__(
        self,
        job: Callable[[int], Job],
        folder: Path,
        every_ns: int,
        listener: WatchListener,
        *,
        max_cost: float | None = None,
        gates: Sequence[Gate] = (),
    ) -> None:
        self._job = job
        self._folder = folder
        self._every_ns = every_ns
        self._listener = listener
        self._gates = gates
        self._most_usd = max_cost
        self._history = WatchHistory()

    @property
    def findings(self) -> WatchFindings:
        return self._history.findings(self._every_ns / clock.NS_PER_S)

    async def rounds(self, times: int | None = None) -> AsyncIterator[MeasuredRound]:
        """Measure `times` rounds (None: without end) and yield each.

        Raises the `Fault` that ends the watch before its time. When cancelled during a round, it
        keeps what was measured, and passes the round to the listener.
        """
        meter = self._opened()
        number = 0
        async for skipped in due_rounds(self._every_ns, times, self._wait):
            if skipped:
                missed = counted_as(skipped, "round was", "rounds were")
                self._listener.note(
                    f"{missed} skipped, as the one before took longer than the interval.",
                    warning=True,
                )
            yield await self._round(self._job(number), meter)
            number += 1
            await asyncio.sleep(0)  # takes a cancellation that came while the round was judged

    def _opened(self) -> CostMeter:
        """Read the past rounds and announce the cost. Raises `CostReached` if there is no budget
        left."""
        job = self._job(0)
        self._history, count, spent = recalled(self._folder, self._listener)
        limit = CostLimit(prices=job.prices, most_usd=self._most_usd)
        cost = announce_rounds(
            job.plan,
            job.workload,
            limit,
            job.specs,
            input_tokens=job.input_tokens,
            per_day=S_PER_DAY * clock.NS_PER_S / self._every_ns,
            spent_usd=spent,
        )
        if limit.most_usd is not None and spent > limit.most_usd:
            raise CostReached(
                f"the rounds in {self._folder} have cost {usd(spent)}, the limit is "
                f"{usd(limit.most_usd)}",
                kind="cost_reached",
                phase="queue",
                hint="Raise the limit, or watch in another folder.",
            )
        if count:
            self._listener.note(f"Continuing after {counted_as(count, 'round')} in {self._folder}.")
        if cost:
            self._listener.note(cost)
        return job.meter(self._most_usd, spent)

    async def _wait(self, due_ns: int) -> None:
        if due_ns > clock.now_ns():
            self._listener.waiting(due_ns)
        await sleep_until(due_ns)

    async def _round(self, job: Job, meter: CostMeter) -> MeasuredRound:
        began = clock.wall_time()
        cancelled: asyncio.CancelledError | None = None
        with RunFolder.create(_unused(self._folder / f"{began:%Y-%m-%dT%H%M%SZ}")) as folder:
            measurement = Measurement(job, folder, meter, self._listener.progress(meter))
            try:
                while not await _succeeds(measurement) and (
                    others := self._of_others(measurement, folder, meter)
                ):
                    measurement = others
            except asyncio.CancelledError as error:
                if not measurement.loaded:
                    folder.discard()
                    raise
                cancelled = error
            if isinstance(measurement.fault, CostReached) and not measurement.observations:
                folder.discard()  # nothing was sent
                raise measurement.fault
            try:
                folder.write_run(measurement.run)
            except OSError as error:
                raise FolderFailed(
                    cannot_write(folder.path, error), kind="disk", phase="queue"
                ) from None
        ended = self._judged(measurement.run, folder.path)
        self._listener.ended(ended)
        if cancelled is not None:
            raise cancelled
        if isinstance(measurement.fault, CostReached | FolderFailed):
            raise measurement.fault
        return ended

    def _of_others(
        self, failed: Measurement, folder: RunFolder, meter: CostMeter
    ) -> Measurement | None:
        """Measure the targets that can be measured; return None, with the cause in the run, if none
        can."""
        job, fault = failed.job, failed.fault
        assert fault is not None  # it failed
        words = fault_note(advised(fault, job.specs.get(fault.target)))
        words = f"{fault.target}: {words}" if fault.target else words
        left = without(job.plan, failed.refused)
        if not left.lanes or left == job.plan:
            failed.run.invalid = [words]
            return None
        job = replace(job, plan=left)
        return Measurement(
            job, folder, meter, self._listener.progress(meter), [*failed.notes, words]
        )

    def _judged(self, run: Run, folder: Path) -> MeasuredRound:
        judged = WatchRound.of(run)
        usual = self._history.usual(judged.rows)
        news = self._history.add(judged)
        breaches, unchecked = [], []
        if judged.finished or judged.failed:
            usual_names = {row(each) for each in usual}
            unknown = [name for each in judged.rows if (name := row(each)) not in usual_names]
            for gate in self._gates:
                breaches += gate.check(judged.rows, usual if gate.relative else None)
                if gate.relative and unknown:
                    unchecked.append(
                        f"{gate.text!r} cannot be checked yet for "
                        f"{listed(unknown)}: too few rounds."
                    )
        return MeasuredRound(
            run=run, folder=folder, judged=judged, news=news, breaches=breaches, unchecked=unchecked
        )


def recalled(folder: Path, listener: WatchListener) -> tuple[WatchHistory, int, float]:
    """Return the history of the rounds in `folder`, their number, and what all rounds have cost, in
    US dollars."""
    folders = sorted(path.parent for path in folder.glob(f"*/{RUN}"))
    older = _readable(folders[:-REMEMBERED], _Spent, listener)
    past = sorted(_readable(folders[-REMEMBERED:], Run, listener), key=lambda run: run.began)
    accepted = sorted(_accepted(folder))
    history = WatchHistory()
    for run in past:
        while accepted and accepted[0] <= run.began:
            accepted.pop(0)
            history.accept()
        history.add(WatchRound.of(run))
    if accepted:
        history.accept()
    spent = [each.cost_usd or 0.0 for each in older] + [run.cost_usd or 0.0 for run in past]
    return history, len(past), sum(spent)


def accept_drifts(
    folder: Path, every_ns: int, listener: WatchListener
) -> tuple[list[str], WatchFindings]:
    """Accept all drifts of the watch in `folder`. Return them as sentences, and the findings
    afterwards.

    Raises `CallerFault` if the folder has no rounds, and `FolderFailed` if it cannot be written.
    """
    history, count, _ = recalled(folder, listener)
    if not count:
        raise wrong("--out", str(folder), "the folder of a watch: it has no rounds")
    path = folder / ACCEPTED
    moments = [*_accepted(folder), clock.wall_time().isoformat(timespec="milliseconds")]
    try:
        path.write_bytes(msgspec.json.encode(moments))
    except OSError as error:
        raise FolderFailed(cannot_write(path, error), kind="disk", phase="queue") from None
    return history.accept(), history.findings(every_ns / clock.NS_PER_S)


def _accepted(folder: Path) -> list[str]:
    path = folder / ACCEPTED
    if not path.exists():
        return []
    with (
        file_faults(f"cannot read {path}", kind="unreadable_file"),
        content_faults(f"{path} is no list of moments", kind="unreadable_file"),
    ):
        return msgspec.json.decode(path.read_bytes(), type=list[str])


def _readable(folders: Sequence[Path], kind: type[T], listener: WatchListener) -> list[T]:
    readable = []
    for folder in folders:
        try:
            readable.append(read_run(folder, kind))
        except CallerFault as fault:
            listener.note(f"ignored: {fault}", warning=True)
    return readable


async def due_rounds(
    every_ns: int, times: int | None, wait: Callable[[int], Awaitable[None]]
) -> AsyncIterator[int]:
    """Yield each time a round is due, `times` times (None: for ever): the number of rounds skipped
    before it.

    `wait` returns at the given time.
    """
    start_ns, slot, begun, skipped = clock.now_ns(), 0, 0, 0
    while times is None or begun < times:
        await wait(start_ns + slot * every_ns)
        yield skipped
        begun += 1
        passed = -(-(clock.now_ns() - start_ns) // every_ns)
        slot, skipped = max(slot + 1, passed), max(0, passed - slot - 1)


async def sleep_until(due_ns: int) -> None:
    """Return at `due_ns` on the monotonic clock, or at once if that has passed."""
    with Pacer(asyncio.get_running_loop()) as pacer:
        await pacer.sleep_until(due_ns)


def _unused(path: Path) -> Path:
    names = (path, *(path.with_name(f"{path.name}-{number}") for number in range(2, 100)))
    return next((each for each in names if not each.exists()), path)


async def _succeeds(measurement: Measurement) -> bool:
    """Return False if a target's fault kept all load from being sent."""
    try:
        await measurement.measure()
    except (CostReached, FolderFailed):
        return True
    except Fault:
        return measurement.loaded
    return True


def drifting_for_the_worse(findings: WatchFindings, rows: Sequence[ConditionFindings]) -> bool:
    watched = {row(each) for each in rows}
    return any(
        line.drifting is not None and line.drifting.worse
        for line in findings.lines
        if line.name in watched
    )
