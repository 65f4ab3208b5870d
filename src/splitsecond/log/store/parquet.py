"""A log in Parquet files, which DuckDB reads: for more calls than a database of the gateway should
keep.

`log/store/parquet_export` writes the files: ``attempts/day=2026-11-23/00000.parquet`` and
``calls/day=…``, by the UTC day in which a call came in. The rows of a day are sorted by target and
time. They have the columns of the tables (`log/store/tables`); attempts also have the numbers of
`core/timing/packed_attempt` as columns, so that figures need no computation for each row.
"""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct
from sqlalchemy import BigInteger, Boolean, Column, Connection, Double, LargeBinary, Table, make_url
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.engine import Engine
from sqlalchemy.pool import NullPool

from splitsecond.core.clock import US_PER_DAY
from splitsecond.core.errors import PARSER_ERRORS, CallerFault, content_faults, excerpt
from splitsecond.core.timing.columns import AttemptColumns, AttemptLabel, Integers
from splitsecond.log.store.columns import read_ahead
from splitsecond.log.store.tables import ATTEMPTS, CALLS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

DESCRIPTION = "splitsecond-log.json"
SCHEMA = "splitsecond.log/1"
MEMORY = "256MB"
"""Memory of DuckDB's own while it reads; a block of attempts comes on top."""
THREADS = 2
ROWS = 1 << 15
"""Rows of one block: so few that the arrays that are made of them fit into a processor's cache."""
AHEAD = 2
"""Files that are read before they are used."""
NUMBERS = {
    "label": ("label", "UBIGINT"), "call_hash": ("call", "BIGINT"),
    "call_attempts": ("attempts", "BIGINT"),
    "flags": ("flags", "BIGINT"), "wait_ns": ("wait_ns", "BIGINT"),
    "decode_ns": ("decode_ns", "BIGINT"),
    "decoded": ("decoded", "BIGINT"),
}  # fmt: skip
"""Columns of attempts in addition to those of the table and `route`: the field of
`packed_attempt.FIELDS`, its type."""
NAMES = {
    "target": "", "client": "", "route": "", "tier": "", "fault": "",
    "team": "''", "tags": "''", "stated": "false",
}  # fmt: skip
"""The columns of an `AttemptLabel`, and what those are that an older version did not write."""
_EPOCH = date(1970, 1, 1)
_COLUMNS = (
    "label, came_us, call_hash AS call, call_attempts AS attempts, flags, wait_ns, end_ns AS "
    "took_ns, decode_ns, decoded, coalesce(input_tokens, -1) AS input_tokens, "
    "coalesce(output_tokens, -1) AS output_tokens, coalesce(cached_tokens, 0) AS cached_tokens, "
    "coalesce(cache_write_tokens, 0) AS cache_write_tokens, coalesce(cache_write_1h_tokens, 0) AS "
    "cache_write_1h_tokens"
)


class Description(Struct, frozen=True, kw_only=True):
    """The file that marks a folder as a log. `tables`: the version of the tables whose columns the
    files have."""

    schema: str = SCHEMA
    tables: int


def connect(folder: Path, file: str = ":memory:") -> "DuckDBPyConnection":
    """Return a connection of DuckDB that uses little memory, and `folder` for what does not fit
    into it.

    Raises `CallerFault` if DuckDB is not installed.
    """
    if importlib.util.find_spec("duckdb") is None:
        raise CallerFault(
            "a log in Parquet files needs DuckDB",
            kind="missing_driver",
            hint="pip install 'splitsecond[parquet]'",
        )
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": MEMORY,
        "threads": THREADS,
        "temp_directory": str(folder / ".spill"),
    }
    return duckdb.connect(file, config=settings)


@contextmanager
def duckdb_faults(words: str) -> Iterator[None]:
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise CallerFault(f"{words}: {excerpt(str(error))}", kind="log_unavailable") from None


