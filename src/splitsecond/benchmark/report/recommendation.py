from collections.abc import Callable
from functools import partial

from rich.console import Console
from rich.table import Table
from rich.text import Text

from splitsecond.benchmark.findings.recommendation import asked_for, limit_words, quality_sentence
from splitsecond.benchmark.report.production import figure_text, print_fitting, table_of_names
from splitsecond.benchmark.report.tables import add_columns, name_text, print_item
from splitsecond.benchmark.report.use_matrix import KEEPS, short_load
from splitsecond.benchmark.rows.records import Recommendation, TargetRating
from splitsecond.core.money.cost import usd_or_free
from splitsecond.core.pages.figure_cells import (
    MISSING,
    FigureCell,
    interval_text,
    number,
    safe_text,
)

WHY_NOT = "why not"
_FEWER = (WHY_NOT, "output\ntokens/$", "requests", "TPS\np50", "TTFT p95\nms", "$/M\ntokens", "at")


def recommendation_table(choice: Recommendation, console: Console) -> None:
    limit = limit_words(choice.use) + (
        "" if choice.good_ms is None else f", good below {number(choice.good_ms)}"
    )
    loads = {c.load for c in choice.candidates}
    at = f" at {loads.pop()}" if len(loads) == 1 and "" not in loads else ""
    console.print(Text.assemble((asked_for(choice) + at, "bold"), (f"   {limit}", "dim")))
    console.print(_choice(choice))
    if choice.smallest:
        console.print(Text(f"  Smallest that is good enough: {safe_text(choice.smallest)}."))
    if choice.policy:
        console.print(Text(f"  policy: {safe_text(choice.policy)}", "cyan"), soft_wrap=True)
    if front := quality_sentence(choice):
        print_item(console, "  ", front)
    for line in choice.would_change:
        print_item(console, "  ", line, "dim")
    if choice.candidates and not print_fitting(
        console, partial(_candidates, choice), _FEWER, shown_elsewhere=WHY_NOT
    ):
        for c in choice.candidates:
            if c.why:
                print_item(console, "  ", f"{c.target}: {c.why}", "dim")


def _choice(choice: Recommendation) -> Text:
    if not choice.fastest:
        return Text("  No measured target can be recommended.", "yellow")
    if choice.cheapest in ("", choice.fastest):
        several = sum(c.keeps == choice.candidates[0].keeps for c in choice.candidates) > 1
        also = " It is also the cheapest." if choice.cheapest and several else ""
        return Text(f"  Recommended: {safe_text(choice.fastest)}.{also}")
    return Text(f"  Best: {safe_text(choice.fastest)}. Cheapest: {safe_text(choice.cheapest)}.")


def _candidates(
    choice: Recommendation, left_out: frozenset[str], beside: bool, name_width: int
) -> Table:
    table = table_of_names("target", name_width)
    columns = add_columns(table, _columns(choice, beside), left_out)
    if WHY_NOT not in left_out and any(c.why for c in choice.candidates):
        table.add_column(WHY_NOT, no_wrap=True)
        columns.append([Text(safe_text(c.why), "dim") for c in choice.candidates])
    for c, *row in zip(choice.candidates, *columns, strict=True):
        table.add_row(name_text(c.target, name_width), *row)
    return table


def _columns(choice: Recommendation, beside: bool) -> dict[str, list[Text]]:
    rated = choice.candidates
    limit = next(iter(choice.limits or ()), "")
    heading, scale = _JUDGED.get(limit, ("", 1))
    priced = any(c.usd_per_million is not None for c in rated)
    columns: list[tuple[str, bool, Callable[[TargetRating], Text]]] = [
        ("meets\nlimit", True, lambda c: Text(*KEEPS[c.keeps])),
        ("at", len({c.load for c in rated}) > 1, lambda c: Text(short_load(c.load))),
        ("TTFT p95\nms", limit != "ttft", lambda c: Text(number(c.ttft_p95_ms))),
        (
            heading.format(choice.percentile),
            bool(limit),
            lambda c: _judged(c, scale, beside=beside),
        ),
        ("TPS\np50", limit != "tps", lambda c: Text(number(c.tps))),
        ("output\ntokens/$", priced, lambda c: Text(number(c.tokens_per_usd))),
        ("$/M\ntokens", priced, lambda c: Text(usd_or_free(c.usd_per_million))),
        ("quality", any(c.quality is not None for c in rated), _quality),
        ("requests", True, lambda c: Text(f"{c.requests:,}")),
    ]
    return {heading: [text(c) for c in rated] for heading, applies, text in columns if applies}


def _quality(c: TargetRating) -> Text:
    return Text(MISSING if c.quality is None else f"{c.quality:g}")


_JUDGED = {"ttft": ("TTFT {}\nms", 1), "tps": ("TPS {}", 1), "agent": ("agent {}\ns", 1000)}


def _judged(c: TargetRating, scale: int, *, beside: bool) -> Text:
    def scaled(value: float | None) -> str:
        return number(None if value is None else value / scale)

    return figure_text(
        FigureCell(figure=scaled(c.value), interval=interval_text(c.ci95, scaled)), beside=beside
    )
