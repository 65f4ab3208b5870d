"""Answers for clients of formats whose requests become a chat in OpenAI's form as they come in, so
that policies and targets see only that.

The answer's chunks are decoded, and encoded in the client's format.
"""

from collections.abc import Callable

from splitsecond.core import clock
from splitsecond.core.events import Broken, Done, Event
from splitsecond.core.service import Call
from splitsecond.core.validation import read_json
from splitsecond.core.wire.openai.client_side import AnswerHead, ChunkAssembly, decode_head
from splitsecond.core.wire.openai.decode import OpenAIDecoder
from splitsecond.core.wire.relay import StreamRelay, whole_events
from splitsecond.core.wire.server_answer import collected
from splitsecond.core.wire.transcoder import WriterType, new_transcoder


class TranslatedRelay(StreamRelay):
    """Relay of a stream of chunks as a stream of the format of `writer`.

    `error_event`: what is around the body of an error. `single`: the format has one choice only.
    """

    def __init__(
        self,
        call: Call,
        target: str,
        *,
        usage: bool,
        writer: WriterType,
        error_event: "tuple[bytes, bytes]",
        single: bool = False,
    ) -> None:
        super().__init__(call, target, usage=usage)
        self._chunks = OpenAIDecoder()
        self._translated = new_transcoder(writer, "", call, target, single=single)
        self._around_error = error_event

    def feed(self, data: bytes) -> bytes:
        """Return the events of the client's format for `data`. Raises the `Fault` that the stream
        holds."""
        return self._encoded(self._chunks.feed(data, clock.now_ns()))

    def rest(self) -> bytes:
        return self._encoded(self._chunks.close(clock.now_ns()))

    def error(self, body: bytes) -> bytes:
        before, after = self._around_error
        return before + body + after

    def _encoded(self, events: list[Event]) -> bytes:
        if events and isinstance(events[-1], Broken):
            raise events[-1].fault
        self.done = self.done or any(isinstance(event, Done) for event in events)
        return self._translated.encode(events)


class TranslatedAssembly(ChunkAssembly):
    """Assembly of chunks as one answer, which `write` turns into the client's format."""

    def __init__(self, write: Callable[[bytes], bytes]) -> None:
        super().__init__()
        self._write = write

    def answer(self) -> bytes:
        """Return the whole answer as JSON. Raises the `Fault` that the body holds."""
        return self._write(super().answer())


def translated_answer(writer: WriterType, body: bytes) -> bytes:
    choices, usage = collected(whole_events(OpenAIDecoder(), body))
    head = read_json(body, decode_head) or AnswerHead()
    return writer("chat", head.model or "", id=head.id or "", created=head.created_s).whole(
        choices, usage
    )
