"""Processing times of the simulated provider, at the end of an answer in OpenAI's format.

Providers of this format have three forms in the last chunk of a stream, or in the whole answer.
Groq: inside the usage, in seconds (in a stream in ``x_groq``, requested or not). Cerebras: in
``time_info``, in seconds. llama.cpp: in ``timings``, in milliseconds, also per token.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.events import Usage
from splitsecond.core.wire.api_format import ServerAnswer, ServerTimes, TimesForm
from splitsecond.core.wire.openai.answers import StreamWriter, usage_fields
from splitsecond.core.wire.sse import encode_event

_GROQ_TIER = {"service_tier": "on_demand"}
"""Groq names the tier in whole answers and usage chunks. LiteLLM's client for Groq requires it in
whole answers."""


class TimedWriter(StreamWriter):
    _times: tuple[ServerTimes, TimesForm] | None = None

    def report_times(self, times: ServerTimes, form: TimesForm | None) -> None:
        self._times = None if form is None else (times, form)

    def end(
        self,
        reason: str,
        usage: Usage,
        *,
        choices: int = 1,
        counts: bool = True,
        marker: bool = True,
    ) -> bytes:
        if self._times is None:
            return super().end(reason, usage, choices=choices, counts=counts, marker=marker)
        *others, finish = [self.finish(reason, index) for index in range(choices)]
        end = _end_with_times(finish, self.usage(usage) if counts else b"", usage, *self._times)
        return b"".join(others) + end + (self.done() if marker else b"")

    def whole(self, answers: Sequence[ServerAnswer], usage: Usage) -> bytes:
        body = super().whole(answers, usage)
        return body if self._times is None else _whole_with_times(body, usage, *self._times)


def _whole_with_times(body: bytes, usage: Usage, times: ServerTimes, form: TimesForm) -> bytes:
    fields: dict[str, Any] = msgspec.json.decode(body)
    if form == "groq":
        fields["usage"] |= _groq_times(times)
        fields |= _GROQ_TIER
    else:
        fields |= _fields(form, usage, times)
    return msgspec.json.encode(fields)


def _end_with_times(
    finish: bytes, counts: bytes, usage: Usage, times: ServerTimes, form: TimesForm
) -> bytes:
    """Return the event with a finish reason and the usage chunk, or b"", with the server times."""
    if form == "groq":
        groq = {"x_groq": {"usage": usage_fields(usage) | _groq_times(times)}}
        return _event_with(finish, groq) + (
            _event_with(counts, groq | _GROQ_TIER) if counts else b""
        )
    if not counts:
        return _event_with(finish, _fields(form, usage, times))
    return finish + _event_with(counts, _fields(form, usage, times))


def _event_with(event: bytes, more: dict[str, Any]) -> bytes:
    fields: dict[str, Any] = msgspec.json.decode(event.removeprefix(b"data: "))
    return encode_event(msgspec.json.encode({**fields, **more}))


def _groq_times(times: ServerTimes) -> dict[str, float]:
    return {
        "queue_time": times.queue_ns / NS_PER_S,
        "prompt_time": times.prompt_ns / NS_PER_S,
        "completion_time": times.output_ns / NS_PER_S,
        "total_time": times.total_ns / NS_PER_S,
    }


def _fields(form: TimesForm, usage: Usage, times: ServerTimes) -> dict[str, Any]:
    if form == "cerebras":
        return {"time_info": _groq_times(times)}
    cached = usage.cached_tokens or 0
    read = _paced("prompt", (usage.input_tokens or 0) - cached, times.prompt_ns)
    return {
        "timings": {
            "cache_n": cached,
            **read,
            **_paced("predicted", usage.output_tokens or 0, times.output_ns),
        }
    }


def _paced(what: str, tokens: int, took_ns: int) -> dict[str, float]:
    """Return the fields for `tokens` in `took_ns`; rates are 0 if they are undefined."""
    in_ms = took_ns / NS_PER_MS
    return {
        f"{what}_n": tokens,
        f"{what}_ms": in_ms,
        f"{what}_per_token_ms": in_ms / tokens if tokens else 0.0,
        f"{what}_per_second": tokens * NS_PER_S / took_ns if took_ns else 0.0,
    }
