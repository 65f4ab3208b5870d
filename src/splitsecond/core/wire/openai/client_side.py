"""OpenAI's chat and completions on the client's side of the gateway: relay, assembly and
continuation.

The relay looks into an event only if it may be the usage chunk that the client did not request: the
one without choices. The chunks of a continuation keep the head of the first one. For clients of
formats whose requests become a chat as they come in, the answer's chunks are decoded, and encoded
in the client's format (`TranslatedRelay`, `TranslatedAssembly`).
"""

import re
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import msgspec

from splitsecond.core import clock
from splitsecond.core.events import Broken, Done, Event, Usage
from splitsecond.core.service import Call, Operation
from splitsecond.core.validation import read_json
from splitsecond.core.wire.assembly import Added, Assembly, decoded, merge, plain, too_deep
from splitsecond.core.wire.chat_form import REASONING_FIELD
from splitsecond.core.wire.continuation import ContinuationEncoder
from splitsecond.core.wire.openai.answers import StreamWriter, usage_fields
from splitsecond.core.wire.openai.decode import OpenAIDecoder, decoder, texts_of, tool_fragments
from splitsecond.core.wire.openai.plain_stream import LAST_FIELDS, plain_answer
from splitsecond.core.wire.openai.shapes import Delta
from splitsecond.core.wire.relay import StreamRelay, whole_events
from splitsecond.core.wire.server_answer import collected
from splitsecond.core.wire.sse import SseDecoder, encode_event, end_of_events, events_in, malformed
from splitsecond.core.wire.streaming import fitted
from splitsecond.core.wire.tool_calls import ToolCalls
from splitsecond.core.wire.transcoder import WriterType, new_transcoder
from splitsecond.core.wire.translation import Fields

_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_USAGE = b'"usage"'
_NO_USAGE = re.compile(rb'"usage"\s*:\s*null')
_MARK = b"[DONE]"
_DONE = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\](?:\r\n\r\n|\n\n|\r\r|$)")
_LOGPROBS_LINE = re.compile(rb'^(data: ?)([^\r\n]*"logprobs"[^\r\n]*)', re.MULTILINE)

transcoder = partial(new_transcoder, StreamWriter, "chatcmpl-", single=False)


class _Chunk(msgspec.Struct):
    choices: list[Any]
    usage: msgspec.Raw


_decode_chunk = msgspec.json.Decoder(_Chunk).decode
_fitted_delta = partial(fitted, form=msgspec.json.Decoder(Delta))


class ChunkRelay(StreamRelay):
    def feed(self, data: bytes) -> bytes:
        if self.done:
            return b""
        cutter = self._cutter
        events = cutter.feed(data)
        if cutter.is_json:
            return self._collect(events)
        if _MARK in events and (mark := _DONE.search(events)) is not None:
            self.done, events = True, events[: mark.end()]
        return events if self._usage or _USAGE not in events else _without_usage(events)

    def rest(self) -> bytes:
        if self.done:
            return b""
        rest = super().rest()
        return rest if self.done else rest + b"data: [DONE]\n\n"

    def error(self, body: bytes) -> bytes:
        return encode_event(body)

    def _as_stream(self, body: bytes) -> bytes:
        return b"".join(encode_event(chunk) for chunk in chunks(body, usage=self._usage))


def _without_usage(events: bytes) -> bytes:
    """Return `events` without those that hold usage only. They are cut apart only from the first
    that may be one: many providers write in each chunk that it has no usage."""
    first = _NO_CHOICES.search(events)
    if first is None:
        return events
    begin = end_of_events(events[: first.start()], 0)
    return events[:begin] + b"".join(
        event for event in events_in(events[begin:]) if not _is_usage(event)
    )


def _is_usage(event: bytes) -> bool:
    if not _NO_CHOICES.search(event):
        return False
    chunk = read_json(event.strip().removeprefix(b"data:"), _decode_chunk)
    return chunk is not None and not chunk.choices and bytes(chunk.usage) != b"null"