def check_folder(folder: Path) -> None:
    """Raise `CallerFault` if `folder` is not a log in Parquet files that this version can read."""
    try:
        header = msgspec.json.decode((folder / DESCRIPTION).read_bytes(), type=Description)
    except (OSError, *PARSER_ERRORS):
        raise CallerFault(
            f"the folder {folder} is not a log",
            kind="not_a_log",
            hint="`splitsecond export --parquet FOLDER` writes one.",
        ) from None
    if header.schema != SCHEMA:
        raise CallerFault(
            f"the log {folder} was written by a newer version: {header.schema}, this one knows "
            f"{SCHEMA}",
            kind="newer_log",
            hint="Update splitsecond, or name another log.",
        )


def check_path(folder: Path) -> None:
    """Raise `CallerFault` if DuckDB would take the folder's path for a pattern."""
    if any(each in str(folder) for each in "*?["):
        raise CallerFault(
            f"the path {folder} has one of the characters * ? [",
            kind="bad_log_url",
            hint="Rename it.",
        )


def rows_as_text(file: Path) -> Iterator[tuple[int, dict[str, str | None]]]:
    """Yield the rows of any Parquet file with their numbers, from 1, values as text, times as ISO
    8601.

    Raises `CallerFault` if it cannot be read.
    """
    check_path(file)
    with closing(connect(file.parent)) as database, duckdb_faults(f"cannot read {file}"):
        cursor = database.execute("SET TimeZone = 'UTC'").execute(
            "SELECT COLUMNS(*)::VARCHAR FROM read_parquet(?)", [str(file)]
        )
        names, number = [name for name, *_ in cursor.description], 0
        while rows := cursor.fetchmany(1000):
            for row in rows:
                number += 1
                yield number, dict(zip(names, row, strict=True))


def kind_of(column: "Column[Any]") -> str:
    """Return DuckDB's type of a column."""
    if isinstance(column.type, LargeBinary):
        return "BLOB"
    kinds: dict[type, str] = {BigInteger: "BIGINT", Boolean: "BOOLEAN", Double: "DOUBLE"}
    return next((kind for each, kind in kinds.items() if isinstance(column.type, each)), "VARCHAR")


def day_folder(table: str, day: int) -> str:
    return f"{table}/day={_EPOCH + timedelta(days=day)}"


class _Dialect(PGDialect):
    """DuckDB for SQLAlchemy, for queries only: PostgreSQL's SQL with question marks for
    parameters."""

    name = "duckdb"
    driver = "duckdb"
    default_paramstyle = "qmark"
    supports_statement_cache = True

    @classmethod
    def import_dbapi(cls) -> Any:
        import duckdb

        return duckdb

    def initialize(self, connection: Connection) -> None:
        """Ask the database nothing."""

    def do_rollback(self, dbapi_connection: Any) -> None:
        """End no transaction: there is none."""

    def do_commit(self, dbapi_connection: Any) -> None:
        """End no transaction: there is none."""


def _engine(duckdb: Any) -> Engine:
    dialect: Any = _Dialect
    return Engine(
        NullPool(duckdb.cursor), dialect(dbapi=dialect.import_dbapi()), make_url("duckdb://")
    )


