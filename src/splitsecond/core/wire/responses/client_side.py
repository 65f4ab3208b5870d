"""OpenAI's Responses on the client's side of the gateway: relay, assembly and continuation.

A continued response keeps the id and the fields of the first target's; the numbers of items and
events go on. The events that end an item or the answer repeat all of it, so the content so far is
kept.
"""

import re
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.core.service import Call
from splitsecond.core.validation import read_json
from splitsecond.core.wire.assembly import Assembly, decoded
from splitsecond.core.wire.continuation import PartsEncoder, only_tools
from splitsecond.core.wire.relay import StreamRelay
from splitsecond.core.wire.responses.answers import GROWTHS, Position, StreamWriter
from splitsecond.core.wire.responses.decode import ResponsesDecoder
from splitsecond.core.wire.responses.tools import carried_tools
from splitsecond.core.wire.server_answer import collected
from splitsecond.core.wire.sse import encode_event, malformed
from splitsecond.core.wire.transcoder import Transcoder, new_transcoder

_SEQUENCE = re.compile(rb'"sequence_number"\s*:\s*(\d{1,15})')
_ANSWER_ENDS = ("response.completed", "response.incomplete", "response.failed")


def transcoder(call: Call, model: str) -> Transcoder:
    return new_transcoder(
        partial(StreamWriter, tools=carried_tools(call.body)), "resp_", call, model
    )


class ResponseRelay(StreamRelay):
    """Relay of a stream of Responses. It keeps the last events: an error event continues their
    numbers."""

    decoder = ResponsesDecoder
    transcoder = staticmethod(transcoder)

    def __init__(self, call: Call, target: str, *, usage: bool) -> None:
        super().__init__(call, target, usage=usage)
        self._last = b""

    def feed(self, data: bytes) -> bytes:
        events = super().feed(data)
        self._last = events or self._last
        return events

    def error(self, body: bytes) -> bytes:
        numbers = _SEQUENCE.findall(self._last)
        error: dict[str, Any] = msgspec.json.decode(body)["error"]
        fields = {name: error[name] for name in ("code", "message", "param")}
        # OpenAI's library reads `error`, other clients the fields beside it
        event = {
            "type": "error",
            **fields,
            "sequence_number": int(numbers[-1]) + 1 if numbers else 0,
            "error": error,
        }
        return encode_event(msgspec.json.encode(event), "error")


class _EndEvent(msgspec.Struct):
    type: str = ""
    response: Raw = Raw()
    item: Raw = Raw()


_decode_end = msgspec.json.Decoder(_EndEvent).decode
_decode_id = msgspec.json.Decoder(str).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


class ResponseAssembly(Assembly):
    """Assembly of a response: the event that ends it holds all of it, and its bytes are the answer.

    Some servers leave the output out of it; then it is the items that ended before, or what the
    deltas say.
    """

    def __init__(self) -> None:
        super().__init__()
        self._response = b""
        self._items: list[Raw] = []
        self._events: list[bytes] = []  # before the end of the first item

    def take(self, data: bytes, name: str) -> None:
        event = decoded(data, _decode_end)
        if event.type == "response.output_item.done" and event.item:
            self._items.append(event.item.copy())
            self._events.clear()
        elif event.type in _ANSWER_ENDS and event.response:
            self._response = bytes(event.response)
            self._ended = True
        if not self._items:
            self._events.append(encode_event(data, name))

    def whole(self) -> bytes:
        if not self._response:
            raise malformed("the stream holds no event with the whole response")
        fields = read_json(self._response, _decode_fields)
        if fields is None or bytes(fields.get("output", b"")) not in (b"", b"[]", b"null"):
            return self._response
        return msgspec.json.encode(
            {**fields, "output": self._items or self._items_of_deltas(fields)}
        )

    def _items_of_deltas(self, fields: dict[str, Raw]) -> Raw:
        answers, usage = collected(ResponsesDecoder().feed(b"".join(self._events), 0))
        writer = StreamWriter(
            "chat", "", id=read_json(fields.get("id", b""), _decode_id) or "", created=0
        )
        return _decode_fields(writer.whole(answers, usage))["output"]


