"""A stream of chunks that another target's answer may go on: heard event by event, and told on in the same voice.

Only whole events are given out, so that what is told after a break stands in an event of its own. The id, the model and
the time of the first chunk stay those of all that are told.
"""

import re

import msgspec

from splitsecond.events import Broken, Done, Event, Finish, Token, Usage
from splitsecond.service import Call, Operation
from splitsecond.wire.openai.answers import StreamWriter
from splitsecond.wire.openai.decode import decoder
from splitsecond.wire.sse import SseDecoder

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_BLANK = b"\xef\xbb\xbf \t\r\n"
_TOLD: tuple[Operation, ...] = ("chat", "completions")


def teller(call: Call) -> "ChunkTeller | None":
    """The teller of the answer to `call`; None: it is not told in chunks of this dialect."""
    return ChunkTeller(call.operation) if call.dialect == "openai" and call.operation in _TOLD else None


class _Head(msgspec.Struct):
    """What all chunks of an answer have alike."""

    id: str | None = None
    model: str | None = None
    created: float | None = None


_head = msgspec.json.Decoder(_Head).decode


class ChunkTeller:
    """One answer. An answer that is no stream is given out as it came."""

    def __init__(self, operation: Operation) -> None:
        self._operation: Operation = operation
        self._decoder = decoder(operation)
        self._tail = b""
        self._first = b""
        self._plain: bool | None = None
        self._writer: StreamWriter | None = None

    def whole(self, data: bytes) -> bytes:
        """The whole events among what came so far; the rest waits for its end."""
        if self._plain is None and (begin := data.lstrip(_BLANK)):
            self._plain = begin.startswith(b"{")
        begun = len(self._tail)
        if begun:
            data = self._tail + data
        if self._plain or data.endswith(b"\n\n"):  # mostly a read is one event, or some
            self._tail = b""
        else:
            end = max((found.end() for found in _EVENT_END.finditer(data, max(begun - 3, 0))), default=0)
            data, self._tail = data[:end], data[end:]
        if not self._first and b'"id"' in data:
            self._first = data
        return data

    def left(self) -> bytes:
        """What still waits when the body has ended well."""
        left, self._tail = self._tail, b""
        return left

    def hear(self, data: bytes, at: int) -> list[Event]:
        """What is said by `data`, the next that `whole` or `left` gave."""
        return _unbroken(self._decoder.feed(data, at)) if data else []

    def close(self, at: int) -> list[Event]:
        """What the end of the body says."""
        return _unbroken(self._decoder.close(at))

    def tell(self, event: Event) -> bytes:
        """`event`, as one more of this answer's; b"" where chunks have nothing for it."""
        if self._writer is None:
            head = self._read_head()
            self._writer = StreamWriter(
                self._operation, head.model or "", id=head.id or "", created=int(head.created or 0)
            )
        match event:
            case Token() if event.tool is not None:
                return self._writer.tool_part(event.tool, event.arguments, event.index)
            case Token():
                return self._writer.token(event.text, event.kind, event.index)
            case Finish():
                return self._writer.finish(event.reason, event.index)
            case Usage():
                return self._writer.usage(event)
            case Done(marker=True):
                return self._writer.done()
            case _:
                return b""

    def _read_head(self) -> _Head:
        for event in SseDecoder().feed(self._first):
            try:
                found = _head(event.data or b"")
            except (ValueError, RecursionError):
                continue
            if found.id:
                return found
        return _Head()


def _unbroken(events: list[Event]) -> list[Event]:
    """`events` without the break they end in: that is told by whoever reads the answer from its provider."""
    if events and isinstance(events[-1], Broken):
        del events[-1]
    return events
