from functools import partial
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from splitsecond.cli.log_source import LoggedTraffic, days_of
from splitsecond.cli.options import Config, Csv, Json, Log, Markdown, Since, Today
from splitsecond.cli.replaying import LoggedRoute, figure_rows
from splitsecond.cli.results import Output
from splitsecond.cli.what_if_screen import print_exploration, print_what_if
from splitsecond.core.clock import wall_time
from splitsecond.core.errors import CallerFault, say
from splitsecond.log.store.kept_answer import keep_answer
from splitsecond.log.store.log import PARQUET
from splitsecond.replay.answer import WhatIf
from splitsecond.replay.exploration import Exploration, exploration
from splitsecond.routing.construction.expression import parse

MAX_CALLS = 50_000


def what_if(
    policies: Annotated[
        list[str],
        typer.Argument(
            metavar="POLICY...", help="Policies to replay the calls through.", show_default=False
        ),
    ],
    log: Log = "",
    config: Config = None,
    since: Since = "14d",
    route: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The route whose calls are replayed. Default: the most frequent one.",
        ),
    ] = "",
    today: Today = "",
    any_load: Annotated[
        bool,
        typer.Option(
            "--any-load", help="The speed of no target depends on how many of these calls it gets."
        ),
    ] = False,
    explore: Annotated[
        str,
        typer.Option(
            metavar="SHARE",
            help="Only propose what to route so that the log can answer, such as 1%.",
        ),
    ] = "",
    calls: Annotated[
        int,
        typer.Option(
            min=1000, metavar="N", help="Most calls to replay: whole hours, evenly spread."
        ),
    ] = MAX_CALLS,
    json: Json = "",
    csv: Csv = "",
    markdown: Markdown = "",
) -> None:
    """Replay the log through another policy: speed, cost, failures.

    \b
    splitsecond what-if 'hedge("a/m", "b/m")' --since 14d
    splitsecond what-if 'fallback("a/m", "b/m")' 'race("a/m", "b/m")' --route chat
    splitsecond what-if 'fallback("b/m", "a/m")' --explore 1%

    All calls of a route in their order and at their times, through the policy itself, in virtual
    time. A target answers as the log knows it at that moment: with the call's own attempt, or with
    one that is similar and near in time. Today's policy is replayed first, and must give the log's
    own figures; otherwise there is no answer. Calls for which the log has too few similar attempts
    are left out, and there is no figure if they are many.
    """
    output = Output(json=json, csv=csv, markdown=markdown)
    output.check()
    share = _share(explore)
    logged = LoggedTraffic(log, config, days_of(since))
    replayed = LoggedRoute(logged, route, today, calls)
    others = [parse(each, replayed.policies) for each in policies]
    if share:
        explorations = [
            exploration(replayed.requests, replayed.now, each, share, replayed.count)
            for each in others
        ]
        _write_exploration(output, explorations, replayed.name)
        return
    result = replayed.what_if(others, any_load=any_load)

    output.show(result, partial(figure_rows, result), partial(print_what_if, result))
    _keep(logged.url, result)
    if not result.identity.agrees or any(each.refused for each in result.answers):
        raise typer.Exit(1)


def _keep(url: str, result: WhatIf) -> None:
    """Keep the answer for the dashboard. A log in Parquet files has none."""
    if url.startswith(PARQUET):
        return
    try:
        keep_answer(url, msgspec.json.encode({"at": wall_time(), "answer": result}))
    except OSError as error:
        say(f"The dashboard will not show this answer: {error}")


def _write_exploration(output: Output, explorations: list[Exploration], route: str) -> None:
    def show(console: Console) -> None:
        for each in explorations:
            print_exploration(each, route, console)

    output.show(explorations, lambda: explorations, show)


def _share(text: str) -> float:
    if not text:
        return 0.0
    number = text.removesuffix("%")
    try:
        share = float(number) / 100 if text.endswith("%") else float(number)
    except ValueError:
        share = 0.0
    if not 0 < share <= 0.5:
        raise CallerFault(
            f"--explore: got {text}, expected a share such as 1%, at most 50%", kind="bad_option"
        )
    return share
