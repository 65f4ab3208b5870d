"""A worker's connection to the hub of its gateway: the process that writes the log, and through
which workers exchange what they know (`gateway/hub`).

Both sides send frames on a Unix socket: a length (`LENGTH`) and a message in MessagePack. With the
bit `RECORD` it is a `CallRecord`, which the hub may save in a file as it is; `AGAIN` marks a record
that was sent before. All others are of one tagged union in each direction; the first is a `Hello`.
Nothing here waits for the hub: what it does not take is left to the sender.
"""

import asyncio
import contextlib
import os
import socket
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from splitsecond.core import clock
from splitsecond.log.store.unwritten import LENGTH, LONGEST_RECORD

RECORD, AGAIN = 1 << 31, 1 << 30
"""Bits in the length of a frame."""
_LENGTH_BITS = AGAIN - 1
RECONNECT_S = 0.2
CHUNK = 1 << 18
_ENCODER = msgspec.msgpack.Encoder()


class Hello(Struct, frozen=True, tag=True):
    """Who a connection belongs to. `worker`: the number of its slot. `row`: that of the connection
    in the slot's counts (`log/store/record_counts`)."""

    worker: int
    pid: int
    row: int


class Settled(Struct, frozen=True, tag=True):
    """How many records of the connection the hub has taken, and how many of these are settled:
    written, in a file, or lost. `lost`: records that are lost. `saved`: records of all workers in
    files. `failing`: the log cannot be written.

    The hub tells one worker about files, and about records that were lost after they had been
    settled.
    """

    taken: int
    settled: int
    lost: int
    saved: int
    failing: bool


def frame(message: Struct) -> bytes:
    data = _ENCODER.encode(message)
    return LENGTH.pack(len(data)) + data


class Frames:
    """The bytes of a stream, cut into frames."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the bits and the message of each frame that is complete.

        Raises `ValueError` for a frame that is too long.
        """
        self._data += chunk
        begin, data, unpack = 0, bytes(self._data), LENGTH.unpack_from
        try:
            while (message := begin + LENGTH.size) <= len(data):
                (header,) = unpack(data, begin)
                length = header & _LENGTH_BITS
                if length > LONGEST_RECORD:
                    raise ValueError(f"a frame of {length:,} bytes")
                end = message + length
                if end > len(data):
                    break
                yield header - length, data[message:end]
                begin = end
        finally:
            del self._data[:begin]


class HubConnection:
    """Connection of the worker with the slot `worker` to the hub that listens at `path`. It belongs
    to one event loop.

    It is opened when it is needed (`open`), again and again. `messages`: the union of what the hub
    sends. `handlers` get these, by type; `on_open` and `on_lost` are called when it was opened, and
    after the hub has died.
    """

    def __init__(self, path: Path, worker: int = 0, messages: Any = Settled) -> None:
        self.path = path
        self.worker = worker
        self.handlers: dict[type, Callable[[Any], None]] = {}
        self.on_open: list[Callable[[], None]] = []
        self.on_lost: list[Callable[[], None]] = []
        self.new_row: Callable[[int], int] = lambda hub: 0
        self.socket: socket.socket | None = None
        self.hub = 0
        self.rest = b""
        self.closing = False
        self._loop = asyncio.get_running_loop()
        self._decoder = msgspec.msgpack.Decoder(messages)
        self._frames = Frames()
        self._retry_ns = 0

    def open(self) -> bool:
        """Return whether the connection is open. If it is not, try to open it, but not at once
        after the hub died."""
        if self.socket is None and (self.closing or clock.now_ns() >= self._retry_ns):
            with contextlib.ExitStack() as stack:
                try:
                    opened = stack.enter_context(socket.socket(socket.AF_UNIX))
                    opened.setblocking(False)
                    opened.connect(str(self.path))
                    hub = self.path.stat().st_mtime_ns
                    opened.send(frame(Hello(self.worker, os.getpid(), self.new_row(hub))))
                except OSError:  # the hub is starting, or dead and about to be replaced
                    return False
                stack.pop_all()
            self.socket, self.hub, self._frames = opened, hub, Frames()
            if not self.closing:
                self._loop.add_reader(opened, self.receive)
            for each in self.on_open:
                each()
        return self.socket is not None

    def send(self, frames: Sequence[bytes]) -> int:
        """Send frames. Return how many of them are sent or begun; the rest of the last of these is
        sent next time."""
        if self.socket is None:
            return 0
        data = b"".join((self.rest, *frames))
        try:
            sent = self.socket.send(data) if data else 0
        except BlockingIOError:
            return 0
        except OSError:
            self.lose()
            return 0
        if sent == len(data):
            self.rest = b""
            return len(frames)
        begins = list(accumulate(map(len, frames), initial=len(self.rest)))
        begun = bisect_left(begins, sent)
        self.rest = data[sent : begins[begun]]
        return begun

    def post(self, message: Struct) -> bool:
        """Send a message, unless the hub is away or does not read. Return whether that
        succeeded."""
        if not self.open():
            return False
        if self.rest:
            self.send(())
        return not self.rest and self.send((frame(message),)) == 1

    def receive(self) -> None:
        if self.socket is None:
            return
        try:
            data = self.socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.lose()
            return
        for _, message in self._frames.add(data):
            decoded = self._decoder.decode(message)
            if (handler := self.handlers.get(type(decoded))) is not None:
                handler(decoded)

    def lose(self) -> None:
        self.close()
        self._retry_ns = clock.now_ns() + round(RECONNECT_S * clock.NS_PER_S)
        for each in self.on_lost:
            each()

    def close(self) -> None:
        opened, self.socket = self.socket, None
        if opened is not None:
            self._loop.remove_reader(opened)
            opened.close()
        self.rest = b""
