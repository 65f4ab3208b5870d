"""Production speeds and recommendations on a terminal."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from splitsecond.analysis.cost import usd
from splitsecond.analysis.findings import Spread
from splitsecond.analysis.production import Speed
from splitsecond.analysis.recommendation import BATCH, Candidate, Keeps, Recommendation
from splitsecond.report.rows import MISSING, cell, number, printable, share
from splitsecond.report.terminal import MORE_THAN_ANY_CONSOLE, SHORTEST_NAME, broken

GRADE_LOOKS = {1: "bold green", 2: "green", 3: "", 4: "yellow", 5: "red"}
_KEEPS: dict[Keeps, tuple[str, str]] = {"yes": ("yes", "green"), "unsure": ("perhaps", "yellow"), "no": ("no", "red")}
_FEWER = ("", "TPS p50", "total TPS\np95", "TTFT p50\nms")
"""Columns that a narrow console does without, in this order, each with those before it."""


def speed_table(speeds: Sequence[Speed], console: Console) -> None:
    """Print one row for each name, with its grade; dim what was not asked often enough for one."""
    tables = [
        _speeds(speeds, frozenset(_FEWER[: left_out + 1]), beside=beside)
        for left_out in range(len(_FEWER))
        for beside in (True, False)
    ]
    console.print(_fitting(console, tables))
    for line in _remarks(speeds):
        console.print(Text(line, "dim"))


def _speeds(speeds: Sequence[Speed], left_out: frozenset[str], *, beside: bool) -> Table:
    """`beside`: intervals stand beside their figures, else beneath them."""
    columns: dict[str, list[Text]] = {
        "grade": [_grade(speed) for speed in speeds],
        "total TPS\np50": [_figure(speed.total_tps, "p50", beside=beside) for speed in speeds],
        "total TPS\np95": [_figure(speed.total_tps, "p95", beside=beside) for speed in speeds],
        "TTFT p50\nms": [_figure(speed.ttft_ms, "p50", beside=beside) for speed in speeds],
        "TTFT p95\nms": [_figure(speed.ttft_ms, "p95", beside=beside) for speed in speeds],
        "TPS p50": [_figure(speed.tps, "p50", beside=beside) for speed in speeds],
        "requests": [Text(f"{speed.requests:,}") for speed in speeds],
        "failed": [Text(share(speed.error_share), "red") if speed.failed else Text("0") for speed in speeds],
        "$/M\ntokens": [Text(usd(speed.usd_per_million)) for speed in speeds],
    }
    shown = {heading: texts for heading, texts in columns.items() if heading not in left_out}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    narrow = len(left_out) == len(_FEWER)
    table.add_column("target", overflow="fold", no_wrap=not narrow)
    for heading in shown:
        table.add_column(heading, justify="right", no_wrap=True)
    for speed, *row in zip(speeds, *shown.values(), strict=True):
        table.add_row(_name(speed.name, narrow=narrow), *row, style="" if speed.grade is not None else "dim")
    return table


def _name(name: str, *, narrow: bool) -> Text:
    return Text(broken(printable(name), SHORTEST_NAME) if narrow else printable(name))


def _figure(spread: Spread, percentile: str, *, beside: bool) -> Text:
    found = cell(spread, percentile)
    text = Text(found.figure, "dim" if found.needs else "")
    return text.append(("  " if beside else "\n") + found.interval, "dim") if found.interval else text


def recommendation_table(found: Recommendation, console: Console) -> None:
    """Print what to take for one use, who else there is, and the policy that chooses among them."""
    bears = f"TTFT p95 within {number(found.limit_ms)} ms"
    bears += "" if found.good_ms is None else f", good below {number(found.good_ms)}"
    if found.use == BATCH:
        bears = "nobody waits: the price decides"
    console.print(Text.assemble((found.use, "bold"), (f"   {bears}", "dim")))
    if not found.fastest:
        console.print(Text("  Nothing that was measured can be recommended for it.", "yellow"))
    elif found.cheapest in ("", found.fastest):
        also = " It is the cheapest, too." if found.cheapest and _several(found.candidates) else ""
        console.print(Text(f"  Take {printable(found.fastest)}.{also}"))
    else:
        console.print(Text(f"  Fastest: {printable(found.fastest)}. Cheapest: {printable(found.cheapest)}."))
    if found.policy:
        console.print(Text(f"  policy: {printable(found.policy)}", "cyan"), soft_wrap=True)
    if found.candidates:
        console.print(_fitting(console, [_candidates(found.candidates, beside=beside) for beside in (True, False)]))


def _candidates(candidates: Sequence[Candidate], *, beside: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("target", overflow="fold", no_wrap=beside)
    for heading in ("keeps\nto it", "TTFT p95\nms", "total TPS\np50", "$/M\ntokens", "requests"):
        table.add_column(heading, justify="right", no_wrap=True)
    explained = any(c.why for c in candidates)
    if explained:
        table.add_column("why not" if beside else "", overflow="fold", no_wrap=beside, max_width=None if beside else 16)
    for c in candidates:
        word, look = _KEEPS[c.keeps]
        bounds = "" if c.ci95 == (None, None) else "–".join("?" if b is None else number(b) for b in c.ci95)
        wait = Text(number(c.ttft_p95_ms))
        table.add_row(
            _name(c.target, narrow=not beside),
            Text(word, look),
            wait.append(("  " if beside else "\n") + bounds, "dim") if bounds else wait,
            Text(number(c.total_tps)),
            Text(usd(c.usd_per_million)),
            Text(f"{c.requests:,}"),
            *([Text(printable(c.why), "dim")] if explained else []),
        )
    return table


def _fitting(console: Console, tables: Sequence[Table]) -> Table:
    """The first of the tables that the console has room for, else the last."""
    unlimited = console.options.update(max_width=MORE_THAN_ANY_CONSOLE)
    fitting = (table for table in tables if console.measure(table, options=unlimited).maximum <= console.width)
    return next(fitting, tables[-1])


def _several(candidates: Sequence[Candidate]) -> bool:
    return sum(c.keeps == candidates[0].keeps for c in candidates) > 1


def _grade(speed: Speed) -> Text:
    if speed.grade is None:
        return Text(MISSING)
    between = "–".join(map(str, sorted({speed.grades[0], speed.grades[-1]}))) if len(speed.grades) > 1 else ""
    return Text.assemble((str(speed.grade), GRADE_LOOKS[speed.grade]), (f" ({between})" if between else "", "dim"))


def _remarks(speeds: Sequence[Speed]) -> list[str]:
    few = [speed for speed in speeds if speed.needs]
    said = [f"No grade below {few[0].needs:,} answers: {len(few)} of {len(speeds)}."] if few else []
    if any(speed.ttft_closed for speed in speeds):
        said.append("Requests closed before their first token count in TTFT as longer than they were waited for.")
    events = [speed.name for speed in speeds if speed.token_source.get("events")]
    if events:
        said.append(f"Tokens counted by events where the provider says none: {', '.join(events)}.")
    return said
