from collections.abc import Mapping, Sequence

import numpy as np

from splitsecond.benchmark.report import rows
from splitsecond.benchmark.report.plots import series
from splitsecond.benchmark.report.plots.plot_frame import (
    deciding,
    level_slug,
    on_axis,
    server_strip,
    strip,
    strip_tops,
    target_entries_of,
)
from splitsecond.benchmark.report.plots.series import STRIPS, LoadOverTime, Samples
from splitsecond.benchmark.report.rows import LoadLevel
from splitsecond.benchmark.rows.figures import FIGURES
from splitsecond.benchmark.rows.records import ConditionFindings, Run
from splitsecond.benchmark.server_view.samples import ServerSeries
from splitsecond.core import wording
from splitsecond.core.grouping import grouped
from splitsecond.core.observation import Observation
from splitsecond.core.pages.axis import Axis, fitted, linear, shares
from splitsecond.core.pages.chart import LINE, Chart, Plot, Point, align, picture
from splitsecond.core.pages.figure_cells import number
from splitsecond.log.statistics.summary import Floats, Summary

AREA_HEIGHT = 220
MIN_ITL_MS = 0.01
"""Shorter gaps count as this on an axis of gaps: they were read together."""
MIN_ITL_PERCENTILE = 2
"""Where an axis of gaps begins: the few tokens that arrived together would take decades of it."""


def ttft_distributions(run: Run, samples: Samples) -> list[Plot]:
    decides = on_axis(run)
    values = {c.condition: series.ttft_values(c, samples[c.condition]) for c in run.conditions}
    everything = [
        ms
        for c in run.conditions
        if decides(c.target)
        for ms in values[c.condition].tolist()
        if ms > 0
    ]
    if not everything:
        return []
    x = fitted(f"{_wait(run)}, ms", everything, zero=False)
    return _distributions(run, x, "ttft", values)


def itl_distributions(run: Run, samples: Samples) -> list[Plot]:
    decides = on_axis(run)
    values = {
        c.condition: FIGURES["itl_ms"].sample(samples[c.condition]).values.clip(MIN_ITL_MS)
        for c in run.conditions
    }
    axis_values = [
        values[c.condition]
        for c in run.conditions
        if decides(c.target) and len(values[c.condition])
    ]
    if not axis_values:
        return []
    ends = [
        edge for own in axis_values for edge in (np.percentile(own, MIN_ITL_PERCENTILE), own.max())
    ]
    x = fitted("gap between two events, ms", map(float, ends), zero=False)
    return _distributions(run, x, "itl", values)


def _distributions(run: Run, x: Axis, name: str, values: Mapping[str, Floats]) -> list[Plot]:
    return [
        _distribution(run, level, x, name, values)
        for level in rows.levels(run)
        if any(len(values[c.condition]) for c in level.conditions)
    ]


def _distribution(
    run: Run, level: LoadLevel, x: Axis, name: str, values: Mapping[str, Floats]
) -> Plot:
    chart, entries = (
        Chart(x, shares("share of " + ("requests" if name == "ttft" else "gaps"))),
        target_entries_of(run),
    )
    label = {"ttft": _wait_label(level), "itl": "ITL"}[name]
    beyond = [c for c in level.conditions if len(of := values[c.condition]) and of.min() > x.high]
    for condition in level.conditions:
        curve: list[Point] = series.ecdf(values[condition.condition])
        if not curve:
            continue
        entry = entries[condition.target]
        chart.add(
            entry,
            chart.line([*curve, (x.high, 1.0)], steps=True, tip=condition.target),
            *(
                chart.mark(entry, ms, share, f"{condition.target}\n{label} {which} {number(ms)} ms")
                for which, ms, share in _marks(_summary(name, condition))
            ),
        )
    for at, condition in enumerate(beyond):
        median = number(_summary(name, condition).p50)
        words = f"{condition.target} is beyond this axis: p50 {median} ms"
        place = chart.left + chart.width - 4, chart.top + chart.height - 8 - at * (LINE + 3)
        chart.add(entries[condition.target], chart.text(*place, words, anchor="end"))
    what = {
        "ttft": (
            _wait(run).capitalize(),
            "of requests that had their " + ("answer" if level.inputs else "first token"),
        ),
        "itl": ("ITL", "of gaps"),
    }
    heading, words = what[name]
    medians = ((c.target, _summary(name, c).p50) for c in level.conditions)
    listed = ", ".join(f"{target} {number(p50)} ms" for target, p50 in medians if p50 is not None)
    return picture(
        chart,
        name=f"{name}-{level_slug(level)}",
        section=name,
        title=level.title,
        description=f"The share {words} by a given time: one curve per target, with marks at p50 "
        f"and p95. Medians: {listed}.",
        heading=f"{heading} · {level.title}",
    )


