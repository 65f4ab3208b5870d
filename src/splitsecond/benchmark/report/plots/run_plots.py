"""The plots of a run, from its findings and from thinned samples.

Where a run has nothing to draw, a function returns no plot and the page says so. The built-in
engine does not stretch an axis that it shares with providers: its marks outside are left out.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from splitsecond.benchmark.report.plots import capacity_plots, money_plots, series
from splitsecond.benchmark.report.plots.distribution_plots import (
    itl_distributions,
    over_time,
    ttft_distributions,
)
from splitsecond.benchmark.report.plots.load_plots import by_load, throughput
from splitsecond.benchmark.report.plots.request_plots import slowest, split, stages, waterfalls
from splitsecond.benchmark.report.plots.session_plots import session_plots
from splitsecond.benchmark.rows.records import Run
from splitsecond.benchmark.server_view.samples import ServerSeries
from splitsecond.core.observation import Observation
from splitsecond.core.pages.chart import Plot

SLIDE_SECTIONS = ("load", "ttft", "throughput")
"""Sections of a page whose plots are for a slide, the best first."""


def for_slide(plots: Sequence[Plot]) -> list[Plot]:
    """Return the two plots that show most at a glance, of those whose colours are targets."""
    best = [
        plot
        for section in SLIDE_SECTIONS
        for plot in plots
        if plot.section == section and plot.legend == "targets"
    ]
    return (best or list(plots))[:2]


def plots_of(
    run: Run, observations: Iterable[Observation], server: ServerSeries | None = None
) -> list[Plot]:
    everything = list(observations)
    if run.capacity:
        capacity = run.capacity
        edge = [
            step.condition
            for step in capacity.steps
            if step.load in (capacity.holds, capacity.ceiling)
        ]
        rows = [row for row in run.conditions if row.condition in edge and row.server]
        return [
            *capacity_plots.capacity_plots(run, capacity),
            *throughput(run),
            *over_time(replace(run, conditions=rows), everything, server),
            *stages(run),
        ]
    samples = series.samples(run, everything)
    return [
        *session_plots(run, everything),
        *ttft_distributions(run, samples),
        *itl_distributions(run, samples),
        *over_time(run, everything, server),
        *by_load(run, samples),
        *throughput(run),
        *stages(run),
        *split(run, samples),
        *waterfalls(run, samples),
        *slowest(run, samples),
        *money_plots.choosing_plots(run),
    ]
