"""Findings on a terminal: a table for each level, then sentences, then the instrument's own error, then the files.

The form of the table is that of General Compute's "LLM Token Generation Speed" (June 2025): TTFT and TPS at p50 and at
p95, with what that article leaves out: intervals, system throughput, errors. A figure that n is too small for is dim.

A console may be narrow, so a table has several forms, the widest with an interval beside each figure, the narrowest
with it beneath and a target's name on several lines; the first form in which every table of the run fits is taken.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from splitsecond.analysis.compare import Comparison, ConditionChange, TotalChange
from splitsecond.analysis.cost import usd
from splitsecond.analysis.findings import Capacity, FigureChange, Run
from splitsecond.analysis.wording import change
from splitsecond.report import capacity, rows, savings
from splitsecond.report.rows import MISSING, printable

COLUMNS = (("TTFT", "ms"), ("TPS", "tokens/s"))
PER_MILLION = "usd_per_million"
SAVINGS = ("TTFT p50\nms", "TTFT p95\nms", "cached\nof input", "$ per 1,000\nrequests")
"""`savings.HEADINGS`, on two lines."""
LOOKS = {"invalid": "red", "error": "yellow", "note": "dim", "server": "dim"}
SHORTEST_NAME = 12
MORE_THAN_ANY_CONSOLE = 10_000


class Form(Struct, frozen=True, kw_only=True):
    """Whether a figure's remark stands beside or beneath it, and at which width a name is broken (0: at none)."""

    beside: bool
    name_width: int = 0


FORMS = (Form(beside=True), Form(beside=False))
NARROWEST = Form(beside=False, name_width=SHORTEST_NAME)

Tables = Callable[[Form], list[Table]]


class Figure(Struct, frozen=True, kw_only=True):
    """One place in a table: a figure, and in smaller print what stands with it."""

    text: str
    look: str = ""
    remark: str = ""
    remark_look: str = "dim"


def run_table(run: Run, console: Console, files: Sequence[Path] = ()) -> None:
    """Print what a run showed, for a person; `files` are where the rest of it stands."""
    if run.capacity:
        _print_steps(run, run.capacity, console)
    else:
        _print_levels(run, console)
    if run.cache_savings and _fit(console, lambda form: [_savings_table(run, form)]):
        _print_savings(run, console)
    for reason in run.invalid:
        _item(console, "INVALID: ", reason, "bold red")
    for statement in run.statements:
        _item(console, "• ", statement)
    if not run.finished:
        _item(console, "• ", "This run was stopped before its end: the figures are of what had finished.", "yellow")
    if run.statements or run.invalid or not run.finished:
        console.print()
    for sentence in (*rows.caveats(run), *rows.price_sentences(run), *rows.instrument_sentences(run)):
        _item(console, "", sentence, "dim")
    for path in files:
        console.print(Text(str(path), "cyan"), soft_wrap=True)


def _print_levels(run: Run, console: Console) -> None:
    """A table for each load, with what there is to say of its rows."""
    levels = rows.levels(run)
    priced = rows.priced(run)
    money = priced and _fit(console, lambda form: [_level_table(level, form, money=True) for level in levels])
    tables = _fitting(console, lambda form: [_level_table(level, form, money=money) for level in levels])
    for level, table in zip(levels, tables, strict=True):
        console.print(table)
        if priced and not money:
            costs = (f"{c.target} {usd(c.usd_per_million)}, {rows.cost(c)}" for c in level.conditions)
            _item(console, "  ", f"$/M tokens, and row: {'; '.join(costs)}.")
        _print_remarks(rows.remarks(level), len(level.conditions), console)
        console.print()


def _print_remarks(said: Sequence[rows.Remark], count: int, console: Console) -> None:
    """What stands beneath a table of `count` rows."""
    for remark in said:
        who = remark.who or ("both" if count == 2 else f"all {count}")
        word = " INVALID" if remark.kind == "invalid" else ""
        _item(console, "  ", f"{who}{word}: {remark.text}", LOOKS[remark.kind])


def _print_steps(run: Run, found: Capacity, console: Console) -> None:
    """A table of the steps of a search for capacity."""
    console.print(_step_table(run, found))
    _print_remarks(capacity.remarks(run), len(found.steps), console)
    console.print()


def _print_savings(run: Run, console: Console) -> None:
    (table,) = _fitting(console, lambda form: [_savings_table(run, form)])
    console.print(table)
    _item(console, "  ", savings.NOTE, "dim")
    console.print()


