"""The client role, reading: the body of a Cohere answer to events.

Strategy: the first byte tells what the body is. ``{`` begins an answer that was not streamed: it is kept, and decoded
when it ends. All else goes through the SSE decoder. What an event says is read from its fields; of its type only
``message-end`` matters, without which no answer is whole. A tool plan, the thoughts before a call, is reasoning.

`Usage` takes ``usage.tokens``, all that the model read and wrote, with Cohere's own words around the prompt;
``billed_units`` leaves those out, and serves only where the others are not said. Cached tokens are part of the input.
How many of the output were thinking is not said.
"""

from typing import Any

import msgspec

from splitsecond.events import Done, Event, Finish, Quiet, Token, TokenKind, ToolPart, Usage
from splitsecond.service import Operation
from splitsecond.wire.cohere.shapes import Chunk, Content, Count, Delta, Message, ToolCall, UsageShape
from splitsecond.wire.refusals import Said, error_said, said_in
from splitsecond.wire.sse import SseEvent
from splitsecond.wire.streaming import END_MARK, StreamDecoder
from splitsecond.wire.tool_calls import ToolCalls

_decode_chunk = msgspec.json.Decoder(Chunk).decode

_Piece = tuple[TokenKind, str, ToolPart | None]

_CONTENT_DELTA = b"event: content-delta\ndata: "
_FAILURES = ("ERROR", "TIMEOUT")
_HTML_HINT = "That is a web page, not an API: check the base URL (it usually ends in /v2)."


def decoder(operation: Operation, stream: bool = True) -> "CohereDecoder":
    """A decoder for one answer. The body itself shows whether it is streamed, so any will do."""
    return CohereDecoder()


class CohereDecoder(StreamDecoder):
    """One answer's body in, events out. See `splitsecond.wire.dialect.Decoder`. Cohere sends no timings."""

    html_hint = _HTML_HINT

    def __init__(self) -> None:
        super().__init__()
        self._calls = ToolCalls()

    def _plain_token(self, data: bytes, at: int) -> Token | None:
        """The token, where `data` is one whole event with the next piece of a block; else None.

        That is nearly every read. It takes a third of the time of the way that serves them all, which gives the same.
        """
        if not (self._tokens and self._sse.between_events and data.startswith(_CONTENT_DELTA)):
            return None
        if data.find(b"\n", len(_CONTENT_DELTA)) != len(data) - 2 or not data.endswith(b"\n\n") or b"\r" in data:
            return None
        try:
            chunk = _decode_chunk(data[len(_CONTENT_DELTA) : -2])
        except (ValueError, RecursionError):
            return None
        content = _only_content(chunk)
        if content is None or (content.text and content.thinking) or not (text := content.text or content.thinking):
            return None
        self._chunks += 1
        self._tokens += 1
        return Token(at, text, "text" if content.text else "reasoning")

    def _take(self, event: SseEvent, at: int, out: list[Event]) -> None:
        data = event.data
        if data is None:
            out.append(Quiet(at, "comment"))
        elif event.name == "error":
            self._report(at, out, said_in(data), data)
        elif not data.strip():
            out.append(Quiet(at, "empty"))
        elif data.strip() == END_MARK:
            self._end(at, out, cut=False)
        else:
            try:
                chunk = _decode_chunk(data)
            except (ValueError, RecursionError) as error:
                lenient = self._mended(_decode_chunk, data, error, "a chat", at, out)
                if lenient is None:
                    return
                chunk = lenient
            self._take_chunk(chunk, data, at, out)

    def _take_chunk(self, chunk: Chunk, data: bytes, at: int, out: list[Event]) -> None:
        self._chunks += 1
        if chunk.error or chunk.type == "error" or isinstance(chunk.message, str):
            self._report(at, out, said_in(data), data)
            return
        delta = chunk.delta
        if delta is None:
            out.append(Quiet(at, chunk.type or "empty"))
            return
        if chunk.type == "message-end" or delta.finish_reason:
            self._take_end(delta, data, at, out, marker=True)
            return
        before = self._tokens
        if delta.message is not None:
            self._take_message(delta.message, chunk.index, at, out)
        if self._tokens == before:
            out.append(Quiet(at, chunk.type or "empty"))

    def _take_message(self, message: Message, block: Any, at: int, out: list[Event]) -> None:
        pieces = self._pieces(message, block if isinstance(block, int) else None)
        self._tokens += len(pieces)
        out.extend(Token(at, text, kind, tool=tool) for kind, text, tool in pieces)

    def _pieces(self, message: Message, block: int | None) -> list[_Piece]:
        """The content-bearing parts of a message, in the order in which they were made."""
        pieces: list[_Piece] = [("reasoning", message.tool_plan or "", None)]
        content = message.content
        if isinstance(content, str):
            pieces.append(("text", content, None))
        else:
            for said in [content] if isinstance(content, Content) else content or ():
                pieces += [("reasoning", said.thinking or "", None), ("text", said.text or "", None)]
        calls = message.tool_calls
        for call in [calls] if isinstance(calls, ToolCall) else calls or ():
            if call.function is not None:
                part = self._calls.part(block, call.id or "", call.function.name or "")
                pieces.append(("tool", part.name + (call.function.arguments or ""), part))
        return [piece for piece in pieces if piece[1]]

    def _take_end(self, end: Delta, data: bytes, at: int, out: list[Event], *, marker: bool) -> None:
        reason = end.finish_reason or ""
        if end.error or reason.startswith(_FAILURES):
            said = error_said(end.error) if end.error else Said(f"finish_reason is {reason}")
            self._report(at, out, said, data)
            return
        self._ended = True
        if reason:
            out.append(Finish(at, reason))
        if end.usage is not None and (usage := _usage(end.usage, at)) is not None:
            out.append(usage)
        out.append(Done(at, marker))

    def _take_whole(self, body: bytes, at: int, out: list[Event]) -> None:
        """An answer that was not streamed. Its tokens arrived when its last byte did."""
        chunk = self._whole(_decode_chunk, body, "an answer", at, out)
        if chunk is None:
            return
        if isinstance(chunk.message, Message):
            self._take_message(chunk.message, None, self._json_at, out)
            end = Delta(finish_reason=chunk.finish_reason, usage=chunk.usage, error=chunk.error)
            self._take_end(end, body, self._json_at, out, marker=False)
        elif chunk.error or chunk.message:
            self._report(at, out, said_in(body), body)
        else:
            self._break(at, out, "malformed", "the body is JSON without a message", body)

    def _end(self, at: int, out: list[Event], *, marker: bool = False, cut: bool = False) -> None:
        self._break_off(at, out, "message-end", cut=cut)


def _only_content(chunk: Chunk) -> Content | None:
    """What an event adds to a block, where it does nothing else."""
    delta = chunk.delta
    if delta is None or delta.message is None or chunk.type != "content-delta":
        return None
    if delta.finish_reason is not None or delta.error is not None or chunk.error is not None:
        return None
    message = delta.message
    if chunk.message is not None or message.tool_plan is not None or message.tool_calls is not None:
        return None
    return message.content if isinstance(message.content, Content) else None


def _usage(shape: UsageShape, at: int) -> Usage | None:
    counts = shape.tokens or shape.billed_units
    if counts is None or (counts.input_tokens is None and counts.output_tokens is None):
        return None
    return Usage(
        at,
        _whole_number(counts.input_tokens),
        _whole_number(counts.output_tokens),
        None,
        _whole_number(shape.cached_tokens),
    )


def _whole_number(count: Count | None) -> int | None:
    return None if count is None else round(count)
