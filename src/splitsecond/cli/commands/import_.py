from datetime import date
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, TimeElapsedColumn

from splitsecond.cli.console import Console
from splitsecond.cli.files import check_json, write_json
from splitsecond.cli.log_source import DAYS
from splitsecond.cli.options import JsonOfCounts
from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.core.money.cost import usd
from splitsecond.core.wording import counted_as
from splitsecond.log.store.foreign.formats import parse_map
from splitsecond.log.store.importing import Imported, import_log


def import_(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="CSV, JSON lines, a JSON list of objects, or Parquet."),
    ],
    log: Annotated[
        str, typer.Option(metavar="URL", help="The log to write; created if there is none.")
    ] = "sqlite:///splitsecond.db",
    columns: Annotated[
        str,
        typer.Option(
            "--map",
            metavar="FIELD=COLUMN,…",
            help="What the columns are, if they are not recognised.",
        ),
    ] = "",
    provider: Annotated[str, typer.Option(metavar="NAME", help="The provider of all lines.")] = "",
    json: JsonOfCounts = "",
) -> None:
    """Import a log of another program for speed, recommend and cost.

    \b
    splitsecond import openrouter_activity.csv
    splitsecond import spend_logs.json --log sqlite:///litellm.db
    splitsecond import calls.csv --map time=ts,duration_ms=latency,output_tokens=out

    LiteLLM's spend log, Langfuse's observations and OpenRouter's activity export are recognised.
    Fields: id, time, end_time, first_token_time, duration_s, duration_ms, ttft_s, ttft_ms, model,
    provider, client, input_tokens, output_tokens, reasoning_tokens, cached_tokens, status,
    error_status, streamed, cancelled, cache_hit, cost_usd, team, tags. A column inside a JSON
    object is a.b. Lines that cannot be a call are refused with their number, and the others are
    kept. A file can be imported again: calls that the log has are not added twice.
    """
    check_json(json)
    mapped = parse_map(columns)
    screen = Console(stderr=True)
    bar_columns = (*Progress.get_default_columns()[:2], TimeElapsedColumn())
    with Progress(
        *bar_columns, console=screen, transient=True, disable=not screen.is_terminal
    ) as bar:
        task = bar.add_task("importing", total=None)
        url = log if "://" in log else f"sqlite:///{log}"
        outcome = import_log(
            file,
            url,
            mapped,
            provider,
            lambda line: bar.update(task, description=f"importing, {line:,} lines read"),
        )
    write_json({"schema": "splitsecond.import/1", "file": str(file), "result": outcome}, json)
    for reason in outcome.reasons:
        screen.print(
            f"refused {reason}", style="red", markup=False, highlight=False, soft_wrap=True
        )
    if outcome.refused > len(outcome.reasons):
        more = counted_as(
            outcome.refused - len(outcome.reasons), "more line was", "more lines were"
        )
        screen.print(f"{more} refused", style="red", highlight=False)
    if not outcome.written and not outcome.present:
        raise CallerFault(f"{file} has no call that can be imported", kind="bad_import")
    console = Console(stderr=json == "-")
    counts = {
        "already in the log": outcome.present,
        "not calls of a provider": outcome.skipped,
        "refused": outcome.refused,
    }
    rest = "".join(f", {count:,} {words}" for words, count in counts.items() if count)
    imported = f"{counted_as(outcome.written, 'call')} imported"
    console.print(f"Read as {outcome.title}: {imported}{rest}.", markup=False, highlight=False)
    console.print(_days(outcome), markup=False, highlight=False)
    if outcome.ignored:
        console.print(
            f"Columns not used: {', '.join(outcome.ignored)}.",
            style="dim",
            markup=False,
            highlight=False,
        )


def _days(outcome: Imported) -> str:
    """Return which days the file has, what it states that they cost, and how to see them if they
    are older than what `speed` and `cost` show."""
    days = counted_as(outcome.days, "day")
    period = (
        outcome.first if outcome.first == outcome.last else f"{outcome.first} to {outcome.last}"
    )
    stated = (
        ""
        if outcome.stated_usd is None
        else f"; the file states a cost of {usd(outcome.stated_usd)}"
    )
    old = (clock.wall_time().date() - date.fromisoformat(outcome.first)).days + 1
    hint = f" To see all of it: --days {old}." if old > DAYS else ""
    return f"Its calls are of {days}, {period} (UTC){stated}.{hint}"
