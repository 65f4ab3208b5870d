"""A stream made into one answer, as if it had not been streamed. This is OpenAI's; `assemble_others` has the rest.

A chunk is merged into what is there by rules that need no list of fields, so that fields we do not know survive: texts
inside a delta are joined, except names and ids, which are set; objects are merged; lists whose items have an ``index``
(choices, tool calls) are merged by it, others are joined; of anything else the last that is not null counts. Texts are
joined at the end, once: adding to a text that grows takes quadratic time.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from splitsecond.errors import ProviderFault
from splitsecond.wire.lenient import mended
from splitsecond.wire.sse import SseDecoder

T = TypeVar("T")

_decode: Callable[[bytes], Any] = msgspec.json.decode
MAX_ANSWER_BYTES = 64 << 20
_SET = frozenset({"id", "type", "role", "name", "format", "call_id"})
_OBJECTS = {"chat.completion.chunk": "chat.completion"}
_LAST = ("usage", "service_tier", "system_fingerprint")
"""What stands after the choices."""
_BLANK = b"\xef\xbb\xbf \t\r\n"
_END_MARK = b"[DONE]"


class _Text(list[str]):
    """Pieces of one text."""


class Assembly:
    """`feed` it the body of an answer; at its end `answer` is the whole of it."""

    def __init__(self) -> None:
        self.merged: dict[str, Any] = {}
        self._size = 0
        self._json: list[bytes] | None = None  # what came, where it is no stream
        self._sse: SseDecoder | None = None  # where it is one

    def feed(self, data: bytes) -> None:
        """The next bytes. Raises `ProviderFault` where the answer is too long."""
        self._size += len(data)
        if self._size > MAX_ANSWER_BYTES:
            words = f"the answer is longer than {MAX_ANSWER_BYTES} bytes"
            raise ProviderFault(words, kind="too_long", phase="between tokens", status=200)
        if self._json is not None:
            self._json.append(data)
            return
        if self._sse is None:
            data = data.lstrip(_BLANK)
            if data.startswith(b"{"):
                self._json = [data]
                return
            if not data:
                return
            self._sse = SseDecoder()
        for event in self._sse.feed(data):
            self._take(event.data)

    def answer(self) -> bytes:
        """The whole answer, as JSON. What came as JSON stays as it came."""
        if self._json is not None:
            return b"".join(self._json)
        for event in self._sse.rest() if self._sse is not None else ():
            self._take(event.data)
        return self.whole()

    def whole(self) -> bytes:
        """What all events came to, as JSON."""
        return msgspec.json.encode(self.fields())

    def chunks(self, *, usage: bool) -> Iterator[bytes]:
        """The answer as the chunks of a stream: all that it says in one, then its usage if that is wanted."""
        fields = decoded(self.answer(), _decode)
        counts = fields.pop("usage", None)
        fields["object"] = "chat.completion.chunk" if "chat" in str(fields.get("object")) else fields.get("object")
        for choice in fields.get("choices") or ():
            message = choice.pop("message", None)
            if isinstance(message, dict):
                choice["delta"] = message
                for number, call in enumerate(message.get("tool_calls") or ()):
                    call.setdefault("index", number)
        yield msgspec.json.encode(fields)
        if usage and counts is not None:
            yield msgspec.json.encode({**fields, "choices": [], "usage": counts})

    def _take(self, data: bytes | None) -> None:
        if data is None or not data.strip() or data.strip() == _END_MARK:
            return
        self.take(data)

    def take(self, data: bytes) -> None:
        """One event of the stream, as JSON."""
        chunk = decoded(data, _decode)
        if isinstance(chunk, dict):
            self.merge(chunk)

    def merge(self, chunk: dict[str, Any]) -> None:
        """One event of the stream."""
        _merge(self.merged, chunk)

    def fields(self) -> dict[str, Any]:
        """What all events came to, as OpenAI orders it."""
        fields: dict[str, Any] = _plain(self.merged)
        fields["object"] = _OBJECTS.get(fields.get("object", ""), fields.get("object"))
        fields.pop("obfuscation", None)  # what makes the events of a stream equally long
        choices = sorted(fields.get("choices") or (), key=lambda choice: choice.get("index", 0))
        fields["choices"] = [_whole_choice(choice) for choice in choices]
        last = {name: fields.pop(name) for name in _LAST if name in fields}
        return fields | last


def _whole_choice(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice as an answer that was not streamed has it: what is null there is said, and nothing numbers the calls."""
    delta = choice.pop("delta", None)
    if delta is None:
        return choice
    message = {"role": "assistant", "content": None, **choice.pop("message", {}), **delta}
    for call in message.get("tool_calls") or ():
        call.pop("index", None)
    if message.get("tool_calls") and not message["content"]:
        message["content"] = None
    if "refusal" in message:  # said by who always says whether there are annotations
        message.setdefault("annotations", [])
    message["refusal"] = message.pop("refusal", None)
    said = {"index": choice.pop("index", 0), "message": message, "logprobs": choice.pop("logprobs", None)}
    return said | choice


def decoded(data: bytes, decode: Callable[[bytes], T]) -> T:
    """What `decode` makes of the JSON of an event, mended if need be. Raises `ProviderFault` where it is none."""
    for form in (bytes, mended):
        try:
            return decode(form(data))
        except (ValueError, RecursionError) as error:
            why = error
    raise ProviderFault(f"an event is not JSON: {why}", kind="malformed", phase="between tokens", status=200)


def _merge(into: dict[str, Any], new: dict[str, Any], *, joins: bool = False) -> None:
    for name, value in new.items():
        old = into.get(name)
        match value:
            case None:
                into.setdefault(name, None)
            case str() if name == "text" or (joins and name not in _SET):
                if isinstance(old, _Text):
                    old.append(value)
                else:
                    into[name] = _Text([value])
            case dict():
                if not isinstance(old, dict):
                    old = into[name] = {}
                if name == "usage":
                    old.clear()
                _merge(old, value, joins=joins or name == "delta")
            case list():
                if not isinstance(old, list) or isinstance(old, _Text):
                    old = into[name] = []
                _merge_list(old, value, joins=joins)
            case "" if old:
                pass  # some repeat an id or a name as an empty text
            case _:
                into[name] = value


def _merge_list(into: list[Any], new: list[Any], *, joins: bool) -> None:
    for item in new:
        if not isinstance(item, dict):
            into.append(item)
            continue
        index = item.get("index")
        place = next((old for old in into if index is not None and old.get("index") == index), None)
        if place is None:
            place = {}
            into.append(place)
        _merge(place, item, joins=joins)


def _plain(value: Any) -> Any:
    match value:
        case _Text():
            return "".join(value)
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
    return value
