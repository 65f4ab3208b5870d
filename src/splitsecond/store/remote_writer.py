"""The worker's side of the log process: records go to a Unix socket, and are kept until they are settled.

The event loop encodes each record, a few microseconds, and sends what has gathered every 20 ms. If the process is away,
records wait and are sent again when it is back. What waits is bounded; beyond the limits, new records are dropped and
counted. What waits at the end is saved in a file (`store/unwritten`), except for what a living process has taken.
`store/log_process` describes the frames.
"""

import asyncio
import contextlib
import select
import socket
import struct
from collections import deque
from collections.abc import Callable
from itertools import chain, islice, repeat, starmap
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from splitsecond import clock
from splitsecond.observation import Observation
from splitsecond.store.call_record import CallRecord
from splitsecond.store.unwritten import LENGTH, save

AGAIN = 1 << 31
"""Bit in the length of a record that was sent before."""
SETTLED = struct.Struct(">QQQQ?")
"""Reply: the records of the connection that the process has taken, those of them that are settled (written, in a file,
or lost), how many records are lost, how many of all workers wait in files, and whether the log is failing. The process
tells one worker about files, and about records that were lost after they had been settled."""
MOST_RECORDS = 12_288
MOST_BYTES = 64 << 20
"""Limits on what waits for the process, for each worker."""
GATHER_S = 0.02
RECONNECT_S = 0.2
CLOSE_S = 5.0
SAY_NS = 60 * clock.NS_PER_S
_CHUNK = 4096
_ENCODER = msgspec.msgpack.Encoder()


