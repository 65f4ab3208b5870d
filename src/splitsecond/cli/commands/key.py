import math
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from splitsecond.cli.console import Console
from splitsecond.cli.files import check_json, write_json
from splitsecond.cli.options import CONFIG, Config, Json, config_file
from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, file_faults, printable
from splitsecond.core.validation import one_of
from splitsecond.core.wording import counted_as
from splitsecond.routing.configuration import key_editing, key_files
from splitsecond.routing.configuration.error_messages import shaped
from splitsecond.routing.configuration.file_schema import KeyConfig

ACTIONS = ("add", "list", "rotate", "remove")
OVERLAP_DAYS = 7


def key(
    action: Annotated[str, typer.Argument(metavar="ACTION", help=f"{', '.join(ACTIONS)}.")],
    client: Annotated[
        str, typer.Argument(metavar="[CLIENT]", help="The client's name; not for list.")
    ] = "",
    route: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROUTE",
            help="add: a route that it may use; repeat it for several. Default: all.",
            show_default=False,
        ),
    ] = None,
    team: Annotated[
        str, typer.Option(metavar="TEAM", help="add: its team, one of `teams`.", show_default=False)
    ] = "",
    requests_per_minute: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="add: a limit of its own.", show_default=False),
    ] = None,
    usd_per_day: Annotated[
        float | None,
        typer.Option(metavar="USD", help="add: a limit of its own.", show_default=False),
    ] = None,
    usd_per_month: Annotated[
        float | None,
        typer.Option(metavar="USD", help="add: a limit of its own.", show_default=False),
    ] = None,
    usd_per_session: Annotated[
        float | None,
        typer.Option(metavar="USD", help="add: a limit of each session.", show_default=False),
    ] = None,
    turns_per_session: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="add: a limit of each session.", show_default=False),
    ] = None,
    at_limit: Annotated[
        str,
        typer.Option(
            metavar="stop|ask",
            help="add: an error, or an answer, at such a limit. Default: stop.",
            show_default=False,
        ),
    ] = "",
    overlap: Annotated[
        int,
        typer.Option(
            min=0,
            max=3650,
            metavar="DAYS",
            help="rotate: how long the former key stays valid after today. 0: it ends at once.",
        ),
    ] = OVERLAP_DAYS,
    config: Config = None,
    json: Json = "",
) -> None:
    """Add, list, rotate and remove the clients' keys of a gateway.

    \b
    splitsecond key add alice --usd-per-day 5
    splitsecond key add bob
    splitsecond key list
    splitsecond key rotate alice --overlap 7
    splitsecond key remove bob

    Edits the gateway's configuration; its comments and layout stay. A new key is printed once, and
    written into a file beside the configuration that only its owner can read. A running gateway
    applies the change by itself. With rotate, the former key stays valid for some days, while the
    client changes to the new one.
    """
    one_of("ACTION", action, ACTIONS)
    path = config_file(config)
    if path is None:
        raise CallerFault(
            f"there is no {CONFIG}",
            kind="bad_option",
            hint="Write one with `splitsecond init`, or name another with --config.",
        )
    if action == "list":
        check_json(json)
        _list(path, json)
        return
    if not client:
        raise CallerFault(
            f"key {action} needs the name of a client",
            kind="bad_option",
            hint=f"For example: splitsecond key {action} alice.",
        )
    settings = {
        "routes": route,
        "team": team or None,
        "requests_per_minute": requests_per_minute,
        "usd_per_day": usd_per_day,
        "usd_per_month": usd_per_month,
        "usd_per_session": usd_per_session,
        "turns_per_session": turns_per_session,
        "at_limit": at_limit or None,
    }
    for name, limit in settings.items():
        if isinstance(limit, float) and not math.isfinite(limit):
            flag = f"--{name.replace('_', '-')}"
            raise CallerFault(f"{flag} is {limit:g}, expected a finite amount", kind="bad_option")
    options = {name: _plain(value) for name, value in settings.items() if value is not None}
    if action == "add":
        _add(path, client, options)
    elif options:
        option = next(iter(options)).replace("_", "-").removesuffix("s")
        raise CallerFault(f"--{option} is for key add", kind="bad_option")
    elif action == "rotate":
        _rotate(path, client, overlap)
    else:
        _remove(path, client)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _add(path: Path, client: str, settings: dict[str, Any]) -> None:
    text = key_files.read_text(path)
    clients = [each.get("name") for each in key_editing.entries(text) if isinstance(each, dict)]
    if client in clients:
        raise CallerFault(
            f"there is a client {client} already",
            kind="bad_option",
            hint=f"A new key for it: splitsecond key rotate {client}.",
        )
    _with_new_key(
        path,
        client,
        lambda reference: key_editing.with_key(
            text, {"name": client, "key": reference, **settings}
        ),
    )
    if not clients:
        typer.echo("From now on, every request to the gateway needs a key.")


