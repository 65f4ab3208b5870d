"""The thread that writes the log, so that traffic never waits for a disk.

The thread writes what has gathered in a quarter of a second in one transaction, a few dozen rows
with one statement: the interpreter is free for the event loop while the database works on it.
Between statements the thread yields the processor, or a request that waits for it would wait for
the rest of a time slice, a millisecond or more.

Rows that the database refuses are tried again with the next batch, after a pause that doubles. If a
queue is full, records are dropped and counted. A record that can never be written (a number too
large) is found by halving its batch, and dropped alone. If the confirmation of a commit is lost,
the batch is written again, and may then be in the log twice.

Rows older than `keep_days` are deleted a few hundred at a time, so that no other process waits
long.
"""

import contextlib
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select
from sqlalchemy.engine.interfaces import DBAPICursor

from splitsecond.core import clock
from splitsecond.core.errors import say
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.database import Database
from splitsecond.log.store.partitions import maintain
from splitsecond.log.store.rows import Rows, rows
from splitsecond.log.store.tables import ATTEMPTS, CALLS

QUEUE = 4096
"""Records that can wait for the thread; each still contains the times of its tokens."""
PENDING = 8192
"""Records that can wait for a database that refuses them; as rows, about 3 KiB each."""
BATCH = 1000
GATHER_S = 0.25
"""How long records gather, unless there are enough for a batch earlier."""
LONGEST_PAUSE = 40
"""The longest pause after failures, in quarters of a second."""
CLOSE_S = 5.0
CLOSE_TRIES = 2
"""Failures after which closing gives up; each can take as long as the wait for a lock."""
SWEEP_S = 600
SWEEP_ROWS = 500
SAY_NS = 60 * clock.NS_PER_S
_IDLE_S = 60.0
_AT_ONCE = (32, 8, 1)
"""Rows of one statement. Few sizes, so that the database keeps each statement prepared."""
_yield_processor: Callable[[], None] | None = getattr(os, "sched_yield", None)
"""None: the system has no such call."""


