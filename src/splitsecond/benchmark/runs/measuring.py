"""One run: measured by `benchmark.load`, recorded in a folder, and concluded (`concluding`).

If the folder cannot be written (a full disk), the run stops, and what is in memory is still
concluded. The same holds after a fault, a reached cost limit, and a cancellation.
"""

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from splitsecond import __version__
from splitsecond.benchmark.findings.precision import Precision, Unmet, unmet
from splitsecond.benchmark.findings.precision import in_words as precision_in_words
from splitsecond.benchmark.load.block import RequestBlock
from splitsecond.benchmark.load.calibration import Calibrated
from splitsecond.benchmark.load.coordinator import (
    Calibration,
    PlanListener,
    RunNote,
    WorkerSettings,
    run_plan,
)
from splitsecond.benchmark.load.nodes import Node
from splitsecond.benchmark.load.plan import Condition, RunPlan, rounds_until, with_repeated_warmups
from splitsecond.benchmark.load.search_driver import LoadSearchDriver
from splitsecond.benchmark.load.sweep import plain
from splitsecond.benchmark.report.capacity import VERDICTS
from splitsecond.benchmark.rows.condition import condition_findings
from splitsecond.benchmark.rows.figures import ended
from splitsecond.benchmark.rows.records import AskedCondition, ConditionFindings, Run
from splitsecond.benchmark.rows.slo import parse_slo
from splitsecond.benchmark.runs.concluding import RunRequest, SessionsRecord, conclude
from splitsecond.benchmark.runs.cost_limit import (
    announce,
    announce_duration,
    estimate_usd,
    tokens_of_prompts,
)
from splitsecond.benchmark.runs.cost_meter import CostLimit, CostMeter, CostReached
from splitsecond.benchmark.runs.environment import environment
from splitsecond.benchmark.runs.targets import advised
from splitsecond.benchmark.server_view.discovery import FoundPages
from splitsecond.benchmark.server_view.samples import ServerSample, ServerSeries
from splitsecond.benchmark.server_view.watcher import ServerWatcher
from splitsecond.benchmark.statistics.search import Verdict
from splitsecond.benchmark.workload.workload import Workload
from splitsecond.core import clock
from splitsecond.core.catalog.price import Price
from splitsecond.core.errors import Fault, cannot_write
from splitsecond.core.observation import ArrivalClock, Observation
from splitsecond.core.redaction import redacted
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.core.upstream.spec import TargetSpec, secrets
from splitsecond.core.wording import counted_as
from splitsecond.log.store.folder import RunFolder
from splitsecond.routing.construction.user_policies import PolicyFile

IDLE_S = 3.0
"""How long the power of idle GPUs is read before a run."""


class FolderFailed(Fault):
    """The run's folder can no longer be written. Neither the caller nor the provider is at
    fault."""


class Progress(Protocol):
    """Shows the progress of a run while it is measured."""

    def start(self, totals: Mapping[str, int]) -> None:
        """Begin. `totals`: the measured requests of each condition; empty if they are not known yet
        (see `expect`)."""

    def expect(self, condition: str, requests: int) -> None:
        """Add `requests` to the total of a condition, which may be new."""

    def observed(self, observation: Observation) -> None:
        """Count an attempt that has ended."""

    def stage(self, text: str) -> None:
        """Show what is done now, in place of the stage before."""

    def note(self, text: str) -> None:
        """Show a remark."""

    def stop(self) -> None:
        """End. Called once after `start`, whatever happened."""


