from collections.abc import Sequence

from splitsecond.benchmark.findings.change_statements import STATED_PERCENTILES, ConditionChange
from splitsecond.benchmark.findings.compare import Comparison
from splitsecond.benchmark.report import rows, sessions
from splitsecond.benchmark.rows.figures import FIGURES, TOTALS
from splitsecond.benchmark.rows.metric import Figure, Total
from splitsecond.benchmark.rows.records import FigureChange
from splitsecond.core.grouping import grouped
from splitsecond.core.pages.axis import Axis, linear
from splitsecond.core.pages.chart import ROW, Chart, LegendEntry, Plot, palette_entries, picture
from splitsecond.core.pages.figure_cells import MISSING
from splitsecond.core.pages.html import Badge, Headline, HtmlTable, TableCell, Tile, render
from splitsecond.core.wording import change, counted_as

MAX = 1.0
"""Largest change that decides the length of an axis; 1 is +100%."""
ROOM = 1.25
GAP, LEFT = 14, 240
_GRADES = palette_entries("grade", ["better", "", "", "", "worse", "chance may explain it"])
LEGEND = {label: entry for label, entry in _GRADES.items() if label}


def render_comparison(comparison: Comparison) -> str:
    levels = grouped(comparison.conditions, rows.level_title)
    only = (("before", comparison.only_before), ("after", comparison.only_after))
    notes = [
        f"{changed.name}, {rows.load_words(changed)}: {note}"
        for changed in comparison.conditions
        for note in changed.notes
    ]
    notes += [f"Only in the run {which}: {', '.join(names)}." for which, names in only if names]
    return render(
        "compare.html",
        [
            plot
            for at, (title, own) in enumerate(levels.items())
            for plot in _changes(f"change-{at}", title, own)
        ],
        {"changes": LEGEND},
        headline=_headline(comparison),
        title="Comparison of two runs",
        lead=f"Before: {comparison.before}. After: {comparison.after}.",
        statements=comparison.statements,
        tables=[
            each
            for title, own in levels.items()
            for each in (_table(title, own), *_session_tables(title, own))
        ],
        notes=notes,
    )


def _stated(changed: ConditionChange) -> list[FigureChange]:
    figures = [f for f in changed.figures if f.percentile in STATED_PERCENTILES]
    return figures + [
        total for total in changed.totals if total.change is not None and total.figure != "errors"
    ]


def _headline(comparison: Comparison) -> Headline:
    if not comparison.conditions:
        return Headline(
            sentence="The runs have no row in common.",
            badge=Badge(text="nothing compared", look="warn"),
        )
    real = [(c, f) for c in comparison.conditions for f in _stated(c) if f.real]
    worse, better = (sum(f.better is side for _, f in real) for side in (False, True))
    sentence = _changes_sentence(worse, better)
    if comparison.close_rounds:
        sentence = f"{comparison.close_rounds.only}: {sentence[0].lower()}{sentence[1:]}"
    largest = sorted(real, key=lambda pair: -abs(pair[1].change or 0)) or [
        (c, f) for c in comparison.conditions[:1] for f in _stated(c) if f.percentile != "p95"
    ]
    tiles = [_tile(c, f) for c, f in largest[:3]]
    return Headline(sentence=sentence, tiles=tiles, badge=_badge(comparison, worse > 0, better > 0))


def _changes_sentence(worse: int, better: int) -> str:
    parts = [
        f"{word} than the first in {counted_as(count, 'figure')}"
        for count, word in ((worse, "worse"), (better, "better"))
        if count
    ]
    if not parts:
        return "No change beyond chance."
    return f"The second run is {' and '.join(parts)}, beyond chance."


def _badge(comparison: Comparison, worse: bool, better: bool) -> Badge:
    if any("INVALID" in note for c in comparison.conditions for note in c.notes):
        return Badge(text="INVALID rows", look="warn")
    return (
        Badge(text="worse", look="bad")
        if worse
        else Badge(text="better" if better else "no change", look="good")
    )


def _tile(changed: ConditionChange, f: FigureChange) -> Tile:
    metric = _metric(f)
    moved = f"{_values(f)} ({_interval(f)})" if f.ci95 else _values(f)
    return Tile(
        label=f"{metric.label} {f.percentile}".rstrip() + f", {rows.load_words(changed)}",
        value="–" if f.change is None else change(f.change),
        target=changed.name,
        note=moved,
    )


def _interval(f: FigureChange) -> str:
    return " to ".join(map(change, f.ci95 or ()))


