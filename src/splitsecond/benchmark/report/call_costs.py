from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from splitsecond.benchmark.findings.call_costs import CARD_CALLS, CallCost
from splitsecond.benchmark.report.tables import (
    add_columns,
    name_text,
    print_item,
    print_table,
    titled_table,
)
from splitsecond.benchmark.report.use_matrix import short_load
from splitsecond.core.money.cost import usd
from splitsecond.core.wording import listed

NOTE = (
    "The calls have the run's own lengths. Retries, and a discount for cached prompts that the run "
    "did not have, are not included."
)
TITLE = "What so many calls a day cost in 30 days"


def cost_card_rows(card: Mapping[str, Sequence[CallCost]]) -> list[tuple[str, ...]]:
    """Return target, load, cost of a call, and the cost of `CARD_CALLS` in 30 days."""
    return [
        (
            target,
            costs[-1].load,
            usd(costs[-1].usd_per_call),
            *(usd(each.usd_per_30_days) for each in costs),
        )
        for target, costs in card.items()
    ]


def cost_card_headings() -> list[str]:
    return ["at", "a call", *(f"{calls:,} a day" for calls in CARD_CALLS)]


def print_cost_card(card: Mapping[str, Sequence[CallCost]], console: Console) -> None:
    if not card:
        return
    table = titled_table(TITLE)
    table.add_column("target", no_wrap=True)
    add_columns(table, dict.fromkeys(cost_card_headings()))
    for target, at, *amounts in cost_card_rows(card):
        table.add_row(name_text(target, 0), short_load(at), *map(Text, amounts))
    print_table(table, console)
    print_item(console, "", NOTE, "dim")
    console.print()


def call_costs_table(costs: Sequence[CallCost], calls: str, console: Console) -> None:
    priced = [each for each in costs if each.usd_per_day is not None]
    table = titled_table(f"What {calls} cost")
    machines = any(each.machines for each in priced)
    headings = ("at", "$ per\ncall", "$ a day", "$ in\n30 days", "machines")
    table.add_column("target", no_wrap=True)
    add_columns(table, dict.fromkeys(headings), set() if machines else {"machines"})
    for each in priced:
        amounts = (usd(each.usd_per_call), usd(each.usd_per_day), usd(each.usd_per_30_days))
        count = [str(each.machines or "")] if machines else []
        table.add_row(name_text(each.target, 0), short_load(each.load), *map(Text, amounts), *count)
    if priced:
        print_table(table, console)
        print_item(console, "", NOTE, "dim")
    unknown = [each.target for each in costs if each.usd_per_day is None]
    if unknown:
        print_item(
            console, "", f"No price is known of {listed(unknown)}: measure with --price.", "yellow"
        )
    if not costs:
        print_item(console, "", "No row can be relied on.", "yellow")
