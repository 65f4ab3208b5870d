"""Base class of the decoders.

A body that begins with a brace is a plain JSON answer, decoded at its end. Any other goes through
the SSE decoder, event by event, until one of them ends the stream; nothing after that is read.

JSON that msgspec rejects and a lenient reader accepts (half of a surrogate pair, bytes that are not
UTF-8, NaN) is repaired and decoded again. Token counts are decoded apart from their event, so that
none fails an answer; a report that is not as its format says, or that contradicts itself, becomes
an `implausible` `Usage`. `core/upstream/usage_check` finds counts that are too large for the
request.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, structs

from splitsecond.core.errors import Phase, ProviderFault, excerpt, provider_word
from splitsecond.core.events import (
    Broken,
    Done,
    Event,
    Finish,
    Quiet,
    Token,
    TokenKind,
    TokenRun,
    ToolPart,
    Usage,
)
from splitsecond.core.finish_reasons import FAILURE, LONGEST_REASON, meaning
from splitsecond.core.service import Operation
from splitsecond.core.validation import read_json
from splitsecond.core.wire.provider_errors import (
    HTML_HINT,
    ProviderError,
    in_band_fault,
    parse_error,
)
from splitsecond.core.wire.sse import LEADING, MAX_EVENT_BYTES, SseDecoder, SseEvent
from splitsecond.core.wire.text_events import MAX_LESSONS, TextEvents
from splitsecond.core.wire.tool_calls import ToolCalls

T = TypeVar("T")

END_MARK = b"[DONE]"
"""OpenAI's end mark; some servers of other formats send it too."""

Count = Annotated[int, Meta(ge=0, lt=1 << 53)]
ABSENT = Raw()
NOTHING = (ABSENT, Raw(b"null"))

_NAMED = frozenset({"error", "ping", "keepalive", "keep-alive", "heartbeat"})
"""Names of events that mean the same in every format: an error, or a sign of life."""
_LEARNED = frozenset({"text", "reasoning", "refusal", "tool"})
"""Kinds of tokens whose events are learned: media are few and large."""

MAX_DIGITS = 300
"""Digits of an integer in JSON that is repaired."""
LONGEST_TIER = 40
"""Longest word for a speed tier, in characters: a provider can send any text there."""


class Shape(Struct, gc=False):
    """JSON of a provider, with only the fields that are used: msgspec skips others at C speed. Each
    may be absent, and null unless it has another type: at some provider it is."""


