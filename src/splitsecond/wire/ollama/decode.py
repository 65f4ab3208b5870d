"""The client role, reading: the body of an Ollama answer to events.

Strategy: a line is an event. Each is decoded once, to the fields of `shapes`; what msgspec refuses and a lenient reader
would take is mended and tried once more. An answer that was not streamed is one such line.

An answer is whole when a line with ``done`` has come. An error after the first line is a line too (``{"error": …}``):
the status was sent by then. `Usage.input_tokens` is ``prompt_eval_count``, the whole prompt, cached or not;
``eval_count`` holds thinking too, and Ollama says neither how much of it nor how much was cached.
"""

import msgspec

from splitsecond.errors import Phase, ProviderFault, excerpt
from splitsecond.events import Broken, Done, Event, Finish, Quiet, Token, Usage
from splitsecond.service import Operation
from splitsecond.wire.lenient import mended
from splitsecond.wire.ollama.shapes import DURATIONS, Line, Message
from splitsecond.wire.refusals import error_said
from splitsecond.wire.sse import MAX_EVENT_BYTES
from splitsecond.wire.tool_calls import ToolCalls

_decode_line = msgspec.json.Decoder(Line).decode

_BLANK = b" \t\r\n"
_HTML_HINT = "That is a web page, not Ollama: check the base URL (it has no path)."


def decoder(operation: Operation, stream: bool = True) -> "OllamaDecoder":
    """A decoder for one answer, streamed or not."""
    return OllamaDecoder()


class OllamaDecoder:
    """One answer's body in, events out. See `splitsecond.wire.dialect.Decoder`.

    `server_timings` holds the durations of the last line, by their own names, in nanoseconds.
    """

    def __init__(self) -> None:
        self.server_timings: dict[str, float] = {}
        self.in_runs = False
        self._rest = bytearray()  # the unfinished line
        self._rest_at = 0
        self._ended = False
        self._lines = 0
        self._tokens = 0
        self._calls = ToolCalls()
        self._odd = b""  # the first line that is JSON, but none of a chat's

    def feed(self, data: bytes, at: int) -> list[Event]:
        """The events of the lines that `data` completes. None after the end."""
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
        """The body ended: the last events, `Done` or `Broken` among them unless one was given before."""
        out: list[Event] = []
        if self._ended:
            return out
        rest = bytes(self._rest).strip(_BLANK)
        cut = _is_cut(rest)
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
                line = _decode_line(mended(data))
            except (ValueError, RecursionError):
                self._break(at, out, "malformed", f"a line is not the JSON of a chat: {error}", data)
                return
        self._lines += 1
        if line.error:
            said = error_said(line.error)
            message = f"the provider put an error inside a 200: {said.message}"
            self._break(at, out, "in_band_error", message, data)
            return
        before = len(out)
        if line.message is not None:
            self._take_message(line.message, at, out)
        elif not (line.done or self._odd):
            self._odd = data
        if line.done:
            self._take_done(line, at, out)
        elif len(out) == before:
            out.append(Quiet(at, "empty" if line.message is not None else "no message"))

    def _take_message(self, message: Message, at: int, out: list[Event]) -> None:
        before = len(out)
        if message.thinking:
            out.append(Token(at, message.thinking, "reasoning"))
        if message.content:
            out.append(Token(at, message.content))
        for call in message.tool_calls or ():
            if call.function is not None and call.function.name:
                part = self._calls.part(None, call.id or "", call.function.name)
                arguments = bytes(call.function.arguments).decode("utf-8", "replace")
                out.append(Token(at, part.name + arguments, "tool", tool=part))
        self._tokens += len(out) - before

    def _take_done(self, line: Line, at: int, out: list[Event]) -> None:
        self._ended = True
        for name in DURATIONS:
            if (value := getattr(line, name)) is not None:
                self.server_timings[name] = float(value)
        if line.done_reason:
            out.append(Finish(at, line.done_reason))
        if line.prompt_eval_count is not None or line.eval_count is not None:
            out.append(Usage(at, line.prompt_eval_count, line.eval_count))
        out.append(Done(at, True))

    def _end(self, at: int, out: list[Event], *, cut: bool) -> None:
        if self._odd and not self._tokens:
            self._break(at, out, "malformed", "the body is JSON, but no chat's", self._odd)
        elif self._lines or cut:
            how = "inside a line" if cut else "without done"
            self._break(at, out, "truncated", f"the answer ended {how} after {self._tokens} content events")
        else:
            self._break(at, out, "empty_answer", "the answer holds no line")

    def _break_long(self, at: int, out: list[Event]) -> None:
        self._break(at, out, "malformed", f"a line is longer than {MAX_EVENT_BYTES} bytes")

    def _break(self, at: int, out: list[Event], kind: str, message: str, data: bytes = b"") -> None:
        self._ended = True
        phase: Phase = "between tokens" if self._tokens else "first token"
        hint = _HTML_HINT if data.lstrip().startswith(b"<") else ""
        fault = ProviderFault(message, kind=kind, phase=phase, status=200, excerpt=excerpt(data), hint=hint)
        out.append(Broken(at, fault))


def _is_cut(rest: bytes) -> bool:
    """Whether `rest` is the beginning of a line, and no more."""
    if not rest.startswith(b"{"):
        return False
    try:
        mended(rest)
    except (ValueError, RecursionError):
        return True
    return False
