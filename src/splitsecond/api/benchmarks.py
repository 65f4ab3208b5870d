import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

from rich.console import Console

from splitsecond.api.results import BenchRun
from splitsecond.benchmark.findings.gate import parse_gate
from splitsecond.benchmark.load.arrivals import Pattern
from splitsecond.benchmark.load.plan import PlannedLoad
from splitsecond.benchmark.report.live import LiveProgress
from splitsecond.benchmark.runs.cost_meter import CostMeter
from splitsecond.benchmark.runs.measuring import Job, Measurement, NoProgress, Progress
from splitsecond.benchmark.runs.planning import Recorded, bench_job, capacity_job, watch_jobs
from splitsecond.benchmark.runs.settings import (
    CONCURRENCY,
    BenchOperation,
    BenchSettings,
    CapacitySettings,
    RunSettings,
    Server,
    WatchSettings,
    at_least_one,
)
from splitsecond.benchmark.runs.targets import in_thread
from splitsecond.benchmark.runs.watching import MeasuredRound, Watch, WatchListener
from splitsecond.benchmark.workload.sessions import LONGEST_TOOL_TIME_S, Answers
from splitsecond.core.catalog.price import Price
from splitsecond.core.errors import Fault
from splitsecond.core.validation import wrong
from splitsecond.log.store.folder import RunFolder
from splitsecond.routing.machinery.settings import Duration

T = TypeVar("T")
Settings = TypeVar("Settings", bound=RunSettings)

LONGEST_WAIT_S = 30 * 24 * 3600


class RequestSettings(TypedDict, total=False):
    """Settings that `bench`, `watch` and `capacity` share; see
    `splitsecond.benchmark.runs.settings.RunSettings`."""

    policy_file: Path | None
    config: Path | None
    headers: Mapping[str, str]
    requests: int | None
    output_tokens: int
    warmup: int | None
    seed: int
    input_tokens: int | None
    prompts: Path | None
    images: str
    ignore_eos: bool
    body: Mapping[str, Any]
    timeout: float
    processes: int | None
    clock: str
    itl: str
    prices: Mapping[str, Price]
    max_cost: float | None
    location: str
    on: str
    metrics: Sequence[str]
    no_metrics: bool
    usd_per_kwh: float | None


async def bench(
    *targets: str | Server,
    concurrency: int | Sequence[int] | None = None,
    rate: float | Sequence[float] | None = None,
    arrivals: Pattern = "poisson",
    burstiness: float = 1.0,
    rounds: int | None = None,
    precision: str = "",
    duration: float | None = None,
    over: float | None = None,
    quick: bool = False,
    side_by_side: bool = False,
    cache_reuse: bool = False,
    slo: str = "",
    trace: Path | None = None,
    time_scale: float = 1.0,
    sessions: str | os.PathLike[str] = "",
    session_rate: float | Sequence[float] | None = None,
    longest_wait: float = LONGEST_TOOL_TIME_S,
    answers: Answers = "server",
    operation: BenchOperation = "chat",
    batch: int = 1,
    schema: Path | None = None,
    tools: Path | None = None,
    check_file: Path | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **settings: Unpack[RequestSettings],
) -> BenchRun:
    """Time `targets` side by side in one run, and return it.

    A target is a name such as "groq/llama-3.3-70b-versatile" or "sim/groq", a policy such as
    ``race("a/x", "b/x")``, or a `Server`. The load is a closed loop at each `concurrency` (by
    default 1, 8 and 32), an open loop at each `rate` of requests per second, or both. Each row gets
    `requests` measured requests, by default 50, in `rounds` that are spread over the run (by
    default 6 to 8). Instead of `requests`, rounds follow until each row has a `precision` ("5%" of
    TTFT p50 and TPS p50, or "ttft_ms.p95=5%,tps.p50=3%"), until `duration` seconds have passed, or
    whichever comes first. With `over`, rounds begin at even distances over so many seconds; over
    900 or more, findings hold for more than the minutes of the run. Several targets are compared
    over 750 seconds by default; with `quick`, rounds follow each other at once, and findings hold
    for the seconds of the run only. A `trace` is a file of recorded arrivals, sent once instead of
    another load, with its times multiplied by `time_scale`; `requests` or `duration` limits it. The
    run is recorded in the folder `out`, by default ``runs/ID``.

    With `sessions` ("agent", "chat", or a file of sessions), requests are turns of sessions:
    `concurrency` is the number of sessions at a time, and `session_rate` the number of new sessions
    per second. A turn is sent when the answer before it has ended and its tool time has passed, at
    most `longest_wait` seconds. It contains the answer that the "server" gave, or with `answers`
    "recorded" filler of the recorded length.

    With the `operation` "embeddings" or "rerank", each request has `batch` texts or documents. The
    answers to others can be checked: by the JSON schema in the file `schema`, as calls of the tools
    in the file `tools`, or by the questions and answers in `check_file`.

    Raises a `Fault` of `splitsecond.core.errors` if the run cannot start or is ended early. What
    was measured until then, or until the task is cancelled, stays in the folder: see `load`.
    """
    if session_rate is not None and (rate is not None or not sessions):
        raise wrong("session_rate", session_rate, "sessions with it, and no rate")
    rate = rate if session_rate is None else session_rate
    levels = CONCURRENCY if concurrency is None and rate is None and trace is None else concurrency
    loads = [PlannedLoad(concurrency=level) for level in _sequence(levels)]
    loads += [
        PlannedLoad(rate=each, pattern=arrivals, burstiness=burstiness) for each in _sequence(rate)
    ]
    wanted = BenchSettings(
        **_named(targets),
        **settings,
        loads=loads,
        rounds=rounds,
        precision=precision,
        duration=duration,
        over=over,
        quick=quick,
        side_by_side=side_by_side,
        cache_reuse=cache_reuse,
        slo=slo,
        trace=trace,
        time_scale=time_scale,
        operation=operation,
        batch=batch,
        schema=schema,
        tools=tools,
        check_file=check_file,
        sessions=os.fspath(sessions),
        longest_wait=longest_wait,
        answers=answers,
    )
    return await _measured(bench_job, wanted, out, progress)


