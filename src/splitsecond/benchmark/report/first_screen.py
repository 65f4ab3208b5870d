"""The first screen of a run: the conclusion, one table, the verdicts on uses, the main findings,
and what went wrong.

It has about 30 lines of 80 columns. `terminal.run_table` has everything.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from splitsecond.benchmark.report import rows, use_matrix
from splitsecond.benchmark.report.short_names import ShortNames, short_names
from splitsecond.benchmark.report.tables import (
    SHORTEST_NAME,
    name_text,
    print_item,
    print_table,
    room_left,
    titled_table,
)
from splitsecond.benchmark.report.terminal import (
    LOOKS,
    print_cache_savings,
    print_sessions,
    print_steps,
    print_stopped,
)
from splitsecond.benchmark.rows.records import ConditionFindings, Run
from splitsecond.core.grouping import grouped
from splitsecond.core.pages import figure_cells
from splitsecond.core.pages.figure_cells import number, share
from splitsecond.core.wording import counted_as, listed

INDENT = 1
MAX_ROWS = 12
MIN_TABLE_ROWS = 3
"""Targets from which on their verdicts are a table, which takes fewer lines."""
HEADINGS = {"translation": "transl.", "completion": "compl.", "long-form": "long"}
UNSURE, _ = use_matrix.KEEPS["unsure"]
MAX_LINES = 30
MIN_FINDINGS, MAX_FINDINGS = 2, 6
"""Lines of findings, as `MAX_LINES` leave room for them. The others are counted."""
MORE = "has all figures and findings; --verbose prints them."
Row = ConditionFindings


class Columns(Struct, frozen=True, kw_only=True):
    """Which columns a console has room for. `short`: names are without what all have in common.
    `name_width`: names are broken at this many columns; 0: never."""

    short: bool = False
    name_width: int = 0
    intervals: bool = True
    money: bool = True
    system: bool = True

    def left_out(self, *, priced: bool) -> list[str]:
        columns = [
            ("intervals", self.intervals),
            ("$/M tokens", self.money or not priced),
            ("system tokens/s", self.system),
        ]
        return [name for name, is_shown in columns if not is_shown]


CHOICES = (
    Columns(),
    Columns(short=True),
    Columns(short=True, money=False),
    Columns(short=True, money=False, system=False),
    Columns(short=True, intervals=False),
    Columns(short=True, intervals=False, money=False),
    Columns(short=True, name_width=SHORTEST_NAME, money=False),
    Columns(short=True, name_width=SHORTEST_NAME, intervals=False, money=False),
    Columns(short=True, name_width=SHORTEST_NAME, intervals=False, money=False, system=False),
)
"""Sets of columns, the best first. Names become short before a column goes."""


def first_screen(run: Run, console: Console, files: Sequence[Path] = ()) -> None:
    with console.capture() as captured:
        names = _print_answer(run, console)
    answer = captured.get()
    console.file.write(answer)
    highlights = run.highlights[1:] if run.capacity else run.highlights
    room = MAX_LINES - answer.count("\n") - len(files)
    _print_findings(console, [names.within(each) for each in highlights], room)
    print_stopped(run, console)
    for path in files:
        _print_file(path, MORE if path.suffix == ".html" else "", console)


def _print_file(path: Path, words: str, console: Console) -> None:
    """Print a path, never broken so that it can be copied, and `words` beside it or below."""
    name = Text(str(path), "cyan")
    if words and len(name) + 1 + len(words) <= console.width:
        name.append(f" {words}", "dim")
        words = ""
    console.print(name, soft_wrap=True)
    if words:
        print_item(console, "  ", words, "dim")


def _print_answer(run: Run, console: Console) -> ShortNames:
    """Print everything before the findings; return the names that the table has room for."""
    for reason in run.invalid:
        print_item(console, "INVALID: ", reason, "bold red")
    for at, sentence in enumerate(run.conclusion):
        print_item(console, "", sentence, "" if at else "bold")
    if run.capacity:
        print_steps(run, run.capacity, console)
    names = ShortNames()
    if run.conditions and not run.capacity:
        names = _print_rows(run, console)
    if any(c.session for c in run.conditions):
        print_sessions(run, console)
    print_cache_savings(run, console)
    _print_problems(run, console, names)
    if not run.capacity:
        _print_uses(run, console, names)
    return names


def _print_rows(run: Run, console: Console) -> ShortNames:
    levels = rows.levels(run)
    shown_levels = levels if len(run.conditions) <= MAX_ROWS else [levels[0], levels[-1]]
    priced = rows.priced(run)
    full, short = ShortNames(), short_names(row.target for row in run.conditions)
    room = {
        each: room_left(
            console, [_table(shown_levels, each, priced, short if each.short else full)]
        )
        - INDENT
        for each in CHOICES
    }
    fits = next((each for each in CHOICES if room[each] >= 0), None)
    choice = fits or CHOICES[0]
    if choice.name_width:
        choice = replace(choice, name_width=choice.name_width + room[choice])
    names = short if choice.short else full
    table = _table(shown_levels, choice, priced, names)
    console.print()
    if fits:
        console.print(Padding.indent(table, INDENT))
    else:
        print_table(table, console)
    hidden = [level.title.lower() for level in levels if level not in shown_levels]
    _print_left_out([*choice.left_out(priced=priced), *hidden], names, console)
    return names


def _print_left_out(left_out: Sequence[str], names: ShortNames, console: Console) -> None:
    words = [f"Not shown: {listed(left_out)}."] if left_out else []
    words += [f"Names: {names.pattern}."] if names.pattern else []
    if words:
        print_item(console, "  ", " ".join(words), "dim")
    console.print()


def _table(
    levels: Sequence[rows.LoadLevel], columns: Columns, priced: bool, names: ShortNames
) -> Table:
    table = titled_table("")
    table.title, table.show_edge = None, False
    table.add_column("target", no_wrap=True)
    money = priced and columns.money
    between = ["95%"] if columns.intervals else []
    inputs = levels[0].inputs
    headings = [f"{'latency' if inputs else 'TTFT'} p50\nms", *between, "p95\nms"]
    headings += ["inputs\nper s"] if inputs else ["TPS p50\ntokens/s", *between]
    headings += [
        *([f"{'input' if inputs else 'system'}\ntokens/s"] if columns.system else []),
        *(["valid\nanswers"] if any(c.checked for c in levels[0].conditions) else []),
        "errors",
        *(["$/M\ntokens"] if money else []),
    ]
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "95%" else "right", no_wrap=True)
    for level in levels:
        table.add_row(Text(level.title, "bold"))
        for row in level.conditions:
            table.add_row(_name(row, columns, names), *_cells(row, columns, money=money))
    return table


def _name(row: Row, columns: Columns, names: ShortNames) -> Text:
    name = name_text(names.short(row.target), columns.name_width)
    return (
        name.append("\nINVALID" if columns.name_width else " INVALID", "bold red")
        if row.invalid
        else name
    )


def _cells(row: Row, columns: Columns, *, money: bool) -> Iterator[Text]:
    summaries = [(rows.ttft(row), ("p50", "p95")), *([] if row.inputs else [(row.tps, ("p50",))])]
    for summary, percentiles in summaries:
        for percentile in percentiles:
            cell = figure_cells.cell(summary, percentile)
            yield Text(cell.figure, "dim" if cell.needs else "")
            if columns.intervals and percentile == "p50":
                yield Text(cell.interval, "dim")
    if row.inputs:
        yield Text(number(row.inputs_per_s))
    if columns.system:
        yield Text(number(row.input_tokens_per_s if row.inputs else row.output_tokens_per_s))
    if row.checked:
        yield Text(share(row.valid_share))
    yield Text(rows.errors(row), "red" if row.errors else "")
    if money:
        yield Text(rows.per_million(row))


def _print_problems(run: Run, console: Console, names: ShortNames) -> None:
    problems = [
        (f"{remark.who or 'all'}, {level.title.lower()}", remark)
        for level in rows.levels(run)
        for remark in rows.remarks(level)
        if remark.kind in ("invalid", "error")
    ]
    for (who, _), own in grouped(problems, lambda each: (each[0], each[1].kind)).items():
        first, more = own[0][1], len(own) - 1
        others = f" ({counted_as(more, 'more remark')} with --verbose)" if more else ""
        print_item(console, "  ", names.within(f"{who}: {first.text}{others}"), LOOKS[first.kind])
    if problems:
        console.print()


def _print_uses(run: Run, console: Console, names: ShortNames) -> None:
    lines = use_matrix.target_lines(run)
    if not lines:
        if note := use_matrix.note(run):
            print_item(console, "", note, "dim")
        return
    tables = (_use_table(run, names, gap) for gap in (2, 1))
    table = next((each for each in tables if room_left(console, [each]) >= 0), None)
    if len(lines) >= MIN_TABLE_ROWS and table is not None:
        print_item(console, "", f"{use_matrix.heading(run)}, ? cannot tell yet:", "bold")
        console.print(table)
        return
    print_item(console, "", f"{use_matrix.heading(run)}:", "bold")
    for target, verdicts in lines.items():
        print_item(console, "  ", f"{names.short(target)}: {verdicts}")


def _use_table(run: Run, names: ShortNames, gap: int) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, padding=(0, 0, 0, gap))
    table.add_column("", no_wrap=True)
    for use in use_matrix.use_names(run):
        table.add_column(HEADINGS.get(use, use), justify="right", no_wrap=True)
    for row in use_matrix.use_matrix(run):
        cells = (
            Text(f"{cell.mark}{'?' if cell.word == UNSURE else cell.word}", cell.look)
            for cell in row.cells
        )
        table.add_row(f"  {names.within(row.name)}", *cells)
    return table


def _print_findings(console: Console, findings: Sequence[str], room: int) -> None:
    """Print findings in about `room` lines."""
    left, hidden = min(max(room - 1, MIN_FINDINGS), MAX_FINDINGS), 0
    for each in findings:
        whole = each.replace("\n", " ")
        lines = [whole] if len(whole) <= console.width - 2 else each.split("\n")
        if left < len(lines):
            hidden += 1
            continue
        left -= len(lines)
        for at, line in enumerate(lines):
            print_item(console, "  " if at else "• ", line)
    if hidden:
        print_item(console, "• ", f"{counted_as(hidden, 'more finding')}.", "dim")
