"""The worker's side of the log: records go to the hub (`log/store/hub_connection`), and are kept
until it has settled them.

The event loop encodes each record and sends what has gathered every 20 ms. What the hub does not
take is saved in a file (`log/store/unwritten`) by a thread: at once if there is no hub, and after
`LATE_S` if it is slow. So are records that a hub had taken and not settled before it died. If the
disk refuses, records wait in memory, up to a limit; beyond it they are dropped and counted.
"""

import asyncio
import contextlib
import os
import select
from collections import deque
from collections.abc import Callable
from itertools import chain, repeat, starmap
from operator import add, or_
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import msgspec
from msgspec.structs import replace

from splitsecond.core import clock
from splitsecond.core.observation import Observation
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.hub_connection import AGAIN, RECONNECT_S, RECORD, HubConnection, Settled
from splitsecond.log.store.record_counts import DROPPED, SENT, WAITING, RecordCounts
from splitsecond.log.store.unwritten import LENGTH, UnwrittenFile

MAX_RECORDS = 65_536
MAX_BYTES = 64 << 20
"""Limits on what waits for the hub and for a file, for each worker."""
GATHER_S = 0.02
LATE_S = 0.1
"""How long records wait for a hub that reads nothing until they are saved in a file."""
SAVE_AGAIN_S = 1.0
CLOSE_S = 5.0
LAST_SAVE_S = 2.0
"""How long the disk may take at the end to save records."""
SAY_NS = 60 * clock.NS_PER_S
_AT_ONCE = 256
"""Records that are sent with one call of the system."""
NOTHING = Settled(0, 0, 0, 0, failing=False)
_ENCODER = msgspec.msgpack.Encoder()


