"""Client role: the body of an answer of chat or completions to events.

An answer is complete if every choice that began has its ``finish_reason``, or if a chunk with usage
only closed the stream. ``[DONE]`` alone proves nothing (llama-cpp-python sends it after an answer
that it cut short), nor does the status 200 (vLLM sends an ``error`` inside it, then ``[DONE]``).
The first event that ends a stream decides.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from splitsecond.core.events import (
    Finish,
    Token,
    TokenKind,
    ToolPart,
    Usage,
    WholeText,
)
from splitsecond.core.service import WHOLE_OPERATIONS, Operation
from splitsecond.core.validation import read_json
from splitsecond.core.wire.openai.embeddings import ItemsDecoder
from splitsecond.core.wire.openai.shapes import (
    Choice,
    Chunk,
    Delta,
    Function,
    Part,
    PlainAnswer,
    ToolCall,
    UsageShape,
)
from splitsecond.core.wire.openai.usage_sum import UsageTally, timings_of, usage_of, usage_times
from splitsecond.core.wire.provider_errors import ProviderError, error_of
from splitsecond.core.wire.streaming import ABSENT, NOTHING, Decoder, Shape, contradictory
from splitsecond.core.wire.tool_calls import ToolCalls, arguments_text


class _TokenLogprob(Shape):
    logprob: float | None = None


class _Logprobs(Shape):
    content: list[_TokenLogprob] | None = None
    token_logprobs: list[float | None] | None = None


_decode_logprobs = msgspec.json.Decoder(_Logprobs).decode
_CHUNK = msgspec.json.Decoder(Chunk)
_decode_usage = msgspec.json.Decoder(UsageShape, strict=False).decode
_decode_plain = msgspec.json.Decoder(PlainAnswer).decode

MAX_CHOICES = 4_096
"""The most choices of one answer. OpenAI returns up to 2,048, for several prompts."""


_Piece = tuple[TokenKind, str, ToolPart | None]

_PLAIN_REASONS = ("stop", "length")


def decoder(operation: Operation) -> Decoder:
    """Return a decoder for one answer, streamed or not."""
    return ItemsDecoder(operation) if operation in WHOLE_OPERATIONS else OpenAIDecoder(operation)


class OpenAIDecoder(Decoder):
    event_form = whole_form = _CHUNK
    end_name = "a finish_reason"

    def _begin_events(self) -> None:
        super()._begin_events()
        self._begin_choices()

    def _begin_choices(self) -> None:
        # usage comes with each token, the first included; otherwise it is a total
        self._running_count = False
        self._usage = UsageTally()
        self._closed_at = -1  # the number of tokens when usage alone closed the stream

    def _take_whole(self, chunk: Chunk, body: bytes) -> None:
        self._begin_choices()
        if not chunk.choices and _reported(chunk) is None:
            kind = "malformed" if chunk.choices is None else "empty_answer"
            self._break(kind, "the body is JSON without any choices", body)
            return
        closed_at, self._at = self._at, self._fed_at
        self._take_event(chunk, "", body)
        if not self._ended:
            self._at = closed_at
            self._complete(marker=False)

    def _take_plain(self, body: bytes) -> bool:
        try:
            answer = _decode_plain(body)
        except (ValueError, RecursionError):
            return False
        (choice,), arrived = answer.choices, self._fed_at
        reason, usage = choice.finish_reason, usage_of(answer.usage, arrived)
        if reason not in _PLAIN_REASONS or usage is None or contradictory(usage):
            return False
        self.counted = usage
        if answer.service_tier is not None:
            self._note_tier(answer.service_tier)
        self._tokens = 1
        text = choice.message.content
        if self.in_runs:
            self._ended = True
            self._out.append(WholeText(arrived, len(text), reason, usage))
        else:
            self._out += (
                Token(arrived, text, "text", choice.index),
                Finish(arrived, reason, choice.index),
                usage,
            )
            self._complete(marker=False)
        return True

    def _failed(self, chunk: Chunk, data: bytes) -> bool:
        error = _reported(chunk)
        if error is not None:
            self._report_error(error, data)
        return error is not None

    def _note_timings(self, chunk: Chunk) -> None:
        for timings in (chunk.time_info, chunk.timings):
            if timings is not ABSENT:
                self.server_timings.update(timings_of(timings))

    def _count_choice(self, choice: Choice) -> Usage | None:
        shape = self._read_counts(choice.usage, _decode_usage)
        return None if shape is None else self._usage.take(shape, self._at, choice.index)

    def _take_event(self, chunk: Chunk, name: str, data: bytes) -> None:
        out, fresh = self._out, self._tokens == 0
        before = len(out)
        if chunk.service_tier is not None:
            self._note_tier(chunk.service_tier)
        groq = chunk.x_groq
        if (chunk.error or groq is not None or chunk.base_resp is not None) and self._failed(
            chunk, data
        ):
            return
        usage = None
        if chunk.usage is not ABSENT or groq is not None:
            usage = self._count(chunk)
        for choice in chunk.choices or ():
            usage = self._take_choice(choice, fresh, usage, data)
            if self._ended:
                return
        if usage is not None:
            self._add_usage(usage)
        if chunk.time_info is not ABSENT or chunk.timings is not ABSENT:
            self._note_timings(chunk)
        if len(out) == before:
            self._add_quiet(chunk.quiet_kind)

    def _take_choice(
        self,
        choice: Choice,
        fresh: bool,
        usage: Usage | None,
        data: bytes,
    ) -> Usage | None:
        """Take one choice of an event; `fresh`: the first event with content. Return its counts, or
        else `usage`, those so far."""
        index = choice.index
        if index not in self._choices:
            if len(self._choices) == MAX_CHOICES:
                self._break("malformed", f"the answer has more than {MAX_CHOICES} choices")
                return usage
            self._choices.add(index)
        if choice.usage is not ABSENT:
            usage = self._count_choice(choice) or usage
        if pieces := _pieces(choice, fresh, self._calls):
            so_far = None if usage is None or self._json is not None else self._so_far(usage)
            logprobs = None if choice.logprobs in NOTHING else _token_logprobs(choice.logprobs)
            for kind, text, tool in pieces:
                self._out.append(Token(self._at, text, kind, index, so_far, tool, logprobs))
                logprobs = None  # only the first token of a chunk has them
            self._tokens += len(pieces)
        if choice.finish_reason:
            self._add_finish(choice.finish_reason, data, index)
        return usage

    def _so_far(self, usage: Usage) -> int | None:
        """Return the running count if `usage` came with a token and holds one."""
        if self._tokens == 0:
            self._running_count = usage.output_tokens is not None
        return usage.output_tokens if self._running_count else None

    def _text_of(self, data: bytes) -> str | None:
        chunk = read_json(data, _CHUNK.decode)
        choices = None if chunk is None else chunk.choices
        pieces = _pieces(choices[0], False, self._calls) if choices else []
        return pieces[0][1] if len(pieces) == 1 else None

    def _count(self, chunk: Chunk) -> Usage | None:
        shape = self._read_counts(chunk.usage, _decode_usage)
        if shape is None and chunk.x_groq is not None:
            shape = self._read_counts(chunk.x_groq.usage, _decode_usage)
        if shape is None:
            return None
        if times := usage_times(shape):
            self.server_timings.update(times)
        if chunk.choices:
            return self._usage.take(shape, self._at, chunk.choices[0].index)
        usage = self._usage.take_alone(shape, self._at, several=len(self._choices) > 1)
        if usage is not None and (usage.output_tokens or 0) >= max(self._tokens, 1):
            self._closed_at = self._tokens
        return usage

    def _is_whole(self, marker: bool) -> bool:
        if self._closed_at == self._tokens:
            return True
        if not self._choices or self._choices - self._finished.keys():
            return False
        # llama.cpp sends usage for each choice separately: a body cut between two has all texts and
        # half the count
        output = self._usage.alone_output
        return marker or len(self._choices) == 1 or output is None or output >= self._tokens


def _pieces(choice: Choice, fresh: bool, calls: ToolCalls) -> list[_Piece]:
    """Return the content of a choice, one piece for each field that holds any.

    A ``message`` in a stream repeats what was streamed (MiniMax, Perplexity), unless nothing was:
    `fresh`.
    """
    delta = choice.delta
    if delta is None:
        if choice.text:
            return [("text", choice.text, None)]
        if choice.message is None or not fresh:
            return []
        delta = choice.message
    pieces: list[_Piece] = []
    # some providers send both, with the same text
    reasoning = delta.reasoning_content or delta.reasoning
    if reasoning:
        pieces.append(("reasoning", reasoning, None))
    content = delta.content
    if content:
        if isinstance(content, str):
            pieces.append(("text", content, None))
        else:
            pieces += _listed(content)
    if delta.refusal:
        pieces.append(("refusal", delta.refusal, None))
    if delta.tool_calls or delta.function_call:
        pieces += _tools(delta, choice, calls)
    if delta.audio or delta.images:
        pieces += _media(delta)
    return pieces


def _listed(parts: Sequence[Part]) -> list[_Piece]:
    reasoning, text = texts_of(parts)
    pieces: list[_Piece] = [("reasoning", reasoning, None), ("text", text, None)]
    return [piece for piece in pieces if piece[1]]


def _tools(delta: Delta, choice: Choice, calls: ToolCalls) -> list[_Piece]:
    fragments = tool_fragments(delta, choice.index, calls, whole=choice.delta is None)
    return [("tool", part.name + text, part) for part, text in fragments if part.name or text]


def _media(delta: Delta) -> list[_Piece]:
    sound = (delta.audio.data or delta.audio.transcript) if delta.audio else None
    links = [image.image_url for image in delta.images or () if image.image_url is not None]
    images: list[_Piece] = [("image", link.url, None) for link in links if link.url]
    return [("audio", sound, None), *images] if sound else images


def texts_of(parts: Sequence[Part]) -> tuple[str, str]:
    reasoning = "".join(
        inner.text or "" for part in parts for inner in part.thinking or part.summary or ()
    )
    return reasoning, "".join(part.text or "" for part in parts)


def tool_fragments(
    delta: Delta, index: int, calls: ToolCalls, *, whole: bool
) -> list[tuple[ToolPart, str]]:
    """Return the tool calls in the `delta` of choice `index`, each with the text of its arguments;
    `whole`: it is a message.

    The older `function_call` counts only without `tool_calls`: llama-cpp-python sends a call under
    both names.
    """
    fragments = []
    entries = delta.tool_calls or ToolCall("function_call", "", delta.function_call)
    # TGI sends no list
    for place, call in enumerate([entries] if isinstance(entries, ToolCall) else entries):
        function = call.function or call.custom or Function()
        key = ("whole", place) if whole else call.index
        part = calls.part(key, str(call.id or ""), function.name or "", index)
        fragments.append((part, arguments_text(function.arguments or function.input)))
    return fragments


def _reported(chunk: Chunk) -> ProviderError | None:
    if chunk.error:
        return error_of(chunk.error)
    if chunk.x_groq is not None and chunk.x_groq.error:
        return error_of(chunk.x_groq.error)
    if chunk.base_resp is not None and chunk.base_resp.status_code != 0:
        return ProviderError(
            f"{chunk.base_resp.status_msg or 'no message'} (base_resp "
            f"{chunk.base_resp.status_code})"
        )
    return None


def _token_logprobs(value: Raw) -> tuple[float, ...] | None:
    """Return the natural log-probability of each token, in the form of a chat, ``{"content":
    [{"logprob": -0.1}]}``, or of a completion, ``{"token_logprobs": [-0.1]}``; None for any other.
    """
    if value in NOTHING:
        return None
    decoded = read_json(value, _decode_logprobs) or _Logprobs()
    logprobs = decoded.token_logprobs or [token.logprob for token in decoded.content or ()]
    return tuple(each for each in logprobs if each is not None) or None