class Decoder:
    """Decoder of one answer: the bytes of the body in, events out. The last event is `Done` or
    `Broken`, given once.

    `server_timings`: the times that the provider reports, with its names and units. `in_runs`: the
    reader only counts tokens, so those of one read may come as one `TokenRun`, and a whole answer
    as one `WholeText`. `as_tool`: see `Encoded`. `tier`: the provider's word for the speed tier
    that served the request, or "". `counted`: the largest counts since the reader set this to None.
    `odd_fields`: see `Observation`.

    Of a format: `whole_form`, `event_form`: the JSON of an answer that is not streamed, and of an
    event, in messages `event_name`. `events_of`: cuts a stream into events; the last is cut off
    only if it begins with `event_begins` and is no JSON. `done_ends`: ``[DONE]`` ends the stream.
    `learns`: the events of one text differ only in it. `end_name`: what a stream without its end
    lacks; `marker_name`: the end mark, for messages.
    """

    whole_form: msgspec.json.Decoder[Any]
    event_form: msgspec.json.Decoder[Any]
    events_of: type[SseDecoder] = SseDecoder
    event_name = "an event"
    event_begins = b""
    json_begins: tuple[bytes, ...] = (b"{",)
    json_ends: tuple[bytes, ...] = (b"}",)
    max_json_bytes = MAX_EVENT_BYTES
    done_ends = True
    learns = True
    end_name: str
    marker_name = "[DONE]"
    html_hint = HTML_HINT

    odd_fields: Sequence[str] = ()
    in_runs = False
    as_tool = ""
    counted: Usage | None = None
    tier = ""
    _miscounted = False  # a report of token counts cannot be true, so none is trusted
    _begun = _ended = False
    _had_event = False
    _tokens = 0
    _json: list[bytes] | None = None
    _json_bytes = 0
    _fed_at = 0  # at the end of the body: when its last bytes came
    _at = 0  # the time of the events that are added now
    _out: list[Event]  # the events since the last bytes
    _countable = True  # known events may come as runs, which do not show where reasoning ends

    def __init__(self, operation: Operation = "chat") -> None:
        self.server_timings: dict[str, float] = {}
        self._halves: dict[tuple[Any, ...], str] = {}  # of surrogate pairs: see `repair_json`
        self._choices: set[int] = set()
        self._finished: dict[int, str] = {}
        self._calls = ToolCalls()

    def _decode_whole(self, body: bytes) -> Any:
        """Return the decoded JSON `body`, repaired if necessary; None: the answer is broken."""
        try:
            return self.whole_form.decode(body)
        except (ValueError, RecursionError) as error:
            try:
                return self._decode_oddly(repair_json(body), self.whole_form)
            except (ValueError, RecursionError):
                kind = "malformed" if body.rstrip().endswith(self.json_ends) else "truncated"
                self._break(kind, f"the body is not the JSON of an answer: {error}", body)
                return None

    def _decode_oddly(self, data: bytes, form: msgspec.json.Decoder[T]) -> T:
        """Return what `fitted` does, and note the odd fields."""
        value, odd = fitted(data, form)
        for name in odd:
            self._note_odd(name)
        return value

    @property
    def finished(self) -> bool:
        """Whether each choice that began has its finish reason, and only the end of the body is
        missing."""
        if (
            not self._choices
            or self._ended
            or self._json is not None
            or self._choices - self._finished.keys()
        ):
            return False
        return self._sse.between_events and self._is_whole(marker=False)

    def _read_counts(self, data: Raw | bytes, decode: Callable[[Any], T]) -> T | None:
        """Return a report of token counts; None if there is none or it is invalid."""
        if data in NOTHING:
            return None
        try:
            return decode(data)
        except (ValueError, RecursionError):
            self._note_odd("usage")
            self._add_usage(Usage(self._at, implausible=True))
            return None

    def _add_usage(self, usage: Usage | None) -> None:
        """Add a report of token counts, if it has any; as implausible if it or an earlier one
        cannot be true."""
        if usage is None or (
            usage.input_tokens is None is usage.output_tokens and not usage.implausible
        ):
            return
        if self._miscounted or usage.implausible or contradictory(usage):
            self._miscounted = True
            usage = Usage(usage.at, implausible=True)
        self.counted = usage if self.counted is None else _largest(self.counted, usage)
        self._out.append(usage)

    def _add_finish(self, reason: str | None, data: bytes, index: int = 0) -> None:
        """Add the reason why choice `index` ended, once. A failure breaks the answer, as does an
        unknown reason without content."""
        if not reason or self._finished.get(index) == reason:
            return
        self._finished[index] = reason
        word = meaning(reason)
        if word == FAILURE or not (word or self._tokens):
            error = ProviderError(f"finish_reason is {provider_word(reason, LONGEST_REASON)}")
            self._report_error(error, data)
            return
        if not word:
            self._note_odd("finish_reason")
        self._out.append(Finish(self._at, reason, index))

    def _note_odd(self, name: str) -> None:
        """Note that a field was not as its format says, and did not matter for the answer."""
        if name not in self.odd_fields:
            self.odd_fields = (*self.odd_fields, name)

    def _note_times(self, times: Struct | None) -> None:
        by_name = {} if times is None else structs.asdict(times)
        self.server_timings.update(
            (name, float(value)) for name, value in by_name.items() if value is not None
        )

    def _note_tier(self, word: object) -> None:
        if isinstance(word, str) and word:
            self.tier = provider_word(word, LONGEST_TIER)

    def _complete(self, *, marker: bool) -> None:
        self._ended = True
        self._out.append(Done(self._at, marker))

    def _add_token(self, text: str, kind: TokenKind = "text", tool: ToolPart | None = None) -> None:
        if text:
            self._tokens += 1
            self._out.append(Token(self._at, text, kind, tool=tool))

    def _add_quiet(self, what: str, data: str = "") -> None:
        self._out.append(Quiet(self._at, what, data))

    def _report_error(self, error: ProviderError, data: bytes) -> None:
        self._ended = True
        self._out.append(Broken(self._at, in_band_fault(error, data, phase=self._phase)))

    @property
    def _phase(self) -> Phase:
        return "between tokens" if self._tokens else "first token"

    def _break(self, kind: str, message: str, data: bytes = b"") -> None:
        self._ended = True
        hint = self.html_hint if data.lstrip().startswith(b"<") else ""
        fault = ProviderFault(
            message, kind=kind, phase=self._phase, status=200, excerpt=excerpt(data), hint=hint
        )
        self._out.append(Broken(self._at, fault))

    def feed(self, data: bytes, at: int) -> list[Event]:
        """Return the events that `data` completes, with the time `at`; none after the end."""
        out = self._out = []
        if self._ended:
            return out
        self._at = at
        if not self._begun:
            data = data.lstrip(LEADING)
            if not data:
                return out
            self._begun = True
            if data.startswith(self.json_begins):
                self._json = []
            else:
                self._begin_events()
        if self._json is not None:
            self._json.append(data)
            self._json_bytes += len(data)
            if self._json_bytes > self.max_json_bytes:
                self._break("malformed", f"the body is longer than {self.max_json_bytes:,} bytes")
        else:
            self._feed_events(data)
        return out

    def close(self, at: int) -> list[Event]:
        """Return the last events at the end of the body, with `Done` or `Broken` unless that was
        given before."""
        out = self._out = []
        if self._ended:
            return out
        self._fed_at, self._at = self._at, at
        if self._json is not None:
            body = b"".join(self._json)
            if not self._take_plain(body) and (parsed := self._decode_whole(body)) is not None:
                self._take_whole(parsed, body)
            return out
        if not self._begun:
            self._begin_events()
        cut = self._sse.unfinished
        for event in self._sse.rest():
            word = END_MARK if event.data is None else event.data.strip()
            cut = word != END_MARK and word.startswith(self.event_begins) and not is_json(word)
            if not cut:
                self._at = at if word == END_MARK else self._fed_at
                self._take(event)
        self._at = at
        if not self._ended:
            self._end(cut=cut)
        return out

    def _take_plain(self, body: bytes) -> bool:
        """Take an answer of the most frequent kind, with the result of the general way; return
        False for any other."""
        return False

    def _begin_events(self) -> None:
        self._sse = self.events_of()
        self._texts = TextEvents() if self.learns else TextEvents(MAX_LESSONS)
        self._like = Token(0, "")  # what the known events add
        self._kind: TokenKind = "text"  # of the latest token

    def _feed_events(self, data: bytes) -> None:
        for event in self._texts.events(self._sse, data):
            if isinstance(event, SseEvent):
                self._take(event)
                if self._ended:
                    return
                continue
            self._tokens += len(event)
            like = self._like
            if self.in_runs and self._countable:
                self._out.append(TokenRun(self._at, list(map(len, event))))
            else:
                at = self._at
                self._out += [
                    Token(at, text, like.kind, like.index, tool=like.tool) for text in event
                ]
        if self._sse.overflow:
            self._break("malformed", f"{self.event_name} is longer than {MAX_EVENT_BYTES:,} bytes")

    def feed_texts(self, data: bytes) -> Sequence[int]:
        """Return the characters of each token if `data` is whole known events and `in_runs` is set.

        Otherwise take and return nothing: `feed` takes them.
        """
        if self._ended or not self._begun or self._json is not None:
            return ()
        if not (
            self._texts.current and self.in_runs and self._countable and self._sse.between_events
        ):
            return ()
        if text := self._texts.only(data):  # nearly every read
            lengths = [len(text)]
        else:
            texts, end = self._texts.read(data, 0)
            if end < len(data):
                return ()
            lengths = list(map(len, texts))
        self._tokens += len(lengths)
        return lengths

    def feed_packets(self, packets: Sequence[bytes], times: list[int]) -> TokenRun | None:
        """Return the tokens of consecutive packets that arrived at `times`, if each brought one
        token of text.

        Otherwise take nothing and return None: `feed` takes them one by one.
        """
        if self._ended or not self._begun or self._json is not None:
            return None
        may_run = self.in_runs and self._countable and self._sse.between_events
        texts = self._texts.each(packets) if may_run else None
        if texts is None:
            return None
        self._tokens += len(texts)
        return TokenRun(times[-1], list(map(len, texts)), times)

    def _learn(self, event: SseEvent, data: bytes, token: Event) -> None:
        """Learn from an event that only brought `token`, if that is one like many others."""
        if (
            not isinstance(token, Token)
            or token.kind not in _LEARNED
            or (token.tool and token.tool.name)
        ):
            return
        if token.kind != self._kind:
            self._kind = token.kind
            self._texts.expect_others()
        if token.tokens_so_far is not None or token.logprobs is not None:
            return
        if self._texts.learn(data, event.name, token.text, self._text_of):
            self._like, self._countable = token, token.kind != "reasoning"

    def _text_of(self, data: bytes) -> str | None:
        """Return the text of an event like the one before it, taken a second time, which changes
        only the number of tokens."""
        parsed, out, tokens = read_json(data, self.event_form.decode), self._out, self._tokens
        added = self._out = []
        if parsed is not None:  # else the event before it was repaired
            self._take_event(parsed, "", data)
            self._tokens = tokens
        self._out = out
        return added[0].text if len(added) == 1 and isinstance(added[0], Token) else None

    def _take(self, event: SseEvent) -> None:
        data, out = event.data, self._out
        if data is None:
            self._add_quiet("comment")
        elif event.name and event.name in _NAMED:
            if event.name == "error":
                self._report_error(parse_error(data), data)
            else:
                self._add_quiet("ping")
        elif data == END_MARK and self.done_ends:  # saves the attempt to decode it
            self._end(marker=True)
        else:
            try:
                parsed = self.event_form.decode(data)
            except (ValueError, RecursionError) as error:
                data, parsed = self._repaired(event.name, data, error)
                if parsed is None:
                    return
            before, tokens = len(out), self._tokens
            self._had_event = True
            self._take_event(parsed, event.name, data)
            if len(out) == before:
                self._add_quiet(parsed.type or event.name or "empty")
            elif self._tokens != tokens and len(out) == before + 1:
                self._learn(event, data, out[-1])

    def _repaired(self, name: str, data: bytes, error: Exception) -> tuple[bytes, Any]:
        """Return an event that could not be decoded (`error`), repaired and decoded.

        None: it is no JSON, and an end mark, nothing, or the break of the answer was added.
        """
        word = data.strip()
        if word == END_MARK and self.done_ends:
            self._end(marker=True)
        elif word in (b"", END_MARK):
            self._add_quiet(name or "empty")
        else:
            try:
                repaired = repair_json(data, self._halves)
                return repaired, self._decode_oddly(repaired, self.event_form)
            except (ValueError, RecursionError):
                self._break(
                    "malformed",
                    f"{self.event_name} is not the JSON of an answer: {error}",
                    data,
                )
        return data, None

    def _take_event(self, parsed: Any, name: str, data: bytes) -> None:
        """Take one event of the stream, decoded by `event_form`; `name` is from its ``event:``
        line."""
        raise NotImplementedError

    def _take_whole(self, parsed: Any, body: bytes) -> None:
        """Take a plain JSON answer, decoded by `whole_form`, at the end of the body (`_at`). Its
        tokens arrived with its last byte (`_fed_at`)."""
        raise NotImplementedError

    def _is_whole(self, marker: bool) -> bool:
        """Return whether the stream is complete at its end mark, or else at the end of the body."""
        return False

    def _end(self, *, marker: bool = False, cut: bool = False) -> None:
        """End the stream by its end mark, or with the body; `cut`: inside an event."""
        if not cut and self._is_whole(marker):
            self._complete(marker=marker)
            return
        junk = self._junk
        if self._had_event or (cut and not junk):
            text = "the answer ended " + (
                f"inside {self.event_name}" if cut else f"without {self.end_name}"
            )
            after = f" and {self.marker_name}" if marker else ""
            self._break("truncated", f"{text} after {self._tokens} content events{after}", junk)
        elif junk:
            self._break("malformed", "the body is neither an event stream nor JSON", junk)
        else:
            self._break("empty_answer", "the answer is empty")

    @property
    def _junk(self) -> bytes:
        return b"" if self._json is not None else self._sse.junk


