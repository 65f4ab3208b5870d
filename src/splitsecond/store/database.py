"""Where the log is: a file of SQLite's, or a PostgreSQL server; named by a URL, opened, and checked.

A URL may hold a password, and so may what a driver says of it: no message shows the URL, and what a driver said is
shown only without the password.
"""

import importlib.util
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from splitsecond.errors import CallerFault, excerpt
from splitsecond.store import tables

BUSY_S = 2.0
"""How long a write waits for another process that writes; theirs take milliseconds."""
CONNECT_S = 5
_WAL_TRIES = 100
_WAL_PAUSE_S = 0.02
_WAL_BYTES = 64 << 20
"""What is kept of the write-ahead file once a long read no longer holds it."""
_LOCK = 0x5EC0_0DB5
"""PostgreSQL's advisory lock that is held while tables are made: any number that others are unlikely to take."""
_EXAMPLE = "Write sqlite:///splitsecond.db, or postgresql://USER@HOST/DATABASE."


def check_url(url: str) -> None:
    """Raises `CallerFault` where `url` cannot name a log: its form, its driver, its folder. Opens nothing."""
    _parsed(url)


class Database:
    """One log's database, open. Connections commit each statement by themselves; `begin` starts a transaction.

    What writing can raise: `hopeless` where it is the record's fault, `failures` for all else.
    """

    def __init__(self, url: URL) -> None:
        self.where = _where(url)
        self._password = url.password or ""
        self._file = url.database or "" if url.drivername == "sqlite" else ""
        self._inode = 0
        if self._file:
            self.begin = "BEGIN IMMEDIATE"  # waits for its turn here, where waiting is still possible
            options: dict[str, Any] = {"connect_args": {"timeout": BUSY_S}}
        else:
            self.begin = "BEGIN"
            options = {"connect_args": {"connect_timeout": CONNECT_S}, "paramstyle": "format"}
        self._engine = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool, **options)
        self.dialect = self._engine.dialect
        driver = self.dialect.loaded_dbapi
        self.hopeless: tuple[type[Exception], ...] = (
            driver.DataError,
            driver.IntegrityError,
            OverflowError,
            ValueError,
        )
        self.failures: tuple[type[Exception], ...] = (SQLAlchemyError, driver.Error, CallerFault)
        if self._file:
            event.listen(self._engine, "connect", _tune)
            # Without these the driver asks None and each flag whether it knows another form of itself, which takes
            # longer than to bind and to store all values of a row.
            sqlite3.register_adapter(bool, int)
            sqlite3.register_adapter(type(None), {}.get)  # type: ignore[arg-type] # of None it makes None

    @classmethod
    def open(cls, url: str, *, new: bool = True) -> "Database":
        """Opens the log at `url` and makes its tables where there are none. Raises `CallerFault` where that fails.

        Unless it may be `new`, a file must be there.
        """
        database = cls(_parsed(url))
        if not new and database._file and not os.path.exists(database._file):
            raise CallerFault(
                f"there is no log {database.where}",
                kind="no_log",
                hint="A gateway writes one where its configuration says log: sqlite:///FILE.",
            )
        try:
            database.prepare()
        except SQLAlchemyError as error:
            said = database.said(error)
            foreign = "not a database" in said or "malformed" in said
            raise CallerFault(
                f"cannot open the log {database.where}: {said}",
                kind="not_a_log" if foreign else "log_unavailable",
                hint="Move the file away, or name another log." if foreign else "",
            ) from None
        return database

    def connect(self) -> Connection:
        """A connection of its own. Raises `SQLAlchemyError`."""
        return self._engine.connect()

    @property
    def gone(self) -> bool:
        """The file was removed or replaced: what is open would be written where nobody finds it."""
        return bool(self._file) and _inode(self._file) != self._inode

    def said(self, error: Exception) -> str:
        """What the driver said, in one line, without the password."""
        text = str(getattr(error, "orig", None) or error)
        return excerpt(text.replace(self._password, "***") if self._password else text)

    def prepare(self) -> None:
        """Makes the tables where there are none. Raises `SQLAlchemyError`, or `CallerFault` where they are not ours."""
        with self.connect() as connection:
            connection.exec_driver_sql(self.begin)
            if not self._file:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
            tables.prepare(connection, self.where, shared=not self._file)
            connection.exec_driver_sql("COMMIT")
            if self._file:
                _write_ahead(connection)  # last, as it changes the file: by here it is ours
                self._inode = _inode(self._file)


def _tune(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    # A power cut may cost the last moments, never the file (sqlite.org/pragma.html#pragma_synchronous, 2025-11).
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute(f"PRAGMA journal_size_limit={_WAL_BYTES}")
    cursor.close()


def _write_ahead(connection: Connection) -> None:
    """Readers and a writer at once. The change itself is refused while another has the file: it is tried again."""
    for attempt in range(_WAL_TRIES):
        try:
            mode = connection.exec_driver_sql("PRAGMA journal_mode=WAL").scalar()
        except OperationalError as error:
            if "locked" not in str(error.orig) or attempt == _WAL_TRIES - 1:
                raise
            time.sleep(_WAL_PAUSE_S)
        else:
            if mode != "wal":
                raise CallerFault(
                    f"the log's file system cannot share memory between processes (journal mode {mode!r})",
                    kind="log_unavailable",
                    hint="Put the log on a local disk.",
                )
            return


def _inode(file: str) -> int:
    try:
        return os.stat(file).st_ino
    except OSError:
        return 0


def _parsed(given: str) -> URL:
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):
        raise CallerFault("the log's URL is not one", kind="bad_log_url", hint=_EXAMPLE) from None
    if url.drivername in ("sqlite", "sqlite+pysqlite"):
        return _file_url(url)
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return _server_url(url)
    raise CallerFault(
        f"the log cannot be kept in {url.drivername!r}: sqlite and postgresql are known",
        kind="bad_log_url",
        hint=_EXAMPLE,
    )


def _file_url(url: URL) -> URL:
    if url.host or url.query or not url.database or url.database == ":memory:":
        raise CallerFault(
            "the log's URL must name a file",
            kind="bad_log_url",
            hint="Three slashes before a relative path, four before an absolute one: sqlite:///splitsecond.db.",
        )
    path = Path(url.database)
    if path.is_dir():
        raise CallerFault(f"the log's file {path} is a folder", kind="bad_log_url", hint="Name a file in it.")
    if not path.parent.is_dir():
        raise CallerFault(
            f"there is no folder {path.parent} for the log's file", kind="bad_log_url", hint="Make it, or name another."
        )
    return url.set(drivername="sqlite", database=str(path.absolute()))


def _server_url(url: URL) -> URL:
    if importlib.util.find_spec("psycopg") is None:
        raise CallerFault(
            "a log in PostgreSQL needs its driver",
            kind="missing_driver",
            hint="pip install 'splitsecond[postgres]'",
        )
    if not url.database:
        raise CallerFault("the log's URL names no database", kind="bad_log_url", hint=_EXAMPLE)
    return url.set(drivername="postgresql+psycopg")


def _where(url: URL) -> str:
    if url.drivername == "sqlite":
        return str(url.database)
    port = f":{url.port}" if url.port else ""
    return f"{url.database} at {url.host or 'the local PostgreSQL'}{port}"
