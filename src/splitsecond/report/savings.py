"""What a prompt cache saves, as lines of a table: each figure of both ways of asking, and beneath it what changed."""

from msgspec import Struct

from splitsecond.analysis.cost import usd
from splitsecond.analysis.findings import CacheSaving, FigureChange, Run
from splitsecond.analysis.wording import change
from splitsecond.report.markup import Markup, joined, tag
from splitsecond.report.rows import MISSING, load_words, number, share
from splitsecond.report.tables import named, section, table, weak

TITLE = "What prompt caching saves"
HEADINGS = ("TTFT p50, ms", "TTFT p95, ms", "cached of the input", "$ per 1,000 requests")
TEXT = (
    "Prompts that begin differently, which no cache can have, took turns with prompts that share all but their last "
    "words. Each figure is of the first, then of the second; beneath it stands the change with its 95 % interval, in "
    "grey where chance may explain it."
)
NOTE = (
    "Dollars are of the input alone, filling the cache included: output costs the same both ways. Of a machine paid by "
    "the hour they are of its time."
)
THOUSAND = 1000
WIDE, LARGE = 0.02, 0.1
"""An interval that is so wide needs no tenths of a percent where it reaches so far."""


class Cell(Struct, frozen=True, kw_only=True):
    """One figure both ways, "412 → 243", and how it changed, with a 95 % interval where there is one. `better`: for the
    better; None where there is nothing to say of that. `weak`: chance may explain it."""

    figure: str
    remark: str = ""
    interval: str = ""
    better: bool | None = None
    weak: bool = False


class Line(Struct, frozen=True, kw_only=True):
    """One target under one load, `load` in the words of a narrow column, with the cells beneath `HEADINGS`."""

    target: str
    load: str
    cells: list[Cell]


def lines(run: Run) -> list[Line]:
    """A line for each saving of the run."""
    conditions = {c.condition: c for c in run.conditions}
    return [
        Line(target=saving.target, load=load_words(conditions[saving.fresh]), cells=_cells(saving))
        for saving in run.cache_savings
    ]


def savings_section(run: Run) -> Markup:
    """The part of the page about it; nothing where a run did not ask that."""
    if not run.cache_savings:
        return joined([])
    body = [
        tag("tr", tag("th", *named(run, line.target), scope="row"), tag("td", line.load), *map(_html, line.cells))
        for line in lines(run)
    ]
    shown = table(TITLE, ["target", "load", *HEADINGS], body)
    return section("cache", TITLE, tag("p", TEXT), shown, tag("p", NOTE, class_="note"))


def _html(cell: Cell) -> Markup:
    return tag(
        "td", cell.figure, *(tag("small", said) for said in (cell.remark, cell.interval) if said), **weak(cell.weak)
    )


def _cells(saving: CacheSaving) -> list[Cell]:
    by_percentile = {found.percentile: found for found in saving.ttft}
    waits = [_wait(by_percentile.get(name)) for name in ("p50", "p95")]
    return [*waits, _cached(saving), _money(saving)]


def _wait(found: FigureChange | None) -> Cell:
    if found is None:
        return Cell(figure=MISSING)
    moved = "" if found.change is None else change(found.change)
    between = _between(*found.ci95) if found.ci95 else ""
    figure = f"{number(found.before)} → {number(found.after)}"
    return Cell(figure=figure, remark=moved, interval=between, better=found.better, weak=not found.real)


def _between(low: float, high: float) -> str:
    """An interval of changes: in whole percent where that says enough, since a narrow console has little room."""
    digits = 2 if high - low >= WIDE and max(abs(low), abs(high)) >= LARGE else 3
    return f"{change(round(low, digits)).removesuffix(' %')} to {change(round(high, digits))}"


def _cached(saving: CacheSaving) -> Cell:
    if saving.cached_share is None:
        return Cell(figure=MISSING, remark="unreported")
    return Cell(figure=share(saving.cached_share), remark=f"in {saving.hits} of {saving.requests}")


def _money(saving: CacheSaving) -> Cell:
    fresh, reuse = saving.usd_per_request_fresh, saving.usd_per_request_reuse
    if fresh is None or reuse is None:
        return Cell(figure=MISSING)
    saved = reuse - fresh
    sign = "+" if saved > 0 else ""
    return Cell(figure=f"{_dollars(fresh)} → {_dollars(reuse)}", remark=f"{sign}{_dollars(saved)}" if saved else "")


def _dollars(of_one: float) -> str:
    """Of a thousand requests; the heading has the sign."""
    return usd(THOUSAND * of_one).replace("$", "")
