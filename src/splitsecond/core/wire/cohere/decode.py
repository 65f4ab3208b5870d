"""Client role: the body of an answer from Cohere to events.

The fields of an event decide, not its type; but no answer is complete without ``message-end``. A
tool plan, the text before a call, is reasoning.

Usage is ``usage.tokens``: everything that the model read and wrote, including Cohere's own text
around the prompt; or else ``billed_units``, which exclude that text. Cached tokens are part of the
input.
"""

from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.core.events import Usage
from splitsecond.core.wire.openai.shapes import TokenUsage, ToolCall
from splitsecond.core.wire.provider_errors import address_hints, error_of, parse_error
from splitsecond.core.wire.provider_errors import fault_from_response as _fault
from splitsecond.core.wire.streaming import ABSENT, Count, Decoder, Shape
from splitsecond.core.wire.tool_calls import arguments_text


class Content(Shape):
    text: str | None = None
    thinking: str | None = None


class Message(Shape):
    """A message. A whole one has lists where an event has one element."""

    content: Content | list[Content] | str | None = None
    tool_plan: str | None = None
    tool_calls: ToolCall | list[ToolCall] | None = None


class UsageShape(Shape):
    tokens: TokenUsage | None = None
    billed_units: TokenUsage | None = None
    cached_tokens: Count | None = None


class Delta(Shape):
    """The change that an event makes. `usage` (`UsageShape`) is raw here and in `Chunk`, so that a
    wrong count in it fails no answer."""

    message: Message | None = None
    finish_reason: str | None = None
    usage: Raw = ABSENT
    error: Any = None


class Chunk(Shape):
    """One event of a stream, whose fields are in `delta`, or a whole answer. A `message` that is a
    string is an error's; `index` is the block's."""

    type: str = ""
    index: Any = None
    delta: Delta | None = None
    message: Message | str | None = None
    finish_reason: str | None = None
    usage: Raw = ABSENT
    error: Any = None


_decode_usage = msgspec.json.Decoder(UsageShape, strict=False).decode
_CHUNK = msgspec.json.Decoder(Chunk)
_HTML_HINT = "The response is a web page, not an API: check the base URL (it usually ends in /v2)."


class CohereDecoder(Decoder):
    event_form = whole_form = _CHUNK
    end_name = "message-end"
    html_hint = _HTML_HINT

    def _take_event(self, chunk: Chunk, name: str, data: bytes) -> None:
        if chunk.error or chunk.type == "error" or isinstance(chunk.message, str):
            self._report_error(parse_error(data), data)
            return
        delta = chunk.delta
        if delta is not None and (chunk.type == "message-end" or delta.finish_reason):
            self._take_end(delta, data, marker=True)
        elif delta is not None and delta.message is not None:
            self._take_message(delta.message, chunk.index)

    def _take_message(self, message: Message, block: Any) -> None:
        """Take the parts of a message with content, in the order in which they were generated."""
        self._add_token(message.tool_plan or "", "reasoning")
        content = message.content
        if isinstance(content, str):
            self._add_token(content)
        else:
            for part in [content] if isinstance(content, Content) else content or ():
                self._add_token(part.thinking or "", "reasoning")
                self._add_token(part.text or "")
        calls, key = message.tool_calls, block if isinstance(block, int) else None
        for call in [calls] if isinstance(calls, ToolCall) else calls or ():
            if call.function is not None:
                tool = self._calls.part(key, str(call.id or ""), call.function.name or "")
                self._add_token(tool.name + arguments_text(call.function.arguments), "tool", tool)

    def _take_end(self, end: Delta, data: bytes, *, marker: bool) -> None:
        if end.error:
            self._report_error(error_of(end.error), data)
        elif end.finish_reason:
            self._add_finish(end.finish_reason, data)
        if self._ended:
            return
        shape = self._read_counts(end.usage, _decode_usage) or UsageShape()
        counts = shape.tokens or shape.billed_units or TokenUsage()
        self._add_usage(
            Usage(self._at, counts.input_tokens, counts.output_tokens, None, shape.cached_tokens)
        )
        self._complete(marker=marker)

    def _take_whole(self, chunk: Chunk, body: bytes) -> None:
        if isinstance(chunk.message, Message):
            self._at = self._fed_at
            self._take_message(chunk.message, None)
            end = Delta(finish_reason=chunk.finish_reason, usage=chunk.usage, error=chunk.error)
            self._take_end(end, body, marker=False)
        elif chunk.error or chunk.message:
            self._report_error(parse_error(body), body)
        else:
            self._break("malformed", "the body is JSON without a message", body)


fault_from_response = partial(_fault, hints=address_hints("it usually ends in /v2"))
