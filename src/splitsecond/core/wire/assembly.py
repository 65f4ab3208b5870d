"""Assembly of a streamed answer into the JSON object that a client gets if it requests no stream.

Nearly all events of a stream only add to one text, and differ in nothing else. After one of them is merged, those that
follow it directly and have the same bytes around the text only add theirs (`TextEvents`). All others are decoded and
merged one by one, with the same result.

Everything here comes from a provider: any input takes linear time, and an answer that cannot be assembled raises a
`ProviderFault`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from splitsecond.core.errors import ProviderFault
from splitsecond.core.large_bodies import LARGE_BYTES, HeldAnswer
from splitsecond.core.validation import read_json
from splitsecond.core.wire.sse import LEADING, MAX_EVENT_BYTES, SseDecoder, SseEvent, malformed
from splitsecond.core.wire.streaming import END_MARK, repair_json
from splitsecond.core.wire.text_events import TextEvents

T = TypeVar("T")

_decode: Callable[[bytes], Any] = msgspec.json.decode
_LAST_EVENT = b"\n\ndata: [DONE]\n\n"
MAX_ANSWER_BYTES = 64 << 20
MAX_INDEXES = 16_384
"""The most numbered items in one list: choices, tool calls of a choice, blocks. vLLM returns at most that many
choices."""


class Assembly:
    """Assembly of one answer: `feed` it the body; at its end `answer` returns the whole.

    A format merges its events into one object, `merged`, or takes them in another way. `done_ends`: ``[DONE]`` ends the
    stream. Nothing after its end is read, whatever it is.
    """

    done_ends = True

    _text_events: TextEvents  # recognises the text events of a stream
    _size = 0
    _held_answer: HeldAnswer | None = None  # of a large answer
    _json: list[bytes] | None = None  # the body, if it is one JSON object
    _held = b""  # a stream that came in one piece, which may be plain
    _sse: SseDecoder | None = None  # of a stream that is not held
    _text: list[str] | None = None  # the text that the last event added to, if it was a text event
    _ended = False  # by the end mark; what follows it is ignored

    def __init__(self) -> None:
        self.merged: dict[str, Any] = {}
        self._halves: dict[tuple[Any, ...], str] = {}  # of surrogate pairs

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises `ProviderFault` if the answer is too long, and `Overloaded`: see `HeldAnswer`."""
        self._size += len(data)
        if self._size > MAX_ANSWER_BYTES:
            raise malformed(f"the answer is longer than {MAX_ANSWER_BYTES:,} bytes", "too_long")
        if self._size > LARGE_BYTES:
            self._held_answer = self._held_answer or HeldAnswer()
            self._held_answer.hold(self._size)
        if self._json is not None:
            self._json.append(data)
            return
        if self._sse is None:
            data = data.lstrip(LEADING)
            if data.startswith(b"{"):
                self._json = [data]
                return
            if not data:
                return
            if not self._held and data.endswith(_LAST_EVENT):
                self._held = data
                return
            data, self._held = self._held + data, b""
        self._feed_stream(data)

    def answer(self) -> bytes:
        """Return the whole answer as JSON. An answer that came as JSON is returned as it came.

        Raises `ProviderFault` if the body is not an answer.
        """
        if self._json is not None:
            return b"".join(self._json)
        if self._held:
            if (plain := self.plain_answer(self._held)) is not None:
                return plain
            self._feed_stream(self._held)
        for event in self._sse.rest() if self._sse is not None else ():
            self._take(event)
        try:
            return self.whole()
        except RecursionError:
            raise too_deep() from None

    def plain_answer(self, stream: bytes) -> bytes | None:
        """Return the whole answer of a complete stream, if it is of the most frequent kind and the format has a fast
        path for it; otherwise None. The general way gives the same answer."""
        return None

    def _feed_stream(self, data: bytes) -> None:
        if self._sse is None:
            self._sse = SseDecoder()
            self._text_events = TextEvents()
        self._feed_events(self._sse, data)
        if self._sse.overflow:
            raise malformed(f"an event is longer than {MAX_EVENT_BYTES:,} bytes", "too_long")

    def _feed_events(self, sse: SseDecoder, data: bytes) -> None:
        at = 0
        while at < len(data) and not self._ended:
            if self._text is not None and sse.between_events:
                texts, at = self._text_events.read(data, at)
                self._text += texts
            end = data.find(b"\n\n", at) + 2 if self._text_events.useful else 1
            for event in sse.feed(data[at:end] if end > 1 else data[at:]):
                self._take(event)
            if end == 1:
                return
            at = end

    def _take(self, event: SseEvent) -> None:
        data = event.data
        word = b"" if data is None else data.strip()
        if word == END_MARK:
            self._ended = self._ended or self.done_ends
        elif data is not None and word and not self._ended:
            self._text = None
            try:
                self.take(data, event.name)
            except RecursionError:
                raise too_deep() from None

    def take(self, data: bytes, name: str) -> None:
        """Take one event of the stream, as JSON. `name`: that of the event, "" if it has none."""
        chunk = decoded(data, _decode, self._halves)
        if not isinstance(chunk, dict):
            return
        self.merge(chunk)
        if self._text_events.useful:
            text = self.added_text(chunk)
            if text and self._text_events.learn(data, name, text, self._read_text):
                self._text = self.pieces(chunk)

    def _read_text(self, data: bytes) -> str | None:
        chunk = read_json(data)
        return self.added_text(chunk) if isinstance(chunk, dict) else None

    def added_text(self, chunk: dict[str, Any]) -> str | None:
        """Return the text that `chunk` adds if merging `chunk` again would change nothing but add it again."""
        return None

    def pieces(self, chunk: dict[str, Any]) -> list[str]:
        """Return where `merge` has put the text that `chunk` adds. Only for a chunk that has an `added_text`."""
        raise NotImplementedError

    def whole(self) -> bytes:
        """Return the sum of all events, as JSON."""
        return msgspec.json.encode(self.fields())

    def merge(self, chunk: dict[str, Any]) -> None:
        """Merge one event of the stream into `merged`."""
        raise NotImplementedError

    def fields(self) -> dict[str, Any]:
        """Return the sum of all events, in the order of fields that the provider uses."""
        raise NotImplementedError


def too_deep() -> ProviderFault:
    """Return the fault of an answer whose values are nested too deeply."""
    return malformed("the answer is nested too deeply")


def decoded(data: bytes, decode: Callable[[bytes], T], halves: dict[tuple[Any, ...], str] | None = None) -> T:
    """Decode the JSON of an event, repaired (with `halves`) if necessary. Raises `ProviderFault` if it is not JSON."""
    for form in (bytes, partial(repair_json, halves=halves)):
        try:
            return decode(form(data))
        except (ValueError, RecursionError) as error:
            why = error
    raise malformed(f"an event is not JSON: {why}")
