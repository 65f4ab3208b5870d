"""Client role: the body of an answer from Anthropic to events.

The ``type`` of an event decides, or the name in its ``event:`` line if that is missing.

Content: deltas of text, thinking and tool arguments, and the name at the start of a tool call. Not
content: signatures and encrypted thinking (data of `Quiet`), citations, results of the provider's
own tools, and unknown types, which Anthropic announces for the future. A refusal has no text: it is
a stop reason.

An answer is complete if it has a ``stop_reason``; ``message_stop`` alone proves nothing. Blocks are
parts of the one answer, so all tokens have index 0.

Input is counted in three parts, which add up: ``input_tokens`` (neither read from the cache nor
written to it), ``cache_creation_input_tokens`` and ``cache_read_input_tokens``. ``output_tokens``
includes thinking. A stream reports usage at least twice, for the message so far; a count that a
later event omits, or reports as 0, keeps its value. The ``output_tokens`` of ``message_start`` are
a placeholder and are ignored.
"""

from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.core.events import Quiet, Usage
from splitsecond.core.service import Operation
from splitsecond.core.wire.openai.shapes import TokenUsage
from splitsecond.core.wire.provider_errors import error_of
from splitsecond.core.wire.streaming import ABSENT, Decoder, Shape
from splitsecond.core.wire.tool_calls import PartNumbers, arguments_text


class Block(Shape):
    """A block of content, whole or at its start. `data`: encrypted thinking."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = Raw()


class Delta(Shape):
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class Message(Shape):
    """The message in ``message_start``, which has only its usage."""

    usage: Raw = ABSENT


class MessageEvent(Shape):
    """One event of a stream, or a whole answer (`content` and later fields). `index`: the number of
    the block. `usage` (`TokenUsage`) is raw, so that a wrong count in it fails no answer."""

    type: str = ""
    index: Any = None
    message: Message | None = None
    content_block: Block | None = None
    delta: Delta | None = None
    usage: Raw = ABSENT
    error: Any = None
    content: list[Block] | None = None
    stop_reason: str | None = None


_decode_usage = msgspec.json.Decoder(TokenUsage, strict=False).decode


class AnthropicDecoder(Decoder):
    event_form = whole_form = msgspec.json.Decoder(MessageEvent)
    done_ends = False
    end_name = "a stop_reason"
    marker_name = "message_stop"
    _counts: tuple[int | None, ...] = (None,) * 6

    def __init__(self, operation: Operation = "chat") -> None:
        super().__init__(operation)
        self._blocks = PartNumbers()

    def _take_event(self, parsed: MessageEvent, name: str, data: bytes) -> None:
        kind = parsed.type or name
        if kind == "content_block_delta" and parsed.delta is not None:
            delta = parsed.delta
            if delta.text:
                self._add_token(delta.text)
            elif delta.thinking:
                self._add_token(delta.thinking, "reasoning")
            elif delta.partial_json:
                part = self._calls.begun(self._blocks.of(parsed.index))
                self._add_token(delta.partial_json, "tool", part)
            elif delta.signature:
                self._add_quiet("signature", delta.signature)
        elif kind == "error" or parsed.error:
            self._report_error(error_of(parsed.error or None), data)
        elif kind == "message_stop":
            self._end(marker=True)
        else:
            self._take_other(kind, parsed, data)

    def _take_other(self, kind: str, parsed: MessageEvent, data: bytes) -> None:
        before = len(self._out)
        if parsed.content_block is not None:
            self._take_block(parsed.content_block, self._blocks.begin(parsed.index))
        if parsed.message is not None:
            self._count(parsed.message.usage, opening=True)
        if parsed.delta is not None:
            self._add_finish(parsed.delta.stop_reason, data)
        if self._ended:
            return
        self._count(parsed.usage)
        if kind == "message_start":
            self._out.insert(before, Quiet(self._at, kind))

    def _take_block(self, block: Block, number: int) -> None:
        if block.thinking:
            self._add_token(block.thinking, "reasoning")
        if block.signature:
            self._add_quiet("signature", block.signature)
        if block.data:
            self._add_quiet(block.type, block.data)
        if block.text:
            self._add_token(block.text)
        if block.type.endswith("tool_use"):
            answerable = block.type == "tool_use"  # the provider runs the other tools itself
            if block.name:
                part = self._calls.part(number, block.id or "", block.name) if answerable else None
                self._add_token(block.name, "tool", part)
            if bytes(block.input) != b"{}":  # the empty start of streamed arguments
                self._add_token(arguments_text(block.input), "tool", self._calls.begun(number))

    def _count(self, data: Raw, *, opening: bool = False) -> None:
        """Add the counts so far, if there are any. `opening`: they came with ``message_start``."""
        shape = self._read_counts(data, _decode_usage)
        if shape is None:
            return
        self._note_tier(shape.speed)
        details = shape.output_tokens_details
        reported = (
            shape.input_tokens,
            shape.cache_creation_input_tokens,
            shape.cache_creation.ephemeral_1h_input_tokens if shape.cache_creation else None,
            shape.cache_read_input_tokens,
            None if opening else shape.output_tokens,
            details.thinking_tokens if details else None,
        )
        self._counts = fresh, written, hour, read, output, thinking = tuple(
            map(_later, self._counts, reported)
        )
        # a prompt is never empty
        input_tokens = (fresh or 0) + (written or 0) + (read or 0) or None
        hour = min(hour or 0, written or 0) or None
        self._add_usage(Usage(self._at, input_tokens, output, thinking, read, written, hour))

    def _take_whole(self, parsed: MessageEvent, body: bytes) -> None:
        if parsed.type == "error" or parsed.error:
            self._report_error(error_of(parsed.error or None), body)
            return
        if parsed.content is None:
            self._break("malformed", "the body is JSON without any content", body)
            return
        closed_at, self._at = self._at, self._fed_at
        for number, block in enumerate(parsed.content):
            self._take_block(block, number)
        self._add_finish(parsed.stop_reason, body)
        if not self._ended:
            self._count(parsed.usage)
            self._at = closed_at
            self._complete(marker=False)

    def _is_whole(self, marker: bool) -> bool:
        return bool(self._finished)


def _later(before: int | None, now: int | None) -> int | None:
    return now if now or before is None else before
