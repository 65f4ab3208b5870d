"""The client role, reading: the body of an answer to events.

Strategy: the first byte tells what the body is. ``{`` begins a plain JSON answer, ``[`` the list of chunks that a
server sends which ignores ``alt=sse``: either is kept, and decoded when it ends. All else goes through the SSE decoder;
each event is a whole ``GenerateContentResponse``, decoded once to the fields of `shapes`.

What makes an answer whole: every candidate that was begun has its ``finishReason``, or the prompt was blocked
(``promptFeedback``), whose reason is then given as the `Finish`. There is no end mark, so `Done` comes with the end of
the body. An error in the middle comes as an event with ``error``, or as bare JSON in several lines that are no event;
the second is seen when the body ends.

A function call comes in one piece, name and arguments; so it is one token, the name followed by the arguments' JSON.
Vertex, if asked to, sends arguments value by value: they are tokens as well, but no JSON, so none of a call that could
be told in another dialect. The signature of a thought follows the token that shares its part.
"""

import msgspec

from splitsecond.events import Done, Event, Finish, Quiet, Token, TokenKind, ToolPart, Usage
from splitsecond.service import Operation
from splitsecond.wire.gemini.counts import shown_so_far, usage_of
from splitsecond.wire.gemini.shapes import Candidate, Chunk, FunctionCall, Part, UsageMetadata
from splitsecond.wire.refusals import error_said, said_in
from splitsecond.wire.sse import SseEvent
from splitsecond.wire.streaming import END_MARK, StreamDecoder
from splitsecond.wire.tool_calls import ToolCalls

_decode_chunk = msgspec.json.Decoder(Chunk).decode
_decode_chunks = msgspec.json.Decoder(Chunk | list[Chunk]).decode

_JSON_BEGINS = (b"{", b"[")
_JSON_ENDS = (b"}", b"]")
_NO_REASON = (None, "", "FINISH_REASON_UNSPECIFIED")


def decoder(operation: Operation, stream: bool = True) -> "GeminiDecoder":
    """A decoder for one answer. The body itself shows whether it is streamed, so any will do."""
    return GeminiDecoder()


class GeminiDecoder(StreamDecoder):
    """One answer's body in, events out. See `splitsecond.wire.dialect.Decoder`. Gemini sends no timings."""

    json_begins = _JSON_BEGINS
    json_ends = _JSON_ENDS

    def __init__(self) -> None:
        super().__init__()
        self._counts_run = False  # the first token came with a count, so that later ones can be compared with it
        self._thoughts_shown = False
        self._blocked = False
        self._candidates: set[int] = set()
        self._finished: dict[int, str] = {}
        self._calls = ToolCalls()

    def _take(self, event: SseEvent, at: int, out: list[Event]) -> None:
        data = event.data
        if data is None:
            out.append(Quiet(at, "comment"))
            return
        if event.name == "error":
            self._report(at, out, said_in(data), data)
            return
        try:
            chunk = _decode_chunk(data)
        except (ValueError, RecursionError) as error:
            if data.strip() in (b"", END_MARK):
                out.append(Quiet(at, "empty"))
                return
            lenient = self._mended(_decode_chunk, data, error, "a chunk", at, out)
            if lenient is None:
                return
            chunk = lenient
        self._take_chunk(chunk, data, at, out)

    def _take_whole(self, body: bytes, at: int, out: list[Event]) -> None:
        """A body of plain JSON. Its tokens arrived when its last byte did."""
        decoded = self._whole(_decode_chunks, body, "an answer", at, out)
        if decoded is None:
            return
        for chunk in decoded if isinstance(decoded, list) else [decoded]:
            self._take_chunk(chunk, body, self._json_at, out)
            if self._ended:
                return
        if self._candidates or self._blocked:
            self._end(at, out, cut=False)
        else:
            self._break(at, out, "empty_answer", "the body is JSON without any candidates", body)

    def _take_chunk(self, chunk: Chunk, data: bytes, at: int, out: list[Event]) -> None:
        if chunk.error:
            self._report(at, out, error_said(chunk.error), data)
            return
        before = len(out)
        self._chunks += 1
        shape = chunk.usage_metadata
        usage = None if shape is None else usage_of(shape, at)
        for candidate in chunk.candidates or ():
            index = candidate.index or 0
            self._candidates.add(index)
            content = candidate.content
            if content is not None and content.parts is not None:
                for part in content.parts:
                    self._take_part(part, index, shape, usage, at, out)
            self._take_finish(candidate, index, at, out)
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            self._blocked = True
            out.append(Finish(at, chunk.prompt_feedback.block_reason))
        if usage is not None:
            out.append(usage)
        if len(out) == before:
            out.append(Quiet(at, "empty" if chunk.candidates else "no candidates"))

    def _take_part(
        self, part: Part, index: int, shape: UsageMetadata | None, usage: Usage | None, at: int, out: list[Event]
    ) -> None:
        kind, text, tool = _piece(part, index, self._calls)
        if text:
            so_far = self._so_far(kind, shape, usage)
            self._tokens += 1
            out.append(Token(at, text, kind, index, so_far, tool))
        if part.thought_signature:
            out.append(Quiet(at, "signature", part.thought_signature))

    def _so_far(self, kind: TokenKind, shape: UsageMetadata | None, usage: Usage | None) -> int | None:
        """The running count with the next token, of that `kind`, where its chunk holds one (`shape`, `usage`)."""
        thought = kind == "reasoning"
        if thought:
            self._thoughts_shown = True
        so_far = None
        if shape is not None and usage is not None and self._json is None and (self._counts_run or not self._tokens):
            so_far = shown_so_far(shape, usage, thoughts_shown=self._thoughts_shown, thought=thought)
        if self._tokens == 0:
            self._counts_run = so_far is not None
        return so_far

    def _take_finish(self, candidate: Candidate, index: int, at: int, out: list[Event]) -> None:
        reason = candidate.finish_reason
        if reason is not None and reason not in _NO_REASON and self._finished.get(index) != reason:
            self._finished[index] = reason
            out.append(Finish(at, reason, index))

    def _end(self, at: int, out: list[Event], *, marker: bool = False, cut: bool = False) -> None:
        junk = self._junk
        if junk.lstrip().startswith(_JSON_BEGINS):
            self._report(at, out, said_in(junk), junk)
        elif not cut and (self._blocked or (self._candidates and self._candidates <= self._finished.keys())):
            self._ended = True
            out.append(Done(at, False))
        else:
            self._break_off(at, out, "a finishReason", cut=cut)


def _piece(part: Part, index: int, calls: ToolCalls) -> tuple[TokenKind, str, ToolPart | None]:
    """What a part holds that is content; "" where that is nothing. Results of the provider's own tools are not."""
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
    """A sound, or an image as a URL."""
    blob, file = part.inline_data, part.file_data
    if blob is not None:
        mime_type, data = blob.mime_type or "", blob.data or ""
        if mime_type.startswith("audio/"):
            return "audio", data
        return ("image", f"data:{mime_type};base64,{data}") if mime_type.startswith("image/") and data else ("text", "")
    if file is not None and file.file_uri and (file.mime_type or "").startswith("image/"):
        return "image", file.file_uri
    return "text", ""


def _call_text(call: FunctionCall) -> str:
    args = bytes(call.args)
    pieces = [call.name or "", "" if args == b"null" else args.decode("utf-8", "replace")]
    for arg in call.partial_args or ():
        value = arg.string_value if arg.string_value is not None else arg.number_value
        pieces.append(str(arg.bool_value if value is None else value))
    return "".join(pieces)
