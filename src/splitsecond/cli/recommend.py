"""`splitsecond recommend`: which target to take for which use, by how fast each was for real requests."""

from typing import Annotated

import typer

from splitsecond.cli.options import Days, Log, LogConfig, LogJson
from splitsecond.cli.traffic import DAYS


def recommend(
    uses: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[USE]...", help="edge, translation, voice, completion, chat, batch.", show_default="all"
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Only targets whose name holds this. Repeatable.", show_default=False),
    ] = None,
    log: Log = "",
    config: LogConfig = None,
    days: Days = DAYS,
    json: LogJson = "",
) -> None:
    """Recommend targets for a use: those whose first token comes in time at p95, the fastest and the cheapest of them.

    \b
    splitsecond recommend voice
    splitsecond recommend chat batch --only gpt-oss-120b --only llama-3.3-70b

    Speed and price are what is judged, from the gateway's own log. Whether an answer is good enough, it cannot tell:
    name the models that are with --only.
    """
    from rich.console import Console

    from splitsecond.analysis.recommendation import SCHEMA
    from splitsecond.analysis.recommendation import recommend as recommended
    from splitsecond.cli.asking import one_of
    from splitsecond.cli.results import check_json, write_json
    from splitsecond.cli.traffic import Logged, speeds
    from splitsecond.report.production import recommendation_table
    from splitsecond.timing.uses import USES

    wanted = [one_of(use, "USE", tuple(USES)) for use in uses or USES]
    check_json(json)
    logged = Logged(log, config, days)
    found = recommended(speeds(logged, only=only or (), least=1), wanted)
    write_json({"schema": SCHEMA, "since": logged.since, "until": logged.until, "uses": found}, json)
    console = Console(stderr=json == "-")
    console.print(f"By real requests, {logged.words}\n", highlight=False)
    for each in found:
        recommendation_table(each, console)
