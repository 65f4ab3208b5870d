"""The pictures of a run, as Vega-Lite specifications.

Each function draws one section from findings and thinned samples; where a run has nothing to draw (only errors, no
token twice) it draws nothing, and the page says so. Width is the container's, height is fixed and known before
anything is drawn, so a page does not jump. Only the shape of a picture is decided here; colours are the theme's.

Importing this module imports altair, which takes a third of a second: import it inside the function that needs it.
"""

from collections.abc import Sequence
from itertools import product
from math import ceil, floor, log10
from typing import Any, TypeVar

import altair as alt

from splitsecond.analysis.findings import ConditionFindings, Run
from splitsecond.analysis.spread import Floats
from splitsecond.report import rows, series
from splitsecond.report.picture import Picture
from splitsecond.report.series import STAGES, Samples

ECDF_HEIGHT, LOAD_HEIGHT, ROW_HEIGHT, AXIS_HEIGHT = 260, 300, 18, 56

WIDE = 8
"""From this ratio of the largest to the smallest value on, an axis is logarithmic."""

MARK_SIZES = [45, 190]
"""From the lightest load to the heaviest, in square pixels."""

TWO_LINES: dict[str, Any] = {
    "labelExpr": "indexof(datum.label, '/') < 0 ? datum.label : [slice(datum.label, 0, indexof(datum.label, '/')), "
    "slice(datum.label, indexof(datum.label, '/') + 1)]",
    "labelLineHeight": 12,
    "ticks": False,
    "domain": False,
}
"""The provider over the model, so that the names of targets leave room for what is measured."""

Records = list[dict[str, Any]]
Axis = TypeVar("Axis", alt.X, alt.Y)
Layered = alt.LayerChart | alt.FacetChart


def draw(run: Run, samples: Samples) -> list[Picture]:
    """Every picture that the run has something to show in, in the order of the report."""
    return [
        *ttft_distributions(run, samples),
        *by_load(run, samples),
        *throughput(run),
        *stages(run),
        *waterfalls(run, samples),
    ]


def ttft_distributions(run: Run, samples: Samples) -> list[Picture]:
    """For each level: which share of the requests had their first token by when, one curve per target."""
    values = {c.condition: series.ttft_values(c, samples[c.condition]) for c in run.conditions}
    everything = [ms for each in values.values() for ms in each.tolist() if ms > 0]
    if not everything:
        return []
    x = fitted(alt.X("ms:Q").title("time to first token, ms"), everything, zero=False)
    y = alt.Y("share:Q").title("share of requests").axis(format="%", values=[0, 0.25, 0.5, 0.75, 0.95])
    pictures = []
    for level in rows.levels(run):
        curves, marks = [], []
        for condition in level.conditions:
            points = series.ecdf(values[condition.condition])
            curves += [{"target": condition.target, "ms": round(v, 3), "share": round(s, 4)} for v, s in points]
            marks += _percentile_marks(condition, bool(points))
        if not curves:
            continue
        lines = alt.Chart(inline(curves)).mark_line(interpolate="step-after", clip=True).encode(x, y, _colour(run))
        dots = (
            alt.Chart(inline(marks))
            .mark_point()
            .encode(x, y, _colour(run), _shape(run), tooltip=_tooltip(which="percentile", ms="TTFT, ms"))
        )
        pictures.append(
            Picture(
                name=f"ttft-{_slug(level)}",
                section="ttft",
                title=level.title,
                description="The share of requests that had their first token by a given time, a curve for each "
                "target, with marks at p50 and p95. " + _medians(level.conditions),
                height=ECDF_HEIGHT,
                legend="targets",
                spec=specification(alt.layer(lines, dots), ECDF_HEIGHT, f"Time to first token · {level.title}"),
            )
        )
    return pictures