def chunks(body: bytes, *, usage: bool) -> Iterator[bytes]:
    """Yield a whole answer as the chunks of a stream: its content in one, then its usage, if known
    and requested. Raises `ProviderFault` if `body` is no answer."""
    fields = decoded(body, msgspec.json.decode)
    if not isinstance(fields, dict):
        raise malformed("the answer is not a JSON object")
    counts, kind = fields.pop("usage", None), fields.get("object")
    fields["object"] = "chat.completion.chunk" if isinstance(kind, str) and "chat" in kind else kind
    for choice in _objects(fields, "choices"):
        message = choice.pop("message", None)
        if isinstance(message, dict):
            choice["delta"] = message
            for number, call in enumerate(_objects(message, "tool_calls")):
                call["index"] = number
    try:
        yield msgspec.json.encode(fields)
        if usage and counts is not None:
            yield msgspec.json.encode({**fields, "choices": [], "usage": counts})
    except RecursionError:
        raise too_deep() from None


class ChunkAssembly(Assembly):
    """Assembly of a chat or a completion. What has several forms is read by the decoder's rules
    first."""

    plain_answer = staticmethod(plain_answer)

    @cached_property
    def _calls(self) -> ToolCalls:
        return ToolCalls()

    def fresh(self) -> Assembly:
        return ChunkAssembly()

    def merge(self, chunk: Fields, name: str) -> Added:
        for choice in _objects(chunk, "choices"):
            choice["index"], delta = _index(choice), choice.get("delta")
            if isinstance(delta, dict) and (
                delta.get("tool_calls") or isinstance(delta.get("content"), list)
            ):
                _read_delta(delta, choice["index"], self._calls)
        added: Added = []
        merge(self.merged, chunk, added)
        return added

    def fields(self) -> Fields:
        fields: Fields = plain(self.merged)
        kind = fields.get("object")
        fields["object"] = kind.removesuffix(".chunk") if isinstance(kind, str) else kind
        fields.pop("obfuscation", None)  # padding that makes the events of a stream equally long
        fields["choices"] = [
            _whole_choice(choice) for choice in sorted(_objects(fields, "choices"), key=_index)
        ]
        if fields.get("usage") is None:
            fields["usage"] = _usage_elsewhere(fields)
        if fields["object"] == "chat.completion":
            fields.setdefault("system_fingerprint", None)  # OpenRouter's clients require it
        last = {name: fields.pop(name) for name in LAST_FIELDS if name in fields}
        return fields | last

    def answer(self) -> bytes:
        """Return the whole answer; one that came as JSON as it came, but with ``usage``."""
        body = super().answer()
        if self._json is None:
            return body
        place = body.find(_USAGE)
        if place >= 0 and not _NO_USAGE.search(body, place):
            return body
        try:
            fields = msgspec.json.decode(body)
            if (
                not isinstance(fields, dict)
                or "choices" not in fields
                or fields.get("usage") is not None
            ):
                return body
            return msgspec.json.encode({**fields, "usage": _usage_elsewhere(fields)})
        except (ValueError, RecursionError):
            return body


def _usage_elsewhere(fields: Fields) -> Fields:
    """Return the ``usage`` of an answer without it: from another place, or zeros."""
    reading = decoder("chat")
    events = [*reading.feed(msgspec.json.encode(fields), 0), *reading.close(0)]
    return usage_fields(
        next((event for event in reversed(events) if isinstance(event, Usage)), Usage(0))
    )


def _read_delta(delta: Fields, index: int, calls: ToolCalls) -> None:
    """Give the content of `delta` its usual form: one text, and numbered calls, each named once."""
    try:
        read = msgspec.convert(delta, Delta)
    except ValueError:
        read, _ = decoded(msgspec.json.encode(delta), _fitted_delta)
    if isinstance(read.content, list):
        reasoning, delta["content"] = texts_of(read.content)
        if reasoning:
            delta[REASONING_FIELD] = reasoning
    if read.tool_calls:
        fragments = tool_fragments(read, index, calls, whole=False)
        for call, (part, text) in zip(_objects(delta, "tool_calls"), fragments, strict=True):
            call["index"], own = part.number, call.get("function") or call.get("custom")
            if not isinstance(own, dict):
                continue
            own["input" if call.get("custom") else "arguments"] = text
            if part.name:
                call["id"], own["name"] = part.id or None, part.name
            else:  # an id or a name that is repeated, or made up for this fragment
                call.pop("id", None)
                own.pop("name", None)


