"""The database of the log: a SQLite file or a PostgreSQL server, named by a URL.

A URL can contain a password, and so can the error message of a driver: no message shows the URL,
and messages of drivers are shown without the password.
"""

import hashlib
import importlib.util
import logging
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from splitsecond.core.errors import CallerFault, excerpt
from splitsecond.core.scratch import temporary_files
from splitsecond.log.store import tables

BUSY_S = 2.0
"""How long a write waits for another process that is writing, which takes milliseconds."""
CONNECT_S = 5
SILENT_S = 5
"""Time without an acknowledgement of the server's kernel after which a new connection is tried.
After a partition the old one would be used again only with TCP's next repetition, ten seconds later
or more."""
IDLE_S = 10
"""Time after which an idle connection is checked, and a transaction that does nothing while it
creates tables ends."""
PREPARE_S = 10
"""How long a process that need not wait for the tables waits for a migration, its own or that of
another process."""
MIGRATE_S = 100
"""How long a process waits while another one creates or migrates the tables of a file. A worker has
120 s to start."""
_WAL_TRIES = 100
_WAL_PAUSE_S = 0.02
_WAL_BYTES = 64 << 20
"""The size of the write-ahead file after a long read that made it grow."""
_LOCK = 0x5EC0_0DB5
"""PostgreSQL's advisory lock while tables are created: any number that other programs are unlikely
to use."""
UNWRITTEN = "unwritten-"
_EXAMPLE = "Write sqlite:///splitsecond.db, or postgresql://USER@HOST/DATABASE."


def check_url(url: str) -> None:
    """Raise `CallerFault` if `url` cannot name a log: its form, its driver, its folder. Opens
    nothing."""
    _parsed(url)


class Database:
    """The open database of one log. Connections commit each statement by themselves; `begin` starts
    a transaction.

    A write raises one of `record_errors` if the record is at fault, and one of `failures` for other
    causes.
    """

    def __init__(self, url: URL) -> None:
        self.where = _where(url)
        self.unwritten = _beside(url, UNWRITTEN)
        self._password = url.password or ""
        self._file = url.database or "" if url.drivername == "sqlite" else ""
        self._inode = 0
        if self._file:
            # waits for other writers here, where waiting is still possible
            self.begin = "BEGIN IMMEDIATE"
            options: dict[str, Any] = {"connect_args": {"timeout": BUSY_S}}
        else:
            self.begin = "BEGIN"
            idle = {"keepalives_idle": IDLE_S, "keepalives_interval": SILENT_S}
            limits = {"connect_timeout": CONNECT_S, "tcp_user_timeout": SILENT_S * 1000, **idle}
            options = {"connect_args": limits, "paramstyle": "format"}
            # It would print a traceback for each connection that broke, which the callers report in
            # a line.
            logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
        self._engine = create_engine(
            url, isolation_level="AUTOCOMMIT", poolclass=NullPool, **options
        )
        self.dialect = self._engine.dialect
        driver = self.dialect.loaded_dbapi
        self.record_errors: tuple[type[Exception], ...] = (
            driver.DataError,
            driver.IntegrityError,
            OverflowError,
            ValueError,
        )
        self.failures: tuple[type[Exception], ...] = (SQLAlchemyError, driver.Error, CallerFault)
        if self._file:
            event.listen(self._engine, "connect", _tune)
            # Without these the driver looks for an adapter of None and of each flag. That takes
            # longer than to bind and store all values of a row.
            sqlite3.register_adapter(bool, int)
            sqlite3.register_adapter(type(None), {}.get)  # type: ignore[arg-type] # returns None for None

    @classmethod
    def open(
        cls, url: str, *, new: bool = True, away: Callable[[str], None] | None = None
    ) -> "Database":
        """Open the log at `url` and create its tables if there are none. Raises `CallerFault` if
        that fails.

        `new`: a file that does not exist is created. With `away`, a server that does not answer, or
        that is migrating the tables, is no failure, nor is a file that cannot be read or written,
        as on a full or broken disk: `away` gets the reason, and `prepare` must be called before the
        first write.
        """
        database = cls(_parsed(url, check_folder=away is None))
        if not new and database._file and not os.path.exists(database._file):
            raise CallerFault(
                f"there is no log {database.where}",
                kind="no_log",
                hint="A gateway writes one where its configuration says log: sqlite:///FILE.",
            )
        if database._file:
            _make_private(database._file)
        try:
            database.prepare(within_s=None if away is None else PREPARE_S)
        except SQLAlchemyError as error:
            text = database.error_text(error)
            foreign = "not a database" in text
            if away is not None and not foreign:
                away(text)
                return database
            foreign = foreign or "malformed" in text
            raise CallerFault(
                f"cannot open the log {database.where}: {text}",
                kind="not_a_log" if foreign else "log_unavailable",
                hint="Move the file away, or name another log." if foreign else "",
            ) from None
        return database

    def connect(self) -> Connection:
        return self._engine.connect()

    @property
    def is_server(self) -> bool:
        return not self._file

    @property
    def file_replaced(self) -> bool:
        """Whether the file was removed or replaced, so that an open connection writes to a file
        without a name."""
        return bool(self._file) and _inode(self._file) != self._inode

    def error_text(self, error: Exception) -> str:
        text = str(getattr(error, "orig", None) or error)
        return excerpt(text.replace(self._password, "***") if self._password else text)

    def prepare(self, *, within_s: int | None = None) -> None:
        """Create the tables if there are none, or migrate them.

        `within_s`: how long each statement may take in a server; None: as long as it needs. Raises
        `SQLAlchemyError`, or `CallerFault` if it is not a log.
        """
        with self.connect() as connection:
            if self._file:
                if not tables.are_current(connection):
                    connection.exec_driver_sql(f"PRAGMA busy_timeout = {MIGRATE_S * 1000}")
                connection.exec_driver_sql(self.begin)
            else:
                # A transaction of its own: its lock on the table of the version would keep a
                # migration waiting, which would wait for this process, which waits for the
                # migration.
                self._begin(connection, within_s)
                current = tables.are_current(connection)
                connection.exec_driver_sql("COMMIT")
                if current:
                    return
                self._begin(connection, within_s)
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
            tables.prepare(connection, self.where, shared=not self._file)
            connection.exec_driver_sql("COMMIT")
            if self._file:
                _write_ahead(connection)  # last, because it changes the file, which is a log by now
                self._inode = _inode(self._file)

    def _begin(self, connection: Connection, within_s: int | None) -> None:
        connection.exec_driver_sql(self.begin)
        # A session whose process was cut off in here would keep the lock, and all others from
        # writing.
        connection.exec_driver_sql(
            f"SET LOCAL idle_in_transaction_session_timeout = {IDLE_S * 1000}"
        )
        if within_s is not None:
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {within_s * 1000}")