class RemoteLogWriter:
    """Writes records through the log process. Create it, `put` and `close` it in the event loop's thread.

    `written` and `dropped` count records; those that the log process keeps in files count as written. `failing`: the
    log process could not write when it last reported. `errors` is always 0: the log process reports the database's
    errors.
    """

    errors = 0

    def __init__(self, path: Path, where: str, *, unwritten: Path, say: Callable[[str], None]) -> None:
        """`path`: the socket. `where`: the log's name for messages. `unwritten`: how the paths of files for records
        begin that are not written at the end. `say` gets problems, at most one a minute."""
        self.written = self.dropped = 0
        self.failing = False
        self._path = path
        self._where = where
        self._unwritten = unwritten
        self._say = say
        self._said_ns: int | None = None
        self._loop = asyncio.get_running_loop()
        self._connection: socket.socket | None = None
        self._records: deque[bytes] = deque()  # sent or not, until they are settled
        self._bytes = 0
        self._unsent: list[bytes] = []  # records that are in no frame yet
        self._frames = b""  # that wait for the socket
        self._taken = self._settled = self._lost = self._saved = 0  # as last reported on this connection
        self._replies = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._safe = asyncio.Event()
        self._end_ns: int | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """Records that are not in the log yet."""
        return len(self._records) + self._saved

    def put(self, record: CallRecord) -> None:
        """Queue a record. Never waits and never raises."""
        if len(self._records) >= MOST_RECORDS or self._bytes >= MOST_BYTES or self._closed:
            self._drop(f"log {self._where}: records are lost because too many wait to be written")
            return
        try:
            data = encode(record)
        except OverflowError as error:
            self._drop(f"a record cannot be written: {error}")
            return
        self._records.append(data)
        self._bytes += len(data)
        self._unsent.append(data)
        if self._timer is None:
            self._timer = self._loop.call_later(GATHER_S, self._gathered)

    async def drain(self) -> None:
        """Wait until all records are settled, or taken by a process whose log is failing, for `CLOSE_S` at most.
        Meanwhile the log process can be replaced."""
        self._safe.clear()
        if self._left_to_do():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._safe.wait(), self._patience_s())

    def close(self) -> None:
        """Send what waits and wait like `drain`, with which it shares its time. The rest is saved in a file."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        while self._left_to_do() and (left_s := self._patience_s()) > 0:
            if self._connected():
                self._send()
            waiting = [] if self._connection is None else [self._connection]
            readable, _, _ = select.select(waiting, [], [], min(left_s, RECONNECT_S))
            if readable:
                self._receive()
        taken = self._taken - self._settled
        self._disconnect()
        if left := list(islice(self._records, taken, None)):
            self._save(left)

    def _left_to_do(self) -> bool:
        """Whether records wait that no process has taken, or that one may soon have written."""
        return bool(self._records) and not (self.failing and self._taken - self._settled == len(self._records))

    def _patience_s(self) -> float:
        """Return how long the end may still take, from its first step on."""
        now_ns = clock.now_ns()
        if self._end_ns is None:
            self._end_ns = now_ns + round(CLOSE_S * clock.NS_PER_S)
        return (self._end_ns - now_ns) / clock.NS_PER_S

    def _save(self, left: list[bytes]) -> None:
        try:
            kept = save(self._unwritten, left)
        except OSError as error:
            self.dropped += len(left)
            kept = f"They are lost: {error}."
        self._say(f"log {self._where}: closed; records not written: {len(left):,}. {kept}")

    def _gathered(self) -> None:
        """Send what has gathered, or try again later if the process is away."""
        self._timer = None
        if self._connected():
            self._send()
        else:
            self._timer = self._loop.call_later(RECONNECT_S, self._gathered)

    def _connected(self) -> bool:
        """Connect if there is no connection. Return whether there is one."""
        if self._connection is None:
            connection = socket.socket(socket.AF_UNIX)
            connection.setblocking(False)
            try:
                connection.connect(str(self._path))
            except OSError:  # the process is starting, or dead and about to be replaced
                connection.close()
                return False
            self._connection = connection
            if not self._closed:
                self._loop.add_reader(connection, self._receive)
        return True

    def _send(self) -> None:
        """Send frames, as many as the socket takes; the rest when it takes more."""
        connection, records = self._connection, self._unsent
        if connection is None or not (records or self._frames):
            return
        lengths = map(LENGTH.pack, map(len, records))
        data = b"".join((self._frames, *chain.from_iterable(zip(lengths, records, strict=True))))
        records.clear()
        try:
            sent = connection.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._disconnect()
            return
        self._frames = data[sent:]
        if self._frames and self._timer is None and not self._closed:
            self._timer = self._loop.call_later(GATHER_S, self._gathered)

    def _receive(self) -> None:
        """Read replies, and forget the records that are settled."""
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
        if (complete := len(self._replies) // SETTLED.size * SETTLED.size) == 0:
            return
        last = complete - SETTLED.size  # the last one has the totals
        self._taken, settled, lost, self._saved, self.failing = SETTLED.unpack_from(self._replies, last)
        del self._replies[:complete]
        number = settled - self._settled
        # as a loop of pops, without a step of the interpreter for each record
        self._bytes -= sum(map(len, starmap(self._records.popleft, repeat((), number))))
        self.dropped += lost - self._lost
        self.written += number - (lost - self._lost)
        self._settled, self._lost = settled, lost
        if not self._left_to_do():
            self._safe.set()

    def _disconnect(self) -> None:
        """Forget the connection. All records that are not settled will be sent again."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        self._loop.remove_reader(connection)
        connection.close()
        self.failing = False
        self._taken = self._settled = self._lost = self._saved = 0
        self._replies.clear()
        self._unsent.clear()
        self._frames = b"".join([LENGTH.pack(len(data) | AGAIN) + data for data in self._records])
        if self._frames and self._timer is None and not self._closed:
            self._timer = self._loop.call_later(RECONNECT_S, self._gathered)

    def _drop(self, why: str) -> None:
        """Count a record that is lost, and report it, at most once a minute."""
        self.dropped += 1
        moment = clock.now_ns()
        if self._said_ns is None or moment - self._said_ns >= SAY_NS:
            self._said_ns = moment
            self._say(why)


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
