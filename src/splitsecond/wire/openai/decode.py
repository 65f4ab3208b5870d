"""The client role, reading: the body of an answer to events.

Strategy: the first byte tells what the body is. ``{`` begins a plain JSON answer (asked for, or from a server that
ignores ``stream``): it is kept, and decoded when it ends. All else goes through the SSE decoder. Each event is decoded
once, to the fields of `shapes`; JSON that msgspec refuses and a lenient reader would take (half of a surrogate pair,
bytes that are not UTF-8, NaN) is mended and tried once more.

What makes an answer whole: every choice that was begun has its ``finish_reason``, or a chunk of usage alone closed the
stream. ``[DONE]`` by itself proves nothing (llama-cpp-python sends it after an answer that it cut short), nor does the
status 200 (vLLM sends an ``error`` inside it, then ``[DONE]``). The first thing that ends a stream decides; nothing
after it is looked at.
"""

from collections.abc import Sequence

import msgspec

from splitsecond.events import Done, Event, Finish, Quiet, Token, TokenKind, TokenRun, ToolPart, Usage
from splitsecond.service import Operation
from splitsecond.wire.dialect import Decoder
from splitsecond.wire.openai.embeddings import EmbeddingsDecoder
from splitsecond.wire.openai.logprobs import token_logprobs
from splitsecond.wire.openai.shapes import NOTHING, Choice, Chunk, Delta, Function, Part
from splitsecond.wire.openai.tally import UsageTally, timings_of, usage_times
from splitsecond.wire.openai.template import Template
from splitsecond.wire.refusals import Said, error_said, said_in
from splitsecond.wire.sse import SseEvent
from splitsecond.wire.streaming import END_MARK, StreamDecoder
from splitsecond.wire.tool_calls import ToolCalls

_decode_chunk = msgspec.json.Decoder(Chunk).decode

_MANY_BYTES = 1500
"""A read that long holds several events."""
_FIRST = 2
"""Events of a stream after which one has mostly been learned from: the role, and the first token."""

_Piece = tuple[TokenKind, str, ToolPart | None]

_HEARTBEATS = frozenset({"ping", "keepalive", "keep-alive", "heartbeat"})


def decoder(operation: Operation, stream: bool = True) -> Decoder:
    """A decoder for one answer. Whether it is streamed, and which sort of text it is, the body itself shows."""
    return EmbeddingsDecoder() if operation == "embeddings" else OpenAIDecoder()


