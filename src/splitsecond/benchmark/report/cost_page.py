from collections.abc import Sequence

from splitsecond.benchmark.report.production import spending_columns, spending_remarks
from splitsecond.core.errors import CallerFault
from splitsecond.core.money.cost import usd
from splitsecond.core.pages.chart import LegendEntry, target_entries
from splitsecond.core.pages.figure_cells import share
from splitsecond.core.pages.html import Badge, Headline, HtmlTable, TableCell, Tile, render
from splitsecond.core.pages.png import png
from splitsecond.core.wording import counted_as
from splitsecond.log.production.speed_and_price import SpeedAndPrice
from splitsecond.log.production.spending import Spending
from splitsecond.log.report.price_plot import speed_against_price

SOLD = ("target", "model", "provider")


def price_entries(prices: SpeedAndPrice | None) -> dict[str, LegendEntry]:
    return target_entries([point.target for point in prices.targets] if prices else [])


def cost_png(prices: SpeedAndPrice | None) -> bytes:
    """Return speed against price as a PNG file. Raises `CallerFault` for too few targets, or
    without the extra."""
    entries = price_entries(prices)
    for drawn in speed_against_price(prices, entries):
        return png(drawn, entries)
    raise CallerFault("fewer than two targets have a speed and a price", kind="nothing_to_draw")


def render_cost(
    rows: Sequence[Spending],
    total: Spending,
    prices: SpeedAndPrice | None,
    statements: Sequence[str],
    *,
    by: str,
    period: str,
    outlook: str,
) -> str:
    entries = price_entries(prices)
    every = [*rows, *([total] if len(rows) > 1 else [])]
    columns = spending_columns(every, total)
    body = [
        [TableCell(text=row.name or "(no name)", target=row.name in entries), *cells]
        for row, *cells in zip(every, *columns.values(), strict=True)
    ]
    head = [by, *(heading.replace("\n", " ") for heading in columns)]
    calls = counted_as(total.calls, "call")
    return render(
        "cost.html",
        speed_against_price(prices, entries),
        {"targets": entries},
        headline=_headline(rows, total, by),
        title="Cost of LLM calls",
        lead=f"{calls} with {counted_as(total.attempts, 'attempt')}, {period}. {outlook}".strip(),
        statements=statements,
        costs=HtmlTable(caption="Cost", head=head, body=body, export=True),
        lines=spending_remarks(total),
    )


def _headline(rows: Sequence[Spending], total: Spending, by: str) -> Headline:
    spent = total.usd + total.rented_usd
    tiles = [
        Tile(label="cost of all calls", value=usd(spent), note=counted_as(total.calls, "call")),
        Tile(label="cost of a call", value=usd(total.usd_per_call)),
        Tile(
            label="cost of a million tokens",
            value=usd(total.usd_per_million),
            note="input and output as they were",
        ),
    ]
    lost = f"{share(total.lost_usd / spent)} of the cost was lost" if total.lost_usd else ""
    unpriced = f"{counted_as(total.unpriced, 'attempt')} without a price" if total.unpriced else ""
    sentences = [
        _main_finding(rows, total, by),
        f"{lost} on responses that nobody used." if lost else "",
    ]
    return Headline(
        sentence=" ".join(filter(None, sentences)),
        tiles=tiles,
        badge=Badge(text=unpriced, look="warn") if unpriced else None,
    )


def _main_finding(rows: Sequence[Spending], total: Spending, by: str) -> str:
    spent = total.usd + total.rented_usd
    if not spent:
        return "" if total.attempts > total.unpriced else "No price is known."
    prices = sorted((row.usd_per_million, row.name) for row in rows if row.usd_per_million)
    if by in SOLD and len(prices) > 1:
        (least, cheapest), (more, following) = prices[:2]
        among = " of those with a price" if len(prices) < len(rows) else ""
        of_next = f"{usd(more)} at the next, {following}"
        return f"{cheapest} is the cheapest{among}: {usd(least)} per million tokens, {of_next}."
    most = max(rows, key=lambda row: row.usd + row.rented_usd)
    if len(rows) > 1:
        return (
            f"{most.name or '(no name)'} has {share((most.usd + most.rented_usd) / spent)} of "
            "the cost."
        )
    return f"{counted_as(total.calls, 'call')} cost {usd(spent)}."