async def capacity(
    target: str | Server,
    *,
    slo: str = "voice",
    share: float = 0.95,
    rate: bool = False,
    first: float = 1,
    last: float = 256,
    over: float | None = None,
    sessions: str | os.PathLike[str] = "",
    longest_wait: float = LONGEST_TOOL_TIME_S,
    answers: Answers = "server",
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **settings: Unpack[RequestSettings],
) -> BenchRun:
    """Find the highest load at which `share` of the requests meet `slo`; see `BenchRun.capacity` of
    the result.

    The load is a concurrency from `first` to `last`, or with `rate` a number of requests per
    second; with `sessions`, which are as in `bench`, it is their number at a time. With `over`, the
    rounds that confirm the result begin at even distances over so many seconds. A target that is
    paid by the token needs `max_cost`. Raises as `bench` does.
    """
    wanted = CapacitySettings(
        **_named([target]),
        **settings,
        slo=slo,
        share=share,
        rate=rate,
        first=first,
        last=last,
        over=over,
        sessions=os.fspath(sessions),
        longest_wait=longest_wait,
        answers=answers,
    )
    return await _measured(capacity_job, wanted, out, progress)


async def watch(
    *targets: str | Server,
    every: str = "1h",
    times: int | None = None,
    concurrency: int | Sequence[int] = 1,
    fail_if: Sequence[str] = (),
    out: str | os.PathLike[str] = "watch",
    progress: bool = True,
    **settings: Unpack[RequestSettings],
) -> AsyncIterator[MeasuredRound]:
    """Measure `targets` again and again, and yield each round with its judgement by the rounds
    before it.

    There are `times` rounds (None: without end), one `every` "30m", "3h" or "1d". They are kept in
    the folder `out`; rounds that are there already count as past rounds. `fail_if` has gates such
    as "ttft_ms.p95 > +20%", whose breaches each round lists. Raises as `bench` does.
    """
    every_ns = Duration.parse("every", every, LONGEST_WAIT_S).ns
    at_least_one(times=times)
    gates = [parse_gate(text) for text in fail_if]
    wanted = WatchSettings(
        **_named(targets),
        **settings,
        loads=[PlannedLoad(concurrency=level) for level in _sequence(concurrency)],
        every_ns=every_ns,
        folder=Path(out),
    )
    with ExitStack() as started:
        jobs = await in_thread(lambda: watch_jobs(wanted, started, Recorded.of(wanted)))
        rounds = Watch(
            jobs,
            wanted.folder,
            every_ns,
            _Listener(progress),
            max_cost=wanted.max_cost,
            gates=gates,
        )
        async for each in rounds.rounds(times):
            yield each


class _Listener(WatchListener):
    def __init__(self, shown: bool) -> None:
        self._shown = shown

    def progress(self, meter: CostMeter) -> Progress:
        return _progress(self._shown, meter)


async def _measured(
    make_job: Callable[[Settings, ExitStack, Recorded], Job],
    wanted: Settings,
    out: str | os.PathLike[str] | None,
    shown: bool,
) -> BenchRun:
    with ExitStack() as started:
        job = await in_thread(lambda: make_job(wanted, started, Recorded.of(wanted)))
        job.announced(wanted.max_cost)  # raises for an unknown price
        meter = job.meter(wanted.max_cost)
        path = Path(out) if out is not None else Path("runs") / job.run_id
        with RunFolder.create(path) as folder:
            measurement = Measurement(job, folder, meter, _progress(shown, meter))
            try:
                await measurement.measure_or_discard()
            except (Fault, asyncio.CancelledError) as error:
                if measurement.loaded:
                    folder.write_run(measurement.run)
                    error.add_note(f"What was measured is in {path}: see splitsecond.load.")
                raise
            folder.write_run(measurement.run)
    return BenchRun(measurement.run, measurement.observations, path)


def _progress(shown: bool, meter: CostMeter) -> Progress:
    return LiveProgress(Console(stderr=True), lambda: meter.spent_usd) if shown else NoProgress()


def _named(targets: Sequence[str | Server]) -> dict[str, Any]:
    names = [target for target in targets if isinstance(target, str)]
    return {
        "targets": [name for name in names if "(" not in name],
        "policies": [name for name in names if "(" in name],
        "servers": [target for target in targets if isinstance(target, Server)],
    }


def _sequence(value: T | Sequence[T] | None) -> list[T]:
    if value is None:
        return []
    return list(value) if isinstance(value, Sequence) else [value]
