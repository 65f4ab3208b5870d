from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from splitsecond.benchmark.report.tables import (
    SHORTEST_NAME,
    add_columns,
    name_text,
    print_left_out,
    print_table,
    room_left,
)
from splitsecond.core.money.cost import usd, usd_or_free
from splitsecond.core.pages.figure_cells import MISSING, FigureCell, cell, number, share
from splitsecond.log.production.speed import ProductionSpeed, speed_remarks
from splitsecond.log.production.spending import Spending
from splitsecond.log.statistics.summary import Summary

GRADE_LOOKS = {1: "bold green", 2: "green", 3: "", 4: "yellow", 5: "red"}
_FEWER = (
    "TPS p50",
    "total TPS\np95",
    "TTFT p50\nms",
    "TTFT p95\nms",
    "$/M\ntokens",
    "failed",
    "requests",
)
_FEWER_OF_SPENDING = (
    "cost-adj.\nTPS",
    "output\ntokens/$",
    "$/M\ntokens",
    "a call",
    "calls",
    "share",
    "of it\nlost",
)
DrawTable = Callable[[frozenset[str], bool, int], Table]
"""Makes a table without some columns, with intervals beside their figures or below, and names
broken at a width (0: whole)."""


def speed_table(speeds: Sequence[ProductionSpeed], console: Console, by: str = "target") -> None:
    print_fitting(console, partial(_speeds, speeds, by), _FEWER)
    for line in speed_remarks(speeds):
        console.print(Text(line, "dim"))


def _speeds(
    speeds: Sequence[ProductionSpeed],
    by: str,
    left_out: frozenset[str],
    beside: bool,
    name_width: int,
) -> Table:

    def figure(spread: Summary, percentile: str) -> Text:
        return figure_text(cell(spread, percentile), beside=beside)

    cells: dict[str, Callable[[ProductionSpeed], Text]] = {
        "grade": _grade,
        "total TPS\np50": lambda speed: figure(speed.total_tps, "p50"),
        "total TPS\np95": lambda speed: figure(speed.total_tps, "p95"),
        "TTFT p50\nms": lambda speed: figure(speed.ttft_ms, "p50"),
        "TTFT p95\nms": lambda speed: figure(speed.ttft_ms, "p95"),
        "TPS p50": lambda speed: figure(speed.tps, "p50"),
        "requests": lambda speed: Text(f"{speed.requests:,}"),
        "failed": lambda speed: (
            Text(share(speed.error_share), "red") if speed.failed else Text("0")
        ),
        "$/M\ntokens": lambda speed: Text(usd_or_free(speed.usd_per_million)),
    }
    table = table_of_names(by, name_width)
    columns = add_columns(table, cells, left_out)
    for speed in speeds:
        name, row = name_text(speed.name, name_width), (cell(speed) for cell in columns)
        table.add_row(name, *row, style="" if speed.grade is not None else "dim")
    return table


