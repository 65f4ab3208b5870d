"""The client role, reading: the body of an answer to events.

Strategy: the first byte tells what the body is. ``{`` begins an answer that was not streamed: it is kept, and decoded
when it ends. All else goes through the SSE decoder. Each event is decoded once, to the one shape of `shapes`, and goes
by its ``type``; the name in its ``event:`` line serves only where that is missing.

What is content: the deltas of text, refusals, thoughts (or their summaries), tool arguments and audio, the name with
which the item of a tool call begins, and an image, which comes whole. What only the end of an item tells (a server that
sends no deltas, or none of a kind) is content then. The encrypted form of a thought is kept as data of `Quiet`.

What makes an answer whole: one of the events that end it, ``response.completed`` or ``response.incomplete``. Before
that an answer may fail although the status was 200, by ``response.failed`` or ``error``. Items are parts of the one
answer, so all tokens have index 0.
"""

from collections.abc import Mapping

import msgspec

from splitsecond.events import Done, Event, Finish, Quiet, Token, TokenKind, ToolPart, Usage
from splitsecond.service import Operation
from splitsecond.wire.refusals import Said, error_said, said_in
from splitsecond.wire.responses.shapes import Happening, Item, Response, UsageShape
from splitsecond.wire.sse import SseEvent
from splitsecond.wire.streaming import END_MARK, StreamDecoder
from splitsecond.wire.tool_calls import ToolCalls

_decode_happening = msgspec.json.Decoder(Happening).decode

_DELTAS: Mapping[str, TokenKind] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "tool",
    "response.custom_tool_call_input.delta": "tool",
    "response.mcp_call_arguments.delta": "tool",
    "response.code_interpreter_call_code.delta": "tool",
    "response.shell_call_command.delta": "tool",
    "response.audio.delta": "audio",
}
_CALLS = ("function_call", "custom_tool_call")
"""The items that a client answers; all other calls the provider answers itself."""
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


def decoder(operation: Operation, stream: bool = True) -> "ResponsesDecoder":
    """A decoder for one answer. The body itself shows whether it is streamed, so any will do."""
    return ResponsesDecoder()


class ResponsesDecoder(StreamDecoder):
    """One answer's body in, events out. See `splitsecond.wire.dialect.Decoder`. The API sends no timings."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = ToolCalls()
        self._told: set[int] = set()  # items of which deltas came

    def _take(self, event: SseEvent, at: int, out: list[Event]) -> None:
        data = event.data
        if data is None:
            out.append(Quiet(at, "comment"))
            return
        try:
            happening = _decode_happening(data)
        except (ValueError, RecursionError) as error:
            word = data.strip()
            if event.name == "error":
                self._report(at, out, said_in(data), data)
                return
            if word == END_MARK:
                self._end(at, out, marker=True)
                return
            if not word:
                out.append(Quiet(at, event.name or "empty"))
                return
            lenient = self._mended(_decode_happening, data, error, "one", at, out)
            if lenient is None:
                return
            happening = lenient
        self._chunks += 1
        self._take_happening(happening.type or event.name, happening, data, at, out)

    def _take_happening(self, kind: str, happening: Happening, data: bytes, at: int, out: list[Event]) -> None:
        number = happening.output_index if isinstance(happening.output_index, int) else 0
        content = _DELTAS.get(kind)
        if content is not None and isinstance(happening.delta, str) and happening.delta:
            self._told.add(number)
            tool = self._calls.begun(number) if content == "tool" else None
            self._say(at, out, happening.delta, content, tool)
        elif kind == "error" or (happening.error and happening.response is None):
            self._report(at, out, said_in(data), data)
        elif kind in _ENDS and happening.response is not None:
            self._take_end(happening.response, data, at, out, marker=True)
        else:
            before = len(out)
            if happening.item is not None:
                self._take_item(happening.item, number, at, out, whole=kind == "response.output_item.done")
            if len(out) == before:
                out.append(Quiet(at, kind or "empty"))

    def _take_item(self, item: Item, number: int, at: int, out: list[Event], *, whole: bool) -> None:
        """Item `number`, as it begins or (`whole`) ended: what no delta has said of it."""
        if item.type in _CALLS:
            tool = self._calls.part(number, item.call_id or "", item.name or "")
            self._say(at, out, tool.name, "tool", tool)
        if not whole:
            return
        if number not in self._told:
            for part in item.summary or item.content or ():
                kind: TokenKind = "reasoning" if item.type == "reasoning" else "text"
                self._say(at, out, part.text or "", kind)
                self._say(at, out, part.refusal or "", "refusal")
            if item.type in _CALLS:
                given = item.arguments or (item.input if isinstance(item.input, str) else "")
                self._say(at, out, given, "tool", self._calls.begun(number))
        if item.type == "image_generation_call" and isinstance(item.result, str) and item.result:
            self._say(at, out, f"data:image/{item.output_format or 'png'};base64,{item.result}", "image")
        if item.encrypted_content:
            out.append(Quiet(at, "signature", item.encrypted_content))

    def _say(self, at: int, out: list[Event], text: str, kind: TokenKind, tool: ToolPart | None = None) -> None:
        if text:
            self._tokens += 1
            out.append(Token(at, text, kind, tool=tool))

    def _take_end(self, response: Response, data: bytes, at: int, out: list[Event], *, marker: bool) -> None:
        """The end of an answer, and of one without a single delta all that it says."""
        if response.error or response.status in ("failed", "cancelled"):
            said = error_said(response.error) if response.error else Said(f"status is {response.status}")
            self._report(at, out, said, data)
            return
        if not self._tokens:
            for number, item in enumerate(response.output or ()):
                self._take_item(item, number, at, out, whole=True)
        self._ended = True
        incomplete = response.incomplete_details
        out.append(Finish(at, (incomplete and incomplete.reason) or response.status or "completed"))
        if response.usage is not None and (usage := _usage(response.usage, at)) is not None:
            out.append(usage)
        out.append(Done(at, marker))

    def _take_whole(self, body: bytes, at: int, out: list[Event]) -> None:
        """An answer that was not streamed. Its tokens arrived when its last byte did."""
        response = self._whole(_decode_happening, body, "an answer", at, out)
        if response is None:
            return
        if response.output is None and not response.error:
            self._break(at, out, "malformed", "the body is JSON without any output", body)
        elif response.status in ("queued", "in_progress"):
            self._break(at, out, "truncated", f"the answer is not there yet: its status is {response.status}", body)
        else:
            self._take_end(response, body, self._json_at, out, marker=False)

    def _end(self, at: int, out: list[Event], *, marker: bool = False, cut: bool = False) -> None:
        self._break_off(at, out, "response.completed", cut=cut, then="[DONE]" if marker else "")


def _usage(shape: UsageShape, at: int) -> Usage | None:
    if shape.input_tokens is None and shape.output_tokens is None:
        return None
    read, made = shape.input_tokens_details, shape.output_tokens_details
    return Usage(
        at,
        shape.input_tokens,
        shape.output_tokens,
        made.reasoning_tokens if made else None,
        read.cached_tokens if read else None,
        read.cache_write_tokens if read else None,
    )
