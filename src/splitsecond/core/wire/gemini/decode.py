"""Client role: the body of an answer from Gemini to events, and an error response to a fault.

Each event is a whole ``GenerateContentResponse``; a body that begins with ``[`` is the list of them
from a server that ignores ``alt=sse``.

An answer is complete when every candidate has its ``finishReason``, or the prompt was blocked
(``promptFeedback``), whose reason is then the `Finish`. There is no end mark. An error in the
middle is an event with ``error``, or bare JSON in several lines that are no event; the latter is
found at the body's end.

A function call comes in one piece, so it is one token: the name followed by the arguments' JSON.
Vertex can stream arguments value by value: they are tokens too, but not JSON, so such a call cannot
be transcoded. The signature of reasoning follows the token of the same part.
"""

from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.core.events import Finish, Token, TokenKind, ToolPart, Usage
from splitsecond.core.wire.provider_errors import address_hints, error_of, parse_error
from splitsecond.core.wire.provider_errors import fault_from_response as _fault
from splitsecond.core.wire.streaming import ABSENT, Count, Decoder, Shape
from splitsecond.core.wire.tool_calls import ToolCalls, arguments_text


class PartialArg(Shape, rename="camel"):
    """A piece of one argument of a function call, streamed by Vertex."""

    string_value: str | None = None
    number_value: float | None = None
    bool_value: bool | None = None


class FunctionCall(Shape, rename="camel"):
    """A function call: whole, or in pieces (``partialArgs``) if Vertex was asked for that."""

    id: str | None = None
    name: str | None = None
    args: Raw = Raw()
    partial_args: list[PartialArg] | None = None


class ExecutableCode(Shape):
    code: str | None = None


class Media(Shape, rename="camel"):
    """Media: inline (`data`, base64), or elsewhere (`file_uri`)."""

    mime_type: str | None = None
    data: str | None = None
    file_uri: str | None = None


