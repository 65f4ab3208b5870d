"""The process that writes the log of a gateway, so that no thread competes with a worker's event loop.

Workers connect to a Unix socket and send frames: a length (`LENGTH`, with the bit `AGAIN` for a record that is sent
again) and a `CallRecord` in MessagePack. The process answers with `SETTLED`: how many records of the connection it has
taken, how many of these are written or lost for good, and how many of them are lost. A worker keeps each record until
it is settled, and sends it again to the next process (`store/remote_writer`), so a process that dies loses nothing. A
record that is sent again is written only if the log does not contain it yet.

The process also starts while a database in PostgreSQL is away. The thread that writes then connects again and again,
and creates or migrates the tables when it succeeds. Meanwhile this process reads a few thousand records and no more,
and reports to the workers that the log is failing.

The first line of standard input is a `LogProcessSettings` in JSON, because the URL can contain a password. The end of
standard input asks the process to end. It then reads what workers send until they have disconnected, and writes it. So
a worker that is killed loses only what it had not sent. Before the last attempt to write, it saves what is unwritten in
a file (`store/unwritten`), because the database may be away and the process may be killed while it waits. The next
process, or that of another gateway with the same log, writes what is in such files.
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

import msgspec
from msgspec import Struct

from splitsecond import clock
from splitsecond.errors import CallerFault
from splitsecond.store.call_record import CallRecord
from splitsecond.store.log import Log
from splitsecond.store.recovery import Recovery
from splitsecond.store.remote_writer import AGAIN, SETTLED
from splitsecond.store.unwritten import LENGTH, LONGEST_RECORD, UnwrittenFile
from splitsecond.store.writer import QUEUE, print_problem

TICK_S = 0.1
"""How often senders learn what is settled."""
IDLE_S = 1.0
"""How often workers without records learn whether the log is failing."""
MOST_UNSETTLED = QUEUE // 2
"""Records that the log may have to write before no more are read from workers."""
DECODED_AT_ONCE = 16
"""Records that are decoded before the processor is yielded to a request that waits for it (see `store/writer`)."""
GARBAGE_OBJECTS = 20_000
"""New objects after which the garbage collector runs. Records are no cycles."""
_CHUNK = 1 << 18
_DECODER = msgspec.msgpack.Decoder(CallRecord)


class LogProcessSettings(Struct, frozen=True, kw_only=True):
    """The log's URL, how many days its calls are kept, and the path of the Unix socket."""

    url: str
    keep_days: float
    socket: str


Arrival = tuple[CallRecord, bytes, bool]
"""A record that has arrived: decoded, encoded, and whether it was sent before."""


class Sender:
    """One connected worker. `taken`, `settled` and `lost` count its records since it connected."""

    def __init__(self, connection: socket.socket, yield_processor: Callable[[], None] = lambda: None) -> None:
        self.connection = connection
        self._yield_processor = yield_processor
        self.taken = self.settled = self.lost = 0
        self._reported = 0  # taken records, as last reported
        self._data = bytearray()

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

    def report(self, *, failing: bool) -> None:
        """Send the counts, and whether the log is failing. A worker that is gone, or that reads nothing, does without
        them."""
        self._reported = self.taken
        with contextlib.suppress(OSError):
            self.connection.send(SETTLED.pack(self.taken, self.settled, self.lost, failing), socket.MSG_DONTWAIT)

    def report_taken(self, *, failing: bool) -> None:
        """Send the counts if records have come since."""
        if self.taken != self._reported:
            self.report(failing=failing)


Unsettled = tuple[Sender | None, bool, str, bytes]
"""A record that may not be in the log yet: its sender, None for a file; whether the log or a file has it already; the
id of its call; and the encoded record."""