def _wait(run: Run) -> str:
    return "latency" if any(c.inputs for c in run.conditions) else "time to first token"


def _wait_label(level: LoadLevel) -> str:
    return "latency" if level.inputs else "TTFT"


def _summary(name: str, condition: ConditionFindings) -> Summary:
    return rows.ttft(condition) if name == "ttft" else condition.itl_ms


def _marks(of: Summary) -> list[tuple[str, float, float]]:
    percentiles = (("p50", of.p50, 0.5), ("p95", of.p95, 0.95))
    return [(name, ms, at) for name, ms, at in percentiles if ms is not None]


def over_time(
    run: Run, observations: Sequence[Observation], server: ServerSeries | None = None
) -> list[Plot]:
    by_condition = grouped(observations, lambda o: o.condition)
    courses = {
        c.condition: course
        for c in run.conditions
        if (course := series.over_time(c, by_condition.get(c.condition, ()), server)).ttft
    }
    drawn_over_time = [c for c in run.conditions if c.condition in courses]
    axis_courses = [
        courses[c.condition] for c in deciding(run, drawn_over_time, lambda c: c.target)
    ]
    values = [ms for course in axis_courses for _, ms in course.ttft if ms > 0]
    if not values:
        return []
    tops = strip_tops([course.server for course in axis_courses])
    drawn = []
    for level in rows.levels(run):
        own = {c.target: courses[c.condition] for c in level.conditions if c.condition in courses}
        if own:
            axis = fitted(f"{_wait_label(level)}, ms", values, zero=True)
            drawn.append(_course_plot(run, level, own, axis, tops))
    return drawn


def _course_plot(
    run: Run,
    level: LoadLevel,
    courses: Mapping[str, LoadOverTime],
    ttft: Axis,
    tops: Mapping[str, float],
) -> Plot:
    entries = target_entries_of(run)
    axis_courses = [courses[target] for target in deciding(run, [*courses], str)]
    end = max(course.in_flight[-1][0] for course in axis_courses)
    upper = Chart(linear("", 0, end or 1, grid=False), ttft, height=AREA_HEIGHT)
    in_flight, reported = _strips(axis_courses, tops, upper.x)
    align(upper, in_flight, *reported.values())
    for target, course in courses.items():
        upper.add(entries[target], upper.dots(course.ttft))
        in_flight.add(
            entries[target], in_flight.line(course.in_flight, steps=True, tip=target), look="thin"
        )
        for term, chart in reported.items():
            chart.add(
                entries[target], chart.line(course.server.get(term, ()), tip=target), look="thin"
            )
    if len(courses) == 1:
        (course,) = courses.values()
        upper.add(None, *(upper.upright_rule(at) for at in course.rounds[1:]), look="weak")
    server_words = (
        f" Then, as the server tells: {wording.listed([STRIPS[term] for term in reported])}."
        if reported
        else ""
    )
    return picture(
        upper,
        in_flight,
        *reported.values(),
        name=f"time-{level_slug(level)}",
        section="time",
        title=level.title,
        description="Above, the TTFT of each request at the moment it was sent; below, the number "
        f"of requests in flight.{server_words} The time between rounds is left out.",
        heading=f"TTFT and requests in flight · {level.title}",
    )


def _strips(
    courses: Sequence[LoadOverTime], tops: Mapping[str, float], seconds: Axis
) -> tuple[Chart, dict[str, Chart]]:
    """Return the strip of the requests in flight, and one for each term that the server reported.

    The lowest one has the title of the axis.
    """
    most = max(count for course in courses for _, count in course.in_flight)
    reported = [term for term in tops if any(term in course.server for course in courses)]
    foot = linear("seconds under this load, its rounds joined", 0, seconds.high, grid=False)
    first, *others = [*(seconds for _ in reported), foot]
    return strip("in flight", most, f"{most:,.0f}", first), {
        term: server_strip(term, tops[term], x) for term, x in zip(reported, others, strict=True)
    }
