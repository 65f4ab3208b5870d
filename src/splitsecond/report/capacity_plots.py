"""The pictures of a search for capacity: each limited figure against the load, with its limit, and the throughput.

Imports altair; see `plots`.
"""

import altair as alt

from splitsecond.analysis.findings import Capacity, ConditionFindings, Run, Spread
from splitsecond.analysis.slo import limited
from splitsecond.report import rows
from splitsecond.report.capacity import WORDS
from splitsecond.report.picture import Picture
from splitsecond.report.plots import LOAD_HEIGHT, Records, fitted, inline, specification

Shown = list[tuple[ConditionFindings, str]]
"""Rows of steps, each with its verdict for a person."""
DASHES = [5, 4]


def draw(run: Run, found: Capacity) -> list[Picture]:
    """A picture for each limit, and one of the throughput; nothing for what no step has a figure of. Steps that are
    INVALID would be drawn as if they showed something, so they are not."""
    verdicts = {step.condition: WORDS[step.verdict] for step in found.steps if step.verdict != "invalid"}
    shown = [(row, verdicts[row.condition]) for row in run.conditions if row.condition in verdicts]
    pictures = [picture for name in found.limits for picture in _limit(found, name, shown)]
    return [*pictures, *_throughput(found, shown)]


def _limit(found: Capacity, name: str, shown: Shown) -> list[Picture]:
    """A figure at p50 and at p95 against the load, beside the line that it must not cross."""
    figure = limited(name, open_loop=found.open_loop)
    records: Records = []
    for row, verdict in shown:
        spread: Spread = getattr(row, figure.name)
        for percentile in ("p50", "p95"):
            value: float | None = getattr(spread, percentile)
            if value is not None:
                at = {"load": rows.load(row), "verdict": verdict, "percentile": percentile}
                records.append({**at, "value": round(value, 3)})
    if not records:
        return []
    limit = found.limits[name]
    y = fitted(alt.Y("value:Q").title(figure.unit), [*(record["value"] for record in records), limit])
    title = f"{figure.label}, {figure.unit}: p50, and dashed p95"
    border = {"value": limit, "said": f"limit: {limit:g} {figure.unit}"}
    line = alt.Chart(inline([border])).mark_rule(strokeDash=DASHES, strokeWidth=2).encode(alt.Y("value:Q"))
    label = (
        alt.Chart(inline([border]))
        .mark_text(align="left", baseline="bottom", dx=4, dy=-3)
        .encode(alt.Y("value:Q"), x=alt.value(0), text="said:N")
    )
    return [
        _picture(
            f"capacity-{name}",
            title,
            f"{figure.label} against the load, at p50 and at p95, beside its limit.",
            [*_curve(found, records, y, "percentile"), line, label, *_borne(found)],
        )
    ]


def _throughput(found: Capacity, shown: Shown) -> list[Picture]:
    records: Records = [
        {"load": rows.load(row), "verdict": verdict, "value": round(row.output_tokens_per_s, 3)}
        for row, verdict in shown
        if row.output_tokens_per_s is not None
    ]
    if not records:
        return []
    y = fitted(alt.Y("value:Q").title("tokens per second"), [record["value"] for record in records])
    title = "Tokens per second of the whole system"
    description = f"{title} against the load. Where the line is flat, more load buys nothing."
    return [_picture("capacity-throughput", title, description, [*_curve(found, records, y, ""), *_borne(found)])]


def _curve(found: Capacity, records: Records, y: alt.Y, dash: str) -> list[alt.Chart]:
    """Points of every step, joined; `dash`: the field by which lines are told apart."""
    load = "requests/s" if found.open_loop else "concurrency"
    loads = sorted({record["load"] for record in records})
    x = alt.X("load:Q").title(load).scale(type="log", nice=False).axis(values=loads, format="~g", grid=False)
    colour = alt.Color("target:N").scale(domain=[found.target], range="category")
    base = alt.Chart(inline([{**record, "target": found.target} for record in records])).encode(x, y, colour)
    hover = [
        alt.Tooltip("load:Q", title=load, format=",.4~r"),
        *([alt.Tooltip("percentile:N", title="")] if dash else []),
        alt.Tooltip("value:Q", title="", format=",.4~r"),
        alt.Tooltip("verdict:N", title=""),
    ]
    line = base.mark_line()
    if dash:
        dashed = alt.StrokeDash(f"{dash}:N").scale(domain=["p50", "p95"], range=[[1, 0], DASHES]).legend(None)
        line = line.encode(dashed)
    return [line, base.mark_point().encode(tooltip=hover)]


def _borne(found: Capacity) -> list[alt.Chart]:
    """The load that is borne, as a line across the picture."""
    if found.holds is None:
        return []
    mark = alt.Chart(inline([{"load": found.holds, "said": f"bears {found.holds:g}"}]))
    return [
        mark.mark_rule(strokeWidth=1).encode(alt.X("load:Q")),
        mark.mark_text(align="right", baseline="bottom", dx=-5, dy=-4).encode(
            alt.X("load:Q"), y=alt.value("height"), text="said:N"
        ),
    ]


def _picture(name: str, title: str, description: str, layers: list[alt.Chart]) -> Picture:
    return Picture(
        name=name,
        section="capacity",
        title=title,
        description=f"{description} The figures stand in the table of the steps.",
        height=LOAD_HEIGHT,
        legend="targets",
        spec=specification(alt.layer(*layers), LOAD_HEIGHT, title),
    )
