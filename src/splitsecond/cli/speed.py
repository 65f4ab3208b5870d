"""`splitsecond speed`: how fast each target was for real requests, as a grade."""

from typing import Annotated

import typer

from splitsecond.cli.options import Days, Log, LogConfig, LogJson
from splitsecond.cli.traffic import DAYS


def speed(
    only: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="Only targets whose name holds one of these.", show_default=False),
    ] = None,
    log: Log = "",
    config: LogConfig = None,
    days: Days = DAYS,
    least: Annotated[int, typer.Option(min=1, help="Answers below which no grade is given.")] = 500,
    by: Annotated[str, typer.Option(help="One row for each target, model or provider.")] = "target",
    json: LogJson = "",
) -> None:
    """Grade targets by the requests that a gateway really served: output tokens by all of the time that each took.

    \b
    splitsecond speed
    splitsecond speed gpt-oss-120b --days 2
    splitsecond speed --log sqlite:///splitsecond.db --by provider --json speed.json

    Grade 1: 100 tokens/s and more at the median, connection and wait included; 2: 70; 3: 50; 4: 30; 5: fewer. Only
    answers that came whole have a speed; what failed is counted beside it. The log holds no prompt and no answer.
    """
    from rich.console import Console

    from splitsecond.analysis.production import SCHEMA
    from splitsecond.analysis.production_statements import speed_statements
    from splitsecond.cli.asking import one_of
    from splitsecond.cli.results import check_json, write_json
    from splitsecond.cli.traffic import Logged, speeds
    from splitsecond.report.production import speed_table

    one_of(by, "--by", ("target", "model", "provider"))
    check_json(json)
    logged = Logged(log, config, days)
    found = speeds(logged, only=only or (), by=by, least=least)  # type: ignore[arg-type] # checked above
    statements = speed_statements(found)
    write_json(
        {
            "schema": SCHEMA, "since": logged.since, "until": logged.until, "by": by, "least": least,
            "speeds": found, "statements": statements,
        },
        json,
    )  # fmt: skip
    console = Console(stderr=json == "-")
    console.print(f"Real requests, {logged.words}", highlight=False)
    speed_table(found, console)
    for statement in statements:
        console.print(f"• {statement}", markup=False, highlight=False)
