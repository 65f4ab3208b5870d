"""Results of a run, in files and in the terminal. A file that cannot be written is reported, and
everything else is still written."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from splitsecond.benchmark.report.exports import run_records
from splitsecond.benchmark.report.first_screen import first_screen
from splitsecond.benchmark.report.plots.plot_frame import legends
from splitsecond.benchmark.report.plots.run_plots import for_slide, plots_of
from splitsecond.benchmark.report.run_page import render_run
from splitsecond.benchmark.report.terminal import run_table
from splitsecond.benchmark.rows.records import Run
from splitsecond.benchmark.runs.concluding import read_series
from splitsecond.cli.interruption import discard_output
from splitsecond.cli.plan_file import PLAN
from splitsecond.cli.results import Output
from splitsecond.core.errors import CallerFault, cannot_write
from splitsecond.core.observation import Observation
from splitsecond.core.pages.png import save_png, slide_png
from splitsecond.log.store.folder import RUN, RunFolder

REPORT, SLIDE = "report.html", "slide.png"


def show(
    run: Run,
    observations: Sequence[Observation],
    folder: RunFolder,
    output: Output,
    *,
    screen: Console | None = None,
) -> bool:
    server = read_series(folder.path)
    files: list[Path] = []
    failed: list[str] = []
    with _noting(failed, folder.path / RUN):
        folder.write_run(run)
        if plan := run.asked.get("plan"):
            folder.write(PLAN, str(plan).encode())
    with _noting(failed, output.json):
        output.write(run, lambda: run_records(run), lambda console: run_table(run, console))
        files += [
            Path(where)
            for where in (output.json, output.csv, output.markdown)
            if where not in ("", "-")
        ]
    if output.html:
        with _noting(failed, folder.path / REPORT):
            files.append(folder.write(REPORT, render_run(run, observations, server).encode()))
    if output.png:
        with _noting(failed, folder.path):
            plots, keys = plots_of(run, observations, server), legends(run)
            files += save_png(plots, keys, folder.path)
            if plots and run.conclusion:
                slide = slide_png(run.conclusion, for_slide(plots), keys["targets"])
                files.append(folder.write(SLIDE, slide))
    console = screen or output.screen()
    with _noting(failed, "the terminal"):
        (run_table if output.verbose else first_screen)(run, console, files)
    for line in failed:
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    return not failed


@contextmanager
def _noting(failed: list[str], where: Path | str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        discard_output()
    except OSError as error:
        failed.append(cannot_write(where, error))
    except CallerFault as fault:
        failed.append(fault.message)
