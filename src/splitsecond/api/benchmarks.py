import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar, Unpack

from rich.console import Console

from splitsecond.api.keywords import (
    BenchKeywords,
    CapacityKeywords,
    WatchKeywords,
    with_keywords,
)
from splitsecond.api.results import BenchRun
from splitsecond.benchmark.findings.gate import parse_gate
from splitsecond.benchmark.report.live import LiveProgress
from splitsecond.benchmark.runs.cost_meter import CostMeter
from splitsecond.benchmark.runs.measuring import Job, Measurement, NoProgress, Progress
from splitsecond.benchmark.runs.planning import Recorded, bench_job, capacity_job, watch_jobs
from splitsecond.benchmark.runs.settings import (
    BenchSettings,
    CapacitySettings,
    RunSettings,
    Server,
    WatchSettings,
    at_least_one,
)
from splitsecond.benchmark.runs.targets import in_thread
from splitsecond.benchmark.runs.watching import MeasuredRound, Watch, WatchListener
from splitsecond.core.errors import Fault
from splitsecond.log.store.folder import RunFolder

Settings = TypeVar("Settings", bound=RunSettings)


@with_keywords(BenchSettings)
async def bench(
    *targets: str | Server,
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **settings: Unpack[BenchKeywords],
) -> BenchRun:
    """Time `targets` side by side in one run, and return it.

    A target is a name such as "groq/llama-3.3-70b-versatile" or "sim/groq", a policy such as
    ``race("a/x", "b/x")``, or a `Server`. The load is a closed loop at each `concurrency`, an open
    loop at each `rate`, or both, or a `trace`; with `sessions`, `concurrency` is the number of
    sessions at a time, and `session_rate` that of new ones per second. `requests`, `precision` and
    `duration` say how long to measure. Several targets are compared over 750 seconds by default;
    with `quick`, rounds follow each other at once. The run is recorded in the folder `out`, by
    default ``runs/ID``.

    Raises a `Fault` of `splitsecond.core.errors` if the run cannot start or is ended early. What
    was measured until then, or until the task is cancelled, stays in the folder: see `load`.
    """
    return await _measured(bench_job, BenchSettings(**_named(targets), **settings), out, progress)


@with_keywords(CapacitySettings)
async def capacity(
    target: str | Server,
    *,
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **settings: Unpack[CapacityKeywords],
) -> BenchRun:
    """Find the highest load at which `share` of the requests meet `slo`; see `BenchRun.capacity` of
    the result.

    The load is a concurrency from `first` to `last`, or with `rate` a number of requests per
    second; with `sessions`, it is their number at a time. A target that is paid by the token needs
    `max_cost`. Raises as `bench` does.
    """
    chosen = CapacitySettings(**_named([target]), **settings)
    return await _measured(capacity_job, chosen, out, progress)


@with_keywords(WatchSettings)
async def watch(
    *targets: str | Server,
    out: str | os.PathLike[str] = "watch",
    progress: bool = True,
    **settings: Unpack[WatchKeywords],
) -> AsyncIterator[MeasuredRound]:
    """Measure `targets` again and again, and yield each round with its judgement by the rounds
    before it.

    The rounds are kept in the folder `out`; those that are there already count as past rounds.
    Raises as `bench` does.
    """
    chosen = WatchSettings(**_named(targets), **settings)
    at_least_one(times=chosen.times)
    gates = [parse_gate(text) for text in chosen.fail_if]
    every_ns = chosen.every_ns
    with ExitStack() as started:
        jobs = await in_thread(lambda: watch_jobs(chosen, started, Recorded.of(chosen)))
        rounds = Watch(
            jobs,
            Path(out),
            every_ns,
            _Listener(progress),
            max_cost=chosen.max_cost,
            gates=gates,
        )
        async for each in rounds.rounds(chosen.times):
            yield each


class _Listener(WatchListener):
    def __init__(self, visible: bool) -> None:
        self._shown = visible

    def progress(self, meter: CostMeter) -> Progress:
        return _progress(self._shown, meter)


async def _measured(
    make_job: Callable[[Settings, ExitStack, Recorded], Job],
    settings: Settings,
    out: str | os.PathLike[str] | None,
    visible: bool,
) -> BenchRun:
    with ExitStack() as started:
        job = await in_thread(lambda: make_job(settings, started, Recorded.of(settings)))
        job.announced(settings.max_cost)  # raises for an unknown price
        meter = job.meter(settings.max_cost)
        path = Path(out) if out is not None else Path("runs") / job.run_id
        with RunFolder.create(path) as folder:
            measurement = Measurement(job, folder, meter, _progress(visible, meter))
            try:
                await measurement.measure_or_discard()
            except (Fault, asyncio.CancelledError) as error:
                if measurement.loaded:
                    folder.write_run(measurement.run)
                    error.add_note(f"What was measured is in {path}: see splitsecond.load.")
                raise
            folder.write_run(measurement.run)
    return BenchRun(measurement.run, measurement.observations, path)


def _progress(visible: bool, meter: CostMeter) -> Progress:
    return LiveProgress(Console(stderr=True), lambda: meter.spent_usd) if visible else NoProgress()


def _named(targets: Sequence[str | Server]) -> dict[str, Any]:
    names = [target for target in targets if isinstance(target, str)]
    return {
        "targets": [name for name in names if "(" not in name],
        "policies": [name for name in names if "(" in name],
        "servers": [target for target in targets if isinstance(target, Server)],
    }
