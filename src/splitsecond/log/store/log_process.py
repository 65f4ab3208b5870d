"""The process that writes the log of a gateway, so that no thread competes with a worker's event loop.

Workers connect to a Unix socket and send frames: first `BEGIN`, which names the row of the connection's counts
(`log/store/record_counts`), then a length (`LENGTH`, with the bit `AGAIN` for a record that is sent again) and a
`CallRecord` in MessagePack each. The process answers with `REPLY`: how many records of the connection it has
taken, and how many of these are settled: written, in a file, or lost for good. A worker keeps each record until it is
settled, and saves it in a file if the process dies (`log/store/remote_writer`), so a process that dies loses nothing.

A record that has waited for the log for a second is saved in a file, with all others that wait (`log/store/unwritten`).
From then on, the process only saves what it reads, until the log has written what waits in memory. So whatever is
killed during an outage loses about a second of records, and an outage costs disk space, not memory. If the disk is full
or the files have reached their limit, the process reads a few thousand records into memory and no more. When the log is
written again, the process reads its file back, and that of processes that have died (`log/store/recovery`), and writes
the records that the log does not contain.

The first line of standard input is a `LogProcessSettings` in JSON, because the URL can contain a password. The end of
standard input asks the process to end. It then reads what workers send until they have disconnected, and writes it. So
a worker that is killed loses only what it had not sent. What cannot be written within a few seconds stays in files for
the next process, or for that of another gateway with the same log.
"""

import contextlib
import gc
import os
import selectors
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, say
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.log import Log
from splitsecond.log.store.record_counts import ROWS, SETTLED, RecordCounts
from splitsecond.log.store.recovery import Recovery
from splitsecond.log.store.remote_writer import AGAIN, BEGIN, REPLY
from splitsecond.log.store.unwritten import LENGTH, LONGEST_RECORD, UnwrittenFile
from splitsecond.log.store.writer import QUEUE, SAY_NS

TICK_S = 0.1
"""How often senders learn what is settled."""
RECOVERY_TICK_S = 0.01
"""How often it is looked whether the next block of a file can be written."""
IDLE_S = 1.0
"""How often workers without records learn whether the log is failing."""
SAVE_S = 1.0
"""How long a record waits for the log until all that wait are saved in a file."""
FINISH_S = 4.0
"""How long the end may wait until the records of files are written. Closing the log can take `CLOSE_S` more."""
MAX_UNSETTLED = QUEUE // 2
"""Records that the log may have to write before no more are read from workers."""
DECODED_AT_ONCE = 16
"""Records that are decoded before the processor is yielded to a request that waits for it (see `log/store/writer`)."""
GARBAGE_OBJECTS = 20_000
"""New objects after which the garbage collector runs. Records are no cycles."""
_CHUNK = 1 << 18
_DECODER = msgspec.msgpack.Decoder(CallRecord)


class LogProcessSettings(Struct, frozen=True, kw_only=True):
    url: str
    keep_days: float
    socket: str


Arrival = tuple[CallRecord, bytes, bool]
"""A record that has arrived: decoded, encoded, and whether it was sent before."""


class Sender:
    """One connected worker. `taken` and `settled` count its records since it connected. `lost` counts lost records, of
    others too if they were lost after they had been settled. `saved`: records in files, of all workers."""

    def __init__(self, connection: socket.socket, yield_processor: Callable[[], None] = lambda: None) -> None:
        self.connection = connection
        self._yield_processor = yield_processor
        self.taken = self.settled = self.lost = self.saved = 0
        self._reported = 0  # taken records, as last reported
        self._data = bytearray()
        self._counts: memoryview | None = None
        self.ended = False

    def settle(self, count: int = 1) -> None:
        self.settled += count
        if self._counts is not None:
            self._counts[SETTLED] += count

    def receive(self) -> list[Arrival] | None:
        """Return the records that have arrived; None at the end of the stream.

        Raises `ValueError` for a frame that is too long or no record.
        """
        with contextlib.suppress(ConnectionError):
            if chunk := self.connection.recv(_CHUNK):
                self._data += chunk
                return self._complete()
        return None

    def _complete(self) -> list[Arrival]:
        found: list[Arrival] = []
        begin, data = 0, bytes(self._data)
        while len(data) - begin >= LENGTH.size:
            if len(found) % DECODED_AT_ONCE == 0:
                self._yield_processor()
            (header,) = LENGTH.unpack_from(data, begin)
            if header & BEGIN:
                self._begin(*divmod(header & ~BEGIN, ROWS))
                begin += LENGTH.size
                continue
            end = begin + LENGTH.size + (header & ~AGAIN)
            if end - begin > LONGEST_RECORD:
                raise ValueError(f"a record of {end - begin:,} bytes")
            if end > len(data):
                break
            record = data[begin + LENGTH.size : end]
            found.append((_DECODER.decode(record), record, bool(header & AGAIN)))
            begin = end
        del self._data[:begin]
        return found

    def _begin(self, worker: int, row: int) -> None:
        path = Path(self.connection.getsockname())
        self._counts = RecordCounts(path, worker, lambda problem: None).row(row)  # the worker has reported the problem

    def report(self, *, failing: bool) -> None:
        self._reported = self.taken
        with contextlib.suppress(OSError):
            self.connection.send(
                REPLY.pack(self.taken, self.settled, self.lost, self.saved, failing), socket.MSG_DONTWAIT
            )

    def report_taken(self, *, failing: bool) -> None:
        if self.taken != self._reported:
            self.report(failing=failing)


