from collections.abc import Sequence
from itertools import product

from splitsecond.benchmark.report import rows
from splitsecond.benchmark.report.plots import series
from splitsecond.benchmark.report.plots.plot_frame import (
    deciding,
    kind_suffix,
    on_axis,
    target_entries_of,
)
from splitsecond.benchmark.report.plots.series import Samples
from splitsecond.benchmark.rows.figures import FIGURES
from splitsecond.benchmark.rows.records import ConditionFindings, Run
from splitsecond.benchmark.rows.usable_rows import load_of
from splitsecond.core.pages.axis import fitted, load_axis, load_unit
from splitsecond.core.pages.chart import NAMES, ROW, Chart, LegendEntry, Plot, picture
from splitsecond.core.pages.figure_cells import number
from splitsecond.log.statistics.summary import Floats

MARK, HEAVIEST_MARK = 4.0, 8.0


def by_load(run: Run, samples: Samples) -> list[Plot]:
    drawn = []
    for open_loop, (reuse, workload) in product((False, True), rows.kinds(run)):
        ttft: list[_Range] = []
        tps: list[_Range] = []
        for condition in run.conditions:
            if (
                rows.open_loop(condition) == open_loop
                and (condition.cache_reuse, condition.workload) == (reuse, workload)
                and load_of(condition)
            ):
                observed = samples[condition.condition]
                ttft += _range(
                    condition, rows.ttft(condition).p50, series.ttft_values(condition, observed)
                )
                tps += _range(condition, condition.tps.p50, FIGURES["tps"].sample(observed).values)
        suffix = ("-open" if open_loop else "") + kind_suffix(reuse, workload)
        wait = "Latency" if any(c.inputs for c in run.conditions) else "Time to first token"
        for name, title, unit, ranges in (
            ("ttft-by-load", wait, "ms", ttft),
            ("tps-by-load", "TPS of one request", "tokens/s", tps),
        ):
            if ranges:
                title += rows.kind_title(cache_reuse=reuse, workload=workload)
                drawn.append(
                    _against_load(run, name + suffix, title, unit, ranges, open_loop=open_loop)
                )
    return drawn


_Range = tuple[str, float, float, float, float]


def _range(condition: ConditionFindings, median: float | None, values: Floats) -> list[_Range]:
    load = load_of(condition)
    if median is None or not load:
        return []
    return [(condition.target, load, median, *(series.band(values) or (median, median)))]


def _against_load(
    run: Run, name: str, title: str, unit: str, ranges: Sequence[_Range], *, open_loop: bool
) -> Plot:
    loads = {load for _, load, *_ in ranges}
    draw = _lines if len(loads) > 1 else _ranges
    shape = "a line through the loads" if len(loads) > 1 else "a mark"
    ends = [end for one in deciding(run, ranges, lambda one: one[0]) for end in one[3:]]
    return picture(
        draw(run, ranges, unit, ends, open_loop=open_loop),
        name=name,
        section="load",
        title=f"{title}, {unit}",
        description=f"{title}: the median of each target as {shape}, with the range from p5 to p95 "
        "of its requests. The tables above list the medians.",
    )


def _tip(target: str, load: str, median: float, low: float, high: float, unit: str) -> str:
    return (
        f"{target}{load}\np50 {number(median)} {unit}\np5 to p95: {number(low)} to {number(high)}"
    )


def _lines(
    run: Run, ranges: Sequence[_Range], unit: str, ends: Sequence[float], *, open_loop: bool
) -> Chart:
    what = load_unit(open_loop=open_loop, in_sessions=any(c.in_sessions for c in run.conditions))
    chart = Chart(load_axis({load for _, load, *_ in ranges}, what), fitted("", ends))
    entries = target_entries_of(run)
    for place, (target, entry) in enumerate(entries.items()):
        own = sorted(one[1:] for one in ranges if one[0] == target)
        if not own:
            continue
        # so that the bars of targets stand side by side
        beside = 1 + 0.012 * (place - (len(entries) - 1) / 2)
        bars = [
            chart.upright(load * beside, low, high)
            for load, _, low, high in own
            if chart.y and chart.y.shows(low)
        ]
        chart.add(entry, *bars)
        marks = [
            chart.mark(
                entry,
                load * beside,
                median,
                _tip(target, f", {what} {load:g}", median, low, high, unit),
            )
            for load, median, low, high in own
        ]
        chart.add(
            entry,
            chart.line([(load * beside, median) for load, median, *_ in own], tip=target),
            *marks,
        )
    return chart


