"""Tables for other programs: CSV with every figure as a plain number, and Markdown of what a
terminal shows."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from splitsecond.benchmark.findings.compare import Comparison
from splitsecond.benchmark.report.rows import load_words
from splitsecond.benchmark.rows.figures import FIGURES, TOTALS
from splitsecond.benchmark.rows.records import ConditionFindings, Run

WIDER_THAN_ANY_TABLE = 10_000
PERCENTILES = ("p50", "p95", "p99")
_LISTS = (list, tuple)
_NUMBERS = (int, float, NoneType)
_FORMULA_BEGINS = ("=", "+", "-", "@", "\t", "\n", "＝", "＋", "－", "＠")
"""Beginnings of cells that spreadsheets take for formulas: those of OWASP's page on CSV
injection."""


def run_records(run: Run) -> list[dict[str, Any]]:
    return [_row(condition) for condition in run.conditions]


def _row(condition: ConditionFindings) -> dict[str, Any]:
    record: dict[str, Any] = {
        "target": condition.target,
        "load": load_words(condition),
        "requests": condition.requests,
        "errors": condition.errors,
        "invalid": condition.invalid,
    }
    for figure in FIGURES.values():
        summary = figure.summary(condition)
        for percentile in PERCENTILES:
            key = f"{figure.name}.{percentile}"
            low, high = summary.interval(percentile)
            record |= {key: getattr(summary, percentile), f"{key}.low": low, f"{key}.high": high}
    return record | {total.name: total.value(condition) for total in TOTALS.values()}


def change_records(comparison: Comparison) -> list[dict[str, Any]]:
    return [
        {"target": changed.name, "load": load_words(changed), **msgspec.to_builtins(figure)}
        for changed in comparison.conditions
        for figure in (*changed.figures, *changed.totals)
    ]


def csv_text(records: Iterable[object]) -> str:
    """Return structs or mappings as CSV with a heading.

    Nested values have keys with dots. An interval becomes two columns, and that of a percentile
    stands beside it: `tps.p50.low`. A text that a spreadsheet would take for a formula begins with
    an apostrophe.
    """
    flat = [
        {_inert(key): _inert(value) for key, value in _flat(msgspec.to_builtins(record))}
        for record in records
    ]
    text = io.StringIO()
    columns = dict.fromkeys(key for record in flat for key in record)
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(value: Any, key: str = "") -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _flat(part, f"{key}.{name}" if key else str(name))
    elif (
        isinstance(value, _LISTS)
        and len(value) == 2
        and all(isinstance(part, _NUMBERS) for part in value)
    ):
        beside = key.replace(".ci95.", ".")
        yield from zip((f"{beside}.low", f"{beside}.high"), value, strict=True)
    else:
        yield key, "; ".join(map(str, value)) if isinstance(value, _LISTS) else value


def _inert(value: Any) -> Any:
    """Return a text with an apostrophe before it if a spreadsheet would take it for a formula.

    A carriage return becomes a line feed, because the writer of CSV does not quote it, so that it
    would begin a row.
    """
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if text.startswith(_FORMULA_BEGINS) else text


def markdown_text(show: Callable[[Console], None]) -> str:
    console = _MarkdownConsole()
    show(console)
    return "\n".join(console.lines).strip() + "\n"


class _MarkdownConsole(Console):
    def __init__(self) -> None:
        super().__init__(file=io.StringIO(), width=WIDER_THAN_ANY_TABLE)
        self.lines: list[str] = []

    def print(self, *objects: Any, **_: Any) -> None:
        if not objects:
            self.lines.append("")
        for renderable in objects:
            if isinstance(renderable, Table):
                self.lines += _table_lines(renderable)
            else:
                text = renderable.plain if isinstance(renderable, Text) else str(renderable)
                is_item = text.startswith("• ")
                self.lines += (
                    [f"- {_escaped(text[2:])}"] if is_item else ["", _escaped(text.strip())]
                )


def _table_lines(table: Table) -> list[str]:
    title = ["", f"**{_escaped(str(table.title))}**"] if table.title else []
    rows = zip(*(column.cells for column in table.columns), strict=True)
    aligned = ["---:" if column.justify == "right" else "---" for column in table.columns]
    headings = [str(column.header) for column in table.columns]
    return [
        *title,
        "",
        _row_line(headings),
        f"|{'|'.join(aligned)}|",
        *(_row_line([*row]) for row in rows),
        "",
    ]


def _row_line(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(cell: Any) -> str:
    words = (cell.plain if isinstance(cell, Text) else str(cell)).split()
    if len(words) == 2 and "–" in words[1][1:-1]:
        words[1] = f"({words[1]})"
    return _escaped(" ".join(words))


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char in r"\|*<" else char for char in text)
