from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, cast, get_args

import typer
from rich.console import Console

from splitsecond.benchmark.findings.known_speeds import known_speeds
from splitsecond.benchmark.report.production import speed_table
from splitsecond.benchmark.report.terminal import print_findings
from splitsecond.benchmark.runs.concluding import recompute
from splitsecond.cli.files import check_file, check_picture, write_file
from splitsecond.cli.log_source import DAYS, LoggedTraffic, speeds
from splitsecond.cli.options import Config, Csv, Days, Json, Log, Markdown
from splitsecond.cli.results import Output
from splitsecond.core.errors import CallerFault
from splitsecond.core.timing.columns import AttemptColumns
from splitsecond.core.validation import one_of, wrong
from splitsecond.core.wording import full, in_a_line, listed
from splitsecond.log.production.against import (
    KnownSpeed,
    SpeedAgainst,
    against_statements,
    published_speeds,
    speeds_against,
)
from splitsecond.log.production.drivers import DriverTraffic, driver_statements
from splitsecond.log.production.speed import (
    SCHEMA,
    By,
    ProductionSpeed,
    period_hours,
    speed_statements,
)
from splitsecond.log.production.stated_cost import StatedComparison
from splitsecond.log.report.speed_page import render_speed, speed_png

PUBLISHED = "published"
Known = Callable[[Sequence[ProductionSpeed]], list[KnownSpeed]]


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
            help="One row per target, model, provider, maker, host, hosting, hardware, "
            "region, hour, size, key, team or tag.",
        ),
    ] = "target",
    against: Annotated[
        str,
        typer.Option(
            metavar="RUN",
            help='Compare with the run in this folder, or with "published": the speeds that the '
            "catalogue has of the same models.",
        ),
    ] = "",
    drivers: Annotated[
        bool,
        typer.Option(
            "--drivers",
            help="What TTFT and TPS go with most: hardware, host, maker, model, size or hour.",
        ),
    ] = False,
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
    splitsecond speed --against runs/20261120-190746-3fa

    The speed is output tokens divided by the whole time of a request. Grade 1: a median of 100
    tokens/s or more, connection and wait included; 2: 70; 3: 50; 4: 30; 5: fewer. Only complete
    responses have a speed; failures are counted separately. The log holds no prompts and no
    responses.
    """
    one_of("--by", by, get_args(By))
    if against and by != "target":
        raise wrong("--by", by, "target, which is what --against compares")
    output = Output(json=json, csv=csv, markdown=markdown)
    output.check()
    check_file(html, "--html")
    check_picture(png)
    references = _known(against) if against else None
    logged = LoggedTraffic(log, config, days)
    targets = logged.targets(only or ())
    price = logged.price(targets)
    stated = StatedComparison(price, logged.stated_costs(targets))
    span_s = (logged.until - logged.first()).total_seconds()
    by_driver = DriverTraffic(period_hours(span_s)) if drivers else None

    def also(columns: AttemptColumns) -> None:
        stated.add(columns)
        if by_driver is not None:
            by_driver.add(columns)

    graded, comparisons = speeds(logged, only=only or (), by=cast(By, by), least=least, also=also)
    driving = by_driver.drivers() if by_driver is not None else []
    held = _held_against(graded, references, against) if references else []
    statements = [
        *against_statements(held, [speed.name for speed in graded]),
        *driver_statements(driving),
        *speed_statements(graded, comparisons),
    ]

    def show(console: Console) -> None:
        console.print(f"Real requests, {logged.words}", highlight=False)
        speed_table(graded, console, by)
        print_findings(console, statements)
        unpriced = sum(speed.unpriced for speed in graded)
        rented = [each for each in targets if (paid := price(each)) and not paid.by_token]
        hourly = f"Paid by the hour, as `splitsecond cost` shows: {listed(rented)}."
        notes = [*logged.price_notes(unpriced), *([hourly] if rented else [])]
        for line in (*notes, *stated.statements()):
            console.print(line, style="dim", highlight=False)

    output.show(
        {
            "schema": SCHEMA, "since": logged.since, "until": logged.until, "by": by,
            "least": least,
            "speeds": graded, "comparisons": comparisons, "statements": full(statements),
            "stated": stated.statements(), "against": held, "drivers": driving,
        },
        lambda: graded,
        show,
    )  # fmt: skip
    if html:
        page = render_speed(
            graded,
            full(statements),
            period=logged.words,
            least=least,
            by=by,
            against=held,
            drivers=driving,
        )
        write_file(page.encode(), html, "--html")
    if png:
        write_file(speed_png(graded), png, "--png")


def _known(against: str) -> Known:
    """Return what finds the speeds to compare with. Raises `CallerFault` for a folder without a
    run."""
    if against == PUBLISHED:
        return lambda speeds: published_speeds(speed.name for speed in speeds)
    run, _ = recompute(Path(against))
    return lambda speeds: known_speeds(run, against, speeds)


def _held_against(
    speeds: Sequence[ProductionSpeed], references: Known, against: str
) -> list[SpeedAgainst]:
    comparisons = speeds_against(speeds, references(speeds))
    if not comparisons:
        raise CallerFault(
            f"--against {against}: it has no speed of a target of the log",
            kind="nothing_in_common",
            hint=in_a_line("The log has ", [speed.name for speed in speeds]),
        )
    return comparisons
