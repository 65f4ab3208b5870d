"""`splitsecond cost`: where the gateway's money went."""

from typing import Annotated

import typer

from splitsecond.cli.options import Days, Log, LogConfig, LogJson
from splitsecond.cli.traffic import DAYS

DAY_S = 86_400.0
LEAST_S = 3_600.0
"""Of less than an hour nothing is said of a month."""


def cost(
    log: Log = "",
    config: LogConfig = None,
    days: Days = DAYS,
    by: Annotated[str, typer.Option(help="One row for each target, model, provider, route, client or day.")] = "target",
    json: LogJson = "",
) -> None:
    """Show what calls cost, losers of races and broken answers included, by the prices of today.

    \b
    splitsecond cost
    splitsecond cost --by route --days 1
    splitsecond cost --log sqlite:///splitsecond.db --by client --json cost.json

    The log holds counts and no prices, so what it says follows the price list. Attempts that did not say their counts
    are estimated by their prompt and the tokens that came; what has no known price is counted apart.
    """
    from typing import cast

    from rich.console import Console

    from splitsecond.analysis.cost import usd
    from splitsecond.analysis.spending import SCHEMA, By, Ledger, per_month
    from splitsecond.cli.asking import one_of
    from splitsecond.cli.results import check_json, write_json
    from splitsecond.cli.traffic import Logged
    from splitsecond.report.spending import spending_table

    one_of(by, "--by", ("target", "model", "provider", "route", "client", "day"))
    check_json(json)
    logged = Logged(log, config, days)
    ledger = Ledger(logged.price(logged.targets()), cast(By, by))
    first = None
    for moment, call in logged.calls():
        first = first or moment
        ledger.add(moment, call.attempts, route=call.route, client=call.client)
    if first is None:
        raise logged.nothing()
    span_s = max((logged.until - first).total_seconds(), 1.0)  # a log that is younger tells of less
    rows, total = ledger.rows(span_s), ledger.total(span_s)
    monthly = per_month(total.usd + total.rented_usd, span_s)
    write_json(
        {
            "schema": SCHEMA, "since": logged.since, "until": logged.until, "by": by, "total": total,
            "span_s": span_s, "usd_per_30_days": monthly, "rows": rows,
        },
        json,
    )  # fmt: skip
    console = Console(stderr=json == "-")
    console.print(f"What calls cost, {logged.words}", highlight=False)
    spending_table(rows, total, by, console)
    if total.unpriced and not logged.configured:
        console.print("Prices of the gateway's configuration are not known here: name it with --config.", style="dim")
    if span_s >= LEAST_S:
        console.print(f"At the pace of {span_s / DAY_S:.3g} days, 30 days cost {usd(monthly)}.", style="dim")
