import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from splitsecond.benchmark.findings.precision import parse_precision
from splitsecond.benchmark.load.plan import (
    MIN_BLOCK,
    REQUESTS,
    ROUNDS,
    PlannedLoad,
    PlanSettings,
    RunPlan,
    make_plan,
    spread_rounds,
)
from splitsecond.benchmark.load.search_driver import LoadSearchDriver
from splitsecond.benchmark.load.sweep import NamedWorkload, merged, swept
from splitsecond.benchmark.rows.round_spread import CLAIM_APART_S
from splitsecond.benchmark.rows.slo import parse_slo
from splitsecond.benchmark.runs.cost_limit import find_prices
from splitsecond.benchmark.runs.environment import server_software
from splitsecond.benchmark.runs.measuring import Job, new_run_id
from splitsecond.benchmark.runs.settings import (
    EXACT,
    INPUT_TOKENS,
    BenchSettings,
    CapacitySettings,
    RunSettings,
    SessionSettings,
    WatchSettings,
)
from splitsecond.benchmark.runs.targets import LocalServers, parse_policies, resolve_all
from splitsecond.benchmark.server_view.discovery import FoundPages, find_pages
from splitsecond.benchmark.statistics.search import Search
from splitsecond.benchmark.workload.answer_checks import (
    AnswerChecks,
    read_checks,
    read_questions,
)
from splitsecond.benchmark.workload.images import check_sizes, parse_images
from splitsecond.benchmark.workload.prompt_files import PromptFile, read_prompts
from splitsecond.benchmark.workload.session_files import read_sessions
from splitsecond.benchmark.workload.sessions import SessionSet
from splitsecond.benchmark.workload.synthetic_sessions import SYNTHETIC, synthetic_sessions
from splitsecond.benchmark.workload.traces import Trace, read_trace
from splitsecond.benchmark.workload.workload import Workload, WorkloadVariant
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Operation
from splitsecond.core.upstream import transcoding
from splitsecond.core.upstream.spec import TargetSpec, Timeouts
from splitsecond.core.upstream.target import API_FORMATS, quirks_of
from splitsecond.core.validation import wrong
from splitsecond.core.wire.api_format import Quirks
from splitsecond.core.wording import counted_as, listed
from splitsecond.log.statistics.summary import MIN_ROUNDS
from splitsecond.routing.construction.user_policies import PolicyFile


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """How a run was asked for: as a command, and as the file `plan` that repeats it ("": there is
    none)."""

    command: list[str] = []
    settings: dict[str, Any] = {}
    plan: str = ""

    @classmethod
    def of(cls, settings: RunSettings) -> "Recorded":
        return cls(settings=msgspec.to_builtins(settings, enc_hook=str))


def bench_job(settings: BenchSettings, processes: ExitStack, recorded: Recorded) -> Job:
    """Return the job of a benchmark. Simulators and engines that it needs run until `processes` is
    closed.

    Raises `CallerFault` for settings that make no sense, and as `resolve` does.
    """
    if settings.slo:
        parse_slo(settings.slo)
    if settings.policies and settings.side_by_side:
        raise wrong(
            "side_by_side", True, "no policy with it, because a policy calls several hosts itself"
        )
    settings.check()
    trace = trace_load = None
    if settings.trace is not None:
        trace = read_trace(
            settings.trace,
            most=settings.requests,
            duration_s=settings.duration,
            time_scale=settings.time_scale,
        )
        trace_load = PlannedLoad(trace=[each.due_ns for each in trace.requests])
        settings = replace(settings, requests=len(trace.requests), duration=None)
    sessions = _sessions(settings)
    prepared = _Prepared(
        settings,
        processes,
        recorded,
        cache_reuse=settings.cache_reuse,
        trace=trace,
        trace_name=str(settings.trace),
        sessions=sessions,
    )

    def plan(response_s: float | None) -> RunPlan:
        measured = prepared.resolved.measured
        return plan_run(settings, measured, response_s, sessions, trace_load)

    return replace(
        prepared.job(plan(None), slo=settings.slo),
        plan_with=plan,
        precision=parse_precision(settings.precision) if settings.precision else None,
        duration_s=settings.duration,
    )


