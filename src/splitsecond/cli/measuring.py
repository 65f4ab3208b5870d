"""From a plan to a run on disk and on the screen: what `bench`, `capacity`, `demo` and `watch` share.

What was measured is kept first and shown second. Every observation goes to memory and to the run's folder as it comes.
If the folder fails (a full disk), the run stops there and says so, and what is in memory is still reported; so it is
after Ctrl-C. A run that ends before any load was put on a target leaves no folder behind.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from splitsecond import __version__, clock
from splitsecond.analysis.asked import AskedCondition
from splitsecond.analysis.caching import cache_savings
from splitsecond.analysis.capacity import capacity_of
from splitsecond.analysis.capacity_statements import capacity_statements
from splitsecond.analysis.cost import Prices, run_cost_usd
from splitsecond.analysis.findings import SCHEMA, ConditionFindings, Run
from splitsecond.analysis.run import summarise
from splitsecond.analysis.search import Verdict
from splitsecond.analysis.slo import Slo, parse_slo
from splitsecond.analysis.statements import statements
from splitsecond.catalog.price import Price
from splitsecond.cli.machine import environment
from splitsecond.cli.pricing import Allowance, CostReached, Meter, announce, tokens_of_prompts
from splitsecond.cli.results import Output, cannot_write, check_json, show
from splitsecond.cli.targets import advised
from splitsecond.errors import CallerFault, Fault
from splitsecond.load.block import Block
from splitsecond.load.climb import Climb
from splitsecond.load.conductor import Note, conduct
from splitsecond.load.plan import Condition, Plan
from splitsecond.load.workload import Workload
from splitsecond.report.capacity import WORDS
from splitsecond.report.live import Progress
from splitsecond.report.rows import printable
from splitsecond.store.folder import RUN, RunFolder, read_observations, read_readings, read_run
from splitsecond.timing.instrument import InstrumentReading
from splitsecond.timing.observation import Observation
from splitsecond.upstream.spec import TargetSpec, concealed, secrets


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, as `run.json` keeps it under `asked`: enough to run it again and to recompute its findings.

    `command` is the command line, `settings` its options by name. `prices` are those of the day of the run. `share`: of
    a search for capacity, the share of requests that must keep to the limits.
    """

    command: list[str]
    settings: dict[str, Any]
    targets: list[TargetSpec]
    conditions: list[AskedCondition]
    prices: dict[str, Price] = {}
    slo: str = ""
    share: float | None = None
    notes: list[str] = []


class FolderFailed(Fault):
    """The run's folder cannot be written any more: neither the caller's doing nor the provider's."""


