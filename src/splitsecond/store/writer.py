"""The thread that writes the log, so that traffic never waits for a disk.

Strategy: the event loop appends to a bounded queue and goes on. The thread takes what has gathered in a quarter of a
second and writes it in one transaction. A few dozen rows go in with one statement, as the interpreter is free for the
event loop while the database works on it; a statement for each row would make the two threads fight over the
interpreter at every row.

What the database refuses is kept, as rows, and tried again with the next batch after a pause that doubles. All of it is
bounded: where a queue is full, records are dropped and counted, and traffic goes on. A record that can never be written
(a number too large) is found by halving its batch, and dropped alone. Where a server's answer to a commit is lost, the
batch is written again: it may then stand there twice.

Rows older than `keep_days` are deleted now and then, a few hundred at a time, so that no other process waits long.
"""

import contextlib
import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select
from sqlalchemy.engine.interfaces import DBAPICursor

from splitsecond import clock
from splitsecond.store.database import Database
from splitsecond.store.rows import Rows, rows
from splitsecond.store.served import Served
from splitsecond.store.tables import ATTEMPTS, CALLS

QUEUE = 4096
"""Records that may wait for the thread; each still holds the times of its tokens."""
PENDING = 8192
"""Records that may wait for a database that refuses them; as rows, some 3 KiB each."""
BATCH = 1000
GATHER_S = 0.25
"""How long records gather, if there are not enough for a batch before."""
LONGEST_PAUSE = 40
"""The longest pause after failures, in quarters of a second."""
CLOSE_S = 5.0
CLOSE_TRIES = 2
"""Failures after which what is left is given up at closing; each may take as long as a lock is waited for."""
SWEEP_S = 600
SWEEP_ROWS = 500
SAY_NS = 60 * clock.NS_PER_S
_IDLE_S = 60.0
_AT_ONCE = (32, 8, 1)
"""Rows of one statement. Few sizes, so that the database keeps each prepared."""
_US_PER_DAY = 86_400_000_000


def complain(words: str) -> None:
    """Says it on standard error."""
    print(f"splitsecond: {words}", file=sys.stderr, flush=True)


