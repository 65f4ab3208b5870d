from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from splitsecond.benchmark.findings.call_costs import cost_card
from splitsecond.benchmark.findings.recommendation import limit_words
from splitsecond.benchmark.report import (
    call_costs,
    capacity,
    rows,
    savings,
    server_tables,
    sessions,
    use_matrix,
)
from splitsecond.benchmark.report.definitions import definitions
from splitsecond.benchmark.report.headline import run_headline
from splitsecond.benchmark.report.plots.plot_frame import legends
from splitsecond.benchmark.report.plots.run_plots import plots_of
from splitsecond.benchmark.report.plots.series import STAGES, stages_of
from splitsecond.benchmark.report.rows import MetricColumn
from splitsecond.benchmark.rows.figures import FIGURES, GROUPS, TOTALS
from splitsecond.benchmark.rows.records import ConditionFindings, Run
from splitsecond.benchmark.rows.row_fields import Instrument, NodeFindings
from splitsecond.benchmark.server_view.samples import ServerSeries
from splitsecond.core.money.cost import usd
from splitsecond.core.observation import Observation
from splitsecond.core.pages import figure_cells
from splitsecond.core.pages.figure_cells import MISSING, number
from splitsecond.core.pages.html import HtmlTable, Row, TableCell, figure_cell, render
from splitsecond.core.wording import counted_as, listed

SHOWN_ELSEWHERE = ("command", "plan", "conditions.", "notes", "prices.")
Column = tuple[str, Callable[[ConditionFindings], str]]


def render_run(
    run: Run, observations: Sequence[Observation], server: ServerSeries | None = None
) -> str:
    headline = run_headline(run, observations)
    return render(
        "run.html",
        plots_of(run, observations, server),
        legends(run),
        headline=headline,
        **_context(run),
    )


def _context(run: Run) -> dict[str, Any]:
    levels = rows.levels(run)
    card = _cost_card(run)
    return {
        "title": _title(run),
        "lead": _lead(run, levels),
        "measured": f"{run.began[:10]} at {run.began[11:16]} UTC" if run.conditions else "",
        "caveats": [*filter(None, [rows.location_sentence(run)]), *rows.caveats(run)],
        "finished": run.finished,
        "invalid": _invalid(run),
        # the headline has the first
        "statements": run.statements[1:] if run.capacity else run.statements,
        "search": run.capacity is not None,
        "steps": _steps(run),
        "step_remarks": _remark_lines(capacity.remarks(run)) if run.capacity else [],
        "levels": [
            (level.heading, _level_table(run, level), _remark_lines(rows.remarks(level)))
            for level in levels
        ],
        "sessions": _session_tables(levels),
        "sessions_note": sessions.note(sessions.columns_of(run.conditions), whole_headings=True),
        "turn_classes": _class_table(run),
        "more": _metric_tables(run),
        "uses": _use_table(run),
        "uses_note": use_matrix.note(run),
        "savings": _savings_table(run),
        "savings_note": savings.NOTE,
        "inputs": any(level.inputs for level in levels),
        "several_loads": len({(level.open_loop, level.load) for level in levels}) > 1,
        "money": [*_money_tables(run), *card],
        "money_note": call_costs.NOTE if card else "",
        "prices": rows.price_sentences(run),
        "stages": _condition_tables(run, [("Means of the stages, ms", _stage_columns(run))])
        + _server_tables(run),
        "server": _condition_tables(
            run, server_tables.TABLES, [c for c in run.conditions if c.server]
        ),
        "server_sentences": server_tables.sentences(run),
        "instrument": rows.instrument_sentences(run),
        "instrument_tables": [*_condition_tables(run, INSTRUMENT), *_node_tables(run)],
        "errors": _errors(run, levels),
        "definitions": definitions(
            sessions=any(c.session for c in run.conditions),
            inputs=any(c.inputs for c in run.conditions),
        ),
        "command": rows.asked_command(run),
        "plan": run.asked.get("plan", ""),
        "settings": _settings(run),
        "identity": f"Run {run.id}, started {run.began}, splitsecond {run.version or MISSING}, "
        f"format {run.schema}.",
    }


