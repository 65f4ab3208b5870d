"""Client role: the body of an answer of OpenAI's Responses to events.

The ``type`` of an event decides, or the name in its ``event:`` line if that is missing.

Content: deltas of text, refusals, reasoning (or its summaries), tool arguments and audio, the name
at the start of a tool call, and an image, which comes whole. Content that only the end of a part,
of an item or of the answer holds counts then. Encrypted reasoning becomes data of `Quiet`. An
answer is complete with ``response.completed`` or ``response.incomplete``. Items are parts of the
one answer, so all tokens have index 0.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.core.events import TokenKind, Usage
from splitsecond.core.finish_reasons import meaning
from splitsecond.core.service import Operation
from splitsecond.core.wire.openai.shapes import TokenUsage
from splitsecond.core.wire.provider_errors import error_of, parse_error
from splitsecond.core.wire.streaming import ABSENT, Decoder, Shape
from splitsecond.core.wire.tool_calls import PartNumbers, arguments_text


class Part(Shape):
    type: str = ""
    text: str | None = None
    refusal: str | None = None


class Item(Shape):
    """One item: a message, reasoning, a tool call or an image (`result`, base64)."""

    type: str = ""
    content: list[Part] | str | None = None
    summary: list[Part] | None = None
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Any = None
    input: Any = None
    result: Any = None
    output_format: str | None = None


class Incomplete(Shape):
    reason: str | None = None


class Response(Shape):
    """An answer as far as it has come. `usage` (`TokenUsage`) is raw, so that a wrong count in it
    fails no answer."""

    status: str | None = None
    output: list[Item] | None = None
    usage: Raw = ABSENT
    error: Any = None
    incomplete_details: Incomplete | None = None
    service_tier: Any = None

    @property
    def finish_reason(self) -> str:
        why = self.incomplete_details.reason if self.incomplete_details else None
        if why and self.status == "incomplete" and not meaning(why):
            return "incomplete"  # for a reason that is not known to leave a good answer
        return why or self.status or "completed"


class ResponseEvent(Response):
    type: str = ""
    delta: Any = None
    text: Any = None
    refusal: Any = None
    arguments: Any = None
    input: Any = None
    output_index: Any = None
    item: Item | None = None
    response: Response | None = None


_decode_usage = msgspec.json.Decoder(TokenUsage, strict=False).decode
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
_ENDS_OF_PARTS = {name.replace(".delta", ".done"): kind for name, kind in _DELTAS.items()}
_CALLS = ("function_call", "custom_tool_call")
"""The tool calls that a client answers; the provider runs all other tools itself."""
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


class ResponsesDecoder(Decoder):
    event_form = whole_form = msgspec.json.Decoder(ResponseEvent)
    end_name = "response.completed"
    learns = False  # each event has a number

    def __init__(self, operation: Operation = "chat") -> None:
        super().__init__(operation)
        self._items = PartNumbers()
        self._called: set[str] = set()
        self._with_deltas: set[int] = set()  # the numbers of items that had deltas
        self._with_parts: set[int] = set()  # of items without deltas: the text came as a whole part

    def _take_event(self, parsed: ResponseEvent, name: str, data: bytes) -> None:
        kind = parsed.type or name
        content = _DELTAS.get(kind)
        if content is not None and isinstance(parsed.delta, str) and parsed.delta:
            number = self._items.of(parsed.output_index)
            self._with_deltas.add(number)
            tool = self._calls.begun(number) if content == "tool" else None
            self._add_token(parsed.delta, content, tool)
        elif kind == "error" or (parsed.error and parsed.response is None):
            self._report_error(parse_error(data), data)
        elif kind in _ENDS and parsed.response is not None:
            self._take_end(parsed.response, data, marker=True)
        elif kind in _ENDS_OF_PARTS:
            self._take_part(parsed, kind)
        elif parsed.item is not None:
            whole = kind == "response.output_item.done"
            number = (
                self._items.end(parsed.output_index)
                if whole
                else self._items.begin(parsed.output_index)
            )
            self._take_item(parsed.item, number, whole=whole)

    def _take_part(self, parsed: ResponseEvent, kind: str) -> None:
        """Take the end of a part: all of it, unless there were deltas."""
        number, content = self._items.of(parsed.output_index), _ENDS_OF_PARTS[kind]
        if number not in self._with_deltas:
            self._with_parts.add(number)
            tool = self._calls.begun(number) if content == "tool" else None
            text = parsed.text or parsed.refusal or parsed.arguments or parsed.input
            self._add_token(arguments_text(text), content, tool)

    def _take_item(self, item: Item, number: int, *, whole: bool) -> None:
        """Take item `number` at its start or (`whole`) its end: the content that no delta held."""
        if item.type in _CALLS:
            identity = item.call_id or ""
            self._called.add(identity)
            tool = self._calls.part(number, identity, item.name or "")
            self._add_token(tool.name, "tool", tool)
        if not whole:
            return
        if number not in self._with_deltas | self._with_parts:
            self._take_content(item, number)
        if item.type == "image_generation_call" and isinstance(item.result, str) and item.result:
            self._add_token(
                f"data:image/{item.output_format or 'png'};base64,{item.result}", "image"
            )
        if item.encrypted_content:
            self._add_quiet("signature", item.encrypted_content)

    def _take_content(self, item: Item, number: int) -> None:
        """Take the content of a complete item that had no events for its parts."""
        content = item.summary or item.content or ()
        kind: TokenKind = "reasoning" if item.type == "reasoning" else "text"
        for part in [Part(text=content)] if isinstance(content, str) else content:
            self._add_token(part.text or "", kind)
            self._add_token(part.refusal or "", "refusal")
        if item.type in _CALLS:
            arguments = arguments_text(item.arguments or item.input)
            self._add_token(arguments, "tool", self._calls.begun(number))

    def _take_end(self, response: Response, data: bytes, *, marker: bool) -> None:
        """Take the end of an answer; if there were no deltas, all of its content."""
        if response.error:
            self._report_error(error_of(response.error), data)
            return
        had_tokens = self._tokens > 0
        for item in response.output or ():
            if not had_tokens or (
                item.type in _CALLS and item.call_id and item.call_id not in self._called
            ):
                self._take_item(item, self._items.end(None), whole=True)
        self._note_tier(response.service_tier)
        self._add_finish(response.finish_reason, data)
        if self._ended:
            return
        if (shape := self._read_counts(response.usage, _decode_usage)) is not None:
            self._add_usage(_usage(shape, self._at))
        self._complete(marker=marker)

    def _take_whole(self, response: ResponseEvent, body: bytes) -> None:
        if response.output is None and not response.error:
            self._break("malformed", "the body is JSON without any output", body)
        elif response.status in ("queued", "in_progress"):
            self._break(
                "truncated",
                f"the answer is not complete: its status is {response.status}",
                body,
            )
        else:
            self._at = self._fed_at
            self._take_end(response, body, marker=False)


def _usage(shape: TokenUsage, at: int) -> Usage:
    read, output = shape.input_tokens_details, shape.output_tokens_details
    return Usage(
        at,
        shape.input_tokens,
        shape.output_tokens,
        output.reasoning_tokens if output else None,
        read.cached_tokens if read else None,
        read.cache_write_tokens if read else None,
    )