def by_load(run: Run, samples: Samples) -> list[Picture]:
    """TTFT and TPS against the load: the median as a line, nine of ten requests as a band."""
    pictures = []
    for open_loop, reuse in product((False, True), repeat=2):
        conditions = [
            c
            for c in run.conditions
            if rows.open_loop(c) == open_loop and c.cache_reuse == reuse and rows.load(c) is not None
        ]
        suffix = ("-open" if open_loop else "") + _slug_of_way(reuse)
        way = _way(reuse)
        waits, paces = [], []
        for condition in conditions:
            observed = samples[condition.condition]
            waits += _range(condition, rows.ttft(condition).p50, series.ttft_values(condition, observed))
            paces += _range(condition, condition.tps.p50, series.tps_values(observed))
        pictures += _against_load(
            run, f"ttft-by-load{suffix}", f"Time to first token{way}", "ms", waits, open_loop=open_loop
        )
        pictures += _against_load(
            run, f"tps-by-load{suffix}", f"Speed of one request{way}", "tokens per second", paces, open_loop=open_loop
        )
    return pictures


def _range(condition: ConditionFindings, median: float | None, values: Floats) -> Records:
    """The median and the range of nine of ten requests; nothing without a median."""
    if median is None:
        return []
    low, high = series.band(values) or (median, median)
    figures = {"p50": round(median, 3), "low": round(low, 3), "high": round(high, 3)}
    return [{"target": condition.target, "load": rows.load(condition), **figures}]


def _against_load(run: Run, name: str, title: str, unit: str, records: Records, *, open_loop: bool) -> list[Picture]:
    if not records:
        return []
    loads = sorted({record["load"] for record in records})
    several = len(loads) > 1
    if several:
        chart, height = _lines(run, records, loads, unit, open_loop=open_loop), LOAD_HEIGHT
    else:
        chart, height = _dots(run, records, unit), len(rows.targets(run)) * 2 * ROW_HEIGHT + AXIS_HEIGHT
    description = (
        f"{title}: for each target the median as {'a line over the load' if several else 'a mark'}, around it the "
        "range from p5 to p95 of the requests. The medians stand in the tables above."
    )
    return [
        Picture(
            name=name,
            section="load",
            title=f"{title}, {unit}",
            description=description,
            height=height,
            legend="targets",
            spec=specification(chart, height, f"{title}, {unit}"),
        )
    ]


def _lines(run: Run, records: Records, loads: list[float], unit: str, *, open_loop: bool) -> Layered:
    load = "requests/s" if open_loop else "concurrency"
    x = alt.X("load:Q").title(load).scale(type="log", nice=False).axis(values=loads, format="~g", grid=False)
    base = alt.Chart(inline(records)).encode(x, _colour(run))
    hover = _tooltip(load=load, p50="p50", low="p5", high="p95")
    y = fitted(alt.Y("low:Q").title(unit), _values(records, "low", "high"))
    area = base.mark_area(opacity=0.12).encode(y, alt.Y2("high"))
    line = base.mark_line().encode(alt.Y("p50:Q"))
    return alt.layer(area, line, base.mark_point().encode(alt.Y("p50:Q"), _shape(run), tooltip=hover))


def _dots(run: Run, records: Records, unit: str) -> Layered:
    x = fitted(alt.X("low:Q").title(unit), _values(records, "low", "high"))
    base = alt.Chart(inline(records)).encode(_target_rows(run), _colour(run))
    ranges = base.mark_rule(strokeWidth=3, opacity=0.4).encode(x, alt.X2("high"))
    hover = _tooltip(p50="p50", low="p5", high="p95")
    return alt.layer(ranges, base.mark_point(size=70).encode(alt.X("p50:Q"), _shape(run), tooltip=hover))


def throughput(run: Run) -> list[Picture]:
    """What the whole system delivers against what one user gets: a line per target through its levels."""
    return [picture for reuse in (False, True) for picture in _throughput(run, reuse)]


