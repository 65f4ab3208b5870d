"""The hub's side of a worker's connection (`log/store/hub_connection`)."""

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.hub_connection import AGAIN, CHUNK, RECORD, Frames, Hello, Settled, frame
from splitsecond.log.store.record_counts import SETTLED, RecordCounts

DECODED_AT_ONCE = 16
"""Records that are decoded before the processor is yielded to a request that waits for it (see
`log/store/writer`)."""
MAX_UNSENT = 16 << 20
"""Bytes that wait for a worker, beyond which it gets no more messages."""
_DECODER = msgspec.msgpack.Decoder(CallRecord)

Arrival = tuple[CallRecord, bytes, bool]
"""A record that has arrived: decoded, encoded, and whether it was sent before."""


class Sender:
    """One connected worker. `taken` and `settled` count its records since it connected. `lost`
    counts lost records, of others too if they were lost after they had been settled. `saved`:
    records in files, of all workers. `hello`: its first message. `on_message` gets it and all other
    messages that are no records, of the type `messages`."""

    def __init__(
        self,
        connection: socket.socket,
        yield_processor: Callable[[], None] = lambda: None,
        *,
        messages: Any = Hello,
        on_message: "Callable[[Sender, Any], None]" = lambda sender, message: None,
    ) -> None:
        self.connection = connection
        self.taken = self.settled = self.lost = self.saved = 0
        self.hello: Hello | None = None
        self.unsent = bytearray()
        self.ended = False
        self._yield_processor = yield_processor
        self._decoder = msgspec.msgpack.Decoder(messages)
        self._on_message = on_message
        self._reported = 0  # taken records, as last reported
        self._frames = Frames()
        self._counts: memoryview | None = None

    def settle(self, count: int = 1) -> None:
        self.settled += count
        if self._counts is not None:
            self._counts[SETTLED] += count

    def receive(self) -> list[Arrival] | None:
        """Return the records that have arrived; None at the end of the stream.

        Raises `ValueError` for a frame that is too long or no message.
        """
        try:
            chunk = self.connection.recv(CHUNK)
        except BlockingIOError:
            return []
        except ConnectionError:
            return None
        return self._complete(chunk) if chunk else None

    def _complete(self, chunk: bytes) -> list[Arrival]:
        arrivals: list[Arrival] = []
        for bits, data in self._frames.add(chunk):
            if bits & RECORD:
                if len(arrivals) % DECODED_AT_ONCE == 0:
                    self._yield_processor()
                arrivals.append((_DECODER.decode(data), data, bool(bits & AGAIN)))
                continue
            message = self._decoder.decode(data)
            if isinstance(message, Hello):
                self._begin(message)
            self._on_message(self, message)
        return arrivals

    def _begin(self, hello: Hello) -> None:
        self.hello = hello
        path = Path(self.connection.getsockname())
        # which the worker has reported
        counts = RecordCounts(path, hello.worker, lambda problem: None)
        self._counts = counts.row(hello.row)

    def send(self, message: Struct) -> None:
        """Send a message, unless the worker has not read too many. Call `flush` when it has read
        some of `unsent`."""
        if len(self.unsent) < MAX_UNSENT:
            self.unsent += frame(message)
            self.flush()

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            del self.unsent[: self.connection.send(self.unsent, socket.MSG_DONTWAIT)]

    def report(self, *, failing: bool) -> None:
        self._reported = self.taken
        self.send(Settled(self.taken, self.settled, self.lost, self.saved, failing))

    def report_taken(self, *, failing: bool) -> None:
        if self.taken != self._reported:
            self.report(failing=failing)