class OpenAIDecoder(StreamDecoder):
    """One answer's body in, events out. See `splitsecond.wire.dialect.Decoder`."""

    def __init__(self) -> None:
        super().__init__()
        self._running_count = False  # usage comes beside each token, the first included; else it is a total
        self._choices: set[int] = set()
        self._finished: dict[int, str] = {}
        self._tally = UsageTally()
        self._calls = ToolCalls()
        self._closed_by_usage = False

    def _begin_events(self) -> None:
        super()._begin_events()
        self._template = Template()

    def _plain_token(self, data: bytes, at: int) -> Token | None:
        """The token, where `data` is one whole event with nothing but the next piece of a text; else None.

        Nine reads of ten are that, once an answer has begun.
        """
        if not (self._tokens and self._sse.between_events and data.startswith(b"data: {")):
            return None
        end = len(data) - 2
        if data.find(b"\n") != end or not data.endswith(b"\n\n") or b"\r" in data:
            return None
        return self._text_token(data, 6, end, at)

    def _text_token(self, data: bytes, begin: int, end: int, at: int) -> Token | None:
        """The token, where ``data[begin:end]`` is the JSON of a chunk that holds nothing but a text; else None.

        It takes a fraction of the time of the way that serves all chunks, which gives the same.
        """
        template = self._template
        text, index = template.text(data, begin, end), template.index
        if text is None:
            if not template.wanted:
                return None
            data = data[begin:end]
            choice = _only_choice(data)
            text = None if choice is None else _only_text(choice)
            if choice is None or not text or choice.index not in self._choices:
                return None
            index = choice.index
            template.learn(data, text, index, _text_of)
        self._chunks += 1
        self._tokens += 1
        self._closed_by_usage = False
        return Token(at, text, "text", index)

    def _feed_events(self, data: bytes, at: int, out: list[Event]) -> None:
        """Where a read holds many events, those with nothing but a text are taken all at once."""
        if len(data) >= _MANY_BYTES and b"\r" not in data:
            if self._template.wanted:  # the first few show what the others are like
                begin = _end_of_event(data, _FIRST)
                super()._feed_events(data[:begin], at, out)
                data = data[begin:]
            if self._sse.between_events and not self._ended:
                texts, end = self._template.run(data)
                if texts:
                    index = self._template.index
                    if self.in_runs:
                        out.append(TokenRun(at, list(map(len, texts))))
                    else:
                        out.extend([Token(at, text, "text", index) for text in texts])
                    self._chunks += len(texts)
                    self._tokens += len(texts)
                    self._closed_by_usage = False
                    data = data[end:]
        if data and not self._ended:
            super()._feed_events(data, at, out)

    def _take(self, event: SseEvent, at: int, out: list[Event]) -> None:
        data = event.data
        if data is None:
            out.append(Quiet(at, "comment"))
            return
        if event.name:
            if event.name == "error":
                self._report(at, out, said_in(data), data)
                return
            if event.name in _HEARTBEATS:
                out.append(Quiet(at, "ping"))
                return
        if data == END_MARK:  # that it is no JSON need not be found out by trying
            self._end(at, out, marker=True)
            return
        if self._choices and (token := self._text_token(data, 0, len(data), at)) is not None:
            out.append(token)
            return
        try:
            chunk = _decode_chunk(data)
        except (ValueError, RecursionError) as error:
            word = data.strip()
            if word == END_MARK:
                self._end(at, out, marker=True)
            elif not word:
                out.append(Quiet(at, "empty"))
            elif (lenient := self._mended(_decode_chunk, data, error, "a chunk", at, out)) is not None:
                self._take_chunk(lenient, data, at, out)
        else:
            self._take_chunk(chunk, data, at, out)

    def _take_whole(self, body: bytes, at: int, out: list[Event]) -> None:
        """A plain JSON answer. Its tokens arrived when its last byte did."""
        chunk = self._whole(_decode_chunk, body, "an answer", at, out)
        if chunk is None:
            return
        if not chunk.choices and _reported(chunk) is None:
            kind = "malformed" if chunk.choices is None else "empty_answer"
            self._break(at, out, kind, "the body is JSON without any choices", body)
            return
        self._take_chunk(chunk, body, self._json_at, out)
        if not self._ended:
            self._ended = True
            out.append(Done(at, False))

    def _take_chunk(self, chunk: Chunk, data: bytes, at: int, out: list[Event]) -> None:
        before, fresh = len(out), self._tokens == 0
        self._chunks += 1
        groq = chunk.x_groq
        if chunk.error or groq is not None or chunk.base_resp is not None:
            said = _reported(chunk)
            if said is not None:
                self._report(at, out, said, data)
                return
        choices = chunk.choices or ()
        counted = None
        if chunk.usage is not None or groq is not None:
            counted = self._count(chunk, at)
        for choice in choices:
            index = choice.index
            self._choices.add(index)
            if choice.usage is not None:
                counted = self._tally.take(choice.usage, at, index) or counted
            if pieces := _pieces(choice, fresh, self._calls):
                so_far = None
                if self._json is None:
                    so_far = self._so_far(counted)
                logprobs = None if choice.logprobs in NOTHING else token_logprobs(choice.logprobs)
                for kind, text, tool in pieces:
                    out.append(Token(at, text, kind, index, so_far, tool, logprobs))
                    logprobs = None  # they stand once, on the first of the chunk's tokens
                self._tokens += len(pieces)
                self._closed_by_usage = False
            reason = choice.finish_reason
            if reason == "error":
                self._report(at, out, Said("finish_reason is error"), data)
                return
            if reason and self._finished.get(index) != reason:
                self._finished[index] = reason
                out.append(Finish(at, reason, index))
        if counted is not None:
            self._closed_by_usage = not choices and (counted.output_tokens or 0) >= max(self._tokens, 1)
            out.append(counted)
        if chunk.timings is not None or chunk.time_info is not None:
            self.server_timings.update(timings_of(chunk.timings or chunk.time_info or {}))
        if len(out) == before:
            out.append(Quiet(at, _quiet_word(choices)))

    def _so_far(self, counted: Usage | None) -> int | None:
        """The running count, where `counted` came beside a token and holds one."""
        count = None if counted is None else counted.output_tokens
        if self._tokens == 0:
            self._running_count = count is not None
        return count if self._running_count else None

    def _count(self, chunk: Chunk, at: int) -> Usage | None:
        shape = chunk.usage
        if shape is None and chunk.x_groq is not None:
            shape = chunk.x_groq.usage
        if shape is None:
            return None
        if times := usage_times(shape):
            self.server_timings.update(times)
        if chunk.choices:
            return self._tally.take(shape, at, chunk.choices[0].index)
        return self._tally.take_alone(shape, at, several=len(self._choices) > 1)

    def _end(self, at: int, out: list[Event], *, marker: bool = False, cut: bool = False) -> None:
        if not cut and self._is_whole(marker):
            self._ended = True
            out.append(Done(at, marker))
        else:
            self._break_off(at, out, "a finish_reason", cut=cut, then="[DONE]" if marker else "")

    def _is_whole(self, marker: bool) -> bool:
        if self._closed_by_usage:
            return True
        if not self._choices or self._choices - self._finished.keys():
            return False
        # llama.cpp sends usage for each choice apart: a body cut between two of them has all texts and half the count.
        counted = self._tally.alone_output
        return marker or len(self._choices) == 1 or counted is None or counted >= self._tokens


