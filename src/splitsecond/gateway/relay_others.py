"""Streams of Anthropic's Messages and of OpenAI's Responses on their way through, byte for byte.

Only whole events go on. Nothing in them is added or taken out: counts belong to their last events, which are also their
end marks. An answer of a provider that does not stream is told as a stream at its end.
"""

import re
from typing import Any

import msgspec

from splitsecond import clock
from splitsecond.events import Broken
from splitsecond.gateway.refusal import Refusal
from splitsecond.gateway.relay import BLANK, end_of_events
from splitsecond.service import Call
from splitsecond.upstream.interpreter import retelling
from splitsecond.wire import anthropic, responses
from splitsecond.wire.sse import encode_event

_SEQUENCE = re.compile(rb'"sequence_number"\s*:\s*(\d{1,15})')


class EventRelay:
    """The answer to `call`, by `target`. `feed` gives what may go on; `rest`, after a whole answer, what is left.

    `done`: never, as nobody looks for end marks.
    """

    def __init__(self, call: Call, target: str) -> None:
        self.done = False
        self._call = call
        self._target = target
        self._tail = b""
        self._begun = False
        self._whole: bytearray | None = None
        self._last = b""

    def feed(self, data: bytes) -> bytes:
        """The events that `data` completes."""
        if self._whole is not None:
            self._whole += data
            return b""
        data = self._tail + data
        if not self._begun:
            start = data.lstrip(BLANK)
            self._begun = bool(start)
            if start.startswith(b"{"):
                self._whole = bytearray(start)
                return b""
        end = end_of_events(data, max(0, len(self._tail) - 3))
        whole, self._tail = data[:end], data[end:]
        if whole:
            self._last = whole
        return whole

    def rest(self) -> bytes:
        """The end of a whole answer: what came without its blank line."""
        if self._whole is not None:
            return self._told(bytes(self._whole))
        return self._tail + b"\n\n" if self._tail.strip() else b""

    def broken(self, no: Refusal) -> bytes:
        """The end of an answer that broke."""
        if self._call.dialect == "anthropic":
            return encode_event(no.body, "error")
        numbers = _SEQUENCE.findall(self._last)
        error: dict[str, Any] = msgspec.json.decode(no.body)["error"]
        said = {name: error[name] for name in ("code", "message", "param")}
        # `error` beside them is what OpenAI's library looks for
        event = {"type": "error", **said, "sequence_number": int(numbers[-1]) + 1 if numbers else 0, "error": error}
        return encode_event(msgspec.json.encode(event), "error")

    def _told(self, body: bytes) -> bytes:
        """A whole answer as a stream. Raises the `Fault` that it holds."""
        spoken = anthropic if self._call.dialect == "anthropic" else responses
        decoder, at = spoken.decoder(self._call.operation, stream=False), clock.now_ns()
        events = [*decoder.feed(body, at), *decoder.close(at)]
        if isinstance(events[-1], Broken):
            raise events[-1].fault
        return retelling(self._call, self._target).tell(events)