def _title(run: Run) -> str:
    targets = rows.targets(run)
    subject = targets[0] if len(targets) == 1 else counted_as(len(targets), "target")
    return f"{'Capacity' if run.capacity else 'Inference speed'} of {subject}"


def _lead(run: Run, levels: Sequence[rows.LoadLevel]) -> str:
    if not run.conditions:
        return "Nothing was measured."
    reuse = ", with and without cache reuse" if run.cache_savings else ""
    workloads = list(
        dict.fromkeys(condition.workload for condition in run.conditions if condition.workload)
    )
    kinds = (
        f", {'workload' if len(workloads) == 1 else 'workloads'} {listed(workloads)}"
        if workloads
        else ""
    )
    sent = sum(condition.requests for condition in run.conditions)
    failed = sum(condition.errors for condition in run.conditions)
    requests = f"{counted_as(sent, 'request')}{_in_sessions(run)}"
    return (
        f"{requests} to {listed(rows.targets(run))} at {listed(_loads(levels))}{reuse}{kinds}; "
        f"{f'{failed:,}' if failed else 'none'} failed."
    )


def _loads(levels: Sequence[rows.LoadLevel]) -> list[str]:
    closed = dict.fromkeys(f"{level.load:g}" for level in levels if not level.open_loop)
    return [
        *([f"concurrency {listed(list(closed))}"] if closed else []),
        *(level.title.lower() for level in levels if level.open_loop and not level.cache_reuse),
    ]


def _in_sessions(run: Run) -> str:
    count = sum(c.session.sessions for c in run.conditions if c.session)
    return f" in {counted_as(count, 'session')}" if count else ""


def _invalid(run: Run) -> dict[str, Any] | None:
    affected = [condition for condition in run.conditions if condition.invalid]
    if not run.invalid and not affected:
        return None
    reasons = [("", reason) for reason in run.invalid]
    reasons += [
        (f"{c.target}, {rows.load_words(c)}: ", reason) for c in affected for reason in c.invalid
    ]
    some = f"INVALID: {len(affected)} of {counted_as(len(run.conditions), 'row')}"
    return {
        "heading": "INVALID" if run.invalid else some,
        "reasons": reasons,
        "all": bool(run.invalid),
    }


def _remark_lines(remarks: Iterable[figure_cells.Remark]) -> list[str]:
    return [
        f"{remark.who or 'All rows'}: {remark.text}" for remark in remarks if remark.kind == "note"
    ]


def _target(condition: ConditionFindings) -> TableCell:
    return TableCell(text=condition.target, target=True)


def _row_name(condition: ConditionFindings) -> TableCell:
    return replace(_target(condition), invalid=bool(condition.invalid))


def _table(caption: str, head: Sequence[str], body: Sequence[Row]) -> HtmlTable | None:
    return HtmlTable(caption=caption, head=head, body=body, export=True) if body else None


def _level_table(run: Run, level: rows.LoadLevel) -> HtmlTable:
    priced, regional = rows.priced(run), rows.regional(run)
    columns = [
        column
        for column in (*_main_columns(level), *level.more)
        if any(column.cell(c).figure != MISSING for c in level.conditions)
    ]
    head = ["target", *(column.heading for column in columns), "errors"]
    body: list[Row] = [
        [
            _row_name(c),
            *(figure_cell(column.cell(c)) for column in columns),
            TableCell(text=rows.errors(c), look="bad" if c.errors else ""),
            *([rows.per_million(c)] if priced else []),
            *([c.region or MISSING] if regional else []),
        ]
        for c in level.conditions
    ]
    head += [*(["$ per million tokens"] if priced else []), *(["region"] if regional else [])]
    return HtmlTable(caption=f"Figures at {level.title.lower()}", head=head, body=body, export=True)