def plan_run(
    settings: BenchSettings,
    measured: Mapping[str, str],
    response_s: float | None = None,
    sessions: SessionSet | None = None,
    trace: PlannedLoad | None = None,
) -> RunPlan:
    """Return the plan of a benchmark of `measured`: the names of targets and policies, and their
    base URLs.

    `response_s`: duration of the slowest target's response, in seconds (None: unknown). `trace`:
    the load of the trace of the settings.
    """
    over_s = settings.over or default_over_s(settings, len(measured))
    requests = settings.requests
    if requests is None and over_s is not None and sessions is None:
        requests = max(REQUESTS, MIN_BLOCK * (settings.rounds or spread_rounds(over_s)))
    plan_settings = PlanSettings(
        requests=requests,
        warmups=settings.warmup,
        blocks=settings.rounds,
        seed=settings.seed,
        side_by_side=settings.side_by_side,
        cache_reuse=settings.cache_reuse,
        response_s=response_s,
        duration_s=None if settings.precision else settings.duration,
        sessions=sessions,
        over_s=over_s,
    )
    loads = settings.loads if trace is None else [trace]
    swept_loads = _measured(measured, settings, loads)
    return merged(
        [make_plan(targets, own_loads, plan_settings) for targets, own_loads in swept_loads]
    )


def default_over_s(settings: BenchSettings, targets: int) -> float | None:
    """Return the seconds from the first round to the last one if the user gave none; None without
    pauses.

    A run that compares targets gets the distance that its findings need, unless it has too few
    rounds to find anything.
    """
    rounds = settings.rounds or ROUNDS
    rounds = rounds if settings.requests is None else min(rounds, settings.requests)
    timed = settings.duration is not None or settings.trace is not None
    if targets < 2 or settings.quick or timed or rounds < MIN_ROUNDS:
        return None
    return CLAIM_APART_S * (rounds - 1)


def _sessions(settings: SessionSettings) -> SessionSet | None:
    name = os.fspath(settings.sessions)
    if not name:
        return None
    session_set = (
        synthetic_sessions(name, settings.seed) if name in SYNTHETIC else read_sessions(Path(name))
    )
    wait_ns = round(settings.longest_wait * NS_PER_S)
    return replace(session_set, longest_wait_ns=wait_ns, answers=settings.answers)


def _measured(
    measured: Mapping[str, str], settings: BenchSettings, loads: Sequence[PlannedLoad]
) -> list[tuple[Mapping[str, str], Sequence[PlannedLoad]]]:
    return [
        (
            {swept(name, each.name): url for name, url in measured.items()},
            loads if each.rate is None else [PlannedLoad(rate=each.rate)],
        )
        for each in settings.workloads
    ] or [(measured, loads)]


def watch_jobs(
    settings: WatchSettings, processes: ExitStack, recorded: Recorded
) -> Callable[[int], Job]:
    """Return a function that makes the job of a round, from its number: other prompts, and its own
    order of targets.

    Raises as `bench_job` does.
    """
    prepared = _Prepared(settings, processes, recorded)

    def job(number: int) -> Job:
        plan = make_plan(
            prepared.resolved.measured,
            settings.loads,
            PlanSettings(
                requests=settings.requests or 1,
                warmups=settings.warmup,
                seed=settings.seed + number,
            ),
        )
        return prepared.job(plan)

    return job


