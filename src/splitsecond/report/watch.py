"""The page of a watch: what has drifted, the last round, and each figure over time."""

from collections.abc import Sequence

from splitsecond.analysis.control_chart import BACK, LEANING, LEAST, SETTLES, WINDOW
from splitsecond.analysis.watching import Line, Point, WatchFindings, minute
from splitsecond.analysis.wording import counted_as, listed
from splitsecond.report.html import page
from splitsecond.report.markup import Markup, joined, tag
from splitsecond.report.picture import Picture
from splitsecond.report.rows import MISSING, number, share
from splitsecond.report.tables import mark, plot, section, statement_list, table

HEADINGS = {"ttft_ms": "Time to first token, ms", "tps": "Speed of one request, tokens per second", "errors": "Errors"}
FAILURES_SHOWN = 20
_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))
_STATES = {
    "usual": "as usual",
    "unusual": "one round outside of it",
    "drifted": "drifted: several in a row",
    "learning": f"one of the first {LEAST} rounds",
}


def render_watch(found: WatchFindings) -> str:
    """The whole page. Takes some seconds, most of them for the JavaScript of the pictures."""
    from splitsecond.report import time_lines  # altair: a third of a second that `splitsecond --help` must not pay

    pictures = time_lines.draw(found.lines, found.failed)
    legend = [tag("li", mark(*time_lines.LOOKS[state]), words) for state, words in _STATES.items()]
    body = [_opening(found), _verdict(found), _last(found), *_over_time(pictures, tag("ul", *legend, class_="legend"))]
    return page(joined([_title(found)]), joined([*body, *_failures(found), _meaning()]), pictures)


def _targets(found: WatchFindings) -> list[str]:
    return list(dict.fromkeys(line.target for line in found.lines))


def _title(found: WatchFindings) -> str:
    said = _targets(found)
    return f"{said[0] if len(said) == 1 else counted_as(len(said), 'target', 'targets')} over time"


def _opening(found: WatchFindings) -> Markup:
    failed = f" {counted_as(len(found.failed), 'round', 'rounds')} failed as a whole." if found.failed else ""
    what = (
        f"{counted_as(found.rounds, 'round', 'rounds')} from {minute(found.first)} to {minute(found.last)} UTC, "
        f"now one every {_interval(found.every_s)}: {listed(_targets(found)) or 'nothing was measured'}.{failed}"
    )
    return tag("header", tag("h1", _title(found)), tag("p", what, class_="lead"))


def _interval(seconds: float) -> str:
    unit, size = next(each for each in _UNITS if seconds >= each[1] or each[1] == 1)
    return unit if seconds == size else f"{seconds / size:g} {unit}s"


def _verdict(found: WatchFindings) -> Markup:
    if not found.statements:
        return tag("p", "Nothing has drifted.")
    return statement_list(found.statements)


def _last(found: WatchFindings) -> Markup:
    """A row for each row of the benchmark: what the last round found, and what was usual before it."""
    rows: dict[str, dict[str, Line]] = {}
    for line in found.lines:
        rows.setdefault(line.name, {})[line.figure] = line
    body = [tag("tr", tag("th", name, scope="row"), *_cells(lines)) for name, lines in rows.items()]
    head = ["target and load", "last measured, UTC", "TTFT p50, ms", "TTFT p95, ms", "TPS p50", "errors", "stands"]
    note = "Beneath a figure stands what was usual before it. p95 is not judged: of a few requests it is their slowest."
    words = [table("The last round", head, body, prose=True), tag("p", note, class_="note")]
    return section("last", "The last round", *(words if body else [tag("p", "No round has any figure yet.")]))


def _cells(lines: dict[str, Line]) -> list[Markup]:
    last = max((line.points[-1] for line in lines.values()), key=lambda point: point.at)
    ttft, tps, errors = (lines.get(figure) for figure in HEADINGS)
    tail = ttft.points[-1].tail if ttft else None
    drifting = [line.label for line in lines.values() if line.drifting]
    unusual = [line.label for line in lines.values() if line.points[-1].state == "unusual"]
    said = [f"{listed(drifting)}: drifted"] if drifting else []
    said += [f"{listed(unusual)}: unusual"] if unusual else []
    if not said:
        said = ["as usual" if last.state != "learning" else "not known yet"]
    return [
        tag("td", minute(last.at)),
        _cell(ttft, last, shares=False),
        tag("td", number(tail)),
        _cell(tps, last, shares=False),
        _cell(errors, last, shares=True),
        tag("td", "; ".join(said), **({"class_": "bad"} if drifting else {})),
    ]


def _cell(line: Line | None, last: Point, *, shares: bool) -> Markup:
    """A figure; a dash where the last round has none."""
    if line is None or line.points[-1].at != last.at:
        return tag("td", MISSING)
    point, told = line.points[-1], share if shares else number
    between = (
        "" if point.low is None else f"up to {told(point.high)}" if shares else f"{told(point.low)}–{told(point.high)}"
    )
    return tag("td", told(point.value), *([tag("small", between)] if between else []))


def _over_time(pictures: dict[str, Picture], legend: Markup) -> list[Markup]:
    parts = []
    for figure, heading in HEADINGS.items():
        plots = [plot(picture) for picture in pictures.values() if picture.section == figure]
        if plots:
            grid = tag("div", *plots, class_="plots" if len(plots) > 1 else "plots single")
            text = (
                "The band is what was usual, a dashed line the level of a drift, an upright one a round that failed as "
                f"a whole.{' The thin line is p95.' if figure == 'ttft_ms' else ''}"
            )
            parts.append(section(figure, heading, tag("p", text), legend, grid))
    return parts


def _failures(found: WatchFindings) -> list[Markup]:
    shown: Sequence[tuple[str, str]] = list(found.failed.items())[-FAILURES_SHOWN:]
    if not shown:
        return []
    body = [tag("tr", tag("th", minute(at), scope="row"), tag("td", why)) for at, why in reversed(shown)]
    return [
        section("failed", "Rounds that failed as a whole", table("Failed rounds", ["UTC", "why"], body, prose=True))
    ]


def _meaning() -> Markup:
    text = (
        f"A round is one value: the median of its requests, or their share of errors. It is judged by the last "
        f"{WINDOW} rounds, {LEAST} at least. Outside of the band, three times their scatter on either side, it is "
        f"unusual. Two such in a row on the same side are a drift, or {LEANING} in a row that are on one side by more "
        f"than the scatter; {BACK} in a row that are neither end it. After {SETTLES} rounds a drift is what is usual."
    )
    folders = (
        "Each round is a run, in a folder named by when it began: splitsecond report shows it, and splitsecond compare "
        "what changed from one to another."
    )
    return section("meaning", "What is usual, and what a drift is", tag("p", text), tag("p", folders))
