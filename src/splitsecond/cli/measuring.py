from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from splitsecond.benchmark.findings.gate import Gate
from splitsecond.benchmark.report.live import LiveProgress
from splitsecond.benchmark.rows.records import Run
from splitsecond.benchmark.runs.measuring import Job, Measurement
from splitsecond.cli.console import Console
from splitsecond.cli.gates import passed
from splitsecond.cli.interruption import Interrupted, Interruption
from splitsecond.cli.results import Output
from splitsecond.cli.run_results import show
from splitsecond.core.errors import Fault
from splitsecond.log.store.folder import RunFolder


def measure(
    job: Job, output: Output, max_cost: float | None = None, gates: Sequence[Gate] = ()
) -> int:
    """Measure a run, show it and return the exit code.

    The code is 1 if a row has no answered request, if requests were lost to a crash, if a gate was
    missed, if no capacity was found, or if a result could not be written; 3 if only a gate could
    not be checked; 130 or 143 if SIGINT or SIGTERM ended the run. Raises the `Fault` that ended the
    run early, after it has shown what was measured.
    """
    output.check()
    cost = job.announced(max_cost)
    screen = Console(stderr=True)
    meter = job.meter(max_cost)
    with (
        Interruption() as stop,
        RunFolder.create(output.folder or Path("runs") / job.run_id) as folder,
    ):
        measurement = Measurement(job, folder, meter, LiveProgress(screen, lambda: meter.spent_usd))
        if cost:
            screen.print(Text(cost), soft_wrap=True)
        try:
            stop.run(measurement.measure_or_discard())
        except Interrupted:
            if not measurement.loaded:
                folder.discard()  # a signal that came before the run began
                raise
        except Fault:
            if not measurement.loaded:
                raise
        run = measurement.run
        written = show(run, measurement.observations, folder, output)
    if measurement.fault is not None:
        raise measurement.fault
    if stop.code:
        return stop.code
    gates_code = passed(gates, run, output.screen())
    return (
        gates_code
        if written and run.finished and _succeeded(run, search=job.search is not None)
        else 1
    )


def _succeeded(run: Run, *, search: bool) -> bool:
    """Return whether the search found a capacity, or each row of another run has an answered
    request."""
    if search:
        return run.capacity is not None and run.capacity.holds is not None
    return all(c.errors < c.requests for c in run.conditions)