def capacity_job(settings: CapacitySettings, processes: ExitStack, recorded: Recorded) -> Job:
    """Return the job of a capacity search. Raises as `bench_job` does, and if tokens cost without a
    limit."""
    limits = parse_slo(settings.slo)
    if settings.policies:
        raise wrong("target", settings.policies[0], "a single target: a search measures no policy")
    if len(names := [*settings.targets, *(server.base_url for server in settings.servers)]) > 1:
        raise wrong("target", names[1], f"either it or {names[0]}: a search has one target")
    sessions = _sessions(settings)
    prepared = _Prepared(settings, processes, recorded, sessions=sessions)
    (spec,) = prepared.resolved.specs.values()
    if settings.max_cost is None and any(
        each.input_usd or each.output_usd for each in prepared.prices.values()
    ):
        raise wrong("max_cost", None, f"US dollars, because {spec.name} is paid by the token")
    search = LoadSearchDriver(
        spec.name,
        spec.base_url,
        Search(settings.first, settings.last, whole=not settings.rate),
        limits,
        settings.share,
        PlanSettings(
            requests=settings.requests,
            warmups=settings.warmup,
            seed=settings.seed,
            over_s=settings.over,
            sessions=sessions,
        ),
        open_loop=settings.rate,
    )
    return prepared.job(search.beginning(), slo=settings.slo, search=search)


def _workload(
    settings: RunSettings,
    workloads: Sequence[NamedWorkload],
    prompts: PromptFile | None,
    trace: Trace | None,
    *,
    cache_reuse: bool,
    sessions: SessionSet | None,
) -> Workload:
    traced = trace.requests if trace is not None and trace.has_lengths and prompts is None else []
    if traced:
        _check_traced(settings, cache_reuse=cache_reuse)
    operation: Operation = "chat"
    batch = 1
    if isinstance(settings, BenchSettings):
        operation, batch = settings.operation, settings.batch
    images = parse_images(settings.images) if settings.images else None
    variants = {
        each.name: WorkloadVariant(
            input_tokens=each.input_tokens,
            output_tokens=each.output_tokens,
            images=parse_images(each.images) if each.images else None,
            batch=each.batch,
            effort=each.effort,
        )
        for each in workloads
    }
    check_sizes([images, *(each.images for each in variants.values())])
    return Workload(
        run="",
        operation=operation,
        batch=batch,
        prompts=prompts.prompts if prompts is not None else [],
        output_tokens=None if traced else settings.output_tokens if operation == "chat" else 0,
        questions=cache_reuse,
        extra=dict(settings.body) | ({"ignore_eos": True} if settings.ignore_eos else {}),
        seed=settings.seed,
        images=images,
        variants=variants,
        traced=traced,
        sessions=sessions,
    )


def _check_traced(settings: RunSettings, *, cache_reuse: bool) -> None:
    if settings.input_tokens is not None:
        raise wrong(
            "input_tokens", settings.input_tokens, "nothing, because the trace has the lengths"
        )
    if settings.images:
        raise wrong("images", settings.images, "no trace of lengths with it")
    if cache_reuse:
        raise wrong("cache", "reuse", "fresh, because the trace says what prompts share")


def _prompts(settings: RunSettings) -> tuple[PromptFile | None, AnswerChecks | None]:
    """Read the prompts or the questions of a run, and what its answers must be."""
    prompts = read_prompts(settings.prompts) if settings.prompts else None
    if not isinstance(settings, BenchSettings):
        return prompts, None
    checks = read_checks(settings.schema, settings.tools)
    if settings.check_file is not None:
        prompts, expected = read_questions(settings.check_file)
        checks = replace(checks or AnswerChecks(), expected=expected)
    return prompts, checks


def _of_images(images: str) -> list[str]:
    if not images:
        return []
    pictures = parse_images(images)
    several = counted_as(pictures.count, f"{pictures.format.upper()} image")
    return [
        f"Each request has {several} of {pictures.width}x{pictures.height} pixels. No cost below "
        "includes their tokens."
    ]


