"""The worker's side of the log process: records go to a Unix socket, and are kept until they are settled.

The event loop encodes each record, a few microseconds, and sends what has gathered every 20 ms. What the process does
not take is saved in a file (`log/store/unwritten`), which the next process reads: at once if there is no process, and
after `LATE_S` if it is slow. Records that a process had taken and not settled before it died are saved too. A thread
writes the file, because the disk may be slow. If the disk refuses, records wait in memory. What waits is bounded;
beyond the limits, new records are dropped and counted.
"""

import asyncio
import contextlib
import os
import select
import socket
import struct
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from itertools import accumulate, chain, repeat, starmap
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import msgspec
from msgspec.structs import replace

from splitsecond.core import clock
from splitsecond.core.observation import Observation
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.record_counts import DROPPED, ROWS, SENT, WAITING, RecordCounts
from splitsecond.log.store.unwritten import LENGTH, UnwrittenFile

AGAIN = 1 << 31
"""Bit in the length of a record that was sent before."""
BEGIN = 1 << 30
"""Bit in the first frame of a connection, which has no record: the number of the worker's slot × `ROWS`, plus the
connection's row in its counts (`log/store/record_counts`)."""
REPLY = struct.Struct(">QQQQ?")
"""Reply: the records of the connection that the process has taken, those of them that are settled (written, in a file,
or lost), how many records are lost, how many of all workers wait in files, and whether the log is failing. The process
tells one worker about files, and about records that were lost after they had been settled."""
MAX_RECORDS = 65_536
MAX_BYTES = 64 << 20
"""Limits on what waits for the process and for a file, for each worker."""
GATHER_S = 0.02
RECONNECT_S = 0.2
LATE_S = 0.1
"""How long records wait for a process that reads nothing until they are saved in a file."""
SAVE_AGAIN_S = 1.0
"""Time between two attempts to save records if the disk refuses them."""
CLOSE_S = 5.0
LAST_SAVE_S = 2.0
"""How long the disk may take at the end to save records."""
SAY_NS = 60 * clock.NS_PER_S
_AT_ONCE = 256
"""Records that are sent with one call of the system."""
_CHUNK = 4096
_ENCODER = msgspec.msgpack.Encoder()