class Recorder:
    """Takes what the workers report, keeps it in memory and in the run's folder, and shows the progress."""

    def __init__(self, folder: RunFolder, progress: Progress, meter: Meter) -> None:
        self.observations: list[Observation] = []
        self.readings: list[InstrumentReading] = []
        self.notes: list[str] = []
        self.noted_targets: set[str] = set()
        self._folder = folder
        self._progress = progress
        self._meter = meter
        self._failed = False

    def observed(self, observation: Observation) -> None:
        """One attempt has ended. Each is raised once, as it ends the run: `FolderFailed` where it cannot be written,
        `CostReached` where the run has cost what it may.
        """
        self.observations.append(observation)
        self._keep(lambda: self._folder.add(observation))
        self._progress.observed(observation)
        self._meter.add(observation)

    def read(self, reading: InstrumentReading) -> None:
        """The instrument's reading of one block."""
        self.readings.append(reading)
        self._keep(lambda: self._folder.add_reading(reading))

    def noted(self, note: Note) -> None:
        """Something a reader should know."""
        text = f"{note.condition or note.target}: {note.text}"
        self.notes.append(text)
        self.noted_targets.add(note.target)
        self._progress.note(text)

    def grown(self, run: Run) -> None:
        """More was asked of the run than at its beginning."""
        self._keep(lambda: self._folder.write_run(run))

    @property
    def pressed(self) -> bool:
        """Whether any load was put on a target."""
        return any(o.role != "calibration" for o in self.observations)

    def _keep(self, write: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            write()
        except OSError as error:
            self._failed = True
            raise FolderFailed(
                f"{cannot_write(self._folder.path, error)}; the run was stopped, what was measured is reported",
                kind="disk",
                phase="queue",
                hint="Free some space, or name another folder with --out.",
            ) from error


def new_run_id() -> str:
    """A name for a run that sorts by time: "20261120-190746-3fa"."""
    moment = clock.wall_time()
    return f"{moment:%Y%m%d-%H%M%S}-{clock.now_ns() // clock.NS_PER_US % 4096:03x}"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is to measure, and what `run.json` says was asked. `prices`: by target, of the day of the run. `climb`
    decides the blocks of a plan that has none.
    """

    run_id: str
    plan: Plan
    specs: Mapping[str, TargetSpec]
    workload: Workload
    input_tokens: int
    settings: dict[str, Any]
    slo: str = ""
    processes: int | None = None
    prices: dict[str, Price] = {}
    climb: Climb | None = None

    def asked(self, condition: Condition) -> AskedCondition:
        """What is kept of a condition of the plan."""
        target = self.specs.get(condition.target)
        return AskedCondition(
            condition=condition.condition,
            target=condition.target,
            concurrency=condition.load.concurrency,
            rate=condition.load.rate,
            output_tokens=self.workload.output_tokens,
            cache_reuse=condition.cache_reuse,
            usage=target.quirks.get("usage", "") if target else "",
        )


class Taken(msgspec.Struct, kw_only=True):
    """What came of a run. `fault` ended it early. Where it was not `pressed`, no load was put on any target yet, and
    `refused` are those to blame.
    """

    run: Run
    observations: Sequence[Observation] = ()
    fault: Fault | None = None
    interrupted: bool = False
    pressed: bool = False
    refused: frozenset[str] = frozenset()


def measure(job: Job, output: Output, most_usd: float | None = None) -> int:
    """Runs the plan, keeps it, shows it. Returns the exit code. `most_usd`: what it may cost, None: whatever it does.

    1: a row has no request that was answered, or lost some to a crash, or no capacity was found, or a result could not
    be written; 130: interrupted. Raises the `Fault` that ended the run early, after what was measured is shown.
    """
    check_json(output.json)
    allowance = Allowance(prices=job.prices, most_usd=most_usd)
    money = announce(job.plan, job.workload, allowance, job.specs, input_tokens=job.input_tokens)
    screen = Console(stderr=True)
    meter = Meter(allowance, prompt_tokens=tokens_of_prompts(job.workload, job.input_tokens))
    with RunFolder.create(output.folder or Path("runs") / job.run_id) as folder:
        taken = take(job, folder, meter, screen, money)
        fault, run = taken.fault, taken.run
        if not taken.pressed and (fault or taken.interrupted):
            folder.discard()
            if fault is None:
                raise KeyboardInterrupt
            if not screen.is_terminal:  # there, notes were shown as they came
                for note in run.asked["notes"]:
                    screen.print(Text(printable(note)), soft_wrap=True)
            raise advised(fault, job.specs.get(fault.target))
        written = show(run, taken.observations, folder, output)
    if fault is not None:
        raise fault
    if taken.interrupted:
        return 130
    if job.climb is None:
        found = all(c.errors < c.requests for c in run.conditions)
    else:
        found = run.capacity is not None and run.capacity.holds is not None
    return 0 if written and run.finished and found else 1


def take(
    job: Job, folder: RunFolder, meter: Meter, screen: Console, opening: str = "", notes: Sequence[str] = ()
) -> Taken:
    """Runs the plan into `folder`, with a bar on the screen while it lasts; says `opening` before it. `notes`: what is
    known of its targets already, each with the name of one before it.

    Raises `FolderFailed` where the folder cannot be written at all, `CallerFault` for limits that cannot be read.
    """
    limits = parse_slo(job.slo) if job.slo else None
    conditions = [] if job.climb else [job.asked(condition) for condition in job.plan.conditions]
    taken = Taken(run=_new_run(job, conditions))
    run = taken.run
    progress = Progress(screen, lambda: meter.spent_usd)
    try:
        folder.write_run(run)
    except OSError as error:
        folder.discard()
        raise FolderFailed(cannot_write(folder.path, error), kind="disk", phase="queue") from None
    recorder = Recorder(folder, progress, meter)
    recorder.notes += notes
    if opening:
        screen.print(Text(opening), soft_wrap=True)
    progress.start({} if job.climb else {c.condition: c.requests for c in job.plan.conditions})
    try:
        outcome = asyncio.run(
            conduct(
                job.plan,
                job.specs,
                job.workload,
                input_tokens=job.input_tokens,
                on_observation=recorder.observed,
                on_reading=recorder.read,
                on_note=recorder.noted,
                decided_later=_decided(job, job.climb, run, recorder, progress) if job.climb else (),
                most_processes=job.processes,
            )
        )
        run.finished = not outcome.interrupted
    except KeyboardInterrupt:
        taken.interrupted = True
    except Fault as error:
        taken.fault = error
    finally:
        progress.stop()
    taken.pressed = recorder.pressed
    if taken.fault is not None and not taken.pressed:
        taken.refused = frozenset({taken.fault.target, *recorder.noted_targets})
    if isinstance(taken.fault, CostReached):
        recorder.notes += _ended_early(job.plan, recorder.observations, "--max-cost was reached")
    run.asked["notes"] = recorder.notes
    share = None
    if job.climb:
        conditions, share = [job.asked(condition) for condition in job.climb.conditions], job.climb.share
    conclude(run, conditions, recorder.observations, recorder.readings, limits, job.prices, share)
    taken.observations = recorder.observations
    return taken


def _decided(job: Job, climb: Climb, run: Run, recorder: Recorder, progress: Progress) -> Iterator[Block]:
    """The blocks of a search, each said before it is sent. A step that has its verdict is part of what was asked."""

    def judged(row: ConditionFindings, verdict: Verdict) -> None:
        progress.note(f"{row.condition}: {WORDS[verdict]}")
        run.asked["conditions"] = msgspec.to_builtins([job.asked(condition) for condition in climb.conditions])
        recorder.grown(run)

    for block in climb.blocks(job.asked, recorder.observations, recorder.readings, judged):
        progress.expect(block.condition, block.requests)
        yield block


def _new_run(job: Job, conditions: list[AskedCondition]) -> Run:
    asked = Asked(
        command=["splitsecond", *sys.argv[1:]],
        settings=job.settings,
        targets=list(job.specs.values()),
        conditions=conditions,
        prices=job.prices,
        slo=job.slo,
        share=job.climb.share if job.climb else None,
    )
    return Run(
        id=job.run_id,
        began=clock.wall_time().isoformat(timespec="milliseconds"),
        began_ns=clock.now_ns(),
        version=__version__,
        asked=concealed(msgspec.to_builtins(asked), [s for spec in job.specs.values() for s in secrets(spec)]),
        environment=environment(),
    )


def _ended_early(plan: Plan, observations: Sequence[Observation], why: str) -> list[str]:
    """A note for each condition of which not all requests came to their end."""
    ended = Counter(o.condition for o in observations if o.role == "measured" and o.outcome != "cancelled")
    return [
        f"{c.condition}: ended early, after {ended[c.condition]} of {c.requests} requests: {why}."
        for c in plan.conditions
        if ended[c.condition] < c.requests
    ]


def run_folder(path: Path) -> Path:
    """The folder of a run that was named by its folder or by its `run.json`."""
    return path.parent if path.name == RUN else path


def conclude(
    run: Run,
    conditions: Sequence[AskedCondition],
    observations: Sequence[Observation],
    readings: Sequence[InstrumentReading],
    slo: Slo | None,
    prices: Prices,
    share: float | None = None,
) -> None:
    """Puts the findings into `run`. `share`: it was a search for the load at which so many requests keep to `slo`."""
    run.conditions = summarise(conditions, observations, readings, slo=slo, prices=prices)
    run.cost_usd = run_cost_usd(observations, prices)
    run.cache_savings = cache_savings(run.conditions, observations, prices)
    run.capacity = capacity_of(run.conditions, observations, slo, share) if slo and share else None
    if run.capacity:
        run.statements = capacity_statements(run.capacity, run.conditions)
    else:
        run.statements = [saving.verdict for saving in run.cache_savings] + statements(run.conditions, observations)
    by_target: dict[str, list[str]] = {}
    for note in run.asked.get("notes", ()):
        place, _, text = note.partition(": ")
        by_target.setdefault(place, []).append(text)
    for condition in run.conditions:
        condition.notes += by_target.get(condition.condition, []) + by_target.get(condition.target, [])


def recompute(path: Path, *, slo: str = "") -> tuple[Run, list[Observation]]:
    """A run's findings anew from its observations, under the limits `slo` or those it was asked for.

    Raises `CallerFault` where the folder holds no run.
    """
    run = read_run(path, Run)
    if run.schema != SCHEMA:
        raise CallerFault(f"{path}: got the schema {run.schema!r}, expected {SCHEMA!r}", kind="bad_run")
    path = run_folder(path)
    try:
        asked = msgspec.convert(run.asked, Asked)
    except msgspec.ValidationError as error:
        raise CallerFault(f"{path}: what was asked cannot be read: {error}", kind="bad_run") from None
    observations = read_observations(path)
    limits = slo or asked.slo
    slo_limits = parse_slo(limits) if limits else None
    conclude(run, asked.conditions, observations, read_readings(path), slo_limits, asked.prices, asked.share)
    return run, observations
