"""Client role: the body of an answer from Ollama to events.

Each line is one event; an answer that was not streamed is one such line. Every field may be absent or null. An answer
is complete when a line with ``done`` has come. An error after the first line is a line too (``{"error": …}``).
`Usage.input_tokens` is ``prompt_eval_count``, the whole prompt, cached or not; ``eval_count`` includes thinking.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond.core.events import Broken, Done, Event, Quiet, Token, Usage
from splitsecond.core.service import Operation
from splitsecond.core.validation import read_json
from splitsecond.core.wire.provider_errors import error_of, with_hints
from splitsecond.core.wire.sse import MAX_EVENT_BYTES
from splitsecond.core.wire.streaming import AnswerDecoder, Count, is_json, repair_json
from splitsecond.core.wire.tool_calls import ToolCalls, arguments_text


class Function(Struct, gc=False):
    name: str = ""
    arguments: Raw = Raw()


class ToolCall(Struct, gc=False):
    """One whole tool call: Ollama never sends fragments, and older servers no id."""

    id: str | None = None
    function: Function | None = None


class Message(Struct, gc=False):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[ToolCall] | None = None


class ResponseLine(Struct, gc=False):
    """A line, or a whole answer. The last one has `done`, and beside it `Counts` and `Durations`."""

    message: Message | None = None
    done: bool = False
    done_reason: str | None = None
    error: Any = None


class Counts(Struct, gc=False):
    """The counts of the last line. They are decoded apart, so that a wrong one fails no answer."""

    prompt_eval_count: Count | None = None
    eval_count: Count | None = None


class Durations(Struct, gc=False):
    total_duration: Count | None = None
    load_duration: Count | None = None
    prompt_eval_duration: Count | None = None
    eval_duration: Count | None = None


_LINE = msgspec.json.Decoder(ResponseLine)
_decode_line = _LINE.decode
_decode_counts = msgspec.json.Decoder(Counts, strict=False).decode
_decode_durations = msgspec.json.Decoder(Durations).decode

_BLANK = b" \t\r\n"
_HTML_HINT = "The response is a web page, not Ollama: check the base URL (it has no path)."


class OllamaDecoder(AnswerDecoder):
    """Decoder of one answer: see `splitsecond.core.wire.api_format.Decoder`.

    `server_timings` holds the durations of the last line, under Ollama's names, in nanoseconds.
    """

    html_hint = _HTML_HINT

    def __init__(self, operation: Operation = "chat") -> None:
        super().__init__(operation)
        self._rest = bytearray()  # the unfinished line
        self._rest_at = 0
        self._calls = ToolCalls()
        self._foreign_line = b""  # the first line that is JSON without a message

    def feed(self, data: bytes, at: int) -> list[Event]:
        out: list[Event] = []
        if self._ended:
            return out
        lines = data.split(b"\n")
        if self._rest and len(lines) > 1:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest.clear()
        self._rest += lines.pop()
        self._rest_at = at
        self._take_lines(lines, at, out)
        return out

    def close(self, at: int) -> list[Event]:
        out: list[Event] = []
        if self._ended:
            return out
        rest = bytes(self._rest).strip(_BLANK)
        cut = rest.startswith(b"{") and not is_json(rest)
        self._take_lines([rest] if rest and not cut else [], self._rest_at, out)
        if not out or not isinstance(out[-1], Done | Broken):
            self._end(at, out, cut=cut)
        return out

    def _take_lines(self, lines: list[bytes], at: int, out: list[Event]) -> None:
        for line in lines:
            self._take_line(line, at, out)
            if self._ended:
                return
        if len(self._rest) > MAX_EVENT_BYTES:
            self._break_long(at, out)

    def _take_line(self, data: bytes, at: int, out: list[Event]) -> None:
        if len(data) > MAX_EVENT_BYTES:
            self._break_long(at, out)
            return
        try:
            line = _decode_line(data)
        except (ValueError, RecursionError) as error:
            if not data.strip(_BLANK):
                out.append(Quiet(at, "empty"))
                return
            try:
                data = repair_json(data, self._halves)
                line = self._decode_oddly(data, _LINE)
            except (ValueError, RecursionError):
                self._break(at, out, "malformed", f"a line is not the JSON of a chat: {error}", data)
                return
        self._chunks += 1
        if line.error:
            self._report_error(at, out, error_of(line.error), data)
            return
        before = len(out)
        if line.message is not None:
            self._take_message(line.message, at, out)
        elif not (line.done or self._foreign_line):
            self._foreign_line = data
        if line.done:
            self._take_done(line, data, at, out)
        elif len(out) == before:
            out.append(Quiet(at, "empty" if line.message is not None else "no message"))

    def _take_message(self, message: Message, at: int, out: list[Event]) -> None:
        before = len(out)
        if message.thinking:
            out.append(Token(at, message.thinking, "reasoning"))
        if message.content and self.as_tool:
            part = self._calls.part("", name=self.as_tool)
            out.append(Token(at, part.name + message.content, "tool", tool=part))
        elif message.content:
            out.append(Token(at, message.content))
        for call in message.tool_calls or ():
            if call.function is not None and call.function.name:
                part = self._calls.part(None, call.id or "", call.function.name)
                out.append(Token(at, part.name + arguments_text(call.function.arguments), "tool", tool=part))
        self._tokens += len(out) - before

    def _take_done(self, line: ResponseLine, data: bytes, at: int, out: list[Event]) -> None:
        durations = read_json(data, _decode_durations) or Durations()
        for name in Durations.__struct_fields__:
            if (value := getattr(durations, name)) is not None:
                self.server_timings[name] = float(value)
        if line.done_reason:
            self._add_finish(at, out, line.done_reason, data)
            if self._ended:
                return
        counts = self._read_counts(data, _decode_counts, at, out) or Counts()
        if counts.prompt_eval_count is not None or counts.eval_count is not None:
            self._add_usage(out, Usage(at, counts.prompt_eval_count, counts.eval_count))
        self._complete(at, out, marker=True)

    def _end(self, at: int, out: list[Event], *, cut: bool) -> None:
        if self._foreign_line and not self._tokens:
            self._break(at, out, "malformed", "the body is JSON, but not a chat answer", self._foreign_line)
        elif self._chunks or cut:
            how = "inside a line" if cut else "without done"
            self._break(at, out, "truncated", f"the answer ended {how} after {self._tokens} content events")
        else:
            self._break(at, out, "empty_answer", "the answer is empty")

    def _break_long(self, at: int, out: list[Event]) -> None:
        self._break(at, out, "malformed", f"a line is longer than {MAX_EVENT_BYTES:,} bytes")


fault_from_response = with_hints(
    {
        404: "Pull the model (ollama pull NAME), and check the base URL (it has no path).",
        405: "Check the base URL (it has no path).",
    }
)
"""Return the fault of a response with a status other than 200."""