def _ranges(
    run: Run, ranges: Sequence[_Range], unit: str, ends: Sequence[float], *, open_loop: bool
) -> Chart:
    row = 2 * ROW
    chart = Chart(fitted(unit, ends), None, height=row * len(ranges), left=NAMES)
    entries = target_entries_of(run)
    for at, (target, _, median, low, high) in enumerate(ranges):
        middle = row * (at + 0.5)
        tip = _tip(target, "", median, low, high, unit)
        inside = chart.x.shows(low) and chart.x.shows(high)
        span = chart.span(low, high, middle, tip) if inside else ""
        chart.add(entries[target], span, chart.mark(entries[target], median, middle, tip, size=5.5))
        chart.add(None, chart.name(target, middle))
    return chart


_Place = tuple[ConditionFindings, float, float]
"""A row, the figure of one request there, and the throughput of the system."""


def throughput(run: Run) -> list[Plot]:
    return [
        drawn for reuse, workload in rows.kinds(run) for drawn in _throughput(run, reuse, workload)
    ]


def _throughput(run: Run, reuse: bool, workload: str) -> list[Plot]:
    alike = [
        c for c in run.conditions if (c.cache_reuse, c.workload) == (reuse, workload) and load_of(c)
    ]
    end = rows.kind_title(cache_reuse=reuse, workload=workload)
    speeds, times = (
        [
            (c, one, system)
            for c in alike
            if (one := getattr(c, figure).p50) and (system := c.output_tokens_per_s)
        ]
        for figure in ("tps", "e2e_ms")
    )
    drawn = []
    decides = on_axis(run)
    for name, what, axis, places, faster_is in (
        ("throughput", "speed", "TPS p50 of one request", speeds, 1),
        ("latency", "time", "E2E p50 of one request, ms", times, -1),
    ):
        if sum(decides(c.target) for c, *_ in places) > 1:  # one mark is no plot
            chart, best = _front(run, axis, places, faster_is)
            where = "right" if faster_is > 0 else "left"
            drawn.append(
                picture(
                    chart,
                    name=f"{name}{kind_suffix(reuse, workload)}",
                    section="throughput",
                    title=f"System throughput against the {what} of one request{end}",
                    description="Each mark is one target at one load; larger marks are heavier "
                    f"loads. Marks further {where} are faster for one request, marks further up "
                    "have more system throughput. On the Pareto front: "
                    f"{', '.join(f'{c.target} at {rows.load_words(c)}' for c in best)}.",
                )
            )
    return drawn


def _front(
    run: Run, axis: str, places: Sequence[_Place], faster_is: int
) -> tuple[Chart, list[ConditionFindings]]:
    axis_places = deciding(run, places, lambda place: place[0].target)
    chart = Chart(
        fitted(axis, [one for _, one, _ in axis_places], zero=False),
        fitted("tokens per second of the system", [system for *_, system in axis_places]),
    )
    best = _pareto([place for place in places if not place[0].invalid], faster_is)
    chart.add(None, chart.line([(one, system) for _, one, system in best], dash=True))
    loads = [load_of(c) for c, *_ in places]
    for target, entry in target_entries_of(run).items():
        own = sorted(
            (each for each in places if each[0].target == target), key=lambda each: load_of(each[0])
        )
        if own:
            line = chart.line([(one, system) for _, one, system in own], tip=target)
            chart.add(entry, line, look="thin")
        for place in own:
            grown = (load_of(place[0]) - min(loads)) / (max(loads) - min(loads) or 1)
            size = MARK + (HEAVIEST_MARK - MARK) * grown**0.5
            _add_mark(chart, entry, place, axis, size)
    return chart, [c for c, *_ in best]


def _add_mark(chart: Chart, entry: LegendEntry, place: _Place, axis: str, size: float) -> None:
    c, one, system = place
    tip = (
        f"{c.target}, {rows.load_words(c)}\n{axis}: {number(one)}\nsystem: "
        f"{number(system)} tokens/s"
    )
    mark = chart.mark(entry, one, system, tip, size=size)
    chart.add(entry, mark, look="hollow" if c.invalid else "")


def _pareto(places: Sequence[_Place], faster_is: int) -> list[_Place]:
    """Return the places that no other beats on both axes, from left to right."""

    def beats(other: _Place, place: _Place) -> bool:
        speed, other_speed = place[1] * faster_is, other[1] * faster_is
        return (
            (other_speed, other[2]) != (speed, place[2])
            and other_speed >= speed
            and other[2] >= place[2]
        )

    best = [place for place in places if not any(beats(other, place) for other in places)]
    return sorted(best, key=lambda place: place[1])