class ParquetDatabase:
    def __init__(self, folder: Path) -> None:
        self.where = str(folder)
        self._folder = folder
        self._duckdb = connect(folder)
        for table in (CALLS, ATTEMPTS):
            pattern = f"{folder}/{table.name}/*/*.parquet".replace("'", "''")
            if any(folder.glob(f"{table.name}/*/*.parquet")):
                with duckdb_faults(f"cannot read the log {folder}"):
                    self._create_view(
                        table,
                        f"read_parquet('{pattern}', hive_partitioning = "
                        "false, union_by_name = true)",
                    )
        self._engine = _engine(self._duckdb)

    def _create_view(self, table: Table, source: str) -> None:
        """Create the view of a table. Columns that an older version did not write are null."""
        present = {name for name, *_ in self._duckdb.execute(f"DESCRIBE FROM {source}").fetchall()}
        kinds = {each.name: kind_of(each) for each in table.c if each.nullable}
        missing = [f"NULL::{kind} AS {name}" for name, kind in kinds.items() if name not in present]
        self._duckdb.execute(
            f"CREATE VIEW {table.name} AS SELECT {', '.join(['*', *missing])} FROM {source}"
        )

    @classmethod
    def open(cls, path: str) -> "ParquetDatabase":
        folder = Path(path).absolute()
        check_path(folder)
        check_folder(folder)
        database = cls(folder)
        if not database.files(0, US_PER_DAY * 1_000_000):
            raise CallerFault(f"the log {folder} has no calls", kind="nothing_logged")
        return database

    def connect(self) -> Connection:
        return self._engine.connect()

    def error_text(self, error: Exception) -> str:
        return excerpt(str(getattr(error, "orig", None) or error))

    def files(self, since_us: int, until_us: int) -> list[tuple[Path, bool]]:
        files = []
        for each in sorted(
            self._folder.glob("attempts/day=[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]")
        ):
            with content_faults(str(each), kind="log_unavailable"):
                day_us = (
                    date.fromisoformat(each.name.removeprefix("day=")) - _EPOCH
                ).days * US_PER_DAY
            if day_us < until_us and since_us < day_us + US_PER_DAY:
                whole = since_us <= day_us and day_us + US_PER_DAY <= until_us
                files += [(file, whole) for file in sorted(each.glob("*.parquet"))]
        return files

    def attempts(
        self, since_us: int, until_us: int, targets: Sequence[str] = ()
    ) -> Iterator[tuple[AttemptColumns, float]]:
        files = self.files(since_us, until_us)
        label_of: dict[int, AttemptLabel] = {}

        def read(file: Path, whole: bool) -> AttemptColumns | None:
            where, values = (
                ([], [str(file)])
                if whole
                else (["came_us >= ? AND came_us < ?"], [str(file), since_us, until_us])
            )
            if targets:
                where.append(f"target IN ({', '.join('?' * len(targets))})")
                values += targets
            return self._block(
                "FROM read_parquet(?, hive_partitioning = false) WHERE "
                f"{' AND '.join(where) or 'true'}",
                values,
                label_of,
            )

        for block, share in read_ahead(
            files, lambda file: read(*file), threads=THREADS, ahead=AHEAD
        ):
            for start in range(0, len(block.label), ROWS):
                yield block.taken(slice(start, start + ROWS)), share

    def _block(
        self, source: str, values: list[Any], label_of: dict[int, AttemptLabel]
    ) -> AttemptColumns | None:
        with duckdb_faults(f"cannot read the log {self._folder}"), self._duckdb.cursor() as cursor:
            numbers = cursor.execute(f"SELECT {_COLUMNS} {source}", values).fetchnumpy()
            hashes = numbers.pop("label")
            if not len(hashes):
                return None
            if (labelled := _labelled(hashes, label_of)) is None:
                present = {
                    name
                    for name, *_ in cursor.execute(f"DESCRIBE SELECT * {source}", values).fetchall()
                }
                names = (name if name in present else old for name, old in NAMES.items())
                labels = cursor.execute(
                    f"SELECT DISTINCT ON (label) label, {', '.join(names)} {source}", values
                ).fetchall()
                label_of |= {label: AttemptLabel(*names) for label, *names in labels}
                labelled = _labelled(hashes, label_of)
        if labelled is None:
            raise CallerFault(
                f"the log {self._folder} was changed while it was read", kind="log_unavailable"
            )
        return AttemptColumns(labels=labelled[0], label=labelled[1], **numbers).compact()


def _labelled(
    hashes: npt.NDArray[np.uint64], label_of: Mapping[int, AttemptLabel]
) -> tuple[list[AttemptLabel], Integers] | None:
    names = sorted(dict(label_of))  # a copy, because another thread may add some
    ordered = np.array(names, np.uint64)
    place = np.searchsorted(ordered, hashes)
    if not names or (ordered.take(place, mode="clip") != hashes).any():
        return None
    return [label_of[name] for name in names], place
