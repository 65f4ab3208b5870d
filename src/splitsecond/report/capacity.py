"""A search for capacity as lines of a table, one for each step from the lightest to the heaviest load, and as a part of
the page."""

from collections.abc import Mapping

from msgspec import Struct

from splitsecond.analysis.findings import Capacity, CapacityStep, ConditionFindings, Run, Spread
from splitsecond.analysis.slo import limited
from splitsecond.report import rows
from splitsecond.report.markup import Markup, joined, tag
from splitsecond.report.rows import Cell, Remark, number
from splitsecond.report.tables import table, weak

TITLE = "How much load it bears"
TEXT = (
    "The load was doubled until the limits did not hold any more, then the gap was closed. A step holds, or fails, "
    "where the share of its requests that kept to every limit is surely above, or below, what was asked for: by the "
    "interval beneath it, each end of which errs once in a hundred times. On the way up it was enough that the share "
    "seen was (likely). Times are in ms."
)
HEADINGS = ("kept to limits", "TTFT p50", "TTFT p95", "TPS p50", "system tokens/s", "good requests/s")
WORDS: Mapping[str, str] = {
    "holds": "holds",
    "promising": "likely",
    "undecided": "undecided",
    "fails": "fails",
    "breaks": "broke",
    "invalid": "INVALID",
}
"""Verdicts, for a person."""
BAD = ("fails", "breaks", "invalid")


class Line(Struct, frozen=True, kw_only=True):
    """One step: `load` in the words of a narrow column, the cells beneath the headings, and the verdict on it.

    `heaviest`: it is the load that the server bears.
    """

    load: str
    cells: list[Cell]
    verdict: str
    heaviest: bool


def further(found: Capacity) -> list[str]:
    """The headings after `HEADINGS`: the figure of each limit that is not on TTFT."""
    return [f"{limited(name, open_loop=found.open_loop).label} p95" for name in _others(found)]


def _others(found: Capacity) -> list[str]:
    return [name for name in found.limits if name != "ttft"]


def lines(run: Run, found: Capacity) -> list[Line]:
    """A line for each step, light ones first."""
    by_name = {condition.condition: condition for condition in run.conditions}
    return [
        Line(
            load=rows.load_words(by_name[step.condition]),
            cells=_cells(found, step, by_name[step.condition]),
            verdict=step.verdict,
            heaviest=step.load == found.holds,
        )
        for step in sorted(found.steps, key=lambda step: step.load)
    ]


def _cells(found: Capacity, step: CapacityStep, row: ConditionFindings) -> list[Cell]:
    low, high = (100 * bound for bound in step.share_ci98)
    kept = Cell(figure=f"{step.met} of {step.sent}", interval=f"{low:.1f}–{high:.1f} %")
    ttft = rows.ttft(row)
    others: list[Spread] = [getattr(row, limited(name, open_loop=found.open_loop).name) for name in _others(found)]
    return [
        kept,
        _bare(ttft, "p50"),
        _bare(ttft, "p95"),
        _bare(row.tps, "p50"),
        Cell(figure=number(row.output_tokens_per_s)),
        Cell(figure=number(row.goodput.per_s if row.goodput else None)),
        *(_bare(spread, "p95") for spread in others),
    ]


def _bare(spread: Spread, percentile: str) -> Cell:
    """A figure without its interval, which has its place in the table of all figures."""
    cell = rows.cell(spread, percentile)
    return Cell(figure=cell.figure, needs=cell.needs)


def remarks(run: Run) -> list[Remark]:
    """What stands beneath the table, said once for all steps that it is true of; `who` names their loads."""
    said: dict[tuple[str, str], list[str]] = {}
    levels = rows.levels(run)
    for level in levels:
        for remark in rows.remarks(level):
            if remark.kind != "server":
                said.setdefault((remark.kind, remark.text), []).append(rows.load_words(level.conditions[0]))
    return [
        Remark(kind=kind, who="" if len(loads) == len(levels) else ", ".join(loads), text=text)
        for (kind, text), loads in said.items()
    ]


def step_table(run: Run, found: Capacity) -> Markup:
    """The steps for the page, with the remarks on them."""
    body = [
        tag(
            "tr",
            tag("th", tag("b", line.load) if line.heaviest else line.load, scope="row"),
            *(_html(cell) for cell in line.cells),
            tag("td", WORDS[line.verdict], **({"class_": "bad"} if line.verdict in BAD else {})),
        )
        for line in lines(run, found)
    ]
    said = [
        tag("li", f"{remark.who}: {remark.text}" if remark.who else remark.text[:1].upper() + remark.text[1:])
        for remark in remarks(run)
        if remark.kind == "note"
    ]
    beneath = tag("ul", *said, class_="remarks") if said else ""
    return joined([table("The steps, times in ms", ["load", *HEADINGS, *further(found), "verdict"], body), beneath])


def _html(cell: Cell) -> Markup:
    interval = [tag("small", cell.interval)] if cell.interval else []
    return tag("td", cell.figure, *interval, **weak(bool(cell.needs)))