def table_of_names(heading: str, name_width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(heading, overflow="fold", no_wrap=not name_width)
    return table


def figure_text(figure_cell: FigureCell, *, beside: bool) -> Text:
    text = Text(figure_cell.figure, "dim" if figure_cell.needs else "")
    return (
        text.append(("  " if beside else "\n") + figure_cell.interval, "dim")
        if figure_cell.interval
        else text
    )


def print_fitting(
    console: Console, table: DrawTable, fewer: Sequence[str], *, shown_elsewhere: str = ""
) -> bool:
    """Print a table with as many columns as the console has room for, and name the others. Return
    whether it has the column `shown_elsewhere`, which is not named if it is missing.

    `fewer`: the headings that can be left out, in this order.
    """
    fitting = _fitting(console, table, fewer)
    print_table(fitting, console)
    headings = [column.header for column in fitting.columns]
    every = [str(column.header) for column in table(frozenset(), True, 0).columns]
    missing = [each for each in every if each not in (*headings, shown_elsewhere)]
    print_left_out([each.replace("\n", " ") for each in missing], console)
    return shown_elsewhere in headings


def _fitting(console: Console, table: DrawTable, fewer: Sequence[str]) -> Table:
    """Return the first table that fits the console. Names are broken only if they do not fit
    otherwise."""
    for name_width, left_out, beside in product(
        (0, SHORTEST_NAME), range(len(fewer) + 1), (True, False)
    ):
        candidate = table(frozenset(fewer[:left_out]), beside, name_width)
        room = room_left(console, [candidate])
        if room >= 0:
            break
    if name_width and room > 0:
        widest = max(console.measure(cell).maximum for cell in candidate.columns[0].cells)
        candidate = table(frozenset(fewer[:left_out]), beside, max(widest, SHORTEST_NAME) + room)
    return candidate


def _grade(speed: ProductionSpeed) -> Text:
    if speed.grade is None:
        return Text(MISSING)
    between = (
        "–".join(map(str, sorted({speed.grades[0], speed.grades[-1]})))
        if len(speed.grades) > 1
        else ""
    )
    return Text.assemble(
        (str(speed.grade), GRADE_LOOKS[speed.grade]), (f" ({between})" if between else "", "dim")
    )


def spending_table(rows: Sequence[Spending], total: Spending, by: str, console: Console) -> None:
    print_fitting(console, partial(_spending, rows, total, by), _FEWER_OF_SPENDING)
    for line in spending_remarks(total):
        console.print(Text(line, "dim"))


def _spending(
    rows: Sequence[Spending],
    total: Spending,
    by: str,
    left_out: frozenset[str],
    _beside: bool,
    name_width: int,
) -> Table:
    every = [*rows, *([total] if len(rows) > 1 else [])]
    table = table_of_names(by, name_width)
    columns = add_columns(table, spending_columns(every, total), left_out)
    for place, (row, *cells) in enumerate(zip(every, *columns, strict=True)):
        last = place == len(rows)
        if last:
            table.add_section()
        table.add_row(
            name_text(row.name or "(no name)", name_width), *cells, style="bold" if last else ""
        )
    return table


def spending_columns(every: Sequence[Spending], total: Spending) -> dict[str, list[str]]:
    whole = total.usd + total.rented_usd
    cells: dict[str, Callable[[Spending], str]] = {
        "cost": lambda row: "no price" if row.unpriced and not row.usd else usd(row.usd),
        "stated": lambda row: MISSING if row.stated_usd is None else usd(row.stated_usd),
        "by the\nhour": lambda row: usd(row.rented_usd) if row.rented_usd else "",
        "share": lambda row: share((row.usd + row.rented_usd) / whole if whole else None),
        "of it\nlost": lambda row: share(row.lost_usd / row.usd) if row.usd else MISSING,
        "calls": lambda row: f"{row.calls:,}",
        "a call": lambda row: usd(row.usd_per_call),
        "$/M\ntokens": lambda row: (
            MISSING if row.usd_per_million is None else usd_or_free(row.usd_per_million)
        ),
        "output\ntokens/$": lambda row: number(row.tokens_per_usd),
        "cost-adj.\nTPS": lambda row: number(row.cost_adjusted_tps),
    }
    if total.stated_usd is None:
        del cells["stated"]
    if not total.rented_usd:
        del cells["by the\nhour"]
    return {heading: [cell(row) for row in every] for heading, cell in cells.items()}


def bounds_words(low_usd: float | None, high_usd: float | None) -> str:
    return (
        f"{usd(low_usd)} to {usd(high_usd)}: providers bill requests that we closed early in "
        "different ways."
    )


def spending_remarks(total: Spending) -> list[str]:
    remarks: list[str] = []
    if total.lost_usd:
        remarks.append(
            f"Lost: {usd(total.lost_usd)} went to attempts whose response was not used "
            "(races, hedges, deadlines, failures)."
        )
    if total.high_usd > total.low_usd:
        remarks.append(f"The whole cost is {bounds_words(total.low_usd, total.high_usd)}")
    if total.cache_saved_usd:
        moved = "saved" if total.cache_saved_usd > 0 else "cost more than they saved:"
        remarks.append(f"The providers' prompt caches {moved} {usd(abs(total.cache_saved_usd))}.")
    if total.rented_usd:
        remarks.append("By the hour: the cost of these machines if they ran all of the time.")
    if total.estimated:
        remarks.append(
            f"Estimated, without token counts: {total.estimated:,} of {total.attempts:,} attempts."
        )
    if total.other_tier:
        remarks.append(
            "Served by another speed tier than the target's name says, at its price: "
            f"{total.other_tier:,} of {total.attempts:,} attempts."
        )
    if total.unpriced:
        remarks.append(
            f"Without a known price or counts, so in no sum: {total.unpriced:,} of "
            f"{total.attempts:,} attempts."
        )
    return remarks