def _tune(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    # A power failure can cost the last moments, never the file
    # (sqlite.org/pragma.html#pragma_synchronous, 2025-11).
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute(f"PRAGMA journal_size_limit={_WAL_BYTES}")
    cursor.close()


def _make_private(file: str) -> None:
    """Create the file if there is none, readable by its owner only. SQLite gives its -wal and -shm
    files the same mode.

    An existing file is not opened: closing it would release the locks that SQLite holds on it in
    this process. Raises `CallerFault` if this user may not create it.
    """
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except PermissionError as error:
        raise CallerFault(
            f"cannot open the log {file}: {error.strerror}", kind="log_unavailable"
        ) from None
    except OSError:
        pass  # it exists, or cannot be created now, which SQLite will report


def _write_ahead(connection: Connection) -> None:
    """Allow readers beside a writer. The change fails while another process uses the file, so it is
    tried again."""
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
                    "the log's file system cannot share memory between processes (journal mode "
                    f"{mode!r})",
                    kind="log_unavailable",
                    hint="Put the log on a local disk.",
                )
            return


def _inode(file: str) -> int:
    try:
        return os.stat(file).st_ino
    except OSError:
        return 0


def _parsed(address: str, *, check_folder: bool = True) -> URL:
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        raise CallerFault("the log's URL is not one", kind="bad_log_url", hint=_EXAMPLE) from None
    if url.drivername in ("sqlite", "sqlite+pysqlite"):
        return _file_url(url, check_folder)
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return _server_url(url)
    raise CallerFault(
        f"the log cannot be kept in {url.drivername!r}: sqlite and postgresql are known",
        kind="bad_log_url",
        hint=_EXAMPLE,
    )


def _file_url(url: URL, check_folder: bool) -> URL:
    if url.host or url.query or not url.database or url.database == ":memory:":
        raise CallerFault(
            "the log's URL must name a file",
            kind="bad_log_url",
            hint="Three slashes before a relative path, four before an absolute one: sqlite:///splitsecond.db.",
        )
    path = Path(url.database)
    if check_folder and path.is_dir():
        raise CallerFault(
            f"the log's file {path} is a folder", kind="bad_log_url", hint="Name a file in it."
        )
    if check_folder and not path.parent.is_dir():
        raise CallerFault(
            f"there is no folder {path.parent} for the log's file",
            kind="bad_log_url",
            hint="Make it, or name another.",
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


def unwritten_stem(url: str) -> Path:
    return beside(url, UNWRITTEN)


def beside(url: str, name: str) -> Path:
    """Return the file `name` of a log: beside a SQLite log, otherwise in the temporary folder."""
    return _beside(_parsed(url, check_folder=False), name)


def _beside(url: URL, name: str) -> Path:
    if url.drivername == "sqlite":
        return Path(f"{url.database}.{name}")
    log = hashlib.sha256(url.render_as_string(hide_password=True).encode()).hexdigest()[:16]
    return temporary_files() / f"splitsecond-log-{log}.{name}"


def sqlite_file(url: str) -> Path | None:
    parsed = make_url(url)
    is_file = parsed.get_backend_name() == "sqlite" and parsed.database not in (
        None,
        "",
        ":memory:",
    )
    return Path(str(parsed.database)) if is_file else None
