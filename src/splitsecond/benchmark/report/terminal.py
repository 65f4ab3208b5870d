"""Findings on a terminal: a table for each level, then sentences, then the instrument's own error,
then the files.

The tables follow General Compute's "LLM Token Generation Speed" (June 2025): TTFT and TPS at p50
and at p95, with intervals, system throughput and errors. A figure with too small an n is dim.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from splitsecond.benchmark.findings.call_costs import cost_card
from splitsecond.benchmark.findings.change_statements import ConditionChange
from splitsecond.benchmark.findings.compare import Comparison
from splitsecond.benchmark.findings.watching import RoundNews, WatchRound, minute
from splitsecond.benchmark.report import call_costs, capacity, rows, savings, sessions, use_matrix
from splitsecond.benchmark.report.production import bounds_words
from splitsecond.benchmark.report.tables import (
    BROKEN_NAMES,
    StyledCell,
    TableLayout,
    Tables,
    filled,
    fit,
    fitting,
    print_item,
    print_left_out,
    print_table,
    titled_table,
)
from splitsecond.benchmark.rows.figures import FIGURES, LATENCY
from splitsecond.benchmark.rows.records import Capacity, FigureChange, Run
from splitsecond.benchmark.rows.throughput import BatchThroughput
from splitsecond.core.grouping import grouped
from splitsecond.core.money.cost import usd
from splitsecond.core.pages import figure_cells
from splitsecond.core.pages.figure_cells import MAIN_PERCENTILES, MISSING, number, safe_text
from splitsecond.core.wording import Statement, change, counted_as, paired

PER_MILLION = "usd_per_million"
SAVINGS = ("TTFT p50\nms", "TTFT p95\nms", "cached\ninput", "$ per 1,000\nrequests")
LOOKS = {"invalid": "red", "error": "yellow", "note": "dim", "server": "dim"}


def run_table(run: Run, console: Console, files: Sequence[Path] = ()) -> None:
    if run.capacity:
        print_steps(run, run.capacity, console)
    else:
        _print_levels(run, console)
    if any(c.session for c in run.conditions):
        print_sessions(run, console)
    print_cache_savings(run, console)
    if use_matrix.use_matrix(run):
        _print_uses(run, console)
    elif too_few := use_matrix.note(run):
        print_item(console, "", too_few, "dim")
    call_costs.print_cost_card(cost_card(run.conditions), console)
    for reason in run.invalid:
        print_item(console, "INVALID: ", reason, "bold red")
    print_findings(console, paired(run.statements, run.short_statements))
    print_stopped(run, console)
    if run.statements or run.invalid or not run.finished:
        console.print()
    instrument = " ".join(rows.instrument_sentences(run))
    for sentence in (
        rows.location_sentence(run),
        *rows.caveats(run),
        *rows.price_sentences(run),
        instrument,
    ):
        if sentence:
            print_item(console, "", sentence, "dim")
    for path in files:
        console.print(Text(str(path), "cyan"), soft_wrap=True)


def print_stopped(run: Run, console: Console) -> None:
    if not run.finished:
        words = "This run was stopped before its end: the figures cover what had finished."
        print_item(console, "• ", words, "yellow")


def _print_levels(run: Run, console: Console) -> None:
    levels = rows.levels(run)
    priced = rows.priced(run)
    tables, money = _with_money(
        console,
        priced,
        lambda layout, money: [_level_table(each, layout, money) for each in levels],
    )
    for level, table in zip(levels, tables, strict=True):
        print_table(table, console)
        if priced and not money:
            costs = (
                f"{c.target} {rows.per_million(c)} {rows.cost(c)}".strip() for c in level.conditions
            )
            print_item(console, "  ", f"$/M tokens, and row: {'; '.join(costs)}.")
        _print_left_out(level, table, console)
        _print_remarks(rows.remarks(level), len(level.conditions), console)
        console.print()


def _with_money(
    console: Console, priced: bool, tables: Callable[[TableLayout, bool], list[Table]]
) -> tuple[list[Table], bool]:
    """Return tables, and whether there was room for their costs."""
    money = priced and fit(console, lambda layout: tables(layout, True))
    return fitting(console, lambda layout: tables(layout, money)), money


def _print_left_out(level: rows.LoadLevel, table: Table, console: Console) -> None:
    usual = _level_table(level, BROKEN_NAMES, False)
    headers = {column.header for column in table.columns}
    missing = [
        str(column.header).partition("\n")[0]
        for column in usual.columns
        if column.header not in headers
    ]
    print_left_out(missing, console)


def _print_remarks(remarks: Sequence[figure_cells.Remark], count: int, console: Console) -> None:
    for remark in remarks:
        who = remark.who or ("both" if count == 2 else f"all {count}")
        word = " INVALID" if remark.kind == "invalid" else ""
        print_item(console, "  ", f"{who}{word}: {remark.text}", LOOKS[remark.kind])


def print_steps(run: Run, search: Capacity, console: Console) -> None:
    print_table(_step_table(run, search), console)
    _print_remarks(capacity.remarks(run), len(search.steps), console)
    console.print()


def print_cache_savings(run: Run, console: Console) -> None:
    if run.cache_savings and _printed(console, lambda layout: [_savings_table(run, layout)]):
        print_item(console, "  ", savings.NOTE, "dim")
        console.print()


def _printed(console: Console, tables: Tables) -> bool:
    """Print tables if there is room for them; return whether there was."""
    if not fit(console, tables):
        return False
    for table in fitting(console, tables):
        print_table(table, console)
    return True


def print_sessions(run: Run, console: Console) -> None:
    levels = [level for level in rows.levels(run) if sessions.of_sessions(level)]

    def tables(*, narrow: bool) -> Tables:
        return lambda layout: [_session_table(level, layout, narrow=narrow) for level in levels]

    narrow = not fit(console, tables(narrow=False))
    for table in fitting(console, tables(narrow=narrow)):
        print_table(table, console)
    columns = [
        column
        for level in levels
        for column in sessions.columns_of(level.conditions, narrow=narrow)
    ]
    print_item(console, "  ", sessions.note(columns), "dim")
    console.print()


def _print_uses(run: Run, console: Console) -> None:
    wide = _printed(console, lambda layout: [_use_table(run, layout)])
    if not wide:
        console.print(Text(use_matrix.TITLE, "bold"))
        for use, fits in use_matrix.use_lines(run).items():
            print_item(console, f"  {use}: ", fits)
    print_item(console, "  ", use_matrix.note(run, beside=not wide), "dim")
    console.print()


def comparison_table(comparison: Comparison, console: Console) -> None:
    print_item(console, "", f"Before: {comparison.before}. After: {comparison.after}.", "dim")
    levels = grouped(comparison.conditions, rows.load_words).values()
    priced = any(total.after is not None for c in comparison.conditions for total in _money(c))
    tables, money = _with_money(
        console,
        priced,
        lambda layout, money: [_change_table(each, layout, money) for each in levels],
    )
    for changes, table in zip(levels, tables, strict=True):
        print_table(table, console)
        _print_below(changes, console, costs=priced and not money)
    in_sessions = [changes for changes in levels if sessions.changed_columns(changes)]
    for table in fitting(
        console, lambda layout: [_session_change_table(changes, layout) for changes in in_sessions]
    ):
        print_table(table, console)
    for which, missing in (("before", comparison.only_before), ("after", comparison.only_after)):
        if missing:
            print_item(console, "", f"Only in the run {which}: {', '.join(missing)}.", "yellow")
    print_findings(console, paired(comparison.statements, comparison.short_statements))
    if comparison.conditions:
        print_item(console, "", "Dim: chance may explain the change, or it has no test.", "dim")


def _print_below(changes: Sequence[ConditionChange], console: Console, *, costs: bool) -> None:
    if costs:
        moved = [(c.name, _total(total)) for c in changes for total in _money(c)]
        words = (f"{target} {figure.text} {figure.remark}".strip() for target, figure in moved)
        print_item(console, "  ", f"$/M tokens: {'; '.join(words)}.")
    notes = [f"{changed.name}: {note}" for changed in changes for note in changed.notes]
    for note in notes:
        print_item(console, "  ", note, "yellow")
    console.print(end="\n" if notes or costs else "")


def print_findings(console: Console, statements: Iterable[Statement]) -> None:
    for statement in statements:
        for at, line in enumerate(statement.lines(console.width - 2)):
            print_item(console, "  " if at else "• ", line)


def _level_table(level: rows.LoadLevel, layout: TableLayout, money: bool) -> Table:
    usual = rows.main_columns(open_loop=level.open_loop, more=layout.more, inputs=level.inputs)
    main = [*_shown(layout, usual), *level.more]
    columns = [[_cell(column.cell(c)) for c in level.conditions] for column in main]
    columns.append(
        [StyledCell(text=rows.errors(c), look="red" if c.errors else "") for c in level.conditions]
    )
    if money:
        columns.append(
            [StyledCell(text=rows.per_million(c), remark=rows.cost(c)) for c in level.conditions]
        )
    more = ["$/M tokens\nand row"] if money else []
    if any(c.region for c in level.conditions):
        columns.append([StyledCell(text=c.region or MISSING) for c in level.conditions])
        more.append("region")
    names = [(c.target, bool(c.invalid)) for c in level.conditions]
    return _table(level.heading, names, main, columns, layout, more)


def _shown(layout: TableLayout, columns: Sequence[rows.MetricColumn]) -> list[rows.MetricColumn]:
    further = {figure.label for figure in layout.more}

    def is_shown(column: rows.MetricColumn) -> bool:
        if column.percentile in ("", MAIN_PERCENTILES[0]):
            return True
        return column.label not in further and (
            not layout.narrow or column.label in (FIGURES["ttft_ms"].label, LATENCY.label)
        )

    return [c for c in columns if is_shown(c)]


def _cell(cell: figure_cells.FigureCell) -> StyledCell:
    return StyledCell(text=cell.figure, look="dim" if cell.needs else "", remark=cell.interval)


def _change_table(changes: Sequence[ConditionChange], layout: TableLayout, money: bool) -> Table:
    level = changes[0]
    main = _shown(layout, rows.compared_columns(changes, layout.more))
    columns = [[_moved(c, column) for c in changes] for column in main]
    columns += [
        [_total(total) for c in changes for total in c.totals if total.figure == name]
        for name in ("errors", *([PER_MILLION] if money else []))
    ]
    title = f"{rows.level_title(level)}: the second run, and how it differs from the first"
    more = ["$/M\ntokens"] if money else ()
    return _table(title, [(c.name, False) for c in changes], main, columns, layout, more)


def _session_change_table(changes: Sequence[ConditionChange], layout: TableLayout) -> Table:
    own = sessions.changed_columns(changes)
    columns = [[_moved(c, each.column) for c in changes] for each in own]
    title = (
        f"{sessions.TITLE} at {rows.level_title(changes[0]).lower()}: the second run, and how "
        "it differs"
    )
    return filled(
        title, [each.heading for each in own], [(c.name, False) for c in changes], columns, layout
    )


def _step_table(run: Run, search: Capacity) -> Table:
    title = f"{safe_text(search.target)}: steps of the search, times in ms"
    table = titled_table(title)
    for at, heading in enumerate(
        ("load", *capacity.HEADINGS, *capacity.limit_headings(search), "verdict")
    ):
        table.add_column(
            heading.replace(" ", "\n", 1),
            justify="right" if at else "left",
            no_wrap=heading not in ("load", "verdict"),
        )
    for line in capacity.step_rows(run, search):
        bad = line.verdict in capacity.BAD
        cells = (Text(cell.figure, "dim" if cell.needs else "") for cell in line.cells)
        table.add_row(
            line.load,
            *cells,
            Text(capacity.VERDICTS[line.verdict], "red" if bad else ""),
            style="bold" if line.heaviest else "",
        )
    return table


def _savings_table(run: Run, layout: TableLayout) -> Table:
    lines = savings.saving_rows(run)
    columns = [[StyledCell(text=line.load) for line in lines]]
    columns += [[_saved(line.cells[at], layout) for line in lines] for at in range(len(SAVINGS))]
    return filled(
        savings.TITLE, ["load", *SAVINGS], [(line.target, False) for line in lines], columns, layout
    )


def _session_table(level: rows.LoadLevel, layout: TableLayout, *, narrow: bool) -> Table:
    own = sessions.of_sessions(level)
    session_columns = sessions.columns_of(own, narrow=narrow)
    columns = [[_cell(each.cell(c)) for c in own] for each in session_columns]
    columns.append(
        [
            StyledCell(text=sessions.broke(c), look="red" if c.session and c.session.broken else "")
            for c in own
        ]
    )
    names = [(c.target, bool(c.invalid)) for c in own]
    title = f"{sessions.TITLE} at {level.title.lower()}"
    return filled(
        title, [*(each.heading for each in session_columns), "broke"], names, columns, layout
    )


def _use_table(run: Run, layout: TableLayout) -> Table:
    matrix = use_matrix.use_matrix(run)
    columns = [
        [
            StyledCell(text=row.cells[at].text, look=row.cells[at].look, remark=row.cells[at].load)
            for row in matrix
        ]
        for at in range(len(use_matrix.use_names(run)))
    ]
    names = [(row.name, False) for row in matrix]
    return filled(use_matrix.TITLE, use_matrix.use_names(run), names, columns, layout)


def _saved(cell: savings.ChangeCell, layout: TableLayout) -> StyledCell:
    between = cell.interval and (f" ({cell.interval})" if layout.beside else f"\n{cell.interval}")
    look = "dim" if cell.weak else {True: "green", False: "red", None: "dim"}[cell.better]
    return StyledCell(text=cell.figure, remark=cell.remark + between, remark_look=look)


def _moved(changed: ConditionChange, column: rows.MetricColumn) -> StyledCell:
    moved = column.change(changed)
    if moved is None:
        return StyledCell(text=MISSING)
    return StyledCell(
        text=column.formatted(moved.after),
        remark=_change(moved.change),
        remark_look=("green" if moved.better else "red") if moved.real else "dim",
    )


def _total(total: FigureChange) -> StyledCell:
    if total.figure == "errors":
        return StyledCell(
            text=f"{total.after:g}",
            remark="" if total.after == total.before else f"was {total.before:g}",
        )
    return StyledCell(text=usd(total.after), remark=_change(total.change))


def _money(changed: ConditionChange) -> list[FigureChange]:
    return [total for total in changed.totals if total.figure == PER_MILLION]


def _change(value: float | None) -> str:
    return "" if value is None else change(value)


def _table(
    title: str,
    names: Sequence[tuple[str, bool]],
    main: Sequence[rows.MetricColumn],
    columns: Sequence[list[StyledCell]],
    layout: TableLayout,
    more: Sequence[str] = (),
) -> Table:
    headings = [
        f"{column.name}\n{column.metric.unit}"
        if column.percentile
        else column.name.replace(" ", "\n", 1)
        for column in main
    ]
    return filled(title, [*headings, "errors", *more], names, columns, layout)


_LOOKS = {True: "green", False: "bold red", None: "dim"}


def round_lines(one: WatchRound, news: Mapping[str, Sequence[RoundNews]]) -> list[Text]:
    cells = [
        (
            f"{safe_text(condition.target)} {rows.load_words(condition)}",
            f"TTFT {number(rows.ttft(condition).p50)} ms, p95 {number(rows.ttft(condition).p95)}",
            f"TPS {number(condition.tps.p50)}",
            f"errors {rows.errors(condition)}",
        )
        for condition in one.rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for condition, row in zip(one.rows, cells, strict=True):
        padded = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        line = Text(f"{minute(one.at)}  {padded}  ")
        for remark in news.get(condition.condition, ()):
            line.append(f"{safe_text(remark.text)} ", _LOOKS[remark.good])
        line.rstrip()
        lines.append(line)
    return lines


def throughput_lines(batch: BatchThroughput) -> Iterator[tuple[str, str]]:
    done = f"{batch.answered:,} of {counted_as(batch.requests, 'request')} answered"
    earlier = f", {batch.earlier:,} earlier" if batch.earlier else ""
    yield f"{done} in {number(batch.seconds)} s{earlier}.", "bold"
    if batch.answered:
        yield (
            f"{number(batch.requests_per_s)} requests/s, {number(batch.output_tokens_per_s)} "
            f"output tokens/s, up to {batch.widest:,} in flight.",
            "",
        )
        yield from _cost_lines(batch)
    if len(batch.attempts) > 1:
        attempts = (f"{safe_text(name)} {count:,}" for name, count in batch.attempts.items())
        yield f"Attempts: {', '.join(attempts)}.", "dim"
    again, refused = (
        counted_as(count, "request was", "requests were") for count in (batch.again, batch.refused)
    )
    if batch.cuts or batch.again:
        retried = f", {again} retried" if batch.again else ""
        yield f"Targets refused load {counted_as(batch.cuts, 'time')}{retried}.", "dim"
    if batch.refused:
        yield f"{refused} refused permanently.", "red"
    if batch.left:
        why = f": {safe_text(batch.stopped).rstrip('.')}" if batch.stopped else ""
        yield f"{batch.left:,} not sent{why}. The same command continues from here.", "yellow"


def _cost_lines(batch: BatchThroughput) -> Iterator[tuple[str, str]]:
    if batch.cost_usd is not None:
        per_million = batch.usd_per_million
        rate = "" if per_million is None else f", {usd(per_million)} per million tokens"
        yield f"It cost {usd(batch.cost_usd)}{rate}." if batch.cost_usd else "It was free.", ""
        if batch.low_usd != batch.high_usd:
            yield f"The cost is {bounds_words(batch.low_usd, batch.high_usd)}", "dim"
    if batch.estimated:
        attempts = counted_as(batch.estimated, "attempt")
        yield (
            f"The cost of {attempts} is estimated: closed early, or with token counts that "
            "cannot be true.",
            "dim",
        )
    if batch.unpriced:
        unknown = counted_as(batch.unpriced, "attempt whose", "attempts whose")
        yield f"Not included: {unknown} price or prompt length is not known.", "dim"