def _whole_choice(choice: Fields) -> Fields:
    """Return a choice as in a whole answer: with explicit nulls, without numbers of calls."""
    delta = choice.pop("delta", None)
    if delta is None:
        return choice
    whole_message = choice.pop("message", None)
    message = {
        "role": "assistant",
        "content": None,
        **_object("message", whole_message or {}),
        **_object("delta", delta),
    }
    for call in _objects(message, "tool_calls"):
        call.pop("index", None)
        own = call.get("function") or call.get("custom")
        if isinstance(own, dict) and not own.get("name"):
            raise malformed("a tool call of the answer has no name")
    if message.get("tool_calls") and not message["content"]:
        message["content"] = None
    if "refusal" in message:  # providers that send it also send the annotations
        message.setdefault("annotations", [])
    message["refusal"] = message.pop("refusal", None)
    first = {
        "index": choice.pop("index", 0),
        "message": message,
        "logprobs": choice.pop("logprobs", None),
    }
    return first | choice


def _index(choice: Fields) -> int:
    index = choice.get("index")
    return index if isinstance(index, int) and index >= 0 else 0


def _object(name: str, value: Any) -> Fields:
    if not isinstance(value, dict):
        raise malformed(f"{name} is not an object")
    return value


def _objects(fields: Fields, name: str) -> list[Fields]:
    value = fields.get(name) or []
    if isinstance(value, dict):  # TGI sends no list
        value = fields[name] = [value]
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise malformed(f"{name} is not a list of objects")
    return value


def without_logprobs(answer: bytes) -> bytes:
    """Return `answer`, a whole body, with null for all log-probabilities; only events that hold
    some are encoded again."""
    if b'"logprobs"' not in answer:
        return answer
    if answer.lstrip().startswith(b"{"):
        return _without_logprobs(answer)
    return _LOGPROBS_LINE.sub(lambda line: line[1] + _without_logprobs(line[2]), answer)


def _without_logprobs(data: bytes) -> bytes:
    fields: Any = read_json(data)
    choices = fields.get("choices") if isinstance(fields, dict) else None
    has_logprobs = False
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("logprobs") is not None:
            choice["logprobs"] = None
            has_logprobs = True
    try:
        return msgspec.json.encode(fields) if has_logprobs else data
    except RecursionError:
        return data


_MAX_CREATED = 253_402_300_800
"""The end of the year 9999, in seconds since 1970."""
_STREAMED: tuple[Operation, ...] = ("chat", "completions")


def continuation_encoder(call: Call) -> "ChunkEncoder | None":
    """Return the encoder for the answer to `call`; None for an answer that has no chunks."""
    return ChunkEncoder(call.operation) if call.operation in _STREAMED else None


class AnswerHead(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    created: float | None = None

    @property
    def created_s(self) -> int:
        """When the answer began, in seconds since 1970; 0 if it is unknown or no date."""
        return (
            int(self.created)
            if self.created is not None and 0 <= self.created < _MAX_CREATED
            else 0
        )


decode_head = msgspec.json.Decoder(AnswerHead).decode


class ChunkEncoder(ContinuationEncoder):
    def __init__(self, operation: Operation) -> None:
        super().__init__(decoder(operation))
        self._operation: Operation = operation
        self._first = b""
        self._writer: StreamWriter | None = None

    def cut(self, data: bytes) -> bytes:
        data = super().cut(data)
        if not self._first and b'"id"' in data:
            self._first = data
        return data

    def whole(self, data: bytes) -> bool:
        return bool(self._first) and super().whole(data)  # until then `cut` looks for the head

    def encode(self, event: Event) -> bytes:
        if self._writer is None:
            head = self._read_head()
            self._writer = StreamWriter(
                self._operation, head.model or "", id=head.id or "", created=head.created_s
            )
        return self._writer.event(event)

    def _read_head(self) -> AnswerHead:
        heads = (
            read_json(event.data or b"", decode_head) for event in SseDecoder().feed(self._first)
        )
        return next((head for head in heads if head and head.id), AnswerHead())


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
        error_event: tuple[bytes, bytes],
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