class Writer:
    """The queue and what empties it. `start` the thread, `put` from any other, `close`.

    `written`, `dropped` count records, `errors` batches that the database refused.
    """

    def __init__(
        self, database: Database, *, keep_days: float = 30, say: Callable[[str], None] = complain, queue: int = QUEUE
    ) -> None:
        self.written = 0
        self.errors = 0
        self._refused = 0  # counted by whoever puts; what is lost, by the thread: neither may lose a count of the other
        self._lost = 0
        self._database = database
        self._keep_us = round(keep_days * _US_PER_DAY)
        self._say = say
        self._said_ns: int | None = None
        self._told = False  # that something is wrong, and not yet that it is well again
        self._most = queue
        self._queue: deque[Served] = deque()
        self._pending: deque[Rows] = deque()
        self._connection: Connection | None = None
        self._inserts: dict[tuple[str, int], str] = {}
        self._pause = self._rounds_left = 0
        self._sweep_ns = 0  # when old rows are looked for next
        self._wake = threading.Event()
        self._asleep = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="splitsecond-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def dropped(self) -> int:
        return self._refused + self._lost

    def put(self, served: Served) -> None:
        """Never waits and never raises."""
        waiting = len(self._queue)
        if waiting >= self._most:
            self._refused += 1
            return
        self._queue.append(served)
        if self._asleep or waiting == BATCH:
            self._wake.set()

    def close(self) -> None:
        """Writes what waits, for `CLOSE_S` at most. What is then left is counted as dropped."""
        if self._closing:
            return
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        if left := len(self._queue) + len(self._pending):
            self._lost += left
            self._say(f"log {self._database.where}: closed with {left} records unwritten")

    def _run(self) -> None:
        try:
            while not self._closing:
                self._gather()
                if self._rounds_left and not self._closing:
                    self._rounds_left -= 1
                    self._keep()
                else:
                    self.write()
            tries = CLOSE_TRIES
            while (self._queue or self._pending) and tries:
                tries -= not self.write()
        finally:
            self._disconnect()

    def _gather(self) -> None:
        """Returns when there is something to write, and has been for a moment."""
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
        """One transaction with what waits, a batch of the queue at most, then some sweeping. Returns whether it went
        well. For the thread; for a test without one."""
        if not self._pending and not self._queue and not self._sweeping:
            return True
        try:
            connection = self._connected()
            if self._pending or self._queue:
                self._write_batch(connection)
            if self._sweeping:
                self._sweep(connection)
        except self._database.hopeless:
            self._disconnect()
            return self._write_good_ones()
        except self._database.failures as error:
            self._failed(error)
            return False
        self._recovered()
        return True

    def _write_batch(self, connection: Connection, *, alone: bool = False) -> None:
        """What is pending and, unless `alone`, what is queued. Rows stay pending until all are in the database."""
        cursor = connection.connection.cursor()  # the driver's own: SQLAlchemy's way costs more than the insert
        with contextlib.closing(cursor):  # left open, it would keep the lock of a transaction that failed
            cursor.execute(self._database.begin)
            waiting = list(self._pending)
            for i in range(0, len(waiting), _AT_ONCE[0]):
                self._insert(cursor, waiting[i : i + _AT_ONCE[0]])
            wall_us = _wall_us()
            while self._queue and not alone and len(self._pending) < len(waiting) + BATCH:
                self._insert(cursor, self._next_rows(wall_us))
            cursor.execute("COMMIT")
        self.written += len(self._pending)
        self._pending.clear()

    def _next_rows(self, wall_us: int) -> list[Rows]:
        """A few records more of the queue, as rows that are pending."""
        made = [rows(self._queue.popleft(), wall_us) for _ in range(min(_AT_ONCE[0], len(self._queue)))]
        self._pending.extend(made)
        return made

    def _insert(self, cursor: DBAPICursor, records: Sequence[Rows]) -> None:
        self._insert_rows(cursor, CALLS, [record.call for record in records])
        self._insert_rows(cursor, ATTEMPTS, [row for record in records for row in record.attempts])

    def _insert_rows(self, cursor: DBAPICursor, table: Table, given: Sequence[tuple[Any, ...]]) -> None:
        for chunk in _chunks(given):
            values = tuple(itertools.chain.from_iterable(chunk))
            cursor.execute(self._statement(table, len(chunk)), values)

    def _statement(self, table: Table, count: int) -> str:
        """The database's own words for inserting `count` rows, kept: composing them costs more than the insert."""
        statement = self._inserts.get((table.name, count))
        if statement is None:
            names = [column.name for column in table.columns if not column.primary_key]
            one = str(insert(table).inline().compile(dialect=self._database.dialect, column_keys=names))
            head, _, values = one.partition(" VALUES ")
            statement = self._inserts[table.name, count] = f"{head} VALUES {', '.join([values] * count)}"
        return statement

    def _write_good_ones(self) -> bool:
        """Among what is pending is a record that no database takes: finds it by halving, and drops it."""
        self._keep()
        waiting, self._pending = list(self._pending), deque()
        parts = [waiting]
        while parts:
            part = parts.pop()
            self._pending.extend(part)
            try:
                self._write_batch(self._connected(), alone=True)
            except self._database.hopeless as error:
                self._disconnect()
                self._pending.clear()
                if len(part) == 1:
                    self._lost += 1
                    self._tell(f"a record cannot be written: {self._database.said(error)}")
                else:
                    parts += [part[len(part) // 2 :], part[: len(part) // 2]]
            except self._database.failures as error:
                self._pending.extend(itertools.chain.from_iterable(reversed(parts)))
                self._failed(error)
                return False
        self._pause, self._told = 0, False
        return True

    def _connected(self) -> Connection:
        if self._connection is not None and self._database.gone:
            self._disconnect()
            self.errors += 1
            self._tell(f"log {self._database.where}: the file was removed; a new one is made")
        if self._connection is None:
            self._database.prepare()
            self._connection = self._database.connect()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*self._database.failures):  # it is given up, whatever it says to that
                connection.invalidate()
                connection.close()

    def _failed(self, error: Exception) -> None:
        """Keeps what could not be written, for the next time; that is later each time."""
        self._disconnect()
        self.errors += 1
        self._tell(f"cannot write the log {self._database.where}: {self._database.said(error)}")
        self._pause = min(max(1, self._pause * 2), LONGEST_PAUSE)
        self._rounds_left = self._pause
        self._keep()

    def _recovered(self) -> None:
        self._pause = 0
        if self._told:
            self._told = False
            self._say(f"the log {self._database.where} is written again; {self.dropped} records were lost so far")

    def _keep(self) -> None:
        """Makes rows of what is queued, which are smaller; beyond the bound the oldest are dropped."""
        wall_us = _wall_us()
        while self._queue:
            self._next_rows(wall_us)
        lost = 0
        while len(self._pending) > PENDING:
            self._pending.popleft()
            lost += 1
        if lost:
            self._lost += lost
            self._tell(f"log {self._database.where}: {lost} records are lost, the queue is full")

    def _tell(self, words: str) -> None:
        """Says it, but not more than once a minute."""
        moment = clock.now_ns()
        if self._said_ns is None or moment - self._said_ns >= SAY_NS:
            self._said_ns = moment
            self._told = True
            self._say(words)

    @property
    def _sweeping(self) -> bool:
        return clock.now_ns() >= self._sweep_ns

    def _sweep(self, connection: Connection) -> None:
        """Deletes a few rows that are too old; where there are no more, looks again some minutes later."""
        cutoff_us = clock.now_ns() // 1000 + _wall_us() - self._keep_us
        deleted = 0
        for table in (CALLS, ATTEMPTS):
            old = select(table.c.n).where(table.c.came_us < cutoff_us).order_by(table.c.came_us).limit(SWEEP_ROWS)
            deleted += connection.execute(delete(table).where(table.c.n.in_(old))).rowcount
        if not deleted:
            self._sweep_ns = clock.now_ns() + SWEEP_S * clock.NS_PER_S


def _chunks(given: Sequence[tuple[Any, ...]]) -> Iterator[Sequence[tuple[Any, ...]]]:
    """All of `given` in order, in parts of the sizes that there are statements for."""
    begin = 0
    for size in _AT_ONCE:
        while len(given) - begin >= size:
            yield given[begin : begin + size]
            begin += size


def _wall_us() -> int:
    """What to add to monotonic microseconds to have those of the wall clock, as it stands now."""
    return round(clock.wall_time().timestamp() * 1_000_000) - clock.now_ns() // 1000