Unsettled = tuple[Sender | None, bool, str, bytes, int]
"""A record that may not be in the log yet: its sender, None if it is in a file and so settled already; whether it was
given to the log before; the id of its call; the encoded record; and when it was given to the log."""


class LogProcess:
    def __init__(self, log: Log, listening: socket.socket, end: int) -> None:
        """`end`: a file descriptor whose end of file asks the process to end."""
        self._log = log
        self._listening = listening
        self._end = end
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ, self._accept)
        self._selector.register(end, selectors.EVENT_READ, self._wind_down)
        self._senders: list[Sender] = []
        self._changed: set[Sender] = set()  # senders with counts that they do not know
        self._unsettled: deque[Unsettled] = deque()
        """In the order of arrival."""
        self._attributed = self._lost = 0  # records settled, and those of them that are lost
        self._paused = self._ending = self._failing = False
        self._reported_ns = 0
        self._file = UnwrittenFile(log.unwritten)
        self._saving = False  # all that waits is in the file, and what arrives is only saved
        self._only_saved = 0  # records of the file that were not given to the log
        self._in_files = 0  # unsettled records that are in a file too
        self._full_ns: int | None = None  # when the file could not be written
        self._complained_ns: int | None = None
        self._recovery = Recovery(log, say)

    def run(self) -> None:
        while not self._ending or self._senders:
            self._turn()
        self._finish()

    def _turn(self) -> None:
        soon = self._unsettled or self._failing or self._saving or self._recovery.busy
        quick = self._recovery.reading and not self._failing
        for key, _ in self._selector.select(RECOVERY_TICK_S if quick else TICK_S if soon else IDLE_S):
            key.data()
        self._settle()
        self._save_late_ones()
        self._recover()
        self._report_state()
        self._pause()

    def _accept(self) -> None:
        sender = Sender(self._listening.accept()[0], self._log.yield_processor)
        self._senders.append(sender)
        if self._failing:
            sender.report(failing=True)
        if not self._paused:
            self._read(sender)

    def _read(self, sender: Sender) -> None:
        self._selector.register(sender.connection, selectors.EVENT_READ, lambda: self._receive(sender))

    def _wind_down(self) -> None:
        if not os.read(self._end, _CHUNK):
            self._ending = True
            self._selector.unregister(self._end)

    def _receive(self, sender: Sender) -> None:
        if self._paused:  # by another worker's records that were read a moment ago
            return
        try:
            received = sender.receive()
        except ValueError as error:  # of msgspec too
            say(f"log: a worker sent what is no record ({error}). Its connection is closed.")
            received = None
        if received is None:
            self._selector.unregister(sender.connection)
            sender.connection.close()
            self._senders.remove(sender)
            sender.ended = True
            return
        sender.taken += len(received)
        full = self._ending and len(self._unsettled) >= MAX_UNSETTLED
        if not self._saving and (full or any(again for _, _, again in received)):
            self._save_waiting()
        if self._saving and self._save([data for _, data, _ in received]):
            self._only_saved += len(received)
            sender.settle(len(received))
            self._changed.add(sender)
            return
        now_ns = clock.now_ns()
        for record, data, _ in received:
            self._unsettled.append((sender, False, record.call, data, now_ns))
            self._log.put(record)
        self._pause()

    def _settle(self) -> None:
        dropped = self._log.dropped
        left = self._log.written + dropped - self._attributed
        self._attributed += left
        lost, self._lost = dropped - self._lost, dropped
        while self._unsettled and (left or self._unsettled[0][1]):
            sender, known, _, _, _ = self._unsettled.popleft()
            is_lost = not known and lost > 0
            left -= not known
            lost -= is_lost
            if sender is None:
                self._in_files -= 1
            else:
                sender.settle()
            if sender is None or sender.ended:
                sender = self._senders[0] if is_lost and self._senders else None
            if sender is not None:
                sender.lost += is_lost
                self._changed.add(sender)

    def _report_state(self) -> None:
        if self._senders:
            saved = self._only_saved + self._in_files + self._recovery.waiting
            if self._senders[0].saved != saved:
                self._senders[0].saved = saved
                self._changed.add(self._senders[0])
        if self._log.failing != self._failing:
            self._failing = self._log.failing
            self._changed.update(self._senders)
        for sender in self._changed:
            sender.report(failing=self._failing)
        self._changed.clear()
        if (now_ns := clock.now_ns()) >= self._reported_ns + IDLE_S * clock.NS_PER_S:
            self._reported_ns = now_ns
            for sender in self._senders:
                sender.report_taken(failing=self._failing)

    def _pause(self) -> None:
        wanted = len(self._unsettled) >= MAX_UNSETTLED and not self._ending and not self._saving
        if wanted == self._paused:
            return
        self._paused = wanted
        for sender in self._senders:
            if wanted:
                self._selector.unregister(sender.connection)
            else:
                self._read(sender)

    def _save_late_ones(self) -> None:
        now_ns = clock.now_ns()
        if self._unsettled and now_ns - self._unsettled[0][4] >= SAVE_S * clock.NS_PER_S:
            full = self._full_ns is not None and now_ns - self._full_ns < SAVE_S * clock.NS_PER_S
            if not self._saving and not full:
                self._save_waiting()
        elif not self._in_files:
            self._saving = False
            if self._only_saved:
                self._recovery.take(self._file.found())
            else:
                self._file.remove()
            if self._file.records:
                self._file, self._only_saved = UnwrittenFile(self._log.unwritten), 0

    def _save_waiting(self) -> None:
        waiting = [data for sender, _, _, data, _ in self._unsettled if sender is not None]
        self._saving = self._save(waiting)
        if not self._saving:
            return
        self._in_files = len(self._unsettled)
        for i, (sender, known, call, _, at_ns) in enumerate(self._unsettled):
            if sender is not None:
                sender.settle()
                self._changed.add(sender)
                self._unsettled[i] = None, known, call, b"", at_ns

    def _save(self, records: list[bytes]) -> bool:
        try:
            self._file.add(records)
        except OSError as error:
            self._saving, self._full_ns = False, clock.now_ns()
            if self._complained_ns is None or self._full_ns - self._complained_ns >= SAY_NS:
                self._complained_ns = self._full_ns
                say(f"log {self._log.where}: what waits cannot be saved: {error}.")
            return False
        return True

    def _recover(self) -> None:
        if self._in_files or self._saving or self._paused or not self._recovery.busy:
            return
        waiting = {call for _, _, call, _, _ in self._unsettled}
        now_ns = clock.now_ns()
        for made, call in self._recovery.next_block(waiting):
            self._in_files += 1
            self._unsettled.append((None, call in waiting, call, b"", now_ns))
            if call not in waiting:
                self._log.put_rows(made)

    def _finish(self) -> None:
        give_up_ns = clock.now_ns() + round(FINISH_S * clock.NS_PER_S)
        self._recovery.look_now()
        self._recover()
        while self._recovery.busy and not self._log.failing and clock.now_ns() < give_up_ns:
            self._turn()
        self._save_waiting()
        self._log.close()
        self._settle()
        self._recovery.close()
        if not self._log.waiting and not self._only_saved:
            self._file.remove()
        elif self._file.records:
            say(f"log {self._log.where}: what is not written is kept in {self._file.path}; the next start writes it.")
        self._file.close()


def main() -> int:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the gateway handles them, and closes standard input
        signal.signal(each, signal.SIG_IGN)
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=LogProcessSettings)
    try:
        log = Log.open(settings.url, keep_days=settings.keep_days, away=lambda why: None)  # its thread will report it
    except CallerFault as fault:
        say(str(fault))
        return 1
    with log, socket.socket(socket.AF_UNIX) as listening:
        try:
            with contextlib.suppress(FileNotFoundError):  # the socket of a process that died
                os.unlink(settings.socket)
            listening.bind(settings.socket)
        except FileNotFoundError:  # the gateway was killed meanwhile, and the next one has removed its folder
            return 0
        except OSError as error:
            say(f"the socket {settings.socket} of the log process cannot be created: {error.strerror}.")
            return 1
        listening.listen()
        LogProcess(log, listening, sys.stdin.fileno()).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
