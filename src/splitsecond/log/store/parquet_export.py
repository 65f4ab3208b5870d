"""Export of a log to Parquet files (`log/store/parquet`), day by day, in bounded memory.

The folder of a day is complete or absent: it is written under another name and then renamed.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Struct
from sqlalchemy import Column, Row, Table, and_, func, select

from splitsecond.core.clock import US_PER_DAY
from splitsecond.core.errors import CallerFault, content_faults
from splitsecond.core.timing.columns import LAYOUT
from splitsecond.core.timing.packed_attempt import FIELDS, PACKED, label_hash
from splitsecond.log.store.columns import (
    OF_CALL,
    ROUTE,
    STATED,
    TAGS,
    TEAM,
    Connecting,
    numbers_of,
)
from splitsecond.log.store.parquet import (
    DESCRIPTION,
    NUMBERS,
    Description,
    check_folder,
    check_path,
    connect,
    day_folder,
    duckdb_faults,
    kind_of,
)
from splitsecond.log.store.tables import ATTEMPTS, CALLS, VERSION, WITH_CALL

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ROWS = 1 << 18
"""Rows of one file: the block that a reader has in memory."""
FORMAT = "FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION v2"
"""Options of DuckDB. The encodings of the second version are read in 31 ns a row instead of 53, and
take 8% less."""
NAMES = {"team": "VARCHAR", "tags": "VARCHAR", "stated": "BOOLEAN"}
"""Columns of attempts that are names of their calls, beside `route`."""
BATCH = 10_000
"""Rows that are on their way at a time."""
_CALLS = list(CALLS.c)
_ATTEMPTS = [each for each in ATTEMPTS.c if each.name != "packed"]


class ExportedLog(Struct):
    """What was written. `kept`: days that were not, because the folder has them with more calls."""

    days: int = 0
    kept: int = 0
    calls: int = 0
    attempts: int = 0
    bytes: int = 0


def export_log(
    connect_log: Connecting,
    folder: Path,
    first: int,
    last: int,
    done: Callable[[float], None] = lambda share: None,
) -> ExportedLog:
    """Write the calls that came in from `first` until before `last`, with their attempts, into
    `folder`.

    Times are microseconds since 1970; the first day is written from its beginning. A day that the
    folder has with more calls is kept: the log may have deleted some. Raises `CallerFault` if the
    folder cannot be written, or contains something else.
    """
    check_path(folder.absolute())
    exported, first = ExportedLog(), first - first % US_PER_DAY
    inside = and_(CALLS.c.came_us >= first, CALLS.c.came_us < last)
    with connect_log() as connection:
        first, last = connection.execute(
            select(func.min(CALLS.c.came_us), func.max(CALLS.c.came_us) + 1).where(inside)
        ).one()
    try:
        _prepare(folder)
        with (
            duckdb_faults(f"cannot write {folder}"),
            tempfile.TemporaryDirectory(prefix=".export-", dir=folder) as scratch,
        ):
            for day in (
                range(first // US_PER_DAY, (last - 1) // US_PER_DAY + 1)
                if first is not None
                else ()
            ):
                begin, end = max(first, day * US_PER_DAY), min(last, (day + 1) * US_PER_DAY)
                _export_day(connect_log, folder, Path(scratch), day, begin, end, exported)
                done((end - first) / (last - first))
    except OSError as error:
        raise CallerFault(
            f"cannot write {error.filename or folder}: {error.strerror or error}",
            kind="unwritable_folder",
        ) from None
    return exported


def _prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        check_folder(folder)
    (folder / DESCRIPTION).write_bytes(msgspec.json.encode(Description(tables=VERSION)) + b"\n")


def _export_day(
    connect_log: Connecting,
    folder: Path,
    scratch: Path,
    day: int,
    begin: int,
    end: int,
    exported: ExportedLog,
) -> None:
    file = scratch / f"{day}.duckdb"
    database = connect(scratch, str(file))
    try:
        calls = _gather(connect_log, database, CALLS, begin, end)
        if not calls:
            return
        if calls < _rows_of(database, folder / day_folder(CALLS.name, day)):
            exported.kept += 1
            return
        attempts = _gather(connect_log, database, ATTEMPTS, begin, end)
        exported.bytes += _write(
            database, ATTEMPTS, folder / day_folder(ATTEMPTS.name, day), scratch / "day", attempts
        )
        exported.bytes += _write(
            database, CALLS, folder / day_folder(CALLS.name, day), scratch / "day", calls
        )
        exported.calls += calls
        exported.attempts += attempts
        exported.days += 1
    finally:
        database.close()
        file.unlink()


def _gather(
    connect_log: Connecting, database: "DuckDBPyConnection", table: Table, begin: int, end: int
) -> int:
    columns, more = _CALLS, {}
    if table is ATTEMPTS:
        columns, more = (
            _ATTEMPTS,
            {"route": "VARCHAR"} | NAMES | {name: kind for name, (_, kind) in NUMBERS.items()},
        )
    kinds = {each.name: kind_of(each) for each in columns} | more
    database.execute(
        f"CREATE TABLE {table.name} ({', '.join(f'{name} {kind}' for name, kind in kinds.items())})"
    )
    count = 0
    for rows in _rows(connect_log, table, begin, end):
        with content_faults("a row of the log cannot be exported", kind="log_unavailable"):
            block = _columns(columns, rows)
            if more:
                block |= _numbers(rows)
        database.register("block", block)
        database.execute(f"INSERT INTO {table.name} FROM block")
        count += len(rows)
    return count


def _rows_of(database: "DuckDBPyConnection", day: Path) -> int:
    if not day.exists():
        return 0
    ((count,),) = database.execute(
        "SELECT count(*) FROM read_parquet(?)", [f"{day}/*.parquet"]
    ).fetchall()
    return int(count)


def _rows(
    connect_log: Connecting, table: Table, begin: int, end: int
) -> Iterator[Sequence[Row[Any]]]:
    query = select(*_CALLS)
    if table is ATTEMPTS:
        query = select(*_ATTEMPTS, ROUTE, TEAM, TAGS, STATED, OF_CALL, ATTEMPTS.c.packed)
        query = query.select_from(WITH_CALL)
    query = query.where(table.c.came_us >= begin, table.c.came_us < end)
    with connect_log() as connection:
        if connection.dialect.name == "postgresql":  # a cursor on the server needs a transaction
            connection = connection.execution_options(isolation_level="READ COMMITTED")
        yield from connection.execute(query, execution_options={"yield_per": BATCH}).partitions()


def _columns(columns: Sequence["Column[Any]"], rows: Sequence[Row[Any]]) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for column, values in zip(columns, zip(*rows, strict=True), strict=False):
        kind = {"BIGINT": np.int64, "DOUBLE": np.float64}.get(kind_of(column))
        if kind is not None:
            missing = [value is None for value in values]
            arrays[column.name] = np.ma.masked_array(
                np.array([value or 0 for value in values], kind), missing
            )
        else:
            arrays[column.name] = np.array(values, object)
    return arrays


def _numbers(rows: Sequence[Row[Any]]) -> dict[str, Any]:
    ends = [tuple(row)[-6:] for row in rows]
    packed = [each[-1] for each in ends]
    fields = np.frombuffer(b"".join(each or bytes(PACKED.size) for each in packed), LAYOUT)
    numbers = {
        name: fields[field].astype(np.uint64 if name == "label" else np.int64)
        for name, (field, _) in NUMBERS.items()
    }
    for at, (row, (route, *names, attempts, packed_row)) in enumerate(zip(rows, ends, strict=True)):
        if packed_row is None:  # a number is too large
            more = (*names[:2], "stated" if names[2] else "") if any(names) else ()
            label = label_hash(row.target, row.client, route, row.tier, row.fault, *more)
            of_row = dict(zip(FIELDS, numbers_of(row, label, attempts), strict=True))
            for name, field in NUMBERS.items():
                numbers[name][at] = of_row[field[0]]
    texts = zip(("route", *NAMES), zip(*ends, strict=True), strict=False)
    return {name: np.array(values, object) for name, values in texts} | numbers


def _write(
    database: "DuckDBPyConnection", table: Table, day: Path, scratch: Path, count: int
) -> int:
    order = "target, came_us, n" if table is ATTEMPTS else "came_us, n"
    database.execute(f"CREATE TABLE sorted AS FROM {table.name} ORDER BY {order}")
    scratch.mkdir()
    for number, start in enumerate(range(0, count, ROWS)):
        file = str(scratch / f"{number:05}.parquet").replace("'", "''")
        rows = f"FROM sorted WHERE rowid >= {start} AND rowid < {start + ROWS} ORDER BY rowid"
        database.execute(f"COPY ({rows}) TO '{file}' ({FORMAT})")
        # as the log itself; so far only its owner can reach it
        os.chmod(scratch / f"{number:05}.parquet", 0o600)
    database.execute("DROP TABLE sorted")
    size = sum(file.stat().st_size for file in scratch.iterdir())
    if day.exists():
        shutil.rmtree(day)
    day.parent.mkdir(exist_ok=True)
    scratch.rename(day)
    return size