def _throughput(run: Run, reuse: bool) -> list[Picture]:
    records = []
    for condition in run.conditions:
        if condition.cache_reuse != reuse:
            continue
        load = rows.load(condition)
        if condition.tps.p50 is None or condition.output_tokens_per_s is None or load is None:
            continue
        together = round(condition.output_tokens_per_s, 3)
        records.append({"target": condition.target, "load": load, "one": round(condition.tps.p50, 3), "all": together})
    if not records:
        return []
    base = alt.Chart(inline(records)).encode(
        fitted(alt.X("one:Q").title("tokens per second of one request, p50"), _values(records, "one")),
        fitted(alt.Y("all:Q").title("tokens per second of the system"), _values(records, "all")),
        _colour(run),
    )
    loads = _values(records, "load")
    size = (
        alt.Size("load:Q")
        .scale(type="log", domain=[min(loads), max(loads) * 1.01], range=MARK_SIZES)
        .legend(values=sorted(set(loads)), title="load", format="~g")
    )
    path = base.mark_line(opacity=0.55).encode(alt.Order("load:Q"))
    hover = _tooltip(load="load", one="one request, tokens/s", all="system, tokens/s")
    dots = base.mark_point().encode(_shape(run), size, tooltip=hover)
    return [
        Picture(
            name=f"throughput{_slug_of_way(reuse)}",
            section="throughput",
            title=f"System throughput against the speed of one request{_way(reuse)}",
            description="Each mark is one target under one load, the larger the more load: to the right a single "
            "request is faster, further up the whole system delivers more. The figures stand in the tables above.",
            height=LOAD_HEIGHT,
            legend="targets",
            spec=specification(
                alt.layer(path, dots), LOAD_HEIGHT, "System throughput against the speed of one request"
            ),
        )
    ]


def stages(run: Run) -> list[Picture]:
    """Where the time of a request goes, as means: once up to the first token, once with the streaming."""
    return [
        *_stacked(run, "stages-first-token", "Until the first token", [s for s in STAGES if s != "streaming"]),
        *_stacked(run, "stages-whole", "The whole request", list(STAGES)),
    ]


def _stacked(run: Run, name: str, title: str, shown: Sequence[str]) -> list[Picture]:
    levels = rows.levels(run)
    bars: Records = []
    ends: Records = []
    for level in levels:
        for condition in level.conditions:
            at = {"target": condition.target, "level": level.title}
            end = 0.0
            for stage in (stage for stage in shown if stage in condition.phases_ms):
                begin, end = end, end + condition.phases_ms[stage]
                times = {"ms": round(end - begin, 3), "begin": round(begin, 3), "end": round(end, 3)}
                bars.append({**at, "stage": STAGES[stage], **times})
            if condition.phases_ms:
                load = f" · {rows.load_words(condition)}" if len(levels) > 1 else ""
                ends.append({**at, "end": round(end, 3), "said": rows.number(end) + load})
    if not ends:
        return []
    room = 1.6 * max(end["end"] for end in ends) or 1.0
    x = alt.X("begin:Q").title("ms").scale(domain=[0, room], nice=False).axis(tickCount=5)
    y, offset = _target_rows(run), alt.YOffset("level:N").sort([level.title for level in levels])
    colour, hover = _stage_colour("stage", list(STAGES.values())), _tooltip(level="", stage="", ms="ms")
    bar = alt.Chart(inline(bars)).mark_bar().encode(x, alt.X2("end"), y, offset, colour, tooltip=hover)
    label = alt.Chart(inline(ends)).mark_text(align="left", dx=5, baseline="middle")
    height = len(rows.targets(run)) * (len(levels) * ROW_HEIGHT + 10) + AXIS_HEIGHT
    return [
        Picture(
            name=name,
            section="stages",
            title=title,
            description=f"{title}: the mean of each stage, one after another, for each target and load. "
            "The numbers stand in the table below.",
            height=height,
            legend="stages",
            spec=specification(
                alt.layer(bar, label.encode(alt.X("end:Q"), y, offset, alt.Text("said:N"))),
                height,
                f"Where the time goes · {title.lower()}",
            ),
        )
    ]


def waterfalls(run: Run, samples: Samples) -> list[Picture]:
    """For each level: a typical and the slowest request of each target, step by step."""
    pictures = []
    for level in rows.levels(run):
        segments = [s for c in level.conditions for s in series.waterfall(c.target, samples[c.condition])]
        if not segments:
            continue
        records = [
            {
                "target": segment.target,
                "which": segment.which,
                "step": segment.step,
                "begin": round(segment.begin_ms, 3),
                "end": round(segment.end_ms, 3),
                "ms": round(segment.end_ms - segment.begin_ms, 3),
            }
            for segment in segments
        ]
        named = list(dict.fromkeys(segment.target for segment in segments))
        colour = _stage_colour("step", list(series.STEPS))
        chart = (
            alt.Chart(inline(records))
            .mark_bar()
            .encode(
                alt.X("begin:Q").title("ms since the request was due").axis(tickCount=5),
                alt.X2("end"),
                _target_rows(run, named),
                alt.YOffset("which:N").sort(["typical", "slowest"]),
                colour,
                tooltip=_tooltip(which="request", step="", ms="ms"),
            )
        )
        height = len(named) * (2 * ROW_HEIGHT + 6) + AXIS_HEIGHT
        pictures.append(
            Picture(
                name=f"waterfall-{_slug(level)}",
                section="waterfall",
                title=level.title,
                description="For each target two requests from the moment they were due to the last token: above "
                "a typical one, below the slowest.",
                height=height,
                legend="steps",
                spec=specification(alt.layer(chart), height, f"Single requests · {level.title}"),
            )
        )
    return pictures