class RemoteLogWriter:
    """Writes records through the hub. Create it, `put` and `close` it in the event loop's thread.

    `written` counts records; those in files count as written. `failing`: the hub could not write
    when it last reported. `errors` is always 0: the hub reports the database's errors.
    """

    errors = 0

    def __init__(
        self, hub: HubConnection, where: str, *, unwritten: Path, say: Callable[[str], None]
    ) -> None:
        """`unwritten`: how the paths of files for records begin that are not written. `say` gets
        problems, each at most once a minute.
        """
        self.written = 0
        self.failing = False
        self._hub = hub
        self._where = where
        self._say = say
        self._say_ns: dict[str, int] = {}  # by problem: not before then
        self._loop = asyncio.get_running_loop()
        self._records: deque[bytes] = deque()  # sent or not, until they are settled or being saved
        self._bytes = 0  # of these and of those that are being saved
        self._unsent: list[bytes] = []  # the last records: no part of them is sent
        self._again = 0  # how many of the first of these were sent on an earlier connection
        self._late_ns: int | None = None  # since when the hub does not take all
        self._reported = NOTHING  # on this connection
        self._timer: asyncio.TimerHandle | None = None
        self._file = UnwrittenFile(unwritten, only_writes=True)
        self._file_open = False
        self._files: dict[Path, int] = {}  # records in files that were there when last looked
        self._saving: list[bytes] = []
        self._saver: Thread | None = None
        # for the thread; []: close the file; None: end, too
        self._to_save = SimpleQueue[list[bytes] | None]()
        self._saved_or_not = SimpleQueue[OSError | None]()  # from the thread: why it could not save
        self._save_error: Exception | None = None
        self._save_ns = 0  # not before then
        self._safe: asyncio.Event | None = None  # of `drain`, which waits until nothing is left
        self._end_ns: int | None = None
        self._closed = False
        self._counts = RecordCounts(hub.path, hub.worker, say)
        self._cells = self._counts.cells
        self._row = self._counts.row(0)  # of the connection
        hub.new_row = self._new_row
        hub.handlers[Settled] = self._receive
        hub.on_lost.append(self._hub_died)
        self._counts.settle(hub.hub if hub.open() else 0)

    def _new_row(self, hub: int) -> int:
        row = self._counts.connect(hub)
        self._row = self._counts.row(row)
        return row

    @property
    def dropped(self) -> int:
        return self._cells[DROPPED]

    @property
    def waiting(self) -> int:
        return len(self._records) + len(self._saving) + self._reported.saved + self._in_files()

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
        if self._left_to_do():
            self._safe = self._safe or asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._safe.wait(), self._patience_s())

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._hub.closing = True
        if self._timer is not None:
            self._timer.cancel()
        if self._saving:
            self._take_saved(LAST_SAVE_S)
        while self._left_to_do() and self._hub.open() and (left_s := self._patience_s()) > 0:
            self._send()
            waiting = [] if self._hub.socket is None else [self._hub.socket]
            readable, _, _ = select.select(waiting, [], [], min(left_s, RECONNECT_S))
            if readable:
                self._hub.receive()
        taken, hub_lives = (
            self._reported.taken - self._reported.settled,
            self._hub.socket is not None,
        )
        # the hub settles them; the rest of what was sent is saved
        self._row[SENT] = self._reported.taken
        self._hub.close()
        self._begin_again()
        del self._unsent[:taken]
        left = len(self._unsent) + len(self._saving)
        if self._unsent and not self._saving:
            self._save_unsent()
            if self._saving:
                self._take_saved(LAST_SAVE_S)
        if self._saver is not None and not self._saving:
            self._to_save.put(None)
            self._saver.join(LAST_SAVE_S)
        self._report_end(in_files=bool(left) or not hub_lives)
        self._count()

    def _report_end(self, *, in_files: bool) -> None:
        words = f"log {self._where}: closed; records not written"
        if lost := len(self._unsent) + len(self._saving):
            self._say(
                f"{words}: {lost:,}. They are lost: "
                f"{'the disk does not answer' if self._saving else self._save_error}."
            )
            self._cells[DROPPED] += lost
            for _ in self._unsent:
                self._records.pop()
            self._unsent, self._saving = [], []
        if in_files and (unwritten := self._in_files()):
            files = ", ".join(map(str, self._files))
            self._say(
                f"{words}: {unwritten:,}. They are kept in {files}; the hub or "
                "the next start writes them."
            )

    def _left_to_do(self) -> bool:
        taken = self.failing and self._reported.taken - self._reported.settled == len(self._records)
        return bool(self._saving or (self._records and not taken) or self._misses_hub)

    @property
    def _misses_hub(self) -> bool:
        return self._hub.socket is None and self._in_files() > 0

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
        if self._hub.open():
            self._send()
        self._save_late_ones()
        self._count()
        self._gather_more()

    def _gather_more(self) -> None:
        more = self._unsent or self._hub.rest or self._file_open or self._misses_hub
        if more and self._timer is None and not self._closed:
            self._timer = self._loop.call_later(GATHER_S, self._gathered)

    def _count(self) -> None:
        unsent = len(self._unsent) + bool(self._hub.rest)
        self._cells[WAITING] = unsent + len(self._saving)
        if self._hub.socket is not None:
            self._row[SENT] = self._reported.settled + len(self._records) - unsent
        if self._safe is not None and not self._left_to_do():
            self._safe.set()
            self._safe = None

    def _send(self) -> None:
        while self._unsent or self._hub.rest:
            records = self._unsent[:_AT_ONCE]
            # no step of the interpreter for each record
            bits = chain(repeat(RECORD | AGAIN, min(self._again, len(records))), repeat(RECORD))
            frames = list(map(add, map(LENGTH.pack, map(or_, bits, map(len, records))), records))
            begun = self._hub.send(frames)
            del self._unsent[:begun]
            self._again = max(0, self._again - begun)
            if begun < len(frames) or self._hub.rest:
                return

    def _save_late_ones(self) -> None:
        if not (self._unsent or self._hub.rest):
            self._late_ns = None
            if self._file_open and self._hub.socket is not None:  # so that the hub can read it
                self._file_open = False
                self._to_save.put([])
            return
        now_ns = clock.now_ns()
        if self._late_ns is None:
            self._late_ns = now_ns
        late = self._hub.socket is None or now_ns - self._late_ns >= LATE_S * clock.NS_PER_S
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
            # the loop is closed: `close` has waited for the thread
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._take_saved, 0)

    def _take_saved(self, wait_s: float) -> None:
        with contextlib.suppress(Empty):
            self._save_ended(
                self._saved_or_not.get(timeout=wait_s)
                if wait_s
                else self._saved_or_not.get_nowait()
            )

    def _save_ended(self, error: Exception | None) -> None:
        self._save_error = error
        records, self._saving = self._saving, []
        if error is None:
            self._bytes -= sum(map(len, records))
            self.written += len(records)
            path = self._file.path
            self._files[path] = self._files.get(path, 0) + len(records)
            if self._hub.socket is not None:
                self._report(
                    f"log {self._where}: more records come than can be written; they wait in files."
                )
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

    def _receive(self, reported: Settled) -> None:
        before, self._reported = self._reported, reported
        number, lost = reported.settled - before.settled, reported.lost - before.lost
        self.failing = reported.failing
        # as a loop of pops, without a step of the interpreter for each record
        self._bytes -= sum(map(len, starmap(self._records.popleft, repeat((), number))))
        self._cells[DROPPED] += lost
        self.written += number - lost
        self._count()

    def _hub_died(self) -> None:
        self._row[SENT] = 0  # they are saved, or sent again
        self._counts.hub_died()
        self._begin_again()
        self._count()
        self._gather_more()

    def _begin_again(self) -> None:
        self.failing = False
        self._reported = NOTHING
        self._unsent = list(self._records)
        self._again = len(self._unsent)

    def _drop(self, why: str) -> None:
        self._cells[DROPPED] += 1
        self._report(why)

    def _report(self, words: str) -> None:
        moment = clock.now_ns()
        if moment >= self._say_ns.get(words, moment):
            self._say_ns[words] = moment + SAY_NS
            self._say(words)


def encode(record: CallRecord) -> bytes:
    """Return the record in MessagePack, without the times of single tokens. Raises `OverflowError`
    for a number that is too large."""
    for attempt in record.attempts:
        if len(attempt.token_lengths) > 1:
            record = replace(record, attempts=tuple(map(_without_times, record.attempts)))
            break
    try:
        return _ENCODER.encode(record)
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can contain and UTF-8 cannot
        return _ENCODER.encode(_without_surrogates(msgspec.to_builtins(record)))


def _without_times(o: Observation) -> Observation:
    """Return the attempt as the log needs it: of its tokens only the number in the first event. A
    single one stays.

    To encode and decode the times of 64 tokens takes several times as long as all the rest.
    """
    if len(o.token_lengths) < 2:
        return o
    return replace(o, token_at=[], token_lengths=[], tokens_so_far=[o.first_event_tokens])


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {
            _without_surrogates(name): _without_surrogates(each) for name, each in value.items()
        }
    return (
        [_without_surrogates(each) for each in value] if isinstance(value, list | tuple) else value
    )
