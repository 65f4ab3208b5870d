"""The plots of a watch. Each row has its own, because the bands of several rows would hide each
other. All share one time axis."""

from collections.abc import Sequence
from datetime import datetime

from splitsecond.benchmark.findings.watching import (
    SeriesPoint,
    WatchedSeries,
    WatchFindings,
    minute,
)
from splitsecond.benchmark.report.plots.plot_frame import server_strip, strip_tops
from splitsecond.benchmark.report.plots.series import STRIPS
from splitsecond.core.pages.axis import Axis, linear, moments
from splitsecond.core.pages.chart import Chart, LegendEntry, Plot, picture
from splitsecond.core.pages.figure_cells import MISSING, number, share
from splitsecond.core.wording import counted_as, listed

AREA_HEIGHT = 170
LEFT = 56
"""Pixels beside each plot."""
SHOWN = 500
TAIL_ROOM = 1.5
STATES = {
    name: LegendEntry(label=name, palette="state", index=index, shape=shape)
    for name, (index, shape) in {
        "usual": (0, "circle"),
        "unusual": (1, "square"),
        "drifted": (2, "triangle"),
        "learning": (3, "circle"),
        "invalid": (4, "cross"),
    }.items()
}
SMALL = ("usual", "learning")
MAX_TIPS = 150
"""Rounds of a plot up to which each dot has a tooltip, so that a page stays small."""


def watch_plots(findings: WatchFindings) -> list[Plot]:
    times = [point.at for line in findings.lines for point in line.points[-SHOWN:]]
    everywhere = [(at, f"the round failed: {why}") for at, why in findings.failed.items()]
    everywhere += [(at, skipped_words(count)) for at, count in findings.skipped.items()]
    gone = {
        line.name: [*everywhere, *findings.left_out.get(line.name, {}).items()]
        for line in findings.lines
    }
    times += [at for own in gone.values() for at, _ in own if at >= min(times)]
    period = (_when(min(times)), _when(max(times))) if times else (0.0, 0.0)
    return [
        *(
            _line_plot(index, line, gone[line.name], period)
            for index, line in enumerate(findings.lines)
        ),
        *_server_plots(findings, period),
    ]


def _axis_of(period: tuple[float, float]) -> Axis:
    x = moments(*period)
    margin = 0.015 * (x.high - x.low)
    return Axis(title="", low=x.low - margin, high=x.high + margin, ticks=x.ticks, grid=False)


def _server_plots(findings: WatchFindings, period: tuple[float, float]) -> list[Plot]:
    reported = {
        name: {
            term: [(_when(at), value) for at, value in values.items() if _when(at) >= period[0]]
            for term, values in own.items()
        }
        for name, own in findings.server.items()
    }
    tops = strip_tops(list(reported.values()))
    x = _axis_of(period)
    plots = []
    for index, (name, own) in enumerate(reported.items()):
        strips = []
        for term in (term for term in tops if own.get(term)):
            chart = server_strip(term, tops[term], x, LEFT)
            chart.add(STATES["usual"], chart.line(own[term]), look="thin")
            chart.add(STATES["usual"], chart.dots(own[term]), look="full")
            strips.append(chart)
        if strips:
            words = listed([STRIPS[term] for term in tops if own.get(term)])
            plots.append(
                picture(
                    *strips,
                    name=f"server-{index}",
                    section="server",
                    title=name,
                    description=f"What the server of {name} reported in each round: {words}.",
                    legend="states",
                    heading=f"The server's own view · {name}",
                )
            )
    return plots


