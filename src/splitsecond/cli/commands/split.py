from functools import partial
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from splitsecond.benchmark.report.tables import print_item, print_table
from splitsecond.cli.log_source import LoggedTraffic, days_of
from splitsecond.cli.options import Config, Csv, Json, Log, Markdown, Since, Today
from splitsecond.cli.replaying import LoggedRoute
from splitsecond.cli.results import Output
from splitsecond.cli.what_if_screen import HEADINGS, figures_table, route_in_words
from splitsecond.core.errors import printable
from splitsecond.core.money.cost import usd
from splitsecond.core.wording import MISSING, change, counted_as, number, percent
from splitsecond.replay.arms import (
    SHARE_SCALE,
    SHARES,
    ArmChange,
    SplitComparison,
    compare_arms,
)
from splitsecond.routing.construction.expression import first
from splitsecond.routing.machinery.settings import Share

MAX_CALLS = 200_000
POINTS = " points"
LOOKS = {"better": "green", "worse": "red", "same": "", "cannot tell": "dim"}


def split(
    log: Log = "",
    config: Config = None,
    since: Since = "14d",
    route: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The split route. Default: the first one of the configuration."
        ),
    ] = "",
    today: Today = "",
    within: Annotated[
        str, typer.Option(metavar="SHARE", help="Changes that are surely smaller are the same.")
    ] = "5%",
    calls: Annotated[
        int,
        typer.Option(min=1000, metavar="N", help="Most calls to read: whole hours, evenly spread."),
    ] = MAX_CALLS,
    json: Json = "",
    csv: Csv = "",
    markdown: Markdown = "",
) -> None:
    """Compare the two policies of a split route: an A/B of live traffic.

    \b
    splitsecond split --since 7d
    splitsecond split --route chat --within 10%
    splitsecond split --log splitsecond.db --route chat --today 'split("a/m", "b/m", share="10%")'

    The calls of each arm, by the log: time to first token, completion, cost, failures, and clients
    that left. Sessions or keys were assigned, not calls, so the intervals are those of sessions or
    keys. Each figure is better, worse or the same within 5%. Otherwise the log cannot tell, and the
    change is named that would have been seen.
    """
    output = Output(json=json, csv=csv, markdown=markdown)
    output.check()
    limit = Share.parse("--within", within).value
    logged = LoggedTraffic(log, config, days_of(since))
    read = LoggedRoute(logged, route or _split_route(logged), today, calls)
    facts = logged.facts(read.requests.targets)
    result = compare_arms(read.requests, read.now, facts, route=read.name, within=limit)

    output.show(result, lambda: result.figures, partial(print_split, result))


def _split_route(logged: LoggedTraffic) -> str:
    """Return the route of the log, the most frequent first, whose policy has a split; "": none."""
    for name, _ in logged.routes():
        policy = logged.policy(name)
        if policy is not None and first(policy, "split") is not None:
            return name
    return ""


def print_split(comparison: SplitComparison, console: Console) -> None:
    print_item(console, "", f"{route_in_words(comparison)}: {printable(comparison.policy)}")
    for name, arm in zip(("first", "second"), comparison.arms, strict=True):
        units = counted_as(arm.units, comparison.by)
        calls = counted_as(arm.calls, "call")
        print_item(console, "  ", f"{name}: {printable(arm.policy)}, {calls} of {units}")
    if comparison.others:
        words = f"{counted_as(comparison.others, 'call')} of the route went to no arm: left out."
        print_item(console, "  ", words, "dim")
    table = figures_table(("first", "second"), "change (95% interval)", "second is")
    for each in comparison.figures:
        cells = (_text(each, each.first), _text(each, each.second), _changed(each))
        table.add_row(_name(each), *cells, Text(_verdict(each, comparison), LOOKS[each.verdict]))
    console.print()
    print_table(table, console)
    if comparison.refused:
        print_item(console, "", f"Nothing is tested: {printable(comparison.refused)}.", "yellow")
    unsure = [
        f"{_name(each)} {_size(each, each.detectable)}"
        for each in comparison.figures
        if each.verdict == "cannot tell" and each.detectable is not None
    ]
    if unsure:
        words = "Cannot tell: these changes would have been seen four times in five: "
        print_item(console, "", f"{words}{', '.join(unsure)}.")


def _name(figure: ArmChange) -> str:
    return HEADINGS.get(figure.name, "client left")


def _verdict(figure: ArmChange, comparison: SplitComparison) -> str:
    if figure.change is None:
        return MISSING
    if figure.verdict != "same":
        return figure.verdict
    if figure.name in SHARES:
        return f"same within {number(comparison.within * SHARE_SCALE * 100)} points"
    return f"same within {percent(comparison.within)}"


def _text(figure: ArmChange, value: float | None) -> str:
    if value is None:
        return MISSING
    if figure.name in SHARES:
        return percent(value)
    return usd(value) if figure.name == "usd_per_1000" else number(value)


def _changed(figure: ArmChange) -> str:
    if figure.change is None or figure.ci95 is None:
        return MISSING
    low, high = (_size(figure, each).removesuffix(POINTS) for each in figure.ci95)
    return f"{_size(figure, figure.change)} ({low} to {high})"


def _size(figure: ArmChange, value: float) -> str:
    if figure.name not in SHARES:
        return change(value)
    sign = "+" if value > 0 else "−" if value < 0 else ""
    return f"{sign}{number(abs(value) * 100)}{POINTS}"