def fitted(axis: Axis, values: Sequence[float], *, zero: bool = True) -> Axis:
    """An axis on which all values can be told apart: logarithmic where they lie far apart, else linear.

    A logarithmic one is labelled at 1, 2, 5, 10, …; Vega would label every step. `zero`: a linear one begins at 0.
    """
    low, high = min(values), max(values)
    if low <= 0 or high <= WIDE * low:
        domain = [0 if zero else low * 0.9, high * 1.05]
        return axis.scale(domain=domain, nice=False, zero=zero).axis(tickCount=5)
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in (1, 2, 5)]
    return axis.scale(type="log", domain=[low * 0.9, high * 1.1], nice=False).axis(format=",~g", values=ticks)


def _values(records: Records, *fields: str) -> list[float]:
    return [record[field] for record in records for field in fields]


def _percentile_marks(condition: ConditionFindings, drawn: bool) -> Records:
    """The marks on a curve, from the findings, so that they agree with the tables to the digit."""
    spread = rows.ttft(condition)
    marks = {"p50": (spread.p50, 0.5), "p95": (spread.p95, 0.95)}
    return [
        {"target": condition.target, "which": which, "ms": round(value, 3), "share": at}
        for which, (value, at) in marks.items()
        if drawn and value is not None
    ]


def _medians(conditions: Sequence[ConditionFindings]) -> str:
    said = (f"{c.target} {rows.number(rows.ttft(c).p50)} ms" for c in conditions if rows.ttft(c).p50 is not None)
    return "Medians: " + ", ".join(said) + "."


def _slug(level: rows.Level) -> str:
    kind = "open" if level.open_loop else "concurrency"
    load = kind if level.load is None else f"{kind}-{level.load:g}".replace(".", "_")
    return load + _slug_of_way(level.cache_reuse)


def _slug_of_way(reuse: bool) -> str:
    return "-reuse" if reuse else ""


def _way(reuse: bool) -> str:
    return ", cache reuse" if reuse else ""


def inline(records: Records) -> alt.InlineData:
    """Records that stand in the specification itself."""
    return alt.InlineData(values=records)


def _colour(run: Run) -> alt.Color:
    return alt.Color("target:N").scale(domain=rows.targets(run), range="category")


def _stage_colour(field: str, words: list[str]) -> alt.Color:
    return alt.Color(f"{field}:N").scale(domain=words[::-1], range="ordinal")


def _shape(run: Run) -> alt.Shape:
    return alt.Shape("target:N").scale(domain=rows.targets(run), range="symbol")


def _target_rows(run: Run, shown: list[str] | None = None) -> alt.Y:
    return alt.Y("target:N").sort(shown or rows.targets(run)).title(None).axis(**TWO_LINES)


def _tooltip(**fields: str) -> list[alt.Tooltip]:
    said = {"target": "", **fields}
    numbers = {"ms", "p50", "low", "high", "one", "all", "load"}
    return [
        alt.Tooltip(f"{name}:Q", title=title or name, format=",.4~r")
        if name in numbers
        else alt.Tooltip(f"{name}:N", title=title or name)
        for name, title in said.items()
    ]


def specification(chart: Layered, height: int, title: str) -> dict[str, Any]:
    """A chart as Vega-Lite, as wide as its place."""
    whole = chart.properties(
        width="container", height=height, title=title, autosize=alt.AutoSizeParams(type="fit", contains="padding")
    )
    spec: dict[str, Any] = whole.to_dict()
    # altair's own look, and the name of a schema on the network: the theme and the page say both.
    return {key: value for key, value in spec.items() if key not in {"config", "$schema"}}