def comparison_table(comparison: Comparison, console: Console) -> None:
    """Print what changed between two runs: the figures of the second, and with each how far it moved."""
    levels: dict[str, list[ConditionChange]] = {}
    for changed in comparison.conditions:
        levels.setdefault(rows.load_words(changed), []).append(changed)
    priced = any(total.after is not None for c in comparison.conditions for total in _money(c))
    money = priced and _fit(console, lambda form: [_change_table(shown, form, money=True) for shown in levels.values()])
    tables = _fitting(console, lambda form: [_change_table(shown, form, money=money) for shown in levels.values()])
    for shown, table in zip(levels.values(), tables, strict=True):
        console.print(table)
        if priced and not money:
            moved = [(c.target, _total(total)) for c in shown for total in _money(c)]
            costs = (f"{target} {figure.text} {figure.remark}".strip() for target, figure in moved)
            _item(console, "  ", f"$/M tokens: {'; '.join(costs)}.")
        for changed in shown:
            for note in changed.notes:
                _item(console, "  ", f"{changed.target}: {note}", "yellow")
        console.print()
    for which, missing in (("before", comparison.only_before), ("after", comparison.only_after)):
        if missing:
            _item(console, "", f"Only in the run {which}: {', '.join(missing)}.", "yellow")
    for statement in comparison.statements:
        _item(console, "• ", statement)
    if comparison.conditions:
        _item(console, "", "Dim: chance may explain the change. System tokens/s and errors are not tested.", "dim")


def _fitting(console: Console, tables: Tables) -> list[Table]:
    """The tables in the first form in which all of them fit the console, else with names broken to make them fit."""
    fitting = (form for form in FORMS if _spare(console, tables(form)) >= 0)
    room = max(_spare(console, tables(NARROWEST)), 0)
    return tables(next(fitting, Form(beside=False, name_width=SHORTEST_NAME + room)))


def _fit(console: Console, tables: Tables) -> bool:
    """Whether the tables fit the console in any form."""
    return _spare(console, tables(NARROWEST)) >= 0


def _spare(console: Console, tables: Sequence[Table]) -> int:
    """How many columns of the console the widest of the tables leaves; below 0: how many it lacks."""
    unlimited = console.options.update(max_width=MORE_THAN_ANY_CONSOLE)
    return min((console.width - console.measure(t, options=unlimited).maximum for t in tables), default=0)


def _item(console: Console, mark: str, text: str, look: str = "") -> None:
    """A sentence with a mark before it, whose further lines stand beneath its first."""
    lines = Text(printable(text), look).wrap(console, console.width - len(mark))
    for i, line in enumerate(lines):
        line.rstrip()
        console.print(Text(mark if i == 0 else " " * len(mark), look) + line, soft_wrap=True)


def _level_table(level: rows.Level, form: Form, *, money: bool) -> Table:
    columns = [
        [_figure(rows.cell(of(c), percentile)) for c in level.conditions]
        for percentile in ("p50", "p95")
        for of in (rows.ttft, rows.tps)
    ]
    columns.append([Figure(text=rows.number(c.output_tokens_per_s)) for c in level.conditions])
    columns.append([Figure(text=rows.errors(c), look="red" if c.errors else "") for c in level.conditions])
    if money:
        columns.append([Figure(text=usd(c.usd_per_million), remark=rows.cost(c)) for c in level.conditions])
    names = [(c.target, bool(c.invalid)) for c in level.conditions]
    return _table(level.heading, names, columns, form, ["$/M tokens\nand row"] if money else ())


def _figure(cell: rows.Cell) -> Figure:
    return Figure(text=cell.figure, look="dim" if cell.needs else "", remark=cell.interval)


def _change_table(shown: Sequence[ConditionChange], form: Form, *, money: bool) -> Table:
    level = shown[0]
    ttft = "ttft_due_ms" if rows.open_loop(level) else "ttft_ms"
    columns = [
        [_moved(c, figure, percentile) for c in shown] for percentile in ("p50", "p95") for figure in (ttft, "tps")
    ]
    columns += [
        [_total(total) for c in shown for total in c.totals if total.figure == name]
        for name in ("output_tokens_per_s", "errors", *([PER_MILLION] if money else []))
    ]
    title = f"{rows.level_title(level)}: the second run, and how it differs from the first"
    return _table(title, [(c.target, False) for c in shown], columns, form, ["$/M\ntokens"] if money else ())


