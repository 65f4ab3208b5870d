"""Client role: the body of an answer from Ollama to events.

Each line is one event; an answer that was not streamed is one such line. An answer is complete when
a line with ``done`` has come. An error after the first line is a line too (``{"error": …}``).
`Usage.input_tokens` is ``prompt_eval_count``, the whole prompt, cached or not; ``eval_count``
includes thinking.
"""

from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.core.events import Usage
from splitsecond.core.service import Operation
from splitsecond.core.validation import read_json
from splitsecond.core.wire.provider_errors import address_hints, error_of
from splitsecond.core.wire.provider_errors import fault_from_response as _fault
from splitsecond.core.wire.sse import SseDecoder, SseEvent
from splitsecond.core.wire.streaming import Count, Decoder, Shape
from splitsecond.core.wire.tool_calls import arguments_text


class Function(Shape):
    name: str = ""
    arguments: Raw = Raw()


class ToolCall(Shape):
    """One whole tool call: Ollama never sends fragments, and older servers no id."""

    id: str | None = None
    function: Function | None = None


class Message(Shape):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[ToolCall] | None = None


class ResponseLine(Shape):
    """A line, or a whole answer. The last one has `done`, and beside it `Counts`, decoded apart so
    that a wrong one fails no answer, and `Durations`."""

    message: Message | None = None
    done: bool = False
    done_reason: str | None = None
    error: Any = None


class Counts(Shape):
    prompt_eval_count: Count | None = None
    eval_count: Count | None = None


class Durations(Shape):
    total_duration: Count | None = None
    load_duration: Count | None = None
    prompt_eval_duration: Count | None = None
    eval_duration: Count | None = None


_decode_counts = msgspec.json.Decoder(Counts, strict=False).decode
_decode_durations = msgspec.json.Decoder(Durations).decode


class LineDecoder(SseDecoder):
    @property
    def unfinished(self) -> bool:
        return bool(self._line.strip())

    def feed(self, data: bytes) -> list[SseEvent]:
        *lines, rest = data.split(b"\n")
        if lines and self._line:
            lines[0] = bytes(self._line) + lines[0]
            self._line.clear()
        self._line += rest
        self._bound(max(map(len, (*lines, self._line))))
        return [SseEvent(line) for line in lines if len(line) <= self.max_bytes]

    def rest(self) -> list[SseEvent]:
        return self.feed(b"\n") if self.unfinished else []


class OllamaDecoder(Decoder):
    """Decoder of one answer. `server_timings`: nanoseconds under Ollama's names."""

    event_form = msgspec.json.Decoder(ResponseLine)
    events_of = LineDecoder
    event_name = "a line"
    event_begins = b"{"
    done_ends = learns = False
    end_name = "done"
    html_hint = "The response is a web page, not Ollama: check the base URL (it has no path)."

    def __init__(self, operation: Operation = "chat") -> None:
        super().__init__(operation)
        self._begun = True
        self._begin_events()
        self._foreign_line = b""  # the first line that is JSON without a message

    def _take_event(self, line: ResponseLine, name: str, data: bytes) -> None:
        if line.error:
            self._report_error(error_of(line.error), data)
            return
        before = len(self._out)
        if line.message is not None:
            self._take_message(line.message)
        elif not (line.done or self._foreign_line):
            self._foreign_line = data
        if line.done:
            self._take_done(line, data)
        elif len(self._out) == before:
            self._add_quiet("empty" if line.message is not None else "no message")

    def _take_message(self, message: Message) -> None:
        if message.thinking:
            self._add_token(message.thinking, "reasoning")
        if message.content and self.as_tool:
            part = self._calls.part("", name=self.as_tool)
            self._add_token(part.name + message.content, "tool", part)
        elif message.content:
            self._add_token(message.content)
        for call in message.tool_calls or ():
            if call.function is not None and call.function.name:
                part = self._calls.part(None, call.id or "", call.function.name)
                text = part.name + arguments_text(call.function.arguments)
                self._add_token(text, "tool", part)

    def _take_done(self, line: ResponseLine, data: bytes) -> None:
        self._note_times(read_json(data, _decode_durations))
        self._add_finish(line.done_reason, data)
        if self._ended:
            return
        counts = self._read_counts(data, _decode_counts) or Counts()
        self._add_usage(Usage(self._at, counts.prompt_eval_count, counts.eval_count))
        self._complete(marker=True)

    def _end(self, *, marker: bool = False, cut: bool = False) -> None:
        if self._foreign_line and not self._tokens:
            self._break("malformed", "the body is JSON, but not a chat answer", self._foreign_line)
        else:
            super()._end(cut=cut)


fault_from_response = partial(
    _fault, hints=address_hints("it has no path", "Pull the model (ollama pull NAME)")
)