def _main_columns(level: rows.LoadLevel) -> list[MetricColumn]:
    columns = [
        column
        for percentile, more in (("p50", ("tpot_ms", "e2e_ms")), ("p95", ("itl_ms", "e2e_ms")))
        for column in rows.main_columns(
            open_loop=level.open_loop,
            percentiles=(percentile,),
            more=[FIGURES[name] for name in more],
            inputs=level.inputs,
        )
    ]
    return [c for c in columns if c.percentile] + [
        c for c in columns[: len(columns) // 2] if not c.percentile
    ]


def _session_tables(levels: Iterable[rows.LoadLevel]) -> list[HtmlTable]:
    return [_session_table(level, own) for level in levels if (own := sessions.of_sessions(level))]


def _session_table(level: rows.LoadLevel, own: Sequence[ConditionFindings]) -> HtmlTable:
    columns = sessions.columns_of(own)
    body: list[Row] = [
        [
            _row_name(c),
            *(figure_cell(each.cell(c)) for each in columns),
            TableCell(text=sessions.broke(c), look="bad" if c.session and c.session.broken else ""),
        ]
        for c in own
    ]
    head = ["target", *(each.column.heading for each in columns), "broke"]
    return HtmlTable(
        caption=f"{sessions.TITLE} at {level.title.lower()}", head=head, body=body, export=True
    )


def _class_table(run: Run) -> HtmlTable | None:
    body: list[Row] = [
        [
            _target(c),
            rows.load_words(c),
            sessions.class_words(each),
            *(of(each) for _, of in sessions.CLASS_COLUMNS),
        ]
        for c in run.conditions
        if c.session
        for each in c.session.classes
    ]
    head = ["target", "load", "turns with", *(name for name, _ in sessions.CLASS_COLUMNS)]
    return _table(sessions.CLASSES_TITLE, head, body)


def _steps(run: Run) -> HtmlTable | None:
    if run.capacity is None:
        return None
    body: list[Row] = [
        [
            TableCell(text=step.load, look="strong" if step.heaviest else ""),
            *map(figure_cell, step.cells),
            TableCell(
                text=capacity.VERDICTS[step.verdict],
                look="bad" if step.verdict in capacity.BAD else "",
            ),
        ]
        for step in capacity.step_rows(run, run.capacity)
    ]
    head = ["load", *capacity.HEADINGS, *capacity.limit_headings(run.capacity), "verdict"]
    return HtmlTable(caption="The steps, times in ms", head=head, body=body, export=True)


def _savings_table(run: Run) -> HtmlTable | None:
    if not run.cache_savings:
        return None
    body: list[Row] = [
        [
            TableCell(text=row.target, target=True),
            row.load,
            *(
                TableCell(
                    text=c.figure,
                    notes=[*filter(None, (c.remark, c.interval))],
                    look="weak" if c.weak else "",
                )
                for c in row.cells
            ),
        ]
        for row in savings.saving_rows(run)
    ]
    return HtmlTable(caption=savings.TITLE, head=["target", "load", *savings.HEADINGS], body=body)


def _use_table(run: Run) -> HtmlTable | None:
    looks = {"red": "bad", "yellow": "weak"}
    body: list[Row] = [
        [
            TableCell(
                text=row.target,
                target=True,
                notes=[f"workload {row.workload}"] if row.workload else [],
            ),
            *(
                TableCell(text=c.text, notes=[c.load] if c.load else [], look=looks.get(c.look, ""))
                for c in row.cells
            ),
        ]
        for row in use_matrix.use_matrix(run)
    ]
    names = use_matrix.use_names(run)
    head = ["target", *(f"{name}\n{limit_words(name, brief=True)}" for name in names)]
    return HtmlTable(caption=use_matrix.TITLE, head=head, body=body) if body else None


def _errors(run: Run, levels: Sequence[rows.LoadLevel]) -> HtmlTable | None:
    body: list[Row] = [
        [
            _target(c),
            rows.load_words(c),
            kind,
            f"{count:,} of {c.requests:,}",
            c.error_examples.get(kind, MISSING),
        ]
        for level in levels
        for c in level.conditions
        for kind, count in c.error_kinds.items()
    ]
    head = ["target", "load", "class", "requests", "example"]
    return HtmlTable(caption="Errors by class", head=head, body=body, prose=True) if body else None


def _settings(run: Run) -> list[HtmlTable]:
    run_settings = [(name.removeprefix("settings."), value) for name, value in rows.flat(run.asked)]
    tables = []
    for caption, settings in (
        ("Settings", run_settings),
        ("Environment", rows.flat(run.environment)),
    ):
        body = [(name, value) for name, value in settings if not name.startswith(SHOWN_ELSEWHERE)]
        if body:
            tables.append(HtmlTable(caption=caption, head=["name", "value"], body=body, prose=True))
    return tables


def _condition_tables(
    run: Run,
    tables: Iterable[tuple[str, Iterable[Column]]],
    conditions: Sequence[ConditionFindings] | None = None,
) -> list[HtmlTable]:
    selected = run.conditions if conditions is None else conditions
    chosen = {c.condition for c in selected}
    html_tables = []
    for caption, columns in tables:
        nonempty = [(name, of) for name, of in columns if any(of(c) != MISSING for c in selected)]
        if nonempty:
            body: list[Row] = [
                [_target(c), rows.load_words(c), *(of(c) for _, of in nonempty)]
                for level in rows.levels(run)
                for c in level.conditions
                if c.condition in chosen
            ]
            head = ["target", "load", *(name for name, _ in nonempty)]
            html_tables.append(HtmlTable(caption=caption, head=head, body=body, export=True))
    return html_tables


def _money_tables(run: Run) -> list[HtmlTable]:
    return _condition_tables(run, MONEY, [c for c in run.conditions if c.cost_usd is not None])


def _cost_card(run: Run) -> list[HtmlTable]:
    card_rows = call_costs.cost_card_rows(cost_card(run.conditions))
    head = ["target", *call_costs.cost_card_headings()]
    body: list[Row] = [[TableCell(text=name, target=True), *cells] for name, *cells in card_rows]
    return [*filter(None, [_table(call_costs.TITLE, head, body)])]


def _figure(name: str, percentile: str = "p50") -> Callable[[ConditionFindings], str]:
    return lambda condition: figure_cells.cell(getattr(condition, name), percentile).figure


def _node_tables(run: Run) -> list[HtmlTable]:
    body: list[Row] = [
        [_target(c), rows.load_words(c), node.node, *(of(node) for _, of in NODE)]
        for level in rows.levels(run)
        for c in level.conditions
        for node in c.nodes
    ]
    head = ["target", "load", "node", *(name for name, _ in NODE)]
    return [*filter(None, [_table("The instrument of each node, times in ms", head, body)])]


def _metric_tables(run: Run) -> list[HtmlTable]:
    def figure(column: rows.MetricColumn) -> Callable[[ConditionFindings], str]:
        return lambda condition: column.cell(condition).figure

    tables: dict[str, list[Column]] = {
        group: [(column.heading, figure(column)) for column in rows.listed_columns(group)]
        for group in GROUPS
    }
    tables["Tokens per request"].append(("counted by", lambda c: c.token_source or MISSING))
    return _condition_tables(run, tables.items())


def _stage_columns(run: Run) -> list[Column]:
    def stage(name: str) -> Callable[[ConditionFindings], str]:
        return lambda condition: number(condition.phases_ms.get(name))

    return [(STAGES[name], stage(name)) for name in stages_of(run)]


def _server_tables(run: Run) -> list[HtmlTable]:
    def reported(name: str) -> Callable[[ConditionFindings], str]:
        return lambda condition: number(condition.server_ms.get(name))

    names = dict.fromkeys(name for c in run.conditions for name in c.server_ms)
    measured: list[Column] = [
        ("TTFT, measured", _figure("ttft_ms")),
        ("E2E, measured", _figure("e2e_ms")),
    ]
    columns = [
        *measured,
        *((f"{rows.server_step(name)}, reported", reported(name)) for name in names),
    ]
    telling = [c for c in run.conditions if c.server_ms]
    return (
        _condition_tables(run, [("Times that servers report, p50 in ms", columns)], telling)
        if names
        else []
    )


def _output_share(condition: ConditionFindings) -> str:
    tokens_in, tokens_out = condition.input_tokens, condition.output_tokens
    return (
        MISSING
        if tokens_in is None or not tokens_out
        else figure_cells.share(tokens_out / (tokens_in + tokens_out))
    )


def _cached_share(condition: ConditionFindings) -> str:
    cached, tokens_in = condition.cached_tokens, condition.input_tokens
    return MISSING if cached is None or not tokens_in else figure_cells.share(cached / tokens_in)


MONEY: Sequence[tuple[str, Sequence[Column]]] = (
    (
        "Cost, US dollars",
        (
            ("per million tokens", rows.per_million),
            ("per million output tokens", lambda c: usd(c.usd_per_million_output)),
            ("per request", lambda c: usd(c.usd_per_request)),
            ("output tokens per dollar", lambda c: number(TOTALS["tokens_per_usd"].value(c))),
            ("cost-adjusted TPS", lambda c: number(TOTALS["cost_adjusted_tps"].value(c))),
            ("output share of tokens", _output_share),
            ("cached share of input", _cached_share),
            ("this row", lambda c: rows.cost(c) or MISSING),
        ),
    ),
)


def _clock(of: Instrument) -> str:
    if of.packet_time:
        return "packets"
    return "kernel" if of.kernel_time else "at the read"


_INSTRUMENT: Mapping[str, Callable[[Instrument], str]] = {
    "arrival times": _clock,
    "priority": lambda i: i.priority or MISSING,
    "merged first tokens": lambda i: f"{i.first_tokens_merged:,}",
    "sparse reads": lambda i: f"{i.sparse:,}",
    "merged last tokens": lambda i: f"{i.last_tokens_merged:,}",
    "read lag p50": lambda i: number(i.lag_p50_ms),
    "read lag p99": lambda i: number(i.lag_p99_ms),
    "read lag max": lambda i: number(i.lag_max_ms),
    "sent late p50": lambda i: number(i.late_p50_ms),
    "sent late p99": lambda i: number(i.late_p99_ms),
    "in flight": lambda i: number(i.in_flight),
    "CPU wait": lambda i: figure_cells.share(i.runqueue_wait_share),
    "CPU": lambda i: figure_cells.share(i.cpu_share),
    "CPU per 1,000 tokens": lambda i: number(i.cpu_ms_per_1000_tokens),
    "GC runs": lambda i: f"{i.collections:,}",
}
_OF_NODES = (
    "priority", "read lag p50", "read lag p99", "sent late p99", "in flight", "CPU wait",
    "CPU per 1,000 tokens",
)  # fmt: skip


def _of_row(name: str) -> Column:
    return name, lambda c: _INSTRUMENT[name](c.instrument)


def _of_node(name: str) -> tuple[str, Callable[[NodeFindings], str]]:
    return name, lambda node: _INSTRUMENT[name](node.instrument)


INSTRUMENT = (("The instrument in each row, times in ms", [*map(_of_row, _INSTRUMENT)]),)
NODE: Sequence[tuple[str, Callable[[NodeFindings], str]]] = (
    ("requests", lambda node: f"{node.requests:,}"),
    ("errors", lambda node: f"{node.errors:,}"),
    ("TTFT p50", lambda node: number(node.ttft_p50_ms)),
    ("clock known to ±", lambda node: number(node.clock_error_ms)),
    *map(_of_node, _OF_NODES),
    ("INVALID", lambda node: " ".join(node.invalid) or MISSING),
)