class Part(Shape, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None
    executable_code: ExecutableCode | None = None
    inline_data: Media | None = None
    file_data: Media | None = None


class Content(Shape):
    parts: list[Part] | None = None


class Candidate(Shape, rename="camel"):
    index: Count | None = None
    content: Content | None = None
    finish_reason: str | None = None


class PromptFeedback(Shape, rename="camel"):
    """The reason why a prompt was blocked; then there are no candidates."""

    block_reason: str | None = None


class UsageMetadata(Shape, rename="camel"):
    prompt_token_count: Count | None = None
    cached_content_token_count: Count | None = None
    tool_use_prompt_token_count: Count | None = None
    candidates_token_count: Count | None = None
    thoughts_token_count: Count | None = None
    total_token_count: Count | None = None


class Chunk(Shape, rename="camel"):
    """One event of a stream, or a whole answer, or an error. `usage_metadata` (`UsageMetadata`) is
    raw, so that a wrong count in it fails no answer."""

    candidates: list[Candidate] | None = None
    usage_metadata: Raw = ABSENT
    prompt_feedback: PromptFeedback | None = None
    error: Any = None

    @property
    def quiet_kind(self) -> str:
        """The kind of `Quiet` that the event is if it holds nothing else."""
        return "empty" if self.candidates else "no candidates"


_decode_usage = msgspec.json.Decoder(UsageMetadata, strict=False).decode
_JSON_BEGINS = (b"{", b"[")
_NO_REASON = "FINISH_REASON_UNSPECIFIED"


class GeminiDecoder(Decoder):
    event_form = msgspec.json.Decoder(Chunk)
    whole_form = msgspec.json.Decoder(Chunk | list[Chunk])
    end_name = "a finishReason"
    json_begins = _JSON_BEGINS
    json_ends = (b"}", b"]")
    done_ends = False

    _counts_run = False  # the first token had a count, so later ones can be compared with it
    _reasoning_shown = False
    _blocked = False

    def _take_whole(self, decoded: Chunk | list[Chunk], body: bytes) -> None:
        self._had_event = True
        closed_at, self._at = self._at, self._fed_at
        for chunk in decoded if isinstance(decoded, list) else [decoded]:
            self._take_event(chunk, "", body)
            if self._ended:
                return
        self._at = closed_at
        if self._choices or self._blocked:
            self._end()
        else:
            self._break("empty_answer", "the body is JSON without any candidates", body)

    def _take_event(self, chunk: Chunk, name: str, data: bytes) -> None:
        if chunk.error:
            self._report_error(error_of(chunk.error), data)
            return
        before = len(self._out)
        shape = self._read_counts(chunk.usage_metadata, _decode_usage)
        usage = None if shape is None else _usage(shape, self._at)
        for candidate in chunk.candidates or ():
            index = candidate.index or 0
            self._choices.add(index)
            content = candidate.content
            if content is not None and content.parts is not None:
                for part in content.parts:
                    kind, text, tool = _piece(part, index, self._calls)
                    if text:
                        so_far = self._so_far(kind, shape, usage)
                        self._tokens += 1
                        self._out.append(Token(self._at, text, kind, index, so_far, tool))
                    if part.thought_signature:
                        self._add_quiet("signature", part.thought_signature)
            if candidate.finish_reason != _NO_REASON:
                self._add_finish(candidate.finish_reason, data, index)
            if self._ended:
                return
        if chunk.prompt_feedback is not None:
            self._note_block(chunk.prompt_feedback)
        self._add_usage(usage)
        if len(self._out) == before:
            self._add_quiet(chunk.quiet_kind)

    def _note_block(self, feedback: PromptFeedback) -> None:
        if feedback.block_reason:
            self._blocked = True
            self._out.append(Finish(self._at, feedback.block_reason))

    def _so_far(
        self, kind: TokenKind, shape: UsageMetadata | None, usage: Usage | None
    ) -> int | None:
        """Return the running count with the next token, of this `kind`, if its chunk (`shape`,
        `usage`) has one.

        It counts reasoning only if that is shown. None also if the chunk does not count its
        content: reasoning, or visible text.
        """
        thought = kind == "reasoning"
        if thought:
            self._reasoning_shown = True
        so_far = None
        output = None if usage is None or self._json is not None else usage.output_tokens
        counts = shape is not None and (shape.candidates_token_count is not None or thought)
        if (
            usage is not None
            and output is not None
            and counts
            and (self._counts_run or not self._tokens)
        ):
            hidden = 0 if self._reasoning_shown else usage.reasoning_tokens or 0
            so_far = max(output - hidden, 0) or None
        if self._tokens == 0:
            self._counts_run = so_far is not None
        return so_far

    def _end(self, *, marker: bool = False, cut: bool = False) -> None:
        junk = self._junk
        if junk.lstrip().startswith(_JSON_BEGINS):
            self._report_error(parse_error(junk), junk)
        else:
            super()._end(cut=cut)

    def _is_whole(self, marker: bool) -> bool:
        return self._blocked or bool(self._choices and self._choices <= self._finished.keys())


def _piece(part: Part, index: int, calls: ToolCalls) -> tuple[TokenKind, str, ToolPart | None]:
    """Return the content of a part; "" for none, and for results of the provider's own tools."""
    if part.text:
        return ("reasoning" if part.thought else "text"), part.text, None
    call = part.function_call
    if call is not None:
        whole = bool(call.name) and not call.partial_args
        tool = calls.part(None, call.id or "", call.name or "", index) if whole else None
        return "tool", _call_text(call), tool
    if part.executable_code is not None:
        return "tool", part.executable_code.code or "", None
    return (*_media(part), None)


def _media(part: Part) -> tuple[TokenKind, str]:
    blob, file = part.inline_data, part.file_data
    if blob is not None:
        mime_type, data = blob.mime_type or "", blob.data or ""
        if mime_type.startswith("audio/"):
            return "audio", data
        return (
            ("image", f"data:{mime_type};base64,{data}")
            if mime_type.startswith("image/") and data
            else ("text", "")
        )
    if file is not None and file.file_uri and (file.mime_type or "").startswith("image/"):
        return "image", file.file_uri
    return "text", ""


def _call_text(call: FunctionCall) -> str:
    pieces = [call.name or "", arguments_text(call.args)]
    for arg in call.partial_args or ():
        value = arg.string_value if arg.string_value is not None else arg.number_value
        pieces.append(str(arg.bool_value if value is None else value))
    return "".join(pieces)


def _usage(shape: UsageMetadata, at: int) -> Usage:
    """Return the counts as `Usage`.

    Input is ``promptTokenCount``, which includes cached tokens, plus ``toolUsePromptTokenCount``,
    the results of the provider's own tools. Output is ``candidatesTokenCount``, the visible answer
    of all candidates, plus ``thoughtsTokenCount``. A few previews counted reasoning among the
    candidates, which the total reveals.
    """
    prompt, candidates, reasoning = (
        shape.prompt_token_count,
        shape.candidates_token_count,
        shape.thoughts_token_count,
    )
    input_tokens = prompt
    if shape.tool_use_prompt_token_count:
        input_tokens = (prompt or 0) + shape.tool_use_prompt_token_count
    output = candidates
    if reasoning and not (
        candidates and shape.total_token_count == (input_tokens or 0) + candidates
    ):
        output = (candidates or 0) + reasoning
    return Usage(at, input_tokens, output, reasoning, shape.cached_content_token_count)


fault_from_response = partial(_fault, hints=address_hints("it usually ends in /v1beta"))