def _rotate(path: Path, client: str, overlap: int) -> None:
    text = key_files.read_text(path)
    last = clock.wall_time() + timedelta(days=overlap)
    until = f"{last:%Y-%m-%d}" if overlap else ""
    _with_new_key(
        path,
        client,
        lambda reference: key_editing.with_rotated_key(text, client, reference, until),
    )
    typer.echo(
        f"The former key is valid until the end of {until} (UTC)."
        if until
        else "The former key is not valid any more."
    )


def _with_new_key(path: Path, client: str, edited: Callable[[str], str]) -> None:
    """Write a new key for `client`, and the configuration that `edited` returns for a reference to
    it. If that fails, both files are as before."""
    file = key_files.new_key_file(path, client)
    with file_faults(f"cannot write {file}", kind="unwritable_file"):
        secret = key_files.write_key(file)
    try:
        _write(path, edited(f"file:{file.name}"))
    except BaseException:
        file.unlink()
        raise
    typer.echo(f"Wrote {path} and {file}. The key of {printable(client)}:\n")
    typer.echo(f"    {secret}\n")


def _remove(path: Path, client: str) -> None:
    text = key_files.read_text(path)
    _write(path, key_editing.without_key(text, client))
    entries = [each for each in key_editing.entries(text) if isinstance(each, dict)]
    removed = next(each for each in entries if each.get("name") == client)
    typer.echo(f"Wrote {path}. {printable(client)} has no access any more.")
    keys = [removed, *(removed.get("former_keys") or [])]
    references = [str(each.get("key")) for each in keys if isinstance(each, dict)]
    files = [each.removeprefix("file:") for each in references if each.startswith("file:")]
    if files:
        typer.echo(f"Not used any more: {', '.join(files)}.")


def _write(path: Path, text: str) -> None:
    """Check the new text of the configuration as the gateway does, and write it."""
    try:
        key_files.check_edit(key_files.read_text(path), text, os.environ, path.parent)
    except CallerFault as fault:
        fault.message = f"{path} is unchanged. {fault.message}"
        raise
    key_files.replace_text(path, text)


def _list(path: Path, json: str) -> None:
    text = key_files.read_text(path)
    keys = [
        shaped(f"keys[{number}]", entry, KeyConfig)
        for number, entry in enumerate(key_editing.entries(text))
    ]
    write_json(keys, json)
    if json == "-":
        return
    if not keys:
        typer.echo(f"{path} has no keys: everyone on this machine may use the gateway.")
        return
    # it imports numpy, which the other actions do not need
    from splitsecond.benchmark.report.tables import print_table

    table = Table(box=box.SIMPLE)
    for heading in ("client", "team", "routes", "limits", "its key", "former keys"):
        # users copy the name of the variable, or the path
        table.add_column(heading, no_wrap=heading == "its key")
    for each in keys:
        former = [_until(old.until) for old in each.former_keys]
        cells = [each.name, each.team or "", ", ".join(each.routes), _limits(each), each.key]
        table.add_row(*(Text(printable(cell)) for cell in (*cells, ", ".join(former))))
    print_table(table, Console())


def _limits(each: KeyConfig) -> str:
    amounts = [
        f"{counted_as(each.requests_per_minute, 'request')} a minute"
        if each.requests_per_minute
        else "",
        f"{each.usd_per_day:g} USD a day" if each.usd_per_day else "",
        f"{each.usd_per_month:g} USD a month" if each.usd_per_month else "",
        f"{each.usd_per_session:g} USD a session" if each.usd_per_session else "",
        f"{counted_as(each.turns_per_session, 'turn')} a session" if each.turns_per_session else "",
    ]
    return ", ".join(words for words in amounts if words)


def _until(day: Any) -> str:
    if day is None:
        return "without an end"
    return f"until {day}" if day >= clock.wall_time().date() else f"ended {day}"
