"""A stream of chunks that another target's answer may go on.

The id, the model and the time of the first chunk stay those of all that are told.
"""

import msgspec

from splitsecond.events import Done, Event, Finish, Token, Usage
from splitsecond.service import Call, Operation
from splitsecond.wire.openai.answers import StreamWriter
from splitsecond.wire.openai.decode import decoder
from splitsecond.wire.sse import SseDecoder
from splitsecond.wire.telling import EventTeller

_TOLD: tuple[Operation, ...] = ("chat", "completions")


def teller(call: Call) -> "ChunkTeller | None":
    """The teller of the answer to `call`; None: it is not told in chunks."""
    return ChunkTeller(call.operation) if call.operation in _TOLD else None


class _Head(msgspec.Struct):
    """What all chunks of an answer have alike."""

    id: str | None = None
    model: str | None = None
    created: float | None = None


_head = msgspec.json.Decoder(_Head).decode


class ChunkTeller(EventTeller):
    """One answer in chunks."""

    def __init__(self, operation: Operation) -> None:
        super().__init__(decoder(operation))
        self._operation: Operation = operation
        self._first = b""
        self._writer: StreamWriter | None = None

    def whole(self, data: bytes) -> bytes:
        """The whole events among what came so far; the rest waits for its end."""
        data = super().whole(data)
        if not self._first and b'"id"' in data:
            self._first = data
        return data

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
