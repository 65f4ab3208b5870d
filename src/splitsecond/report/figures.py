"""The figures of the HTML report: for each load a table of those that are asked for first, with how sure they are; all
others a click away.
"""

from collections.abc import Callable, Iterable, Sequence

from splitsecond.analysis.cost import usd
from splitsecond.analysis.findings import ConditionFindings, Run, Spread
from splitsecond.report import rows
from splitsecond.report.markup import Markup, tag
from splitsecond.report.rows import MISSING, number
from splitsecond.report.tables import Column, condition_table, named, section, table, weak

ONE_TOKEN_PER_EVENT = 1.05
"""Up to this many tokens per event a stream counts as one token at a time."""


def figures_section(run: Run, legend: Markup) -> Markup:
    """The tables of what was measured; `legend`: the targets and their colours."""
    parts = [legend]
    for level in rows.levels(run):
        head = ["target", "TTFT p50, ms", "TPS p50", "TTFT p95, ms", "TPS p95", "system tokens/s", "errors"]
        head += ["$ a million tokens"] if rows.priced(run) else []
        caption = f"Figures at {level.title.lower()}"
        body = [_row(run, c) for c in level.conditions]
        parts += [tag("h3", level.heading), table(caption, head, body), *_remarks(level)]
    note = (
        "Beneath a figure stands its 95 % confidence interval. A figure in grey rests on too few requests. "
        "p95 of TPS is the slow tail: 95 % of requests were at least this fast."
    )
    more = tag("details", tag("summary", "More figures"), *(_more(run)))
    return section("figures", "Figures", *parts, tag("p", note, class_="note"), more)


def _remarks(level: rows.Level) -> list[Markup]:
    """What stands beneath a table; why a row is INVALID stands in the banner, and errors have a section."""
    said = [
        tag("li", f"{remark.who}: {remark.text}" if remark.who else remark.text[:1].upper() + remark.text[1:])
        for remark in rows.remarks(level)
        if remark.kind == "note"
    ]
    return [tag("ul", *said, class_="remarks")] if said else []


def _row(run: Run, condition: ConditionFindings) -> Markup:
    figures: list[tuple[Spread, str]] = [
        (rows.ttft(condition), "p50"),
        (condition.tps, "p50"),
        (rows.ttft(condition), "p95"),
        (condition.tps, "p95"),
    ]
    name = named(run, condition.target)
    money = [tag("td", usd(condition.usd_per_million))] if rows.priced(run) else []
    if condition.invalid:
        name.append(tag("a", "INVALID", class_="badge", href="#invalid"))
    cells = [
        tag("th", *name, scope="row"),
        *(_cell(spread, percentile) for spread, percentile in figures),
        tag("td", number(condition.output_tokens_per_s)),
        tag("td", rows.errors(condition), **({"class_": "bad"} if condition.errors else {})),
        *money,
    ]
    return tag("tr", *cells)


def _cell(spread: Spread, percentile: str) -> Markup:
    cell = rows.cell(spread, percentile)
    content = [cell.figure, *([tag("small", cell.interval)] if cell.interval else [])]
    return tag("td", *content, **weak(bool(cell.needs)))


def percentile_of(
    of: Callable[[ConditionFindings], Spread], percentile: str = "p50"
) -> Callable[[ConditionFindings], str]:
    """Of a condition that percentile, without its interval."""
    return lambda condition: rows.cell(of(condition), percentile).figure


def _itl_per_token(condition: ConditionFindings, percentile: str) -> str:
    """Only where it is another figure than the raw one."""
    apart = (condition.tokens_per_event or 1.0) > ONE_TOKEN_PER_EVENT
    return rows.cell(condition.itl_per_token_ms, percentile).figure if apart else MISSING


MORE: Sequence[tuple[str, Sequence[Column]]] = (
    (
        "Waiting, ms",
        (
            ("TTFT p99", percentile_of(lambda c: c.ttft_ms, "p99")),
            ("TTFT cold p50", percentile_of(lambda c: c.ttft_cold_ms)),
            ("TTFT from due p50", percentile_of(lambda c: c.ttft_due_ms)),
            ("first answer p50", percentile_of(lambda c: c.first_answer_ms)),
            ("E2E p50", percentile_of(lambda c: c.e2e_ms)),
            ("E2E p95", percentile_of(lambda c: c.e2e_ms, "p95")),
            ("response p95", percentile_of(lambda c: c.response_ms, "p95")),
        ),
    ),
    (
        "Pace",
        (
            ("TPOT p50, ms", percentile_of(lambda c: c.tpot_ms)),
            ("ITL p50, ms", percentile_of(lambda c: c.itl_ms)),
            ("ITL p95, ms", percentile_of(lambda c: c.itl_ms, "p95")),
            ("ITL p99, ms", percentile_of(lambda c: c.itl_ms, "p99")),
            ("ITL per token p50, ms", lambda c: _itl_per_token(c, "p50")),
            ("ITL per token p95, ms", lambda c: _itl_per_token(c, "p95")),
            ("total TPS p50", percentile_of(lambda c: c.total_tps)),
            ("tokens per event", lambda c: number(c.tokens_per_event)),
        ),
    ),
    (
        "System",
        (
            ("tokens/s, whole run", lambda c: number(c.output_tokens_per_s_whole)),
            ("requests/s", lambda c: number(c.requests_per_s)),
            ("steady window, s", lambda c: number(c.steady_s)),
            ("batching efficiency", lambda c: number(c.batching_efficiency)),
            ("goodput", lambda c: rows.share(c.goodput.fraction) if c.goodput else MISSING),
        ),
    ),
    (
        "Tokens of a request",
        (
            ("in", lambda c: number(c.input_tokens)),
            ("of them cached", lambda c: number(c.cached_tokens)),
            ("out", lambda c: number(c.output_tokens)),
            ("of them reasoning", lambda c: number(c.reasoning_tokens)),
            ("counted by", lambda c: c.token_source or MISSING),
        ),
    ),
)


def _more(run: Run) -> Iterable[Markup]:
    """Every other figure, without its interval. A column that no condition fills is left out."""
    for heading, columns in MORE:
        yield from condition_table(run, heading, columns)
