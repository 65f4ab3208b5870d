"""Tables on a terminal that may be narrow.

A table has several layouts. The first one in which every table of the run fits is used. Names are
never cut: where even the last layout does not fit, rows are lines.
"""

import re
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from splitsecond.benchmark.rows.figures import FIGURES
from splitsecond.benchmark.rows.metric import Figure
from splitsecond.core.pages.figure_cells import safe_text
from splitsecond.core.wording import listed

SHORTEST_NAME = 12
MORE_THAN_ANY_CONSOLE = 10_000
MORE_FIGURES = (FIGURES["tpot_ms"], FIGURES["e2e_ms"])


class TableLayout(Struct, frozen=True, kw_only=True):
    """Layout of a table. `name_width`: names are broken after slashes and hyphens; 0: never.

    `narrow`: of the figures beyond medians only the p95 of TTFT remains, which decides most uses.
    """

    beside: bool = False
    name_width: int = 0
    more: Sequence[Figure] = ()
    narrow: bool = False


LAYOUTS = (
    TableLayout(beside=True, more=MORE_FIGURES),
    TableLayout(more=MORE_FIGURES),
    TableLayout(beside=True),
    TableLayout(),
)
BROKEN_NAMES = TableLayout(name_width=SHORTEST_NAME)
NARROW = TableLayout(name_width=SHORTEST_NAME, narrow=True)

C = TypeVar("C")
Tables = Callable[[TableLayout], list[Table]]


class StyledCell(Struct, frozen=True, kw_only=True):
    text: str
    look: str = ""
    remark: str = ""
    remark_look: str = "dim"


def print_item(console: Console, mark: str, text: str, look: str = "") -> None:
    lines = Text(safe_text(text), look).wrap(console, console.width - len(mark))
    for i, line in enumerate(lines):
        line.rstrip()
        console.print(Text(mark if i == 0 else " " * len(mark), look) + line, soft_wrap=True)


def print_left_out(columns: Sequence[str], console: Console) -> None:
    """Name the columns of a table for which the console is too narrow."""
    if columns:
        print_item(
            console,
            "  ",
            f"{listed(columns)} {'needs' if len(columns) == 1 else 'need'} more columns.",
            "dim",
        )


def fitting(console: Console, tables: Tables) -> list[Table]:
    for layout in LAYOUTS:
        if room_left(console, tables(layout)) >= 0:
            return tables(layout)
    layout = BROKEN_NAMES if fit(console, tables) else NARROW
    names = [table.columns[0] for table in tables(layout)]
    widest = max(console.measure(cell).maximum for column in names for cell in column.cells)
    room = max(room_left(console, tables(layout)), 0)
    return tables(replace(layout, name_width=max(widest, SHORTEST_NAME) + room))


def fit(console: Console, tables: Tables) -> bool:
    return room_left(console, tables(BROKEN_NAMES)) >= 0


def room_left(console: Console, tables: Sequence[Table]) -> int:
    """Return how many columns the widest table leaves free; negative: how many are missing."""
    unlimited = console.options.update(max_width=MORE_THAN_ANY_CONSOLE)
    return min(
        (console.width - console.measure(t, options=unlimited).maximum for t in tables), default=0
    )


def print_table(table: Table, console: Console) -> None:
    """Print a table, or a line for each row where the console would cut a figure."""
    if room_left(console, [table]) + _room_by_wrapping(table, console) >= 0:
        console.print(table)
        return
    if table.title:
        console.print(Text(str(table.title), "bold"))
    first, *headings = [str(column.header).replace("\n", " ") for column in table.columns]
    prefix = f"{first} " if table.columns[0].justify == "right" else ""
    for name, *cells in zip(*(map(_plain, column.cells) for column in table.columns), strict=True):
        figures = [
            f"{heading} {cell}".replace("\n", " ").strip()
            for heading, cell in zip(headings, cells, strict=True)
            if cell
        ]
        name = name.replace("\nINVALID", " INVALID").replace("\n", "")
        row = f"{prefix}{name}: {', '.join(figures)}" if figures else name
        print_item(console, "  ", row)


def _room_by_wrapping(table: Table, console: Console) -> int:
    """Return how many columns of the console wrapping between words can free."""
    unlimited = console.options.update(max_width=MORE_THAN_ANY_CONSOLE)
    freed = 0
    for column in table.columns:
        cells = [
            console.measure(cell, options=unlimited) for cell in (column.header, *column.cells)
        ]
        if not column.no_wrap:
            freed += max(c.maximum for c in cells) - max(c.minimum for c in cells)
    return freed


def _plain(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)


def titled_table(title: str, *, collapse_padding: bool = True) -> Table:
    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
    table.collapse_padding = collapse_padding
    return table


def add_columns(
    table: Table, columns: Mapping[str, C], left_out: Set[str] = frozenset()
) -> list[C]:
    """Add a column for each heading that is not `left_out`; return the values of these."""
    remaining = {heading: each for heading, each in columns.items() if heading not in left_out}
    for heading in remaining:
        table.add_column(heading, justify="right", no_wrap=True)
    return list(remaining.values())


def name_text(name: str, name_width: int) -> Text:
    return Text(broken(safe_text(name), name_width) if name_width else safe_text(name))


def filled(
    title: str,
    headings: Sequence[str],
    names: Sequence[tuple[str, bool]],
    columns: Sequence[list[StyledCell]],
    layout: TableLayout,
) -> Table:
    table = titled_table(title, collapse_padding=not layout.beside)
    table.add_column("target", no_wrap=True, min_width=SHORTEST_NAME)
    cells = add_columns(table, dict(zip(headings, columns, strict=True)))
    texts = [[_name(*each, layout) for each in names], *(_texts(c, layout) for c in cells)]
    for row in zip(*texts, strict=True):
        table.add_row(*row)
    return table


def _name(target: str, invalid: bool, layout: TableLayout) -> Text:
    name = name_text(target, layout.name_width)
    if invalid:
        name.append("\nINVALID" if layout.name_width else " INVALID", "bold red")
    return name


def broken(name: str, width: int) -> str:
    lines = [""]
    for part in re.findall(r"[^/-]*[/-]|[^/-]+", name):
        if lines[-1] and len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _texts(column: Sequence[StyledCell], layout: TableLayout) -> list[Text]:
    width = max(len(figure.remark) for figure in column)
    texts = []
    for figure in column:
        text = Text(figure.text, figure.look)
        if layout.beside and width:
            text.append("  " + figure.remark.ljust(width), figure.remark_look)
        elif figure.remark:
            text.append("\n" + figure.remark, figure.remark_look)
        texts.append(text)
    return texts