class _Prepared:
    def __init__(
        self,
        settings: RunSettings,
        processes: ExitStack,
        recorded: Recorded,
        *,
        cache_reuse: bool = False,
        trace: Trace | None = None,
        trace_name: str = "",
        sessions: SessionSet | None = None,
    ) -> None:
        settings.check()
        self._settings = settings
        self._recorded = recorded
        workloads = settings.workloads if isinstance(settings, BenchSettings) else ()
        longest = max((each.input_tokens for each in workloads), default=settings.input_tokens)
        self._input_tokens = longest or INPUT_TOKENS["reuse" if cache_reuse else "fresh"]
        prompts, checks = _prompts(settings)
        self._remarks = [trace.in_words(trace_name)] if trace is not None else []
        self._remarks += [prompts.in_words(str(settings.prompts))] if prompts is not None else []
        self._remarks += [sessions.in_words()] if sessions is not None else []
        self._remarks += _of_images(settings.images)
        self._warning = trace.warning if trace is not None else ""
        self._workload = _workload(
            settings, workloads, prompts, trace, cache_reuse=cache_reuse, sessions=sessions
        )
        if checks is not None:
            extra = checks.fields | self._workload.extra
            self._workload = replace(self._workload, checks=checks, extra=extra)
        self._policy_file = PolicyFile.read(settings.policy_file) if settings.policy_file else None
        timeout_ms = round(settings.timeout * 1000)
        self.resolved = resolve_all(
            settings.targets,
            settings.servers,
            parse_policies(settings.policies, self._policy_file),
            LocalServers(processes, settings.seed, prompt_cache=sessions is not None),
            headers=settings.headers,
            timeouts=Timeouts(head_ms=timeout_ms, first_token_ms=timeout_ms),
            config=settings.config,
        )
        if settings.prompts:
            specs, measured = self.resolved.specs.values(), self.resolved.measured
            direct = [spec for spec in specs if spec.name in measured]
            check_prompts(self._workload, str(settings.prompts), direct)
        self._servers = server_software(self.resolved.specs)
        self._pages = (
            FoundPages()
            if settings.no_metrics
            else find_pages(self.resolved.specs, settings.metrics)
        )
        self._remarks += self._pages.in_words()
        self.prices = find_prices(self.resolved.specs, self.resolved.prices | dict(settings.prices))

    def job(self, plan: RunPlan, *, slo: str = "", search: LoadSearchDriver | None = None) -> Job:
        run_id = new_run_id()
        specs = self.resolved.specs
        names = {swept(name, each): name for name in specs for each in self._workload.variants}
        return Job(
            run_id=run_id,
            plan=plan,
            specs={name: replace(specs[own], name=name) for name, own in names.items()} or specs,
            workload=replace(self._workload, run=run_id),
            input_tokens=self._input_tokens,
            settings=self._recorded.settings,
            command=self._recorded.command,
            plan_file=self._recorded.plan,
            slo=slo,
            processes=self._settings.processes,
            on=self._settings.on,
            arrival_clock=self._settings.arrival_clock,
            needs_packets=self._settings.clock == "packets",
            exact_itl=self._settings.itl == EXACT,
            prices=self.prices,
            servers=self._servers,
            server_pages=self._pages,
            usd_per_kwh=self._settings.usd_per_kwh,
            search=search,
            policy_file=self._policy_file,
            remarks=self._remarks,
            notes=[
                f"{each.condition}: {self._warning}" for each in plan.conditions if self._warning
            ],
        )


MODEL = "owner/model"
"""Any name: here, prompts are checked and not models."""


def check_prompts(workload: Workload, name: str, specs: Iterable[TargetSpec]) -> None:
    """Raise `CallerFault` for a prompt of the file `name` that the API format of a target cannot
    express, such as a sound or a document."""
    for spec in specs:
        quirks = quirks_of(spec)
        for number, prompt in enumerate(workload.prompts, 1):
            body = {**prompt, **workload.extra}
            if (fault := _fault(body, spec.api_format, quirks)) is not None:
                others = [form for form in API_FORMATS if not _fault(body, form, Quirks())]
                hint = f"API formats that can: {listed(others)}. {fault.hint}".strip()
                raise CallerFault(
                    f"{name}: prompt {number}: {fault.message}",
                    kind=fault.kind,
                    target=spec.name,
                    hint=hint,
                )


def _fault(body: dict[str, Any], api_format: str, quirks: Quirks) -> CallerFault | None:
    encode = API_FORMATS[api_format].encode
    try:
        transcoding.request(Call(id="", body=body), api_format, encode, MODEL, quirks)
    except CallerFault as fault:
        return fault
    return None