class RemoteLogWriter:
    """Writes records through the log process. Create it, `put` and `close` it in the event loop's thread.

    `written` counts records; those in files count as written. `failing`: the log process could not write when it last
    reported. `errors` is always 0: the log process reports the database's errors.
    """

    errors = 0

    def __init__(self, path: Path, where: str, *, unwritten: Path, say: Callable[[str], None], worker: int = 0) -> None:
        """`unwritten`: how the paths of files for records begin that are not written. `say` gets problems, each at most
        once a minute. `worker`: the number of the worker's slot, in which no other worker runs.
        """
        self.written = 0
        self.failing = False
        self._path = path
        self._where = where
        self._say = say
        self._say_ns: dict[str, int] = {}  # by problem: not before then
        self._loop = asyncio.get_running_loop()
        self._connection: socket.socket | None = None
        self._connect_ns = 0  # not before then
        self._records: deque[bytes] = deque()  # sent or not, until they are settled or being saved
        self._bytes = 0  # of these and of those that are being saved
        self._unsent: list[bytes] = []  # the last records: no part of them is sent
        self._again = 0  # how many of the first of these were sent on an earlier connection
        self._begun = b""  # the rest of a record that the socket has taken in part
        self._late_ns: int | None = None  # since when the socket does not take all
        self._taken = self._settled = self._lost = self._saved = 0  # as last reported on this connection
        self._replies = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._file = UnwrittenFile(unwritten, only_writes=True)
        self._file_open = False
        self._files: dict[Path, int] = {}  # records in files that were there when last looked
        self._saving: list[bytes] = []
        self._saver: Thread | None = None
        self._to_save = SimpleQueue[list[bytes] | None]()  # for the thread; []: close the file; None: end, too
        self._saved_or_not = SimpleQueue[OSError | None]()  # from the thread: why it could not save
        self._save_error: Exception | None = None
        self._save_ns = 0  # not before then
        self._safe = asyncio.Event()
        self._end_ns: int | None = None
        self._closed = False
        self._worker = worker
        self._counts = RecordCounts(path, worker, say)
        self._cells = self._counts.cells
        self._process = 0  # number of the last log process
        self._row = self._counts.row(0)  # of the connection
        self._counts.settle(self._process if self._connected() else 0)

    @property
    def dropped(self) -> int:
        return self._cells[DROPPED]

    @property
    def waiting(self) -> int:
        return len(self._records) + len(self._saving) + self._saved + self._in_files()

    def put(self, record: CallRecord) -> None:
        waiting = len(self._records) + len(self._saving)
        if waiting >= MAX_RECORDS or self._bytes >= MAX_BYTES or self._closed:
            self._drop(f"log {self._where}: records are lost because too many wait to be written")
            return
        try:
            data = encode(record)
        except OverflowError as error:
            self._drop(f"a record cannot be written: {error}")
            return
        self._cells[WAITING] += 1
        self._records.append(data)
        self._bytes += len(data)
        self._unsent.append(data)
        if self._timer is None:
            self._timer = self._loop.call_later(GATHER_S, self._gathered)

    async def drain(self) -> None:
        self._safe.clear()
        if self._left_to_do():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._safe.wait(), self._patience_s())

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._connect_ns = 0
        if self._timer is not None:
            self._timer.cancel()
        if self._saving:
            self._take_saved(LAST_SAVE_S)
        while self._left_to_do() and self._connected() and (left_s := self._patience_s()) > 0:
            self._send()
            waiting = [] if self._connection is None else [self._connection]
            readable, _, _ = select.select(waiting, [], [], min(left_s, RECONNECT_S))
            if readable:
                self._receive()
        taken, process_lives = self._taken - self._settled, self._connection is not None
        self._row[SENT] = self._taken  # it settles them; the rest of what was sent is saved
        self._disconnect(died=False)
        del self._unsent[:taken]
        left = len(self._unsent) + len(self._saving)
        if self._unsent and not self._saving:
            self._save_unsent()
            if self._saving:
                self._take_saved(LAST_SAVE_S)
        if self._saver is not None and not self._saving:
            self._to_save.put(None)
            self._saver.join(LAST_SAVE_S)
        self._report_end(in_files=bool(left) or not process_lives)
        self._count()

    def _report_end(self, *, in_files: bool) -> None:
        words = f"log {self._where}: closed; records not written"
        if lost := len(self._unsent) + len(self._saving):
            self._say(
                f"{words}: {lost:,}. They are lost: {'the disk does not answer' if self._saving else self._save_error}."
            )
            self._cells[DROPPED] += lost
            for _ in self._unsent:
                self._records.pop()
            self._unsent, self._saving = [], []
        if in_files and (kept := self._in_files()):
            files = ", ".join(map(str, self._files))
            self._say(f"{words}: {kept:,}. They are kept in {files}; the log process or the next start writes them.")

    def _left_to_do(self) -> bool:
        taken = self.failing and self._taken - self._settled == len(self._records)
        return bool(self._saving or (self._records and not taken) or self._misses_process)

    @property
    def _misses_process(self) -> bool:
        return self._connection is None and self._in_files() > 0

    def _in_files(self) -> int:
        for path in [path for path in self._files if not os.path.exists(path)]:
            del self._files[path]
        return sum(self._files.values())

    def _patience_s(self) -> float:
        now_ns = clock.now_ns()
        if self._end_ns is None:
            self._end_ns = now_ns + round(CLOSE_S * clock.NS_PER_S)
        return (self._end_ns - now_ns) / clock.NS_PER_S

    def _gathered(self) -> None:
        self._timer = None
        if self._connected():
            self._send()
        self._save_late_ones()
        self._count()
        self._gather_more()

    def _gather_more(self) -> None:
        more = self._unsent or self._begun or self._file_open or self._misses_process
        if more and self._timer is None and not self._closed:
            self._timer = self._loop.call_later(GATHER_S, self._gathered)

    def _count(self) -> None:
        unsent = len(self._unsent) + bool(self._begun)
        self._cells[WAITING] = unsent + len(self._saving)
        if self._connection is not None:
            self._row[SENT] = self._settled + len(self._records) - unsent
        if not self._left_to_do():
            self._safe.set()

    def _connected(self) -> bool:
        if self._connection is None and clock.now_ns() >= self._connect_ns:
            with contextlib.ExitStack() as stack:
                try:
                    connection = stack.enter_context(socket.socket(socket.AF_UNIX))
                    connection.setblocking(False)
                    connection.connect(str(self._path))
                    process = self._path.stat().st_mtime_ns
                    row = self._counts.connect(process)
                    connection.send(LENGTH.pack(BEGIN | self._worker * ROWS | row))
                except OSError:  # the process is starting, or dead and about to be replaced
                    return False
                stack.pop_all()
            self._connection, self._process, self._row = connection, process, self._counts.row(row)
            if not self._closed:
                self._loop.add_reader(connection, self._receive)
        return self._connection is not None

    def _send(self) -> None:
        while self._connection is not None and (self._unsent or self._begun):
            records = self._unsent[:_AT_ONCE]
            lengths = list(map(len, records))
            headers = list(map(LENGTH.pack, lengths))
            if again := min(self._again, len(records)):
                headers[:again] = [LENGTH.pack(length | AGAIN) for length in lengths[:again]]
            data = b"".join((self._begun, *chain.from_iterable(zip(headers, records, strict=True))))
            try:
                sent = self._connection.send(data)
            except BlockingIOError:
                return
            except OSError:
                self._disconnect()
                return
            begun, end = len(records), len(data)
            if sent < end:
                begins = list(accumulate((LENGTH.size + length for length in lengths), initial=len(self._begun)))
                begun = bisect_left(begins, sent)
                end = begins[begun]
            self._begun = data[sent:end]
            del self._unsent[:begun]
            self._again = max(0, self._again - begun)
            if sent < len(data):
                return

    def _save_late_ones(self) -> None:
        if not (self._unsent or self._begun):
            self._late_ns = None
            if self._file_open and self._connection is not None:  # so that the process can read it
                self._file_open = False
                self._to_save.put([])
            return
        now_ns = clock.now_ns()
        if self._late_ns is None:
            self._late_ns = now_ns
        late = self._connection is None or now_ns - self._late_ns >= LATE_S * clock.NS_PER_S
        if late and self._unsent and not self._saving and now_ns >= self._save_ns:
            self._save_unsent()

    def _save_unsent(self) -> None:
        self._saving, self._unsent, self._again = self._unsent, [], 0
        for _ in self._saving:
            self._records.pop()
        if self._saver is None:
            saver = Thread(target=self._save, name="splitsecond-log-unwritten", daemon=True)
            try:
                saver.start()
            except RuntimeError as error:  # the machine has no more threads
                self._save_ended(error)
                return
            self._saver = saver
        self._file_open = True
        self._to_save.put(self._saving)

    def _save(self) -> None:
        while True:
            records, error = self._to_save.get(), None
            if not records:
                self._file.close()
                if records is None:
                    return
                continue
            try:
                self._file.add(records)
            except OSError as failure:
                error = failure
            self._saved_or_not.put(error)
            with contextlib.suppress(RuntimeError):  # the loop is closed: `close` has waited for the thread
                self._loop.call_soon_threadsafe(self._take_saved, 0)

    def _take_saved(self, wait_s: float) -> None:
        with contextlib.suppress(Empty):
            self._save_ended(self._saved_or_not.get(timeout=wait_s) if wait_s else self._saved_or_not.get_nowait())

    def _save_ended(self, error: Exception | None) -> None:
        self._save_error = error
        records, self._saving = self._saving, []
        if error is None:
            self._bytes -= sum(map(len, records))
            self.written += len(records)
            path = self._file.path
            self._files[path] = self._files.get(path, 0) + len(records)
            if self._connection is not None:
                self._report(f"log {self._where}: more records come than can be written; they wait in files.")
        else:
            for _ in self._unsent:
                self._records.pop()
            self._unsent = records + self._unsent
            self._records.extend(self._unsent)
            self._again += len(records)  # perhaps
            self._save_ns = clock.now_ns() + round(SAVE_AGAIN_S * clock.NS_PER_S)
            if not self._closed:
                self._report(f"log {self._where}: what waits cannot be saved: {error}.")
        self._count()
        self._gather_more()

    def _receive(self) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            data = connection.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._disconnect()
            return
        self._replies += data
        if (complete := len(self._replies) // REPLY.size * REPLY.size) == 0:
            return
        last = complete - REPLY.size  # the last one has the totals
        self._taken, settled, lost, self._saved, self.failing = REPLY.unpack_from(self._replies, last)
        del self._replies[:complete]
        number = settled - self._settled
        # as a loop of pops, without a step of the interpreter for each record
        self._bytes -= sum(map(len, starmap(self._records.popleft, repeat((), number))))
        self._cells[DROPPED] += lost - self._lost
        self.written += number - (lost - self._lost)
        self._settled, self._lost = settled, lost
        self._count()

    def _disconnect(self, *, died: bool = True) -> None:
        """Forget the connection. All records that are not settled are saved, or sent again. `died`: the log process."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        self._loop.remove_reader(connection)
        connection.close()
        if died:
            self._row[SENT] = 0
            self._counts.process_died()
        self._connect_ns = clock.now_ns() + round(RECONNECT_S * clock.NS_PER_S)
        self.failing = False
        self._taken = self._settled = self._lost = self._saved = 0
        self._replies.clear()
        self._unsent = list(self._records)
        self._again = len(self._unsent)
        self._begun = b""
        self._count()
        self._gather_more()

    def _drop(self, why: str) -> None:
        self._cells[DROPPED] += 1
        self._report(why)

    def _report(self, words: str) -> None:
        moment = clock.now_ns()
        if moment >= self._say_ns.get(words, moment):
            self._say_ns[words] = moment + SAY_NS
            self._say(words)


def encode(record: CallRecord) -> bytes:
    """Return the record in MessagePack, without the times of single tokens. Raises `OverflowError` for a number that is
    too large."""
    for attempt in record.attempts:
        if len(attempt.token_lengths) > 1:
            record = replace(record, attempts=tuple(map(_without_times, record.attempts)))
            break
    try:
        return _ENCODER.encode(record)
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can contain and UTF-8 cannot
        return _ENCODER.encode(_without_surrogates(msgspec.to_builtins(record)))


def _without_times(o: Observation) -> Observation:
    """Return the attempt as the log needs it: of its tokens only the number in the first event. A single one stays.

    To encode and decode the times of 64 tokens takes several times as long as all the rest.
    """
    if len(o.token_lengths) < 2:
        return o
    return replace(o, token_at=[], token_lengths=[], tokens_so_far=[o.first_event_tokens])


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(each) for name, each in value.items()}
    return [_without_surrogates(each) for each in value] if isinstance(value, list | tuple) else value