def _metric(f: FigureChange) -> Figure | Total:
    return FIGURES.get(f.figure) or TOTALS[f.figure]


def _values(f: FigureChange) -> str:
    column = rows.MetricColumn(metric=_metric(f))
    return f"{column.formatted(f.before)} → {column.formatted(f.after)}{column.metric.unit_after}"


def _kind(f: FigureChange) -> str:
    return "chance may explain it" if not f.real else "better" if f.better else "worse"


def _changes(name: str, title: str, changes: Sequence[ConditionChange]) -> list[Plot]:
    rows_of_figures = [(c, [f for f in _stated(c) if f.change is not None]) for c in changes]
    named_rows = [(c.name, own) for c, own in rows_of_figures if own]
    figures = [f for _, own in named_rows for f in own]
    if not figures:
        return []
    height = (len(figures) + len(named_rows)) * ROW + len(named_rows) * GAP
    chart, y = Chart(_axis(figures), None, height=height, left=LEFT), 0.0
    chart.add(None, chart.upright_rule(0))
    for row_name, own in named_rows:
        chart.add(None, chart.text(0, chart.top + y + 16, row_name, look="title"))
        y += ROW
        for f in own:
            y += ROW
            _draw(chart, LEGEND[_kind(f)], f, y - 4)
        y += GAP
    return [
        picture(
            chart,
            name=name,
            section="changes",
            title=title,
            legend="changes",
            description="The change of each figure from the first run to the second, with its "
            f"interval. {sum(f.real for f in figures)} of {len(figures)} are beyond chance.",
        )
    ]


def _axis(figures: Sequence[FigureChange]) -> Axis:
    ends = [abs(end) for f in figures for end in (f.change or 0.0, *(f.ci95 or ()))]
    reach = min(max(ends), MAX) * ROOM or 0.1
    return linear("change from the first run to the second", -reach, reach, percent=True)


def _draw(chart: Chart, entry: LegendEntry, f: FigureChange, y: float) -> None:
    metric = _metric(f)
    label = f"{metric.label} {f.percentile}".rstrip()
    words = change(f.change or 0.0) + (f" ({_interval(f)})" if f.ci95 else "")
    tip = f"{label}: {_values(f)}\n{words}"
    low, high = (
        min(max(end, chart.x.low), chart.x.high)
        for end in f.ci95 or (f.change or 0.0, f.change or 0.0)
    )
    middle = min(max(f.change or 0.0, chart.x.low), chart.x.high)
    chart.add(entry, chart.span(low, high, y) if f.ci95 else "", chart.mark(entry, middle, y, tip))
    chart.add(None, chart.text(LEFT - 8, chart.top + y + 4, label, anchor="end"))


def _table(title: str, changes: Sequence[ConditionChange]) -> HtmlTable:
    columns = [
        column
        for column in rows.compared_columns(changes, [FIGURES["e2e_ms"]])
        if any(column.change(c) is not None for c in changes)
    ]
    body = [
        [
            TableCell(text=changed.name),
            *(_cell(column, column.change(changed)) for column in columns),
            _errors(next((total for total in changed.totals if total.figure == "errors"), None)),
        ]
        for changed in changes
    ]
    return HtmlTable(
        caption=title,
        head=["target", *(column.heading for column in columns), "errors"],
        body=body,
        export=True,
    )


def _session_tables(title: str, changes: Sequence[ConditionChange]) -> list[HtmlTable]:
    columns = sessions.changed_columns(changes)
    body = [
        [TableCell(text=c.name), *(_cell(each.column, each.column.change(c)) for each in columns)]
        for c in changes
    ]
    head = ["target", *(each.column.heading for each in columns)]
    return (
        [HtmlTable(caption=f"{title}, {sessions.TITLE.lower()}", head=head, body=body, export=True)]
        if columns
        else []
    )


def _cell(column: rows.MetricColumn, f: FigureChange | None) -> str | TableCell:
    if f is None:
        return MISSING
    notes = [] if f.change is None else [change(f.change)]
    if f.ci95:
        notes.append(_interval(f))
    return TableCell(
        text=column.formatted(f.after),
        notes=notes,
        look=("good" if f.better else "bad") if f.real else "",
    )


def _errors(f: FigureChange | None) -> str | TableCell:
    if f is None or f.after is None:
        return MISSING
    notes = [f"was {f.before:g}"] if f.before is not None and f.before != f.after else []
    return TableCell(
        text=f"{f.after:g}", notes=notes, look="bad" if f.after > (f.before or 0) else ""
    )
