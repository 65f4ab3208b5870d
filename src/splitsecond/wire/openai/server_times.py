"""The server role, writing: what some OpenAI-compatible providers say at the end of an answer of where its time went.

Each has a form of its own, and the last chunk of a stream, or the whole answer, holds it: Groq inside the usage, in
seconds (a stream has that in ``x_groq``, asked for or not); Cerebras in ``time_info``, in seconds; llama.cpp in
``timings``, in milliseconds, with what they come to per token.
"""

from typing import Any, Literal

import msgspec

from splitsecond.clock import NS_PER_MS, NS_PER_S
from splitsecond.events import Usage
from splitsecond.wire.openai.answers import usage_fields
from splitsecond.wire.server_times import Took
from splitsecond.wire.sse import encode_event

TimesForm = Literal["groq", "cerebras", "llama.cpp"]


def whole_with_times(form: TimesForm, body: bytes, usage: Usage, took: Took) -> bytes:
    """A whole answer that says it, too."""
    fields: dict[str, Any] = msgspec.json.decode(body)
    if form == "groq":
        fields["usage"] |= _groq_times(took)
    else:
        fields |= _fields(form, usage, took)
    return msgspec.json.encode(fields)


def end_with_times(form: TimesForm, finish: bytes, counts: bytes, usage: Usage, took: Took) -> bytes:
    """The end of a stream that says it, too: out of the event with the reason, and that with the counts (or none)."""
    if form == "groq":
        groq = {"x_groq": {"usage": usage_fields(usage) | _groq_times(took)}}
        return _event_with(finish, groq) + (_event_with(counts, groq) if counts else b"")
    if not counts:
        return _event_with(finish, _fields(form, usage, took))
    return finish + _event_with(counts, _fields(form, usage, took))


def _event_with(event: bytes, more: dict[str, Any]) -> bytes:
    fields: dict[str, Any] = msgspec.json.decode(event.removeprefix(b"data: "))
    return encode_event(msgspec.json.encode({**fields, **more}))


def _groq_times(took: Took) -> dict[str, float]:
    return {
        "queue_time": took.queue_ns / NS_PER_S,
        "prompt_time": took.prompt_ns / NS_PER_S,
        "completion_time": took.output_ns / NS_PER_S,
        "total_time": took.total_ns / NS_PER_S,
    }


def _fields(form: TimesForm, usage: Usage, took: Took) -> dict[str, Any]:
    if form == "cerebras":
        return {"time_info": _groq_times(took)}
    cached = usage.cached_tokens or 0
    read = _paced("prompt", (usage.input_tokens or 0) - cached, took.prompt_ns)
    return {"timings": {"cache_n": cached, **read, **_paced("predicted", usage.output_tokens or 0, took.output_ns)}}


def _paced(what: str, tokens: int, took_ns: int) -> dict[str, float]:
    """So many tokens in so long; a pace only where there is one."""
    in_ms = took_ns / NS_PER_MS
    return {
        f"{what}_n": tokens,
        f"{what}_ms": in_ms,
        f"{what}_per_token_ms": in_ms / tokens if tokens else 0.0,
        f"{what}_per_second": tokens * NS_PER_S / took_ns if took_ns else 0.0,
    }