class LogWriter:
    """The queue and its thread. `start` the thread, `put` from any other thread, `close`.

    `written` and `dropped` count records, `errors` batches that the database refused. `failing`:
    the last batch was.
    """

    def __init__(
        self,
        database: Database,
        *,
        keep_days: float = 31,
        say: Callable[[str], None] = say,
        queue: int = QUEUE,
    ) -> None:
        self.written = 0
        self.errors = 0
        self.failing = False
        # counted by callers of `put`, and `_lost` by the thread, so that no increment is lost
        self._refused = 0
        self._lost = 0
        self._database = database
        self._keep_us = round(keep_days * clock.US_PER_DAY)
        self._say = say
        self._reported_ns: int | None = None
        self._reported = False  # a problem was reported, and its end was not
        self._most = queue
        self._queue: deque[CallRecord | Rows] = deque()
        self._pending: deque[Rows] = deque()
        self._connection: Connection | None = None
        self._inserts: dict[tuple[str, int], str] = {}
        self._pause = self._rounds_left = 0
        self._sweep_ns = 0  # when old rows are deleted next
        self._wake = threading.Event()
        self._asleep = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="splitsecond-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def dropped(self) -> int:
        return self._refused + self._lost

    @property
    def waiting(self) -> int:
        return len(self._queue) + len(self._pending)

    def put(self, record: CallRecord | Rows) -> None:
        """Queue a record, or its rows. Never waits and never raises."""
        waiting = len(self._queue)
        if waiting >= self._most:
            self._refused += 1
            return
        self._queue.append(record)
        if self._asleep or waiting + 1 == BATCH:
            self._wake.set()

    def close(self) -> None:
        """Write what waits, for `CLOSE_S` at most. The rest is counted as dropped."""
        if self._closing:
            return
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        if left := self.waiting:
            self._lost += left
            self._say(f"log {self._database.where}: closed; records not written: {left:,}")

    def _run(self) -> None:
        try:
            while not self._closing:
                self._gather()
                if self._rounds_left and not self._closing:
                    self._rounds_left -= 1
                    self._hold_back()
                else:
                    self.write()
            tries = CLOSE_TRIES
            while (self._queue or self._pending) and tries:
                tries -= not self.write()
        finally:
            self._disconnect()

    def _gather(self) -> None:
        """Return when there are records, and more have had time to gather."""
        if not self._pending and not self._sweeping:
            self._asleep = True
            if not self._queue and not self._closing:
                self._wake.wait(_IDLE_S)
            self._asleep = False
            self._wake.clear()
        if not self._closing and len(self._queue) < BATCH:
            self._wake.wait(GATHER_S)
            self._wake.clear()

    def write(self) -> bool:
        """Write what waits in one transaction, at most a batch of the queue, then delete some old
        rows. Return whether that succeeded. Called by the thread, and by tests that have none."""
        if not self._pending and not self._queue and not self._sweeping:
            return True
        try:
            connection = self._connected()
            if self._pending or self._queue:
                self._write_batch(connection)
            if self._sweeping:
                self._sweep(connection)
        except self._database.record_errors:
            self._disconnect()
            return self._write_good_ones()
        except self._database.failures as error:
            self._failed(error)
            return False
        self._recovered()
        return True

    def _write_batch(self, connection: Connection, *, alone: bool = False) -> None:
        """Write the pending rows and, unless `alone`, queued ones. Rows stay pending until all are
        in the database."""
        # the driver's: SQLAlchemy's execution costs more than the insert
        cursor = connection.connection.cursor()
        # left open, it would keep the lock of a transaction that failed
        with contextlib.closing(cursor):
            cursor.execute(self._database.begin)
            waiting = list(self._pending)
            for i in range(0, len(waiting), _AT_ONCE[0]):
                self._insert(cursor, waiting[i : i + _AT_ONCE[0]])
            while self._queue and not alone and len(self._pending) < len(waiting) + BATCH:
                self._insert(cursor, self._next_rows())
            cursor.execute("COMMIT")
        self.written += len(self._pending)
        self._pending.clear()

    def _next_rows(self) -> list[Rows]:
        self.yield_processor()
        taken = [self._queue.popleft() for _ in range(min(_AT_ONCE[0], len(self._queue)))]
        batch = [rows(each) if isinstance(each, CallRecord) else each for each in taken]
        self._pending.extend(batch)
        return batch

    def _insert(self, cursor: DBAPICursor, records: Sequence[Rows]) -> None:
        self._insert_rows(cursor, CALLS, [record.call for record in records])
        self._insert_rows(cursor, ATTEMPTS, [row for record in records for row in record.attempts])

    def _insert_rows(
        self, cursor: Any, table: Table, table_rows: Sequence[tuple[Any, ...]]
    ) -> None:
        if self._database.is_server:
            self.yield_processor()
            with cursor.copy(self._copy_statement(table)) as copy:
                for row in table_rows:
                    copy.write_row(row)
            return
        for chunk in _chunks(table_rows):
            self.yield_processor()
            values = tuple(itertools.chain.from_iterable(chunk))
            cursor.execute(self._statement(table, len(chunk)), values)

    def yield_processor(self) -> None:
        """Let another process run that waits for this processor, unless there is enough to write
        for a whole batch."""
        if len(self._queue) < BATCH and _yield_processor is not None:
            _yield_processor()

    def _copy_statement(self, table: Table) -> str:
        """Return the SQL that takes any number of rows from a stream: PostgreSQL reads no values as
        SQL then."""
        names = ", ".join(column.name for column in table.columns if not column.primary_key)
        return f"COPY {table.name} ({names}) FROM STDIN"

    def _statement(self, table: Table, count: int) -> str:
        """Return the SQL that inserts `count` rows. It is cached, because composing it costs more
        than the insert."""
        statement = self._inserts.get((table.name, count))
        if statement is None:
            names = [column.name for column in table.columns if not column.primary_key]
            one = str(
                insert(table).inline().compile(dialect=self._database.dialect, column_keys=names)
            )
            head, _, values = one.partition(" VALUES ")
            statement = self._inserts[table.name, count] = (
                f"{head} VALUES {', '.join([values] * count)}"
            )
        return statement

    def _write_good_ones(self) -> bool:
        """Write the pending rows except for those of a bad record, which is found by halving and
        dropped."""
        self._hold_back()
        waiting, self._pending = list(self._pending), deque()
        parts = [waiting]
        while parts:
            part = parts.pop()
            self._pending.extend(part)
            try:
                self._write_batch(self._connected(), alone=True)
            except self._database.record_errors as error:
                self._disconnect()
                self._pending.clear()
                if len(part) == 1:
                    self._lost += 1
                    self._report(f"a record cannot be written: {self._database.error_text(error)}")
                else:
                    parts += [part[len(part) // 2 :], part[: len(part) // 2]]
            except self._database.failures as error:
                self._pending.extend(itertools.chain.from_iterable(reversed(parts)))
                self._failed(error)
                return False
        self._pause, self._reported, self.failing = 0, False, False
        return True

    def _connected(self) -> Connection:
        if self._connection is not None and self._database.file_replaced:
            self._disconnect()
            self.errors += 1
            self._report(f"log {self._database.where}: the file was removed; a new one is created")
        if self._connection is None:
            self._database.prepare()
            self._connection = self._database.connect()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*self._database.failures):  # it is discarded in any case
                connection.invalidate()
                connection.close()

    def _failed(self, error: Exception) -> None:
        """Keep the rows for the next try, after a longer pause each time."""
        self._disconnect()
        self.errors += 1
        self.failing = True
        self._report(
            f"cannot write the log {self._database.where}: {self._database.error_text(error)}"
        )
        self._pause = min(max(1, self._pause * 2), LONGEST_PAUSE)
        self._rounds_left = self._pause
        self._hold_back()

    def _recovered(self) -> None:
        self._pause, self.failing = 0, False
        if self._reported:
            self._reported = False
            self._say(
                f"the log {self._database.where} is written again; records lost so far: "
                f"{self.dropped:,}"
            )

    def _hold_back(self) -> None:
        """Convert the queue to rows, which are smaller. Beyond the limit the oldest are dropped."""
        while self._queue:
            self._next_rows()
        lost = 0
        while len(self._pending) > PENDING:
            self._pending.popleft()
            lost += 1
        if lost:
            self._lost += lost
            self._report(f"log {self._database.where}: the queue is full; records lost: {lost:,}")

    def _report(self, words: str) -> None:
        """Report a problem, at most once a minute."""
        moment = clock.now_ns()
        if self._reported_ns is None or moment - self._reported_ns >= SAY_NS:
            self._reported_ns = moment
            self._reported = True
            self._say(words)

    @property
    def _sweeping(self) -> bool:
        return clock.now_ns() >= self._sweep_ns

    def _sweep(self, connection: Connection) -> None:
        """Delete a few rows that are too old. If there are no more, look again some minutes
        later."""
        now_us = clock.now_ns() // 1000 + clock.wall_offset_us()
        cutoff_us = now_us - self._keep_us
        if self._database.is_server:
            for words in maintain(connection, now_us, cutoff_us):
                self._report(f"log {self._database.where}: {words}")
        deleted = 0
        for table in (CALLS, ATTEMPTS):
            old = (
                select(table.c.n)
                .where(table.c.came_us < cutoff_us)
                .order_by(table.c.came_us)
                .limit(SWEEP_ROWS)
            )
            deleted += connection.execute(delete(table).where(table.c.n.in_(old))).rowcount
        if not deleted:
            self._sweep_ns = clock.now_ns() + SWEEP_S * clock.NS_PER_S


def _chunks(table_rows: Sequence[tuple[Any, ...]]) -> Iterator[Sequence[tuple[Any, ...]]]:
    begin = 0
    for size in _AT_ONCE:
        while len(table_rows) - begin >= size:
            yield table_rows[begin : begin + size]
            begin += size
