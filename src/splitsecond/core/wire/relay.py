"""Relay of a stream to a client, whole event by whole event and byte for byte.

An event that a failure cuts in two never reaches the client, so the error event that follows stands
alone. An answer that is one JSON object although a stream was requested is collected, and sent as a
stream when it is complete.
"""

from collections.abc import Callable

from splitsecond.core import clock
from splitsecond.core.events import Broken, Event
from splitsecond.core.large_bodies import LARGE_BYTES, HeldAnswer
from splitsecond.core.service import Call
from splitsecond.core.wire.assembly import MAX_ANSWER_BYTES
from splitsecond.core.wire.sse import LEADING, EventCutter, encode_event, malformed
from splitsecond.core.wire.streaming import Decoder
from splitsecond.core.wire.transcoder import Transcoder


class StreamRelay:
    """Relay of the answer to `call` by `target`.

    `usage`: the client requested a chunk with token counts. `done`: the end mark was passed on.
    `decoder` and `transcoder` of the format turn a JSON answer into a stream.
    """

    decoder: Callable[[], Decoder]
    transcoder: Callable[[Call, str], Transcoder]

    def __init__(self, call: Call, target: str, *, usage: bool) -> None:
        self.done = False
        self._call = call
        self._target = target
        self._usage = usage
        self._cutter = EventCutter()
        self._body = bytearray()  # the body of an answer that is one JSON object
        self._held: HeldAnswer | None = None  # of a large body

    def feed(self, data: bytes) -> bytes:
        """Return the events that `data` completes. Raises `ProviderFault` if an event or the answer
        is too long."""
        events = self._cutter.feed(data)
        return self._collect(events) if self._cutter.is_json else events

    def rest(self) -> bytes:
        """Return the end of a complete answer: an event without its blank line, or a JSON answer as
        a stream. Raises the `Fault` in it."""
        if self._cutter.is_json:
            return self._as_stream(bytes(self._body.lstrip(LEADING)))
        return self.feed(b"\n\n") if self._cutter.tail.strip() else b""

    def error(self, body: bytes) -> bytes:
        """Return the event that ends a failed answer. `body` is the body of an error response."""
        return encode_event(body, "error")

    def _collect(self, data: bytes) -> bytes:
        """Add `data` to an answer that is one JSON object; nothing is sent yet."""
        self._body += data
        if len(self._body) > LARGE_BYTES:
            if len(self._body) > MAX_ANSWER_BYTES:
                raise malformed(f"the answer is longer than {MAX_ANSWER_BYTES:,} bytes", "too_long")
            self._held = self._held or HeldAnswer()
            self._held.hold(len(self._body))
        return b""

    def _as_stream(self, body: bytes) -> bytes:
        return self.transcoder(self._call, self._target).encode(whole_events(self.decoder(), body))


def whole_events(decoder: Decoder, body: bytes) -> list[Event]:
    at = clock.now_ns()
    events = [*decoder.feed(body, at), *decoder.close(at)]
    if isinstance(events[-1], Broken):
        raise events[-1].fault
    return events