class NoProgress:
    def start(self, totals: Mapping[str, int]) -> None: ...

    def expect(self, condition: str, requests: int) -> None: ...

    def observed(self, observation: Observation) -> None: ...

    def stage(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def stop(self) -> None: ...


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A run to measure, as `run.json` records it.

    `search` chooses the blocks of a plan without lanes. `plan_with` returns the plan for a known
    duration of a response, in seconds, which a pilot request measures (None: the plan does not
    depend on it). With `precision` or `duration_s`, rounds follow until one of them is reached.
    `on`: the Ray cluster whose nodes send the requests, at most `processes` of them; "": this
    machine. `needs_packets`: no other clock will do. `exact_itl`: no stream is read so seldom that
    its ITL is not exact. `server_pages` are read during the run. `remarks` are shown at the start;
    `notes` begin with the name of their target or condition and a colon.
    """

    run_id: str
    plan: RunPlan
    specs: Mapping[str, TargetSpec]
    workload: Workload
    input_tokens: int
    settings: dict[str, Any]
    command: list[str] = []
    plan_file: str = ""
    slo: str = ""
    processes: int | None = None
    on: str = ""
    arrival_clock: ArrivalClock = "packets"
    needs_packets: bool = False
    exact_itl: bool = False
    prices: dict[str, Price] = {}
    servers: dict[str, str] = {}
    server_pages: FoundPages = FoundPages()
    usd_per_kwh: float | None = None
    search: LoadSearchDriver | None = None
    plan_with: Callable[[float | None], RunPlan] | None = None
    precision: Precision | None = None
    duration_s: float | None = None
    policy_file: PolicyFile | None = None
    remarks: list[str] = []
    notes: list[str] = []

    @property
    def open_ended(self) -> bool:
        return self.precision is not None or self.duration_s is not None

    def asked(self, condition: Condition) -> AskedCondition:
        target = self.specs.get(condition.target)
        name, workload = plain(condition.target, self.workload)
        own = self.workload.of_target(condition.target, 0)[0]
        return AskedCondition(
            condition=condition.condition,
            target=name,
            workload=workload,
            concurrency=condition.load.concurrency,
            rate=condition.load.rate,
            output_tokens=None if self.workload.sessions else own.output_tokens,
            cache_reuse=condition.cache_reuse,
            shared_blocks=any(each.hash_ids for each in self.workload.traced),
            usage=target.quirks.get("usage", "") if target else "",
            region=target.region if target else "",
            inputs=own.inputs,
        )

    def announced(self, max_cost: float | None) -> str:
        limit = CostLimit(prices=self.prices, most_usd=max_cost)
        conditions = [
            replace(each, target=plain(each.target, self.workload)[0])
            for each in self.plan.conditions
        ]
        plan = replace(self.plan, conditions=conditions)
        longest = [
            each.output_tokens for each in self.workload.variants.values() if each.output_tokens
        ]
        workload = replace(
            self.workload, output_tokens=max([*longest, self.workload.output_tokens or 0]) or None
        )
        return announce(plan, workload, limit, self.targets, input_tokens=self.input_tokens)

    def meter(self, max_cost: float | None, spent_usd: float = 0.0) -> CostMeter:
        limit = CostLimit(prices=self.prices, most_usd=max_cost)
        return CostMeter(
            limit,
            spent_usd,
            prompt_tokens=tokens_of_prompts(self.workload, self.input_tokens),
            workload=self.workload,
            input_tokens=self.input_tokens,
        )

    @property
    def targets(self) -> dict[str, TargetSpec]:
        renamed = ((plain(name, self.workload)[0], spec) for name, spec in self.specs.items())
        return {name: replace(spec, name=name) for name, spec in renamed}

    def request(self, notes: list[str]) -> RunRequest:
        """Return what `run.json` keeps of the job. A search has the loads that it has tried."""
        planned = self.search.conditions if self.search else self.plan.conditions
        return RunRequest(
            command=self.command,
            plan=self.plan_file,
            settings=self.settings,
            targets=list(self.targets.values()),
            conditions=[self.asked(condition) for condition in planned],
            prices=self.prices,
            slo=self.slo,
            notes=notes,
            share=self.search.share if self.search else None,
            sessions=SessionsRecord.of(self.workload.sessions) if self.workload.sessions else None,
            usd_per_kwh=self.usd_per_kwh,
        )

    @property
    def fresh_run(self) -> Run:
        return Run(
            id=self.run_id,
            began=clock.wall_time().isoformat(timespec="milliseconds"),
            began_ns=clock.now_ns(),
            version=__version__,
            asked=redacted(
                msgspec.to_builtins(self.request([])),
                [s for spec in self.specs.values() for s in secrets(spec)],
            ),
            environment=environment(self.settings.get("location") or "", self.servers),
        )


class Measurement:
    """One run of a `Job` into a folder. Call `measure` once; the attributes then hold what was
    measured.

    `run` has the findings, also after `measure` raised. If no load reached a target (`loaded`),
    `refused` has the targets that could not be measured.
    """

    def __init__(
        self,
        job: Job,
        folder: RunFolder,
        meter: CostMeter,
        progress: Progress | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        """`notes` come beside those of the job. Raises `CallerFault` for limits that cannot be
        read."""
        self.observations: list[Observation] = []
        self.notes: list[str] = [*job.notes, *notes]
        self.fault: Fault | None = None
        self.job = job
        if job.slo:
            parse_slo(job.slo)
        self._folder = folder
        self._meter = meter
        self._progress = progress or NoProgress()
        self._readings: list[InstrumentReading] = []
        self.server = ServerSeries(job.server_pages.sources)
        self._noted: set[str] = set()
        self._folder_failed = False
        self._unwritten: list[Callable[[], None]] = []
        self.run = job.fresh_run

    @property
    def loaded(self) -> bool:
        return any(o.role != "calibration" for o in self.observations)

    @property
    def refused(self) -> frozenset[str]:
        if self.fault is None or self.loaded:
            return frozenset()
        return frozenset({self.fault.target, *self._noted})

    async def measure(self) -> None:
        """Measure, and conclude whatever happens.

        Raises the `Fault` that ended the run early: of a target that cannot be measured,
        `CostReached`, or `FolderFailed`. When cancelled, it stops the workers within two seconds.
        """
        job = self.job
        try:
            self._folder.write_run(self.run)
        except OSError as error:
            self._folder.discard()
            self.fault = FolderFailed(
                cannot_write(self._folder.path, error), kind="disk", phase="queue"
            )
            raise self.fault from None
        open_ended = job.search is not None or job.open_ended
        self._progress.start(
            {} if open_ended else {c.condition: c.requests for c in job.plan.conditions}
        )
        for remark in (*job.remarks, *job.notes):
            self._progress.note(remark)
        try:
            for source in job.server_pages.sources:
                self._keep(partial(self._folder.add_server, source))
            async with (
                self._nodes() as nodes,
                ServerWatcher(
                    job.server_pages.pages, self._take_sample, self._note_unread
                ) as server,
            ):
                self._meter.check_calibration(each.target for each in job.plan.conditions)
                await self._read_idle(server)
                self._progress.stage("calibrating")
                result = await run_plan(
                    job.plan,
                    job.specs,
                    Calibration(
                        workload=job.workload,
                        input_tokens=job.input_tokens,
                        pilot=job.plan_with is not None
                        or (job.search is not None and job.search.open_loop),
                    ),
                    PlanListener(
                        on_observation=self._observe,
                        on_reading=self._read,
                        on_note=self._note,
                        on_pause=self._pause,
                        at_edge=server.read_now,
                        budget=self._meter,
                    ),
                    WorkerSettings(
                        most_processes=job.processes,
                        arrival_clock=job.arrival_clock,
                        exact_itl=job.exact_itl,
                        policy_file=job.policy_file,
                        nodes=nodes,
                    ),
                    blocks=self._blocks,
                )
            self.run.finished = not result.interrupted
        except Fault as error:
            self.fault = error
            raise
        finally:
            self._progress.stop()
            self._conclude()

    @asynccontextmanager
    async def _nodes(self) -> AsyncIterator[Sequence[Node]]:
        job = self.job
        if not job.on:
            yield ()
            return
        from splitsecond.benchmark.runs.ray_nodes import ray_nodes

        self._progress.stage("connecting to the nodes")
        urls = [spec.base_url for spec in job.specs.values()]
        async with ray_nodes(
            job.on, most=job.processes, packets=job.needs_packets, base_urls=urls
        ) as nodes:
            self.run.environment["nodes"] = [
                {"name": node.name} | node.described.environment for node in nodes
            ]
            yield nodes

    async def _read_idle(self, server: ServerWatcher) -> None:
        """Read the power of the GPUs before the first request, where they report it."""
        await server.read_now()
        if self.server.has("power_w"):
            self._progress.stage("reading the power of the idle GPUs")
            await asyncio.sleep(IDLE_S)

    async def measure_or_discard(self) -> None:
        """Measure as `measure` does, and delete the folder if no load reached a target."""
        try:
            await self.measure()
        except (Fault, asyncio.CancelledError) as error:
            if not self.loaded:
                self._folder.discard()
                if isinstance(error, Fault):
                    advised(error, self.job.specs.get(error.target))
            raise

    def _conclude(self) -> None:
        self._write_again()
        self._note_precision()
        job = self.job
        if isinstance(self.fault, CostReached) and not job.open_ended:
            self.notes += _cost_limit_notes(job.plan, self.observations)
        self.run.asked["notes"] = self.notes
        conclude(self.run, job.request(self.notes), self.observations, self._readings, self.server)

    def _observe(self, observation: Observation) -> None:
        """Keep an attempt that has ended. Raises `FolderFailed` and `CostReached`, each at most
        once."""
        if self.job.workload.variants:
            target, _ = plain(observation.target, self.job.workload)
            observation = replace(observation, target=target)
        self.observations.append(observation.compact())
        self._keep(lambda: self._folder.add(observation))
        self._progress.observed(observation)
        self._meter.add(observation)

    def _read(self, reading: InstrumentReading) -> None:
        self._readings.append(reading)
        self._keep(lambda: self._folder.add_reading(reading))

    def _take_sample(self, sample: ServerSample) -> None:
        self.server.add(sample)
        # a failure of the folder ends the run where observations are kept
        if not self._folder_failed:
            with contextlib.suppress(OSError):
                self._folder.add_server(sample)

    def _note_unread(self, why: str) -> None:
        self._progress.note(why)
        targets = dict.fromkeys(
            target for source in self.job.server_pages.sources for target in source.targets
        )
        self.notes += [f"{target}: {why}" for target in targets]

    def _note(self, note: RunNote) -> None:
        text = f"{note.condition or note.target}: {note.text}"
        self.notes.append(text)
        self._noted.add(note.target)
        self._progress.note(text)

    def _pause(self, block: RequestBlock, left_s: float) -> None:
        job = self.job
        of = "" if job.open_ended or job.search is not None else f" of {job.plan.rounds}"
        begins = f"round {block.round}{of} begins in {math.ceil(left_s)} s"
        self._progress.stage(
            begins if left_s else "measuring" if job.search is None else job.search.status
        )

    def _blocks(self, calibrated: Mapping[str, Calibrated]) -> list[Iterable[RequestBlock]]:
        job = self.job
        self._progress.stage("measuring" if job.search is None else job.search.status)
        if job.search is not None:
            (pilot,) = calibrated.values()
            job.search.pilot_s = (
                None if pilot.response_ns is None else pilot.response_ns / clock.NS_PER_S
            )
            return [self._decided(job.search)]
        plan = self._planned(calibrated)
        if not job.open_ended:
            for before, now in zip(job.plan.conditions, plan.conditions, strict=True):
                if now.requests != before.requests:
                    self._progress.expect(now.condition, now.requests - before.requests)
        self.job = replace(job, plan=plan)
        if not job.open_ended:
            return list(plan.lanes)
        is_precise = None if job.precision is None else lambda name: not self._imprecise(name)
        duration_ns = None if job.duration_s is None else round(job.duration_s * clock.NS_PER_S)
        return [
            self._expected(rounds_until(plan, lane, is_precise, duration_ns)) for lane in plan.lanes
        ]

    def _planned(self, calibrated: Mapping[str, Calibrated]) -> RunPlan:
        """Return the plan for the times of the pilots, and announce how long it takes."""
        job = self.job
        piloted = {
            target: each for target, each in calibrated.items() if each.response_ns is not None
        }
        if job.plan_with is None or not piloted:
            return job.plan
        plan = job.plan_with(
            max(each.response_ns or 0 for each in piloted.values()) / clock.NS_PER_S
        )
        expected = plan
        if job.workload.sessions is None:
            expected = with_repeated_warmups(plan, piloted)
        most, ideal = (
            estimate_usd(
                expected,
                job.workload,
                input_tokens=job.input_tokens,
                prices=job.prices,
                ideal=ideal,
            )
            for ideal in (False, True)
        )
        least = ideal if job.workload.sessions is not None else None
        self._progress.note(
            announce_duration(
                expected,
                piloted,
                most,
                by_round=job.open_ended,
                usd_at_least=least,
                announced=None if job.open_ended else job.plan,
            )
        )
        return plan

    def _expected(self, blocks: Iterable[RequestBlock]) -> Iterator[RequestBlock]:
        for block in blocks:
            self._progress.expect(block.condition, block.requests)
            yield block

    def _imprecise(self, name: str) -> list[Unmet]:
        condition = next(each for each in self.job.plan.conditions if each.condition == name)
        row = condition_findings(
            self.job.asked(condition),
            [o for o in self.observations if o.condition == name],
            [reading for reading in self._readings if reading.condition == name],
        )
        return unmet(row, self.job.precision) if self.job.precision else []

    def _note_precision(self) -> None:
        if self.job.precision is None:
            return
        for condition in self.job.plan.conditions:
            own = [
                o
                for o in self.observations
                if o.condition == condition.condition and o.role == "measured"
            ]
            rounds = len({o.round for o in own})
            for each in self._imprecise(condition.condition):
                self.notes.append(
                    f"{condition.condition}: {precision_in_words(each, rounds, len(own))}"
                )

    def _decided(self, search: LoadSearchDriver) -> Iterator[RequestBlock]:
        def judged(row: ConditionFindings, verdict: Verdict) -> None:
            met = (
                row.goodput
                and f", {row.goodput.met:,} of {row.goodput.sent:,} requests within the limits"
            )
            self._progress.note(f"{row.condition}: {VERDICTS[verdict]}{met or ''}")
            conditions = [self.job.asked(condition) for condition in search.conditions]
            self.run.asked["conditions"] = msgspec.to_builtins(conditions)
            self._keep(lambda: self._folder.write_run(self.run))

        for block in search.blocks(self.job.asked, self.observations, self._readings, judged):
            self._progress.stage(search.status)
            self._progress.expect(block.condition, block.requests)
            yield block

    def _keep(self, write: Callable[[], None]) -> None:
        """Write to the folder, unless that has failed before: then it is tried again at the end."""
        if self._folder_failed:
            self._unwritten.append(write)
            return
        try:
            write()
        except OSError as error:
            self._folder_failed = True
            self._unwritten.append(write)
            raise FolderFailed(
                f"{cannot_write(self._folder.path, error)}; the run was stopped, what was "
                "measured is reported",
                kind="disk",
                phase="queue",
                hint="Free some space, or use another folder.",
            ) from error

    def _write_again(self) -> None:
        """Write what the folder did not take: the disk may have room by now. Note what is only in
        the report."""
        left = len(self._unwritten)
        with contextlib.suppress(OSError):
            for write in self._unwritten:
                write()
                left -= 1
        if left:
            self.notes.append(
                f"{self._folder.path}: the last {counted_as(left, 'record')} of this run could not "
                "be written and are only in its report."
            )


def new_run_id() -> str:
    """Return a name for a run that sorts by time: "20261120-190746-3fa"."""
    moment = clock.wall_time()
    return f"{moment:%Y%m%d-%H%M%S}-{clock.now_ns() // clock.NS_PER_US % 4096:03x}"


def _cost_limit_notes(plan: RunPlan, observations: Sequence[Observation]) -> list[str]:
    counts = Counter(o.condition for o in ended(observations))
    return [
        f"{c.condition}: ended early, after {counts[c.condition]} of {c.requests} requests: the "
        "cost limit was reached."
        for c in plan.conditions
        if counts[c.condition] < c.requests
    ]
