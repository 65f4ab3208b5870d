"""Import of foreign logs into ours: each call once, however often its file is imported."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection, Table, insert, select

from splitsecond.core.clock import US_PER_DAY
from splitsecond.core.errors import CallerFault, file_faults
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.database import Database
from splitsecond.log.store.foreign.formats import ForeignFormat, format_of
from splitsecond.log.store.foreign.lines import lines_of
from splitsecond.log.store.foreign.record import record_of
from splitsecond.log.store.rows import rows
from splitsecond.log.store.tables import ATTEMPTS, CALLS

BATCH = 500
"""Calls of one transaction."""
MAX_TAGS = 1000
"""Combinations of tags in a file. Figures need memory for each."""
OTHER_TAGS = "other tags"
S_PER_DAY = 86_400
REASONS = 5
"""Most refused lines that are named."""


class Imported(Struct):
    """Counts of the lines of a file by what was done with them.

    `ignored`: columns that were not read. `reasons`: why the first few lines were refused. `days`
    have calls; `first` and `last` of them are dates (ISO, UTC). `stated_usd`: what the file states
    that its calls cost; None if it does not.
    """

    title: str = ""
    ignored: list[str] = []
    written: int = 0
    present: int = 0
    skipped: int = 0
    refused: int = 0
    reasons: list[str] = []
    days: int = 0
    first: str = ""
    last: str = ""
    stated_usd: float | None = None


def import_log(
    path: Path,
    url: str,
    mapped: dict[str, str],
    provider: str = "",
    done: Callable[[int], None] = lambda lines: None,
) -> Imported:
    """Write the calls of a file into the log at `url`, which is created if there is none.

    `mapped`: columns by field; `provider` replaces that of each line; `done` is called with the
    number of lines that were read. Lines that cannot be a call are refused and counted. Raises
    `CallerFault` if the file or the log cannot be opened, or if the file's columns are not
    understood.
    """
    with file_faults(f"cannot read {path}", kind="unreadable_file"):
        first = next((values for _, values in lines_of(path) if not isinstance(values, str)), None)
    if first is None:
        raise CallerFault(
            f"{path} has no line with values",
            kind="bad_import",
            hint="Give CSV, JSON lines or a list.",
        )
    try:
        form = format_of([str(column) for column in first], mapped)
    except CallerFault as fault:
        fault.message = f"{path}: {fault.message}"
        raise
    database, imported = Database.open(url), Imported(title=form.title, ignored=form.ignored)
    days: set[int] = set()
    try:
        with database.connect() as connection:
            for last, batch in _batches(_records(path, form, provider, imported)):
                _write(connection, database.begin, batch, imported)
                days.update(record.came_us // US_PER_DAY for record in batch)
                done(last)
    except database.failures as error:
        words = f"cannot write the log {database.where}: {database.error_text(error)}"
        raise CallerFault(words, kind="log_unavailable") from None
    if days:
        begin, end = (
            datetime.fromtimestamp(day * S_PER_DAY, UTC) for day in (min(days), max(days))
        )
        imported.days, imported.first, imported.last = (
            len(days),
            f"{begin:%Y-%m-%d}",
            f"{end:%Y-%m-%d}",
        )
    return imported


def _records(
    path: Path, form: ForeignFormat, provider: str, imported: Imported
) -> Iterator[tuple[int, CallRecord]]:
    """Yield each call with the number of its line, and count the other lines."""
    tags: set[str] = set()
    with file_faults(f"cannot read {path}", kind="unreadable_file"):
        for number, values in lines_of(path):
            try:
                if isinstance(values, str):
                    raise ValueError(values)
                record = record_of(values, form, provider)
            except ValueError as error:
                imported.refused += 1
                if imported.refused <= REASONS:
                    imported.reasons.append(f"line {number:,}: {error}")
                continue
            if record is None:
                imported.skipped += 1
            else:
                yield number, _with_few_tags(record, tags)


def _with_few_tags(record: CallRecord, seen: set[str]) -> CallRecord:
    """Return the call; without its tags if the file has too many, such as an id in each call."""
    accounting = record.accounting
    if accounting is None or accounting.tags in seen:
        return record
    if len(seen) < MAX_TAGS:
        seen.add(accounting.tags)
        return record
    return replace(record, accounting=replace(accounting, tags=OTHER_TAGS))


def _batches(records: Iterator[tuple[int, CallRecord]]) -> Iterator[tuple[int, list[CallRecord]]]:
    while part := list(itertools.islice(records, BATCH)):
        yield part[-1][0], [record for _, record in part]


def _write(
    connection: Connection, begin: str, batch: Sequence[CallRecord], imported: Imported
) -> None:
    calls = {record.call: record for record in batch}
    times = {record.came_us for record in batch}
    there = select(CALLS.c.call).where(CALLS.c.came_us.in_(times), CALLS.c.call.in_(calls))
    connection.exec_driver_sql(begin)
    present = set(connection.execute(there).scalars())
    new = [rows(record) for call, record in calls.items() if call not in present]
    if new:
        connection.execute(insert(CALLS), [_named(CALLS, each.call) for each in new])
        connection.execute(
            insert(ATTEMPTS), [_named(ATTEMPTS, row) for each in new for row in each.attempts]
        )
    connection.exec_driver_sql("COMMIT")
    for record in batch:
        if record.accounting is not None and record.accounting.stated_usd is not None:
            imported.stated_usd = (imported.stated_usd or 0.0) + record.accounting.stated_usd
    imported.written += len(new)
    imported.present += len(batch) - len(new)


def _named(table: Table, row: Sequence[Any]) -> dict[str, Any]:
    names = [column.name for column in table.columns if not column.primary_key]
    return dict(zip(names, row, strict=True))