def _step_table(run: Run, found: Capacity) -> Table:
    title = f"{printable(found.target)}: the steps of the search, times in ms"
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.collapse_padding = True
    for at, heading in enumerate(("load", *capacity.HEADINGS, *capacity.further(found), "verdict")):
        table.add_column(heading.replace(" ", "\n", 1), justify="right" if at else "left", overflow="fold")
    for line in capacity.lines(run, found):
        bad = line.verdict in capacity.BAD
        cells = (Text(cell.figure, "dim" if cell.needs else "") for cell in line.cells)
        table.add_row(
            line.load,
            *cells,
            Text(capacity.WORDS[line.verdict], "red" if bad else ""),
            style="bold" if line.heaviest else "",
        )
    return table


def _savings_table(run: Run, form: Form) -> Table:
    lines = savings.lines(run)
    columns = [[Figure(text=line.load) for line in lines]]
    columns += [[_saved(line.cells[at], form) for line in lines] for at in range(len(SAVINGS))]
    return _filled(savings.TITLE, ["load", *SAVINGS], [(line.target, False) for line in lines], columns, form)


def _saved(cell: savings.Cell, form: Form) -> Figure:
    between = cell.interval and (f" ({cell.interval})" if form.beside else f"\n{cell.interval}")
    look = "dim" if cell.weak else {True: "green", False: "red", None: "dim"}[cell.better]
    return Figure(text=cell.figure, remark=cell.remark + between, remark_look=look)


def _moved(changed: ConditionChange, figure: str, percentile: str) -> Figure:
    found = [f for f in changed.figures if (f.figure, f.percentile) == (figure, percentile)]
    if not found:
        return Figure(text=MISSING)
    (moved,) = found
    return Figure(text=rows.number(moved.after), remark=_change(moved.change), remark_look=_change_look(moved))


def _total(total: TotalChange) -> Figure:
    if total.figure == "errors":
        return Figure(text=f"{total.after:g}", remark="" if total.after == total.before else f"was {total.before:g}")
    if total.figure == PER_MILLION:
        return Figure(text=usd(total.after), remark=_change(total.change))
    return Figure(text=rows.number(total.after), remark=_change(total.change))


def _money(changed: ConditionChange) -> list[TotalChange]:
    return [total for total in changed.totals if total.figure == PER_MILLION]


def _change_look(moved: FigureChange) -> str:
    return ("green" if moved.better else "red") if moved.real else "dim"


def _change(value: float | None) -> str:
    return "" if value is None else change(value)


def _table(
    title: str,
    names: Sequence[tuple[str, bool]],
    columns: Sequence[list[Figure]],
    form: Form,
    more: Sequence[str] = (),
) -> Table:
    """A table of targets. `names`: each with whether it is INVALID; `more`: the headings of further columns."""
    headings = [f"{figure} {percentile}\n{unit}" for percentile in ("p50", "p95") for figure, unit in COLUMNS]
    return _filled(title, [*headings, "system\ntokens/s", "errors", *more], names, columns, form)


def _filled(
    title: str,
    headings: Sequence[str],
    names: Sequence[tuple[str, bool]],
    columns: Sequence[list[Figure]],
    form: Form,
) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.collapse_padding = not form.beside
    table.add_column("target", overflow="fold", no_wrap=not form.name_width, min_width=SHORTEST_NAME)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    texts = [[_name(target, invalid, form) for target, invalid in names], *(_texts(c, form) for c in columns)]
    for row in zip(*texts, strict=True):
        table.add_row(*row)
    return table


def _name(target: str, invalid: bool, form: Form) -> Text:
    name = Text(broken(printable(target), form.name_width) if form.name_width else printable(target))
    if invalid:
        name.append(" INVALID", "bold red")
    return name


def broken(name: str, width: int) -> str:
    """A name on lines of at most `width` where its slashes and hyphens allow it."""
    lines = [""]
    for part in re.findall(r"[^/-]*[/-]|[^/-]+", name):
        if lines[-1] and len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _texts(column: Sequence[Figure], form: Form) -> list[Text]:
    """One column, each remark beside its figure (padded, so that the figures align) or beneath it."""
    width = max(len(figure.remark) for figure in column)
    texts = []
    for figure in column:
        text = Text(figure.text, figure.look)
        if form.beside and width:
            text.append("  " + figure.remark.ljust(width), figure.remark_look)
        elif figure.remark:
            text.append("\n" + figure.remark, figure.remark_look)
        texts.append(text)
    return texts