_DELTAS = {f"{grows.deltas}.delta": (kind, grows) for kind, grows in GROWTHS}
_ENDS = frozenset(f"{grows.deltas}.done" for _, grows in GROWTHS)
_PARTS = {grows.part: f"{grows.deltas}.delta" for _, grows in GROWTHS if grows.part}
_ARGUMENTS = "response.function_call_arguments.delta"
_TOOLS = ("function",)


def continuation_encoder(call: Call) -> "ResponseEncoder | None":
    """Return the encoder for the answer to `call`; None if it may hold unknown items, or
    log-probabilities."""
    if (
        call.operation != "chat"
        or not only_tools(call.body, _TOOLS)
        or _wants_logprobs(call.body.get("include"))
    ):
        return None
    return ResponseEncoder(call)


class _Event(msgspec.Struct):
    """The fields of an event that show the position in the answer."""

    type: str = ""
    sequence_number: Any = None
    output_index: Any = None
    content_index: Any = None
    summary_index: Any = None
    response: dict[str, Any] | None = None
    item: dict[str, Any] | None = None
    part: dict[str, Any] | None = None
    delta: Any = None


_decode_event = msgspec.json.Decoder(_Event).decode


class ResponseEncoder(PartsEncoder):
    kinds = frozenset({"text", "refusal", "reasoning", "tool", "image"})

    def __init__(self, call: Call) -> None:
        super().__init__(ResponsesDecoder())
        self._operation = call.operation
        self._position = Position()

    def note(self, data: bytes) -> None:
        event = read_json(data, _decode_event)
        if event is None:
            self._position_known = False
            return
        position, number = self._position, event.sequence_number
        position.sequence = number + 1 if isinstance(number, int) else position.sequence + 1
        if event.response is not None:
            position.head = position.head or event.response
        elif event.type in _DELTAS:
            self._take_delta(event)
        elif event.type in _ENDS:
            position.text_ended = True
            self._ends(position.kind)
        elif event.item is not None:
            self._take_item(event.item, event)
        elif event.part is not None:
            self._take_part(event.part, event)

    def resumed(self) -> StreamWriter:
        writer = StreamWriter(self._operation, "", id="", created=0)
        writer.resume(self._position)
        return writer

    def _take_item(self, item: dict[str, Any], event: _Event) -> None:
        position = self._position
        self._end_part()
        if position.is_open and event.type == "response.output_item.done":
            position.items[-1], position.is_open = item, False
            return
        self._position_known &= not position.is_open and event.output_index in (
            None,
            len(position.items),
        )
        position.items.append(item)
        position.is_open = event.type == "response.output_item.added"
        self._begins("reasoning" if item.get("type") == "reasoning" else "text")
        if item.get("type") == "function_call":
            self._calls += 1
            if position.is_open:
                self._grow(_ARGUMENTS, event)

    def _take_part(self, part: dict[str, Any], event: _Event) -> None:
        position, deltas = self._position, _PARTS.get(str(part.get("type")))
        if deltas is None or not position.is_open:
            self._position_known = False
        elif event.type.endswith(".added"):
            self._grow(deltas, event)
        else:
            item, parts = position.items[-1], _DELTAS[deltas][1].parts
            earlier_parts = item.get(parts)
            if isinstance(earlier_parts, list):
                earlier_parts.append(part)
            else:
                item[parts] = [part]
            self._end_part()

    def _end_part(self) -> None:
        self._ends(self._position.kind)
        self._position.kind = self._position.grows = None

    def _take_delta(self, event: _Event) -> None:
        position = self._position
        if not position.is_open or not isinstance(event.delta, str):
            self._position_known = False
            return
        if position.grows is None:  # no event announced its part
            self._grow(event.type, event)
        self._position_known &= position.kind == _DELTAS[event.type][0]
        position.texts.append(event.delta)

    def _grow(self, deltas: str, event: _Event) -> None:
        position = self._position
        position.kind, position.grows = _DELTAS[deltas]
        self._begins(position.kind)
        place = (
            event.summary_index if position.grows.place == "summary_index" else event.content_index
        )
        position.place, position.texts, position.text_ended = (
            place if isinstance(place, int) else 0,
            [],
            False,
        )


def _wants_logprobs(include: Raw | Any) -> bool:
    return b"logprobs" in (include if isinstance(include, Raw) else msgspec.json.encode(include))