def _end_of_event(data: bytes, number: int) -> int:
    """Where the event of that number, from 1, ends in `data`; or the data, where it holds fewer."""
    end = 0
    for _ in range(number):
        end = data.find(b"\n\n", end) + 2
        if end == 1:
            return len(data)
    return end


def _text_of(data: bytes) -> str | None:
    """The text of a chunk that holds one and nothing else."""
    choice = _only_choice(data)
    return None if choice is None else _only_text(choice)


def _only_choice(data: bytes) -> Choice | None:
    """The choice of a chunk that holds one and nothing else."""
    try:
        chunk = _decode_chunk(data)
    except (ValueError, RecursionError):
        return None
    choices = chunk.choices
    if choices is None or len(choices) != 1 or chunk.usage is not None or chunk.error is not None:
        return None
    if chunk.x_groq is not None or chunk.base_resp is not None:
        return None
    return choices[0] if chunk.timings is None and chunk.time_info is None else None


def _only_text(choice: Choice) -> str | None:
    """The text of a choice that holds some and nothing else."""
    delta = choice.delta
    if delta is None or choice.finish_reason is not None or choice.usage is not None:
        return None
    if choice.logprobs not in NOTHING:
        return None
    if delta.reasoning_content is not None or delta.reasoning is not None or delta.refusal is not None:
        return None
    if delta.tool_calls is not None or delta.function_call is not None:
        return None
    if delta.audio is not None or delta.images is not None:
        return None
    return delta.content if isinstance(delta.content, str) else None


def _pieces(choice: Choice, fresh: bool, calls: ToolCalls) -> list[_Piece]:
    """The content-bearing parts of a choice, one for each field that holds any.

    A ``message`` in a stream repeats what was streamed (MiniMax, Perplexity), unless nothing was: `fresh`.
    """
    delta = choice.delta
    if delta is None:
        if choice.text:
            return [("text", choice.text, None)]
        if choice.message is None or not fresh:
            return []
        delta = choice.message
    pieces: list[_Piece] = []
    reasoning = delta.reasoning_content or delta.reasoning  # some send both, with the same text
    if reasoning:
        pieces.append(("reasoning", reasoning, None))
    content = delta.content
    if content:
        if isinstance(content, str):
            pieces.append(("text", content, None))
        else:
            pieces.extend(_part_pieces(content))
    if delta.refusal:
        pieces.append(("refusal", delta.refusal, None))
    if delta.tool_calls or delta.function_call:
        pieces.extend(_tool_pieces(delta, choice.index, calls))
    if delta.audio and (heard := delta.audio.data or delta.audio.transcript):
        pieces.append(("audio", heard, None))
    if delta.images:
        links = [image.image_url for image in delta.images if image.image_url is not None]
        pieces.extend(("image", link.url, None) for link in links if link.url)
    return pieces


def _part_pieces(parts: list[Part]) -> list[_Piece]:
    thought = "".join(inner.text or "" for part in parts for inner in part.thinking or ())
    text = "".join(part.text or "" for part in parts)
    both: list[_Piece] = [("reasoning", thought, None), ("text", text, None)]
    return [piece for piece in both if piece[1]]


def _tool_pieces(delta: Delta, index: int, calls: ToolCalls) -> list[_Piece]:
    pieces: list[_Piece] = []
    for call in delta.tool_calls or ():
        function = call.function or call.custom or Function()
        part = calls.part(call.index, str(call.id or ""), function.name or "", index)
        pieces.append(("tool", part.name + _arguments(function), part))
    if delta.function_call is not None:
        part = calls.part("function_call", "", delta.function_call.name or "", index)
        pieces.append(("tool", part.name + _arguments(delta.function_call), part))
    return [piece for piece in pieces if piece[1]]


def _arguments(function: Function) -> str:
    return function.arguments or function.input or ""


def _quiet_word(choices: Sequence[Choice]) -> str:
    if not choices:
        return "no choices"
    return "role" if any(choice.delta is not None and choice.delta.role for choice in choices) else "empty"


def _reported(chunk: Chunk) -> Said | None:
    """The error that a chunk holds in one of its places; None where it holds none."""
    if chunk.error:
        return error_said(chunk.error)
    if chunk.x_groq is not None and chunk.x_groq.error:
        return error_said(chunk.x_groq.error)
    if chunk.base_resp is not None and chunk.base_resp.status_code != 0:
        return Said(f"{chunk.base_resp.status_msg or 'no message'} (base_resp {chunk.base_resp.status_code})")
    return None
