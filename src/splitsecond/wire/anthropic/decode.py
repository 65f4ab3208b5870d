"""The client role, reading: the body of an answer to events.

Strategy: the first byte tells what the body is. ``{`` begins a plain JSON answer (asked for, or an error inside a 200):
it is kept, and decoded when it ends. All else goes through the SSE decoder. Each event is decoded once, to the one
shape of `shapes`, and goes by its ``type``; the name in its ``event:`` line serves only where that is missing.

What is content: a delta of text, thinking or a tool's arguments, and the name with which the block of a tool call
begins. What is not: signatures and thoughts that come encrypted, which are kept as data of `Quiet`, citations, results
of the provider's own tools, and types that this version does not know, of which Anthropic says that there will be more.
A refusal has no words of its own: it is the stop reason "refusal".

What makes an answer whole: its ``stop_reason``. ``message_stop`` after that is the end mark; by itself it proves
nothing. Blocks are parts of the one answer, so all tokens have index 0.
"""

from typing import Any

import msgspec

from splitsecond.events import Done, Event, Finish, Quiet, Token, TokenKind, ToolPart
from splitsecond.service import Operation
from splitsecond.wire.anthropic.counts import Counts
from splitsecond.wire.anthropic.shapes import Block, Delta, Happening, UsageShape
from splitsecond.wire.refusals import error_said, said_in
from splitsecond.wire.sse import SseEvent
from splitsecond.wire.streaming import END_MARK, StreamDecoder
from splitsecond.wire.tool_calls import ToolCalls

_decode_happening = msgspec.json.Decoder(Happening).decode

_NO_INPUT = (b"", b"{}", b"null")


def decoder(operation: Operation, stream: bool = True) -> "AnthropicDecoder":
    """A decoder for one answer. The body itself shows whether it is streamed, so any will do."""
    return AnthropicDecoder()


class AnthropicDecoder(StreamDecoder):
    """One answer's body in, events out. See `splitsecond.wire.dialect.Decoder`. Anthropic sends no timings."""

    def __init__(self) -> None:
        super().__init__()
        self._finished = ""
        self._counts = Counts()
        self._calls = ToolCalls()

    def _take(self, event: SseEvent, at: int, out: list[Event]) -> None:
        data = event.data
        if data is None:
            out.append(Quiet(at, "comment"))
            return
        try:
            happening = _decode_happening(data)
        except (ValueError, RecursionError) as error:
            if event.name == "error":
                self._report(at, out, said_in(data), data)
                return
            if data.strip() in (b"", END_MARK):
                out.append(Quiet(at, event.name or "empty"))
                return
            lenient = self._mended(_decode_happening, data, error, "one", at, out)
            if lenient is None:
                return
            happening = lenient
        self._chunks += 1
        kind = happening.type or event.name
        if kind == "content_block_delta" and happening.delta is not None:
            self._take_delta(happening.delta, _number(happening.index), at, out)
        elif kind == "error" or happening.error:
            self._report(at, out, error_said(happening.error or None), data)
        elif kind == "message_stop":
            self._end(at, out, marker=True)
        else:
            self._take_other(kind, happening, at, out)

    def _take_delta(self, delta: Delta, block: int, at: int, out: list[Event]) -> None:
        if delta.text:
            self._say(at, out, delta.text, "text")
        elif delta.thinking:
            self._say(at, out, delta.thinking, "reasoning")
        elif delta.partial_json:
            self._say(at, out, delta.partial_json, "tool", self._calls.begun(block))
        elif delta.signature:
            out.append(Quiet(at, "signature", delta.signature))
        else:
            out.append(Quiet(at, "content_block_delta"))

    def _take_other(self, kind: str, happening: Happening, at: int, out: list[Event]) -> None:
        before = len(out)
        if happening.content_block is not None:
            self._take_block(happening.content_block, _number(happening.index), at, out)
        if happening.message is not None:
            self._count(happening.message.usage, at, out, opening=True)
        if happening.delta is not None:
            self._take_reason(happening.delta.stop_reason, at, out)
        self._count(happening.usage, at, out)
        if len(out) == before or kind == "message_start":
            out.insert(before, Quiet(at, kind or "empty"))

    def _take_block(self, block: Block, number: int, at: int, out: list[Event]) -> None:
        """Block `number` as it begins, or a whole one."""
        if block.thinking:
            self._say(at, out, block.thinking, "reasoning")
        if block.signature:
            out.append(Quiet(at, "signature", block.signature))
        if block.data:
            out.append(Quiet(at, block.type, block.data))
        if block.text:
            self._say(at, out, block.text, "text")
        if block.type.endswith("tool_use"):
            answerable = block.type == "tool_use"  # the others are the provider's own to answer
            if block.name:
                part = self._calls.part(number, block.id or "", block.name) if answerable else None
                self._say(at, out, block.name, "tool", part)
            if (arguments := bytes(block.input)) not in _NO_INPUT:
                self._say(at, out, arguments.decode("utf-8", "replace"), "tool", self._calls.begun(number))

    def _say(self, at: int, out: list[Event], text: str, kind: TokenKind, tool: ToolPart | None = None) -> None:
        self._tokens += 1
        out.append(Token(at, text, kind, tool=tool))

    def _take_reason(self, reason: str | None, at: int, out: list[Event]) -> None:
        if reason and reason != self._finished:
            self._finished = reason
            out.append(Finish(at, reason))

    def _count(self, shape: UsageShape | None, at: int, out: list[Event], *, opening: bool = False) -> None:
        usage = None if shape is None else self._counts.take(shape, at, opening=opening)
        if usage is not None:
            out.append(usage)

    def _take_whole(self, body: bytes, at: int, out: list[Event]) -> None:
        """A plain JSON answer. Its tokens arrived when its last byte did."""
        happening = self._whole(_decode_happening, body, "an answer", at, out)
        if happening is None:
            return
        if happening.type == "error" or happening.error:
            self._report(at, out, error_said(happening.error or None), body)
            return
        if happening.content is None:
            self._break(at, out, "malformed", "the body is JSON without any content", body)
            return
        for number, block in enumerate(happening.content):
            self._take_block(block, number, self._json_at, out)
        self._take_reason(happening.stop_reason, self._json_at, out)
        self._count(happening.usage, self._json_at, out)
        self._ended = True
        out.append(Done(at, False))

    def _end(self, at: int, out: list[Event], *, marker: bool = False, cut: bool = False) -> None:
        if self._finished and not cut:
            self._ended = True
            out.append(Done(at, marker))
        else:
            self._break_off(at, out, "a stop_reason", cut=cut, then="message_stop" if marker else "")


def _number(index: Any) -> int:
    """A block's number. Whoever leaves it out has one block at a time."""
    return index if isinstance(index, int) else 0