def _line_plot(
    index: int, line: WatchedSeries, gone: Sequence[tuple[str, str]], period: tuple[float, float]
) -> Plot:
    points = line.points[-SHOWN:]
    x = _axis_of(period)
    chart = Chart(x, _axis(line, points), height=AREA_HEIGHT, left=LEFT)
    _draw_bands(chart, points)
    rules = [
        chart.upright_rule(_when(at), tip=f"{minute(at)} UTC\n{why}")
        for at, why in gone
        if x.shows(_when(at))
    ]
    crosses = [
        chart.mark(
            STATES["invalid"],
            _when(at),
            chart.y.low if chart.y else 0.0,
            f"{minute(at)} UTC\n{why}",
            size=5,
        )
        for at, why in gone
    ]
    if rules:
        chart.add(STATES["invalid"], *rules, *crosses, look="rules")
    if line.figure == "ttft_ms":
        tails = [(_when(p.at), p.tail) for p in points if p.tail is not None]
        chart.add(STATES["learning"], chart.line(tails, dash=True), look="thin")
    _draw_drifts(chart, line, points)
    _draw_marks(chart, line, points)
    unit = f", {line.unit}" if line.unit else ""
    return picture(
        chart,
        name=f"{line.figure.replace('_', '-')}-{index}",
        section=line.figure,
        title=line.name,
        description=_description(line, points),
        legend="states",
        heading=f"{line.label}{unit} · {line.name}",
    )


def _description(line: WatchedSeries, points: list[SeriesPoint]) -> str:
    first, last = points[0], points[-1]
    value = share(last.value) if line.figure == "errors" else f"{number(last.value)} {line.unit}"
    drift = f" It has drifted since {minute(line.drifting.since)} UTC." if line.drifting else ""
    return (
        f"{line.label} of {line.name} in {counted_as(len(points), 'round')} from "
        f"{minute(first.at)} to "
        f"{minute(last.at)} UTC, with its usual range as a band. The last value is {value}.{drift}"
    )


def _axis(line: WatchedSeries, points: list[SeriesPoint]) -> Axis:
    values = [v for p in points for v in (p.value, p.low, p.high) if v is not None]
    if line.figure == "errors":
        return linear("", 0, min(max(*values, 0.05) * 1.1, 1), percent=True)
    # p95 is shown as far as it leaves room for the rest.
    tails = [p.tail for p in points if p.tail is not None and line.figure == "ttft_ms"]
    top = max(max(values), min(max(tails, default=0.0), TAIL_ROOM * max(values)))
    return linear(line.unit, min(values) * 0.95, top * 1.05)


def _draw_bands(chart: Chart, points: list[SeriesPoint]) -> None:
    pieces: list[list[SeriesPoint]] = [[]]
    for p in points:
        if p.low is None:
            pieces.append([])
        else:
            pieces[-1].append(p)
    bands = [
        chart.band(
            [
                (_when(p.at), p.low, p.high)
                for p in piece
                if p.low is not None and p.high is not None
            ]
        )
        for piece in pieces
        if len(piece) > 1
    ]
    chart.add(STATES["usual"], *bands)
    chart.add(STATES["usual"], chart.line([(_when(p.at), p.value) for p in points]), look="thin")


def _draw_drifts(chart: Chart, line: WatchedSeries, points: list[SeriesPoint]) -> None:
    first, last = points[0].at, points[-1].at
    levels = [
        chart.line(
            [(_when(max(d.since, first)), d.after), (_when(d.until or last), d.after)], dash=True
        )
        for d in line.drifts
        if (d.until or last) > first
    ]
    if levels:
        chart.add(STATES["drifted"], *levels)


def _draw_marks(chart: Chart, line: WatchedSeries, points: list[SeriesPoint]) -> None:
    words = share if line.figure == "errors" else number
    for state, entry in STATES.items():
        marks: list[str] = []
        own = [p for p in points if p.state == state]
        if state in SMALL and len(points) > MAX_TIPS:
            marks.append(chart.dots([(_when(p.at), p.value) for p in own]))
            own = []
        for p in own:
            usual = MISSING if p.low is None else f"{words(p.low)} to {words(p.high)}"
            tail = f"\np95 {words(p.tail)}" if line.figure == "ttft_ms" else ""
            tip = (
                f"{minute(p.at)} UTC: {state}\n{line.label} {words(p.value)}{tail}\nusual: {usual}"
            )
            small = state in SMALL
            at = _when(p.at)
            marks.append(
                chart.dot(at, p.value, tip)
                if small
                else chart.mark(entry, at, p.value, tip, size=5)
            )
        if marks:
            chart.add(entry, *marks, look="full")


def skipped_words(count: int) -> str:
    return f"skipped: {counted_as(count, 'round', 'rounds in a row')}"


def _when(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()
