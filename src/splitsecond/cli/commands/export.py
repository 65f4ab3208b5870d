from pathlib import Path
from typing import Annotated

import typer
from msgspec import to_builtins

from splitsecond.cli.console import Console
from splitsecond.cli.files import check_json, write_json
from splitsecond.cli.log_source import LoggedTraffic
from splitsecond.cli.options import Config, Days, JsonOfCounts, Log
from splitsecond.core.wording import counted_as


def export(
    parquet: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="The folder for the files; created if there is none."),
    ],
    log: Log = "",
    config: Config = None,
    days: Days = 3650.0,
    json: JsonOfCounts = "",
) -> None:
    """Write the log into Parquet files, one folder a day.

    \b
    splitsecond export --parquet archive
    splitsecond export --parquet archive --days 2
    splitsecond speed --log archive --days 90

    For more calls than a database should keep. Other commands read the folder like a log, and so
    does any program that reads Parquet. An export of the same days replaces them, except for a day
    of which the log has deleted calls. Needs DuckDB: pip install duckdb.
    """
    check_json(json)
    saved = LoggedTraffic(log, config, days).export(parquet)
    write_json(
        {"schema": "splitsecond.export/1", "folder": str(parquet), "result": to_builtins(saved)},
        json,
    )
    console = Console(stderr=json == "-")
    kept_days = (
        f" Kept {counted_as(saved.kept, 'day')} that the folder has with more calls."
        if saved.kept
        else ""
    )
    calls, attempts = counted_as(saved.calls, "call"), counted_as(saved.attempts, "attempt")
    console.print(
        f"{calls} and {attempts} of {counted_as(saved.days, 'day')}: {saved.bytes / 1e6:,.1f} MB "
        f"in {parquet}.{kept_days}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
