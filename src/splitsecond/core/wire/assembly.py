"""Assembly of a streamed answer into the JSON object that a client gets if it requests no stream.

Events are decoded and merged one by one, but those that only add to one text (`TextEvents`).

Everything here comes from a provider: any input takes linear time, and an answer that cannot be
assembled raises a `ProviderFault`.
"""

from collections.abc import Callable
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
"""The most numbered items in one list: choices, tool calls, blocks. vLLM returns at most that many
choices."""


class Text(list[str]):
    """The pieces of one text that grows, joined once at the end: appending would take quadratic
    time."""


class _Items(list[Any]):
    """A list whose items may have an index. `by_index` finds those in constant time."""

    def __init__(self) -> None:
        super().__init__()
        self.by_index: dict[int | str, dict[str, Any]] = {}


Added = list[Text | None]
"""The texts to which an event has added, and None for anything else that merging it again would add
again."""


class Assembly:
    """Assembly of one answer: `feed` it the body; at its end `answer` returns the whole.

    A format merges its events into `merged`, or takes them in another way. `done_ends`: ``[DONE]``
    ends the stream; nothing after it is read.
    """

    done_ends = True
    _size = 0
    _held_answer: HeldAnswer | None = None  # of a large answer
    _json: list[bytes] | None = None  # the body, if it is one JSON object
    _held = b""  # a stream that came in one piece, which may be plain
    _ended = False  # by the end mark; what follows it is ignored
    # of a stream that is read event by event
    _sse: SseDecoder | None = None
    _halves: dict[tuple[Any, ...], str]  # of surrogate pairs
    _text_events: TextEvents
    _text: Text  # the text that the known events add to

    def __init__(self) -> None:
        self.merged: dict[str, Any] = {}

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises `ProviderFault` if the answer is too long, and `Overloaded`:
        see `HeldAnswer`."""
        begun = self._size > 0
        self._size += len(data)
        if self._size > MAX_ANSWER_BYTES:
            raise malformed(f"the answer is longer than {MAX_ANSWER_BYTES:,} bytes", "too_long")
        if self._size > LARGE_BYTES:
            self._held_answer = self._held_answer or HeldAnswer()
            self._held_answer.hold(self._size)
        if self._json is not None:
            self._json.append(data)
        elif begun:
            self._feed_stream(self._held + data)
        elif not (data := data.lstrip(LEADING)):
            self._size = 0
        elif data.startswith(b"{"):
            self._json = [data]
        elif data.endswith(_LAST_EVENT):
            self._held = data
        else:
            self._feed_stream(data)

    def _feed_stream(self, data: bytes) -> None:
        self._held, sse = b"", self._sse
        if sse is None:
            sse = self._sse = SseDecoder()
            self._halves, self._text_events, self._text = {}, TextEvents(), Text()
        for event in self._text_events.events(sse, data):
            if self._ended:
                break
            if isinstance(event, SseEvent):
                self._take(event)
            else:
                self._text += event
        if sse.overflow:
            raise malformed(f"an event is longer than {MAX_EVENT_BYTES:,} bytes", "too_long")

    def answer(self) -> bytes:
        """Return the whole answer as JSON. An answer that came as JSON is returned as it came.

        Raises `ProviderFault` if the body is not an answer.
        """
        if self._json is not None:
            return b"".join(self._json)
        if self._held:
            if (short := self.plain_answer(self._held)) is not None:
                return short
            self._feed_stream(self._held)
        for event in () if self._sse is None else self._sse.rest():
            self._take(event)
        try:
            return self.whole()
        except RecursionError:
            raise too_deep() from None

    @staticmethod
    def plain_answer(body: bytes) -> bytes | None:
        """Return the whole answer of a complete stream; None if the format has no fast path for
        it."""
        return None

    def _take(self, event: SseEvent) -> None:
        data = event.data
        word = b"" if data is None else data.strip()
        if word == END_MARK:
            self._ended = self._ended or self.done_ends
        elif data is not None and word and not self._ended:
            try:
                self.take(data, event.name)
            except RecursionError:
                raise too_deep() from None

    def take(self, data: bytes, name: str) -> None:
        """Take one event of the stream, as JSON. `name`: that of the event, "" if it has none."""
        chunk = decoded(data, _decode, self._halves)
        if not isinstance(chunk, dict):
            return
        added = self.merge(chunk, name)
        text = added[0] if len(added) == 1 else None
        if text and self._text_events.learn(
            data, name, text[-1], lambda probe: _only_text(self.fresh(), probe, name)
        ):
            self._text = text

    def fresh(self) -> "Assembly":
        return type(self)()

    def whole(self) -> bytes:
        return msgspec.json.encode(self.fields())

    def merge(self, chunk: dict[str, Any], name: str) -> Added:
        """Merge one event of the stream into `merged`, and return what it has added."""
        raise NotImplementedError

    def fields(self) -> dict[str, Any]:
        raise NotImplementedError


def _only_text(fresh: Assembly, data: bytes, name: str) -> str | None:
    chunk: Any = read_json(data)
    added = fresh.merge(chunk, name) if isinstance(chunk, dict) else []
    return added[0][-1] if len(added) == 1 and added[0] else None


_NOT_JOINED = frozenset({"id", "type", "role", "name", "format", "call_id"})


def merge(into: dict[str, Any], new: dict[str, Any], added: Added, *, joins: bool = False) -> None:
    """Merge the fields of an event, without a list of fields, so that unknown ones survive.

    Texts are joined, if `joins` and below a ``delta``, except names and ids; objects are merged;
    lists whose items have an ``index`` are merged by it, other lists are joined; of anything else
    the last value that is not null counts.
    """
    for name, value in new.items():
        old = into.get(name)
        if isinstance(value, dict):
            if not isinstance(old, dict):
                old = into[name] = {}
            if name == "usage":
                old.clear()
            merge(old, value, added, joins=joins or name == "delta")
        elif isinstance(value, list):
            if not isinstance(old, _Items):
                old = into[name] = _Items()
            _merge_list(old, value, added, joins=joins)
        elif isinstance(value, str) and (name == "text" or (joins and name not in _NOT_JOINED)):
            _merge_text(into, name, value, added)
        elif old is None or (
            value is not None and value != ""
        ):  # some repeat an id or a name as an empty text
            into[name] = value


def _merge_text(into: dict[str, Any], name: str, value: str, added: Added) -> None:
    old = into.get(name)
    text = old if isinstance(old, Text) else Text()
    into[name] = text
    if value:
        text.append(value)
        added.append(text)


def _merge_list(into: _Items, new: list[Any], added: Added, *, joins: bool) -> None:
    for item in new:
        index = item.get("index") if isinstance(item, dict) else None
        if not isinstance(index, int | str):
            into.append(item)
            added.append(None)
            continue
        place = into.by_index.get(index)
        if place is None:
            if len(into.by_index) == MAX_INDEXES:
                raise malformed(
                    f"more than {MAX_INDEXES:,} items with an index in one list", "too_long"
                )
            place = into.by_index[index] = {}
            into.append(place)
        merge(place, item, added, joins=joins)


def plain(value: Any) -> Any:
    if isinstance(value, Text):
        return "".join(value)
    if isinstance(value, dict):
        return {
            name: plain(each) if isinstance(each, dict | list) else each
            for name, each in value.items()
        }
    return [plain(each) for each in value] if isinstance(value, list) else value


def too_deep() -> ProviderFault:
    return malformed("the answer is nested too deeply")


def decoded(
    data: bytes, decode: Callable[[bytes], T], halves: dict[tuple[Any, ...], str] | None = None
) -> T:
    """Decode the JSON of an event, repaired (with `halves`) if necessary. Raises `ProviderFault` if
    it is no JSON."""
    try:
        return decode(data)
    except (ValueError, RecursionError):
        try:
            return decode(repair_json(data, halves))
        except (ValueError, RecursionError) as error:
            raise malformed(f"an event is not JSON: {error}") from None
