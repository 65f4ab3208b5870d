"""Commands of `splitsecond` whose results a notebook shows: speed, cost, recommend and import.

Each function runs its command in a process of its own and returns what the command writes.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from splitsecond.core.errors import CallerFault

FilePath = str | os.PathLike[str]
_PAGE_HEIGHT_PX = 640


class CommandResult:
    """The result of a command. `data` is its JSON, `text` its tables as text, `page` its HTML page
    with plots ("" if the command writes none). A notebook shows the tables and the page."""

    def __init__(self, command: str, data: dict[str, Any], text: str, page: str = "") -> None:
        self.command = command
        self.data = data
        self.text = text
        self.page = page

    def __repr__(self) -> str:
        return f"<CommandResult of {self.command}: {', '.join(self.data)}>"

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return notebook_html(self.text, self.page)


def notebook_html(text: str, page: str = "") -> str:
    """Return tables as text, and below them a whole HTML page in a frame, for a notebook's cell."""
    tables = f'<pre style="line-height: 1.2">{escape(text)}</pre>'
    if not page:
        return tables
    # a frame keeps the styles and scripts of the page away from the notebook
    style = f"width: 100%; height: {_PAGE_HEIGHT_PX}px; border: 0"
    return f'{tables}<iframe srcdoc="{escape(page)}" style="{style}"></iframe>'


async def speed(
    *only: str,
    log: FilePath = "",
    config: FilePath = "",
    days: float | None = None,
    by: str = "target",
    least: int | None = None,
    against: FilePath = "",
) -> CommandResult:
    """Return the speed of the requests in a log, as `splitsecond speed` shows it.

    `only`: targets whose name contains one of these. `log`: its URL, a SQLite file, or a folder of
    Parquet files; "": that of the configuration `config`. `days`: how far to look back. `by`: the
    column that makes the rows. `least`: responses that a grade needs. `against`: the folder of a
    run, or "published", to compare with. Raises `CallerFault` for a log or a run that cannot be
    read.
    """
    options = {"--log": log, "--config": config, "--days": days, "--by": by, "--least": least}
    options |= {"--against": against}
    return await _result("speed", options, only, page=True)


async def cost(
    *runs: FilePath,
    calls: str = "",
    log: FilePath = "",
    config: FilePath = "",
    days: float | None = None,
    by: str = "",
) -> CommandResult:
    """Return what the calls in a log cost, as `splitsecond cost` shows it.

    With the folders of `runs`, and `calls` such as "10k/day", it is what so many calls would cost
    at the targets of the runs. `by`: the column that makes the rows, "target" by default. Raises
    `CallerFault` for a log or a run that cannot be read.
    """
    options = {"--calls": calls, "--log": log, "--config": config, "--days": days, "--by": by}
    return await _result("cost", options, runs, page=not runs)


async def recommend(
    *runs_and_uses: FilePath,
    at: str = "",
    needs: str = "",
    only: Sequence[str] = (),
    log: FilePath = "",
    config: FilePath = "",
    days: float | None = None,
) -> CommandResult:
    """Return the targets for uses such as "voice", as `splitsecond recommend` does.

    Without a folder of a run, they are judged by the log. `at`: judge at this load, such as "c=16".
    `needs`: what the model must take, such as "tools,images". Raises `CallerFault` for a log, a run
    or a use that is not known.
    """
    options = {"--at": at, "--needs": needs, "--log": log, "--config": config, "--days": days}
    return await _result("recommend", options, runs_and_uses, only=only)


async def import_log(
    file: FilePath, *, log: FilePath = "", columns: str = "", provider: str = ""
) -> CommandResult:
    """Import a log of another program, as `splitsecond import` does, and return its counts.

    `log`: the log to write, ``sqlite:///splitsecond.db`` by default. `columns`: what the columns
    are, such as "time=ts,duration_ms=latency", if they are not recognised. `provider`: the provider
    of all lines. Raises `CallerFault` for a file without a call that can be imported.
    """
    options = {"--log": log, "--map": columns, "--provider": provider}
    return await _result("import", options, [file])


async def run_command(*arguments: str) -> tuple[int, str, str]:
    """Run `splitsecond` with `arguments`. Return its exit status, output and errors. It is killed
    if this is cancelled."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "splitsecond", *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1"},
    )  # fmt: skip
    try:
        out, err = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    return process.returncode or 0, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def command_failed(command: str, errors: str) -> CallerFault:
    words = errors.strip().removeprefix("splitsecond: ").rstrip(".")
    return CallerFault(words or f"{command} has failed", kind=command)


async def _result(
    command: str,
    options: dict[str, Any],
    names: Sequence[FilePath],
    *,
    page: bool = False,
    only: Sequence[str] = (),
) -> CommandResult:
    set_options = {name: value for name, value in options.items() if value not in ("", None)}
    arguments = [text for name, value in set_options.items() for text in (name, _text(value))]
    arguments += [text for each in only for text in ("--only", each)]
    with TemporaryDirectory(prefix="splitsecond-") as folder:
        data, html = Path(folder, "result.json"), Path(folder, "page.html")
        arguments += ["--json", str(data), *(["--html", str(html)] if page else [])]
        status, out, errors = await run_command(command, *arguments, "--", *map(_text, names))
        if status:
            raise command_failed(command, errors)
        return _read(command, out, data, html if page else None)


def _read(command: str, out: str, data: Path, html: Path | None) -> CommandResult:
    document = msgspec.json.decode(data.read_bytes(), type=dict[str, Any])
    return CommandResult(command, document, out, html.read_text("utf-8") if html else "")


def _text(value: Any) -> str:
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