def repair_json(data: bytes, halves: dict[tuple[Any, ...], str] | None = None) -> bytes:
    """Return `data` as JSON for msgspec: U+FFFD for invalid UTF-8, "?" for half a surrogate pair,
    null for NaN and numbers too large to be read.

    `halves`: of an event stream, the first halves of surrogate pairs at the ends of texts, by the
    place of the text, which wait for the next event. Raises `ValueError` or `RecursionError` if a
    lenient reader refuses it too.
    """
    text = data.decode("utf-8", "replace")
    value = json.loads(text, parse_constant=lambda _: None, parse_int=_integer, parse_float=_finite)
    text = json.dumps(value if halves is None else _joined(value, halves, ()), ensure_ascii=False)
    return (
        text.encode("utf-16", "surrogatepass")
        .decode("utf-16", "surrogatepass")
        .encode("utf-8", "replace")
    )


def _joined(value: Any, halves: dict[tuple[Any, ...], str], place: tuple[Any, ...]) -> Any:
    """Return `value` with the halves of surrogate pairs that wait for its texts, and without those
    at their ends."""
    if isinstance(value, str):
        value = halves.pop(place, "") + value
        if value and "\ud800" <= value[-1] <= "\udbff" and len(halves) < MAX_HALVES:
            halves[place], value = value[-1], value[:-1]
        return value
    if isinstance(value, dict):
        return {name: _joined(each, halves, (*place, name)) for name, each in value.items()}
    return (
        [_joined(each, halves, (*place, n)) for n, each in enumerate(value)]
        if isinstance(value, list)
        else value
    )


