"""The gateway's log: every call and every attempt, in a file of SQLite's or in PostgreSQL.

One `Log` for each process, opened in it; several may write the same file. Traffic never waits for it and never fails by
it: what cannot be written is counted, said, and in the end dropped (`store/writer`). What stands in it: `store/tables`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import TracebackType

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from splitsecond import clock
from splitsecond.errors import CallerFault
from splitsecond.store import reading
from splitsecond.store.database import Database, check_url
from splitsecond.store.reading import Tokens
from splitsecond.store.served import Served
from splitsecond.store.writer import Writer, complain
from splitsecond.timing.observation import Observation

__all__ = ["Log", "Past", "Served", "Tokens", "check_url"]

KEEP_DAYS = 30


class Past:
    """What stands in a log, for reading: from any thread (a read may take some hundred milliseconds).

    Every method raises `CallerFault` where the database does not answer.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, url: str) -> "Past":
        """The log at `url`, which must be there. Raises `CallerFault` where it cannot be opened."""
        return cls(Database.open(url, new=False))

    def targets(self) -> list[str]:
        """Every target that was asked, sorted."""
        with self._connection() as connection:
            return list(reading.targets(connection))

    def attempts(self, since: datetime, until: datetime | None = None) -> Iterator[tuple[datetime, Observation]]:
        """The attempts for calls that came in from `since` until before `until` (None: now), in order, each with the
        moment of its call. Moments in them count from that one; the times of single tokens are not there.
        """
        with self._connection() as connection:
            yield from reading.attempts(connection, since, until or clock.wall_time())

    def recent(self, since: timedelta, *, each: int = 200) -> list[tuple[Observation, float]]:
        """The last `each` attempts of every target within `since`, in the order of time, with their age in seconds.

        Their moments count from the arrival of their call, which is 0; the times of single tokens are not there.
        """
        with self._connection() as connection:
            return reading.recent(connection, since, each)

    def spent_tokens(self, client: str, since: datetime) -> Mapping[str, Tokens]:
        """What `client` used of each target since that moment, by all processes that write this log."""
        with self._connection() as connection:
            return reading.spent_tokens(connection, client, since)

    def calls(self, since: datetime, until: datetime | None = None) -> Iterator[tuple[datetime, Served]]:
        """The calls that came in from `since` until before `until` (None: now), in order, each with its moment.

        Moments in them count from that one; the times of single tokens are not there.
        """
        with self._connection() as connection:
            yield from reading.calls(connection, since, until or clock.wall_time())

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        try:
            with self._database.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise CallerFault(
                f"cannot read the log {self._database.where}: {self._database.said(error)}", kind="log_unavailable"
            ) from None


class Log(Past):
    """An open log: `put` from the event loop."""

    def __init__(self, database: Database, writer: Writer) -> None:
        super().__init__(database)
        self._writer = writer
        self.put = writer.put  # once for each request: one step less

    @classmethod
    def open(cls, url: str, *, keep_days: float = KEEP_DAYS, say: Callable[[str], None] = complain) -> "Log":
        """Opens the log at `url`, makes its tables where there are none, and starts its thread.

        Calls older than `keep_days` are deleted. `say` gets what goes wrong later, from the thread, once a minute at
        most. Raises `CallerFault` where the log cannot be opened.
        """
        database = Database.open(url)
        writer = Writer(database, keep_days=keep_days, say=say)
        writer.start()
        return cls(database, writer)

    @property
    def written(self) -> int:
        """Calls that are in the database."""
        return self._writer.written

    @property
    def dropped(self) -> int:
        """Calls that were not kept: the queue was full, or the database refused them for too long."""
        return self._writer.dropped

    @property
    def errors(self) -> int:
        """Batches that the database refused; they are tried again."""
        return self._writer.errors

    def close(self) -> None:
        """Writes what is queued, for a few seconds at most. Calling it again does nothing."""
        self._writer.close()

    def __enter__(self) -> "Log":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