class LogProcess:
    """The loop that moves records from workers to the log and reports to each what is settled."""

    def __init__(self, log: Log, listening: socket.socket, end: int) -> None:
        """`end`: a file descriptor whose end of file asks the process to end."""
        self._log = log
        self._listening = listening
        self._end = end
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ, self._accept)
        self._selector.register(end, selectors.EVENT_READ, self._wind_down)
        self._senders: list[Sender] = []
        self._unsettled: deque[Unsettled] = deque()
        """In the order of arrival."""
        self._attributed = self._lost = 0  # records settled, and those of them that are lost
        self._paused = self._ending = self._failing = False
        self._reported_ns = 0
        self._saved = UnwrittenFile(log.unwritten)
        self._only_saved = 0  # records that were not given to the log
        self._recovery = Recovery(log, print_problem)
        self._recovering = 0  # unsettled records of files

    def run(self) -> None:
        """Return when the end was asked for, all workers have disconnected, and the log is closed."""
        while not self._ending or self._senders:
            for key, _ in self._selector.select(TICK_S if self._unsettled or self._failing else IDLE_S):
                key.data()
            self._settle()
            self._report_state()
            self._recover()
            self._pause()
        self._close()

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
            print_problem(f"log: a worker sent what is no record ({error}). Its connection is closed.")
            received = None
        if received is None:
            self._selector.unregister(sender.connection)
            sender.connection.close()
            self._senders.remove(sender)
            return
        again = [record for record, _, again in received if again]
        written = self._written(again) if again else set[str]()
        sender.taken += len(received)
        full = self._ending and len(self._unsettled) >= MOST_UNSETTLED and self._save([data for _, data, _ in received])
        self._only_saved += len(received) if full else 0
        for record, data, _ in received:
            settled = full or record.call in written
            self._unsettled.append((sender, settled, record.call, data))
            if not settled:
                self._log.put(record)
        self._pause()

    def _written(self, records: list[CallRecord]) -> set[str]:
        """Return the calls that the log contains, of these, or will contain soon."""
        written = {call for _, _, call, _ in self._unsettled}
        with contextlib.suppress(CallerFault):  # the database does not answer: better twice in the log than not at all
            written |= self._log.contained(records)
        return written

    def _settle(self) -> None:
        """Attribute what the log has settled to the senders, in the order of arrival, and report to them."""
        dropped = self._log.dropped
        left = self._log.written + dropped - self._attributed
        self._attributed += left
        lost, self._lost = dropped - self._lost, dropped
        changed = set()
        while self._unsettled and (left or self._unsettled[0][1]):
            sender, known, _, _ = self._unsettled.popleft()
            is_lost = not known and lost > 0
            left -= not known
            lost -= is_lost
            if sender is None:
                self._recovering -= 1
            else:
                sender.settled += 1
                sender.lost += is_lost
                changed.add(sender)
        for sender in changed:
            sender.report(failing=self._failing)

    def _report_state(self) -> None:
        """Tell all workers when the log begins to fail, and when it is written again, and each what has been taken."""
        if self._log.failing != self._failing:
            self._failing = self._log.failing
            for sender in self._senders:
                sender.report(failing=self._failing)
        if (now_ns := clock.now_ns()) >= self._reported_ns + IDLE_S * clock.NS_PER_S:
            self._reported_ns = now_ns
            for sender in self._senders:
                sender.report_taken(failing=self._failing)

    def _pause(self) -> None:
        """Read from no worker while the log has much to write: the workers keep their records."""
        wanted = len(self._unsettled) >= MOST_UNSETTLED and not self._ending
        if wanted == self._paused:
            return
        self._paused = wanted
        for sender in self._senders:
            if wanted:
                self._selector.unregister(sender.connection)
            else:
                self._read(sender)

    def _recover(self) -> None:
        """Take records from files of processes that have ended, when those that were taken before are settled."""
        if self._recovering or self._ending or self._failing or self._paused:
            return
        if block := self._recovery.next_block():
            waiting = {call for _, _, call, _ in self._unsettled}
            self._recovering = len(block)
            for made, call in block:
                self._unsettled.append((None, call in waiting, call, b""))
                if call not in waiting:
                    self._log.put_rows(made)

    def _save(self, records: list[bytes]) -> bool:
        """Save records in a file. Return whether that succeeded."""
        try:
            self._saved.add(records)
        except OSError as error:
            print_problem(f"log {self._log.where}: what waits cannot be saved: {error}. Records: {len(records):,}.")
            return False
        return True

    def _close(self) -> None:
        """Save what waits, and close the log, which may write it."""
        self._recovery.close()
        self._save([data for sender, written, _, data in self._unsettled if sender is not None and not written])
        self._log.close()
        if not self._log.waiting and not self._only_saved:
            self._saved.remove()
        elif self._saved.records:
            print_problem(
                f"log {self._log.where}: what is not written is kept in {self._saved.path}; the next start writes it."
            )
        self._saved.close()


def main() -> int:
    """Write the log until asked to end. Return the exit code."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the gateway handles them, and closes standard input
        signal.signal(each, signal.SIG_IGN)
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=LogProcessSettings)
    try:
        log = Log.open(settings.url, keep_days=settings.keep_days, away=lambda why: None)  # its thread will report it
    except CallerFault as fault:
        print_problem(str(fault))
        return 1
    with log, socket.socket(socket.AF_UNIX) as listening:
        with contextlib.suppress(FileNotFoundError):  # the socket of a process that died
            os.unlink(settings.socket)
        try:
            listening.bind(settings.socket)
        except FileNotFoundError:  # the gateway was killed meanwhile, and the next one has removed its folder
            return 0
        listening.listen()
        LogProcess(log, listening, sys.stdin.fileno()).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