NEEDED = frozenset((
    "error", "choices", "delta", "message", "content", "text", "tool_calls", "function_call",
    "function", "custom",
    "name", "content_block", "partial_json", "output", "item", "candidates", "parts",
    "functionCall", "inlineData",
    "audio", "images", "image_url", "url", "status", "status_code", "done",
))  # fmt: skip
"""Fields that hold the answer, or an error in its place: they are never left out."""
MAX_ODD, MAX_READ_AGAIN = 32, 32 << 20
"""The most values of one event or answer that are left out, and the most bytes that are therefore
read again."""
MAX_HALVES = 32
"""The most texts in one event that wait for the other half of a surrogate pair."""
_PLACE = re.compile(r" - at `\$([^`]+)`$")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


def fitted(data: bytes, form: msgspec.json.Decoder[T]) -> tuple[T, list[str]]:
    """Return JSON decoded by `form` without the values that do not fit, and the names of their
    fields.

    Raises `ValueError` for a value of a `NEEDED` field, and for data that is no JSON.
    """
    odd: list[str] = []
    value: Any = None
    while True:
        try:
            return form.decode(data), odd
        except msgspec.ValidationError as error:
            steps = _steps_to(error)
            name = next((step for step in reversed(steps) if isinstance(step, str)), "")
            value = holder = value if odd else json.loads(data)
            for step in steps[:-1]:
                holder = holder[step]
            is_null = bool(steps) and holder[steps[-1]] is None
            too_many = len(odd) == MAX_ODD or len(odd) * len(data) > MAX_READ_AGAIN
            if not steps or too_many or (name in NEEDED and not is_null):
                raise
            del holder[steps[-1]]
            odd.append(name)
            data = msgspec.json.encode(value)


def _steps_to(error: msgspec.ValidationError) -> list[str | int]:
    """Return the steps to the value that did not fit; none for the whole."""
    match = _PLACE.search(str(error))
    return [name or int(number) for name, number in _STEP.findall(match[1])] if match else []


def _integer(text: str) -> int | None:
    return int(text) if len(text) <= MAX_DIGITS else None


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def contradictory(usage: Usage) -> bool:
    if not (usage.cached_tokens or usage.cache_write_tokens or usage.reasoning_tokens):
        return False
    part, hidden = (
        (usage.cached_tokens or 0) + (usage.cache_write_tokens or 0),
        usage.reasoning_tokens or 0,
    )
    return part > (usage.input_tokens or 0) or hidden > (usage.output_tokens or 0)


def _largest(one: Usage, other: Usage) -> Usage:
    return Usage(
        other.at,
        max(one.input_tokens or 0, other.input_tokens or 0),
        max(one.output_tokens or 0, other.output_tokens or 0),
        implausible=one.implausible or other.implausible,
    )


def is_json(data: bytes) -> bool:
    try:
        repair_json(data)
    except (ValueError, RecursionError):
        return False
    return True
