from typing import Annotated, cast, get_args

import typer
from rich.console import Console

from splitsecond.benchmark.report.production import speed_table
from splitsecond.benchmark.report.terminal import print_findings
from splitsecond.cli.files import check_file, check_picture, write_file
from splitsecond.cli.log_source import DAYS, LoggedTraffic, speeds
from splitsecond.cli.options import Config, Csv, Days, Json, Log, Markdown
from splitsecond.cli.results import Output
from splitsecond.core.validation import one_of
from splitsecond.core.wording import full
from splitsecond.log.production.speed import SCHEMA, By, speed_statements
from splitsecond.log.production.stated_cost import StatedComparison
from splitsecond.log.report.speed_page import render_speed, speed_png


def speed(
    only: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT]...",
            help="Only targets whose name contains one of these.",
            show_default=False,
        ),
    ] = None,
    log: Log = "",
    config: Config = None,
    days: Days = DAYS,
    least: Annotated[
        int, typer.Option(min=1, metavar="N", help="Responses that a grade needs.")
    ] = 500,
    by: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="One row per target, model, provider, maker, host, hosting, "
            "region, hour, size, key, team or tag.",
        ),
    ] = "target",
    html: Annotated[
        str,
        typer.Option(metavar="FILE", help="Write a page with the chart, filters and all figures."),
    ] = "",
    png: Annotated[str, typer.Option(metavar="FILE", help="Write the chart as a PNG file.")] = "",
    json: Json = "",
    csv: Csv = "",
    markdown: Markdown = "",
) -> None:
    """Grade targets by the speed of the requests that they served.

    \b
    splitsecond speed
    splitsecond speed gpt-oss-120b --days 2
    splitsecond speed --log sqlite:///splitsecond.db --by provider --json speed.json
    splitsecond speed --html speed.html --png speed.png

    The speed is output tokens divided by the whole time of a request. Grade 1: a median of 100
    tokens/s or more, connection and wait included; 2: 70; 3: 50; 4: 30; 5: fewer. Only complete
    responses have a speed; failures are counted separately. The log holds no prompts and no
    responses.
    """
    one_of("--by", by, get_args(By))
    output = Output(json=json, csv=csv, markdown=markdown)
    output.check()
    check_file(html, "--html")
    check_picture(png)
    logged = LoggedTraffic(log, config, days)
    targets = logged.targets(only or ())
    stated = StatedComparison(logged.price(targets), logged.stated_costs(targets))
    found, comparisons = speeds(
        logged, only=only or (), by=cast(By, by), least=least, also=stated.add
    )
    statements = speed_statements(found, comparisons)

    def show(console: Console) -> None:
        console.print(f"Real requests, {logged.words}", highlight=False)
        speed_table(found, console, by)
        print_findings(console, statements)
        for line in stated.statements():
            console.print(line, style="dim", highlight=False)

    output.write(
        {
            "schema": SCHEMA, "since": logged.since, "until": logged.until, "by": by,
            "least": least,
            "speeds": found, "comparisons": comparisons, "statements": full(statements),
            "stated": stated.statements(),
        },
        lambda: found,
        show,
    )  # fmt: skip
    show(output.screen())
    if html:
        page = render_speed(found, full(statements), period=logged.words, least=least, by=by)
        write_file(page.encode(), html, "--html")
    if png:
        write_file(speed_png(found), png, "--png")
