"""Findings on a terminal: a table for each level, then sentences, then the instrument's own error, then the files.

The form of the table is that of General Compute's "LLM Token Generation Speed" (June 2025): TTFT and TPS at p50 and at
p95, with what that article leaves out: intervals, system throughput, errors. A figure that n is too small for is dim.
On a narrow console an interval stands under its figure instead of beside it.
"""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from splitsecond.analysis.findings import ConditionFindings, Run, Spread
from splitsecond.report import rows
from splitsecond.report.rows import Cell, printable

NARROW = 120
"""Columns below which intervals go under their figures."""


def run_table(run: Run, console: Console, files: Sequence[Path] = ()) -> None:
    """Print what a run showed, for a person; `files` are where the rest of it stands."""
    for level in rows.levels(run):
        console.print(_level_table(level, wide=console.width >= NARROW))
        for condition in level.conditions:
            _remarks(condition, console)
        console.print()
    for reason in run.invalid:
        console.print(Text(f"INVALID: {printable(reason)}", "bold red"))
    for statement in run.statements:
        console.print(Text(f"• {printable(statement)}"))
    if run.statements or run.invalid:
        console.print()
    if not run.finished:
        console.print(Text("This run was stopped before its end: the figures are of what had finished.", "yellow"))
    for sentence in rows.instrument_sentences(run):
        console.print(Text(sentence, "dim"))
    for path in files:
        console.print(Text(str(path), "cyan"), soft_wrap=True)


def _level_table(level: rows.Level, *, wide: bool) -> Table:
    table = Table(title=level.title, title_justify="left", title_style="bold", header_style="bold", pad_edge=False)
    table.add_column("target", overflow="fold")
    first = level.first_token
    for heading in (f"{first} p50\nms", "TPS p50\ntokens/s", f"{first} p95\nms", "TPS p95\ntokens/s"):
        table.add_column(heading, justify="right", no_wrap=wide)
    table.add_column("system\ntokens/s", justify="right")
    table.add_column("errors", justify="right")
    for condition in level.conditions:
        table.add_row(*_row(condition, wide=wide))
    return table


def _row(condition: ConditionFindings, *, wide: bool) -> list[Text]:
    name = Text(printable(condition.target))
    if condition.invalid:
        name.append(" INVALID", "bold red")
    figures: list[tuple[Spread, str]] = [
        (rows.ttft(condition), "p50"),
        (condition.tps, "p50"),
        (rows.ttft(condition), "p95"),
        (condition.tps, "p95"),
    ]
    return [
        name,
        *(_cell(rows.cell(spread, percentile), wide=wide) for spread, percentile in figures),
        Text(rows.number(condition.output_tokens_per_s)),
        Text(rows.errors(condition), "red" if condition.errors else ""),
    ]


def _cell(cell: Cell, *, wide: bool) -> Text:
    text = Text(cell.figure, "dim" if cell.needs else "")
    if cell.remark:
        text.append(("  " if wide else "\n") + cell.remark, "dim")
    return text


def _remarks(condition: ConditionFindings, console: Console) -> None:
    """What stands beneath a table about one of its rows."""
    target = printable(condition.target)
    for reason in condition.invalid:
        console.print(Text(f"  {target} INVALID: {printable(reason)}", "red"))
    for kind, count in condition.error_kinds.items():
        example = condition.error_examples.get(kind, "")
        said = f": {printable(example)}" if example else ""
        console.print(Text(f"  {target} {count} × {printable(kind)}{said}", "yellow"))
    for note in condition.notes:
        console.print(Text(f"  {target}: {printable(note)}", "dim"))
