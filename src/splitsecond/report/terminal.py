"""Findings on a terminal: a table for each level, then sentences, then the instrument's own error, then the files.

The form of the table is that of General Compute's "LLM Token Generation Speed" (June 2025): TTFT and TPS at p50 and at
p95, with what that article leaves out: intervals, system throughput, errors. A figure that n is too small for is dim.
On a narrow console an interval stands under its figure instead of beside it.
"""

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from splitsecond.analysis.compare import Comparison, ConditionChange, FigureChange
from splitsecond.analysis.figures import FIGURES
from splitsecond.analysis.findings import ConditionFindings, Run
from splitsecond.analysis.wording import change
from splitsecond.report import rows
from splitsecond.report.rows import Cell, printable

NARROW = 110
"""Columns below which intervals go under their figures."""

COMPARED = {False: ("ttft_ms", "tps", "e2e_ms"), True: ("ttft_due_ms", "tps", "response_ms")}
"""What of a comparison a person is shown, in a closed and in an open loop; the rest stands in its JSON."""

TOTALS = {"output_tokens_per_s": "system tokens/s", "requests_per_s": "requests/s", "errors": "errors"}


def run_table(run: Run, console: Console, files: Sequence[Path] = ()) -> None:
    """Print what a run showed, for a person; `files` are where the rest of it stands."""
    for level in rows.levels(run):
        console.print(_level_table(level, wide=console.width >= NARROW))
        for condition in level.conditions:
            _remarks(condition, console)
        console.print()
    if weak := _too_few(run):
        console.print(Text(f"Dim, n < {weak}: too few requests for the figure; it needs that many.\n", "dim"))
    for reason in run.invalid:
        console.print(Text(f"INVALID: {printable(reason)}", "bold red"))
    said = rows.statements(run)
    for statement in said:
        console.print(Text(f"• {printable(statement)}"))
    if said or run.invalid:
        console.print()
    if not run.finished:
        console.print(Text("This run was stopped before its end: the figures are of what had finished.", "yellow"))
    for sentence in rows.instrument_sentences(run):
        console.print(Text(sentence, "dim"))
    for path in files:
        console.print(Text(str(path), "cyan"), soft_wrap=True)


def comparison_table(comparison: Comparison, console: Console) -> None:
    """Print what changed between two runs, a table for each row that both have; what chance explains is dim."""
    for changed in comparison.conditions:
        title = Text(f"{printable(changed.target)}, {rows.load_words(changed)}", "bold")
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("figure")
        for heading in ("before", "after", "change", "95 % interval", "p"):
            table.add_column(heading, justify="right")
        for figure in changed.figures:
            if _compared(changed, figure):
                table.add_row(*_change_row(figure))
        for total in changed.totals:
            table.add_row(
                TOTALS.get(total.figure, total.figure),
                rows.number(total.before),
                rows.number(total.after),
                _change(total.change),
            )
        console.print(table)
        for note in changed.notes:
            console.print(Text(f"  {printable(note)}", "yellow"))
    for which, missing in (("before", comparison.only_before), ("after", comparison.only_after)):
        for name in missing:
            console.print(Text(f"Only in the run {which}: {printable(name)}", "yellow"))
    for statement in comparison.statements:
        console.print(Text(f"• {printable(statement)}"))


def _compared(changed: ConditionChange, figure: FigureChange) -> bool:
    return figure.percentile in {"p50", "p95"} and figure.figure in COMPARED[rows.open_loop(changed)]


def _change(value: float | None) -> str:
    return rows.MISSING if value is None else change(value)


def _change_row(figure: FigureChange) -> list[Text]:
    look = ("green" if figure.better else "red") if figure.real else "dim"
    interval = "" if figure.ci95 is None else " to ".join(map(change, figure.ci95))
    chance = (
        rows.MISSING if figure.p_value is None else f"{figure.p_value:.3f}" if figure.p_value >= 0.001 else "< 0.001"
    )
    shown = FIGURES[figure.figure]
    return [
        Text(f"{shown.label} {figure.percentile}, {shown.unit}"),
        Text(rows.number(figure.before)),
        Text(rows.number(figure.after)),
        Text(_change(figure.change), look),
        Text(interval, "dim"),
        Text(chance, "dim"),
    ]


def _too_few(run: Run) -> str:
    """The numbers of requests that figures of the tables would have needed, as "72"."""
    spreads = [spread for c in run.conditions for spread in (rows.ttft(c), c.tps) if spread.n]
    needed = {spread.needs[name] for spread in spreads for name in ("p50", "p95") if name in spread.needs}
    return " or ".join(map(str, sorted(needed)))


def _level_table(level: rows.Level, *, wide: bool) -> Table:
    table = Table(title=level.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.collapse_padding = not wide
    table.add_column("target", overflow="fold")
    table_cells = [[_name(c, wide=wide) for c in level.conditions]]
    for percentile in ("p50", "p95"):
        waits = [rows.cell(rows.ttft(c), percentile) for c in level.conditions]
        paces = [rows.cell(c.tps, percentile) for c in level.conditions]
        table.add_column(f"{level.first_token} {percentile}\nms", justify="right", no_wrap=True)
        table.add_column(f"TPS {percentile}\ntokens/s", justify="right", no_wrap=True)
        table_cells += [_figures(waits, wide=wide), _figures(paces, wide=wide)]
    table.add_column("system\ntokens/s", justify="right", no_wrap=True)
    table.add_column("errors", justify="right", no_wrap=True)
    table_cells.append([Text(rows.number(c.output_tokens_per_s)) for c in level.conditions])
    table_cells.append([Text(rows.errors(c), "red" if c.errors else "") for c in level.conditions])
    for row in zip(*table_cells, strict=True):
        table.add_row(*row)
    return table


def _name(condition: ConditionFindings, *, wide: bool) -> Text:
    target = printable(condition.target)
    name = Text(target if wide else target.replace("/", "/\n", 1))
    if condition.invalid:
        name.append(" INVALID", "bold red")
    return name


def _figures(cells: Sequence[Cell], *, wide: bool) -> list[Text]:
    """One column of figures, each with its interval beside it (padded, so that the figures align) or beneath it."""
    remarks = [f"n < {cell.needs}" if cell.needs else cell.interval for cell in cells]
    width = max(map(len, remarks))
    texts = []
    for cell, remark in zip(cells, remarks, strict=True):
        text = Text(cell.figure, "dim" if cell.needs else "")
        if wide and width:
            text.append("  " + remark.ljust(width), "dim")
        elif remark:
            text.append("\n" + remark, "dim")
        texts.append(text)
    return texts


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
