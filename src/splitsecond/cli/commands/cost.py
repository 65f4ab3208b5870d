from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, cast, get_args

import typer
from rich.console import Console

from splitsecond.benchmark.findings.call_costs import call_costs
from splitsecond.benchmark.report.call_costs import call_costs_table
from splitsecond.benchmark.report.cost_page import cost_png, render_cost
from splitsecond.benchmark.report.production import spending_table
from splitsecond.benchmark.report.terminal import print_findings
from splitsecond.benchmark.runs.concluding import recompute
from splitsecond.cli.files import check_file, check_picture, write_file
from splitsecond.cli.log_source import DAYS, LoggedTraffic, speeds
from splitsecond.cli.option_values import calls_per_day
from splitsecond.cli.options import Config, Csv, Days, Json, Log, Markdown
from splitsecond.cli.results import Output
from splitsecond.core.errors import CallerFault
from splitsecond.core.money.cost import usd
from splitsecond.core.validation import one_of
from splitsecond.core.wording import full
from splitsecond.log.production.speed import ProductionSpeed
from splitsecond.log.production.speed_and_price import (
    logged_speed_and_price,
    speed_and_price_statements,
)
from splitsecond.log.production.spending import SCHEMA, By, SpendingLedger, UsualLengths, per_month
from splitsecond.log.production.stated_cost import StatedComparison

CALLS_SCHEMA = "splitsecond.calls/1"
DAY_S = 86_400.0
MIN_S = 3_600.0
"""Least time that the cost of 30 days is estimated from."""


def cost(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN]...", help="Folders of runs, with --calls.", show_default=False
        ),
    ] = None,
    calls: Annotated[
        str,
        typer.Option(
            metavar="N/day",
            help="What so many calls would cost at each target of RUN: 10k/day, 2M/month.",
        ),
    ] = "",
    log: Log = "",
    config: Config = None,
    days: Days = DAYS,
    by: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="One row per target, model, provider, route, client, team, tag or day.",
        ),
    ] = "target",
    html: Annotated[
        str,
        typer.Option(metavar="FILE", help="Write a page with all figures and speed against price."),
    ] = "",
    png: Annotated[
        str, typer.Option(metavar="FILE", help="Write speed against price as a PNG file.")
    ] = "",
    json: Json = "",
    csv: Csv = "",
    markdown: Markdown = "",
) -> None:
    """Show what calls cost, losers of races included.

    \b
    splitsecond cost
    splitsecond cost --by route --days 1
    splitsecond cost --log sqlite:///splitsecond.db --by client --json cost.json
    splitsecond cost --html cost.html --png speed-and-price.png
    splitsecond cost runs/monday --calls 10k/day

    The log holds token counts and no prices, so costs follow the price list. Attempts without token
    counts are estimated by their prompt and the tokens that arrived. Attempts without a known price
    are counted separately. Where an imported log states its own costs, both are compared.
    Cost-adjusted TPS is the median TPS divided by the cost of a million tokens. With a run and
    --calls, the cost is that of calls with the run's own lengths of prompts and responses.
    """
    one_of("--by", by, get_args(By))
    output = Output(json=json, csv=csv, markdown=markdown)
    output.check()
    if runs or calls:
        _cost_of_calls(runs or [], calls, output)
        return
    check_file(html, "--html")
    check_picture(png)
    if png and by != "target":
        raise CallerFault(
            f"--png compares targets, not each {by}", kind="bad_option", hint="Leave out --by."
        )
    logged = LoggedTraffic(log, config, days)
    targets = logged.targets()
    prices, stated = logged.price(targets), logged.stated_costs(targets)
    span_s = max((logged.until - logged.first()).total_seconds(), 1.0)  # the log may begin later
    usual, measured = _read(logged, with_speeds=by == "target")
    ledger = SpendingLedger(prices, usual, cast(By, by), stops_billing=logged.stops_billing)
    comparison = StatedComparison(prices, stated)
    for columns in logged.attempts():
        ledger.add(columns)
        comparison.add(columns)
    ledger.add_stated(stated)
    rows, total = ledger.rows(span_s), ledger.total(span_s)
    monthly = per_month(total.usd + total.rented_usd, span_s)
    speed_and_price = logged_speed_and_price(
        measured, {row.name: row.usd_per_million for row in rows}
    )
    statements = speed_and_price_statements(speed_and_price)
    # 0 USD would be wrong if the calls have no known price
    outlook = _outlook(monthly, span_s) if monthly or not total.unpriced else ""
    notes = [
        *logged.price_notes(total.unpriced),
        *comparison.statements(),
        *([outlook] if outlook else []),
    ]

    def show(console: Console) -> None:
        console.print(f"Cost of calls, {logged.words}", highlight=False)
        spending_table(rows, total, by, console)
        print_findings(console, statements)
        for note in notes:
            console.print(note, style="dim", highlight=False)

    output.show(
        {
            "schema": SCHEMA, "since": logged.since, "until": logged.until, "by": by,
            "total": total,
            "stated": comparison.statements(),
            "span_s": span_s, "usd_per_30_days": monthly, "rows": rows,
            "speed_and_price": speed_and_price, "statements": full(statements),
        },
        lambda: rows,
        show,
    )  # fmt: skip
    if html:
        page = render_cost(
            rows,
            total,
            speed_and_price,
            [*full(statements), *comparison.statements()],
            by=by,
            period=logged.words,
            outlook=outlook,
        )
        write_file(page.encode(), html, "--html")
    if png:
        write_file(cost_png(speed_and_price), png, "--png")


def _outlook(monthly: float, span_s: float) -> str:
    """Return the sentence about the next 30 days; "" if the log is too short for it."""
    if span_s < MIN_S:
        return ""
    return f"At the rate of these {span_s / DAY_S:.3g} days, 30 days cost {usd(monthly)}."


def _cost_of_calls(runs: Sequence[Path], calls: str, output: Output) -> None:
    if not (runs and calls):
        raise CallerFault(
            "--calls and the folder of a run belong together",
            kind="bad_option",
            hint="For example: splitsecond cost runs/monday --calls 10k/day",
        )
    a_day = calls_per_day(calls)
    rows = [row for path in runs for row in recompute(path)[0].conditions]
    costs = call_costs(rows, a_day)
    schema = {
        "schema": CALLS_SCHEMA,
        "runs": list(map(str, runs)),
        "calls_per_day": a_day,
        "targets": costs,
    }
    output.show(schema, lambda: costs, partial(call_costs_table, costs, calls))


def _read(
    logged: LoggedTraffic, *, with_speeds: bool
) -> tuple[UsualLengths, list[ProductionSpeed]]:
    """Return the usual lengths of the attempts, and the speeds of their targets. Both take one pass
    over the log."""
    usual = UsualLengths()
    if with_speeds:
        return usual, speeds(logged, least=1, also=usual.add)[0]
    for columns in logged.attempts():
        usual.add(columns)
    return usual, []
