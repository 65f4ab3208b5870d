"""The pictures of a watch: each figure of each row over time, what was usual, and where it drifted.

A row has pictures of its own, since the bands of several would hide each other. Importing this module imports altair,
as `plots` does.
"""

from collections.abc import Mapping
from datetime import datetime

import altair as alt

from splitsecond.analysis.watching import Line, Point, minute
from splitsecond.report.picture import Picture
from splitsecond.report.plots import Records, inline, specification
from splitsecond.report.rows import MISSING, number, share
from splitsecond.report.theme import SHAPES

HEIGHT = 210
SHOWN = 500
"""Points of a line: what is older is in the JSON."""

LOOKS = {"usual": (0, SHAPES[0]), "unusual": (4, SHAPES[1]), "drifted": (1, SHAPES[2]), "learning": (6, SHAPES[0])}
"""What the state of a point looks like: the place of its colour among those of targets, and its shape."""
_SIZES = {"usual": 18, "unusual": 75, "drifted": 75, "learning": 18}
_COLOURS = 8


def draw(lines: list[Line], failed: Mapping[str, str]) -> dict[str, Picture]:
    """A picture for each line, by name. `failed`: the rounds that failed as a whole, and why."""
    pictures = [_picture(number, line, failed) for number, line in enumerate(lines)]
    return {picture.name: picture for picture in pictures}


def _picture(place: int, line: Line, failed: Mapping[str, str]) -> Picture:
    points = line.points[-SHOWN:]
    shares = line.figure == "errors"
    chart = alt.layer(
        *_bands(line, points),
        *_failures(points, failed),
        *_drifts(line, points),
        *_tails(line, points),
        _marks(line, points),
    )
    unit = f", {line.unit}" if line.unit else ""
    return Picture(
        name=f"{line.figure.replace('_', '-')}-{place}",
        section=line.figure,
        title=line.name,
        description=_description(line, points, shares),
        height=HEIGHT,
        legend="states",
        spec=specification(chart, HEIGHT, f"{line.label}{unit} · {line.name}"),
    )


def _description(line: Line, points: list[Point], shares: bool) -> str:
    last = points[-1]
    told = share(last.value) if shares else f"{number(last.value)} {line.unit}"
    drifting = f" It has drifted since {minute(line.drifting.since)} UTC." if line.drifting else ""
    return (
        f"{line.label} of {line.name} in {len(points)} rounds from {minute(points[0].at)} to {minute(last.at)} UTC, "
        f"the last {told}, with what was usual as a band.{drifting}"
    )


def _x(field: str = "at") -> alt.X:
    return alt.X(f"{field}:T").scale(type="utc").title(None).axis(tickCount=6, grid=False, labelOverlap=True)


def _y(line: Line, points: list[Point]) -> alt.Y:
    values = [v for p in points for v in (p.value, p.low, p.high) if v is not None]
    if line.figure == "errors":
        top = max(*values, 0.05)
        return (
            alt.Y("value:Q").title(None).scale(domain=[0, min(top * 1.1, 1)], nice=False).axis(format="%", tickCount=4)
        )
    low, high = min(values), max(values)
    return alt.Y("value:Q").title(line.unit).scale(domain=[low * 0.95, high * 1.05], nice=False).axis(tickCount=5)


def _colour(state: str) -> alt.ColorDatum:
    """That of the points in this state."""
    return alt.ColorDatum(state, type="nominal")


def _domain() -> list[str]:
    """The names of states at the places of their colours; between them names that nothing has."""
    places = {place: state for state, (place, _) in LOOKS.items()}
    return [places.get(place, f"none of them {place}") for place in range(_COLOURS)]


def _bands(line: Line, points: list[Point]) -> list[alt.Chart]:
    """What was usual, and the line of the figure itself."""
    known = [{"at": _when(p.at), "value": p.low, "high": p.high} for p in points if p.low is not None]
    y = _y(line, points)
    area = alt.Chart(inline(known)).mark_area(opacity=0.16, interpolate="step", clip=True)
    curve = alt.Chart(inline([{"at": _when(p.at), "value": p.value} for p in points])).mark_line(
        strokeWidth=1.2, opacity=0.7, clip=True
    )
    shown = [area.encode(_x(), y, alt.Y2("high"), _colour("usual"))] if known else []
    return [*shown, curve.encode(_x(), y, _colour("usual"))]


def _tails(line: Line, points: list[Point]) -> list[alt.Chart]:
    """p95 of the time to first token, thin: of few requests it is little more than their slowest."""
    found = [{"at": _when(p.at), "value": p.tail} for p in points if p.tail is not None and line.figure == "ttft_ms"]
    if not found:
        return []
    thin = alt.Chart(inline(found)).mark_line(strokeWidth=1, strokeDash=[2, 3], opacity=0.8, clip=True)
    return [thin.encode(_x(), alt.Y("value:Q"), _colour("learning"))]


def _drifts(line: Line, points: list[Point]) -> list[alt.Chart]:
    """The level since each drift, from where it began."""
    first, last = points[0].at, points[-1].at
    found = [
        {"at": _when(max(d.since, first)), "until": _when(d.until or last), "value": d.after}
        for d in line.drifts
        if (d.until or last) > first
    ]
    if not found:
        return []
    rule = alt.Chart(inline(found)).mark_rule(strokeWidth=2, strokeDash=[6, 3], clip=True)
    return [rule.encode(_x(), alt.X2("until"), alt.Y("value:Q"), _colour("drifted"))]


def _failures(points: list[Point], failed: Mapping[str, str]) -> list[alt.Chart]:
    found = [{"at": _when(at), "why": why} for at, why in failed.items() if at >= points[0].at]
    if not found:
        return []
    hover = [alt.Tooltip("why:N", title="the round failed")]
    return [alt.Chart(inline(found)).mark_rule(opacity=0.35).encode(_x(), _colour("unusual"), tooltip=hover)]


def _marks(line: Line, points: list[Point]) -> alt.Chart:
    told = share if line.figure == "errors" else number
    records: Records = [
        {
            "at": _when(p.at),
            "value": p.value,
            "state": p.state,
            "size": _SIZES[p.state],
            "round": f"{minute(p.at)} UTC",
            "figure": told(p.value),
            "usual": MISSING if p.low is None else f"{told(p.low)} to {told(p.high)}",
            "p95": told(p.tail),
        }
        for p in points
    ]
    states = list(LOOKS)
    hover = [
        alt.Tooltip(f"{field}:N", title=title)
        for field, title in (
            ("round", "round"),
            ("figure", line.label),
            ("usual", "usual"),
            ("p95", "p95"),
            ("state", "state"),
        )
        if field != "p95" or line.figure != "errors"
    ]
    marks: alt.Chart = (
        alt.Chart(inline(records))
        .mark_point()
        .encode(
            _x(),
            alt.Y("value:Q"),
            alt.Color("state:N").scale(domain=_domain(), range="category").legend(None),
            alt.Shape("state:N").scale(domain=states, range=[LOOKS[state][1] for state in states]).legend(None),
            alt.Size("size:Q").scale(None).legend(None),
            tooltip=hover,
        )
    )
    return marks


def _when(at: str) -> float:
    """A moment as Vega has it: milliseconds since 1970."""
    return datetime.fromisoformat(at).timestamp() * 1000
