"""Sum of the usage that a provider reports, in any of its places, as one `Usage`.

Usage beside a choice (vLLM's ``continuous_usage_stats``, Mistral, Moonshot, Groq) is for that
choice: the last report of each counts, and they add up. Usage in a chunk without choices is for the
whole answer and takes precedence; but llama.cpp sends one such chunk for each of several choices,
and they add up. Input tokens never add up: all choices have the same prompt.
"""

from itertools import islice

from msgspec import Raw, Struct

from splitsecond.core.events import Usage
from splitsecond.core.validation import read_json
from splitsecond.core.wire.openai.shapes import UsageShape

_GROQ_TIMES = ("queue_time", "prompt_time", "completion_time", "total_time")
_NOT_TIMINGS = frozenset({"created"})
_MAX_TIMINGS, _LONGEST_NAME, _LARGEST_TIMING = 32, 64, 1 << 63


class UsageTally(Struct, eq=False):
    """The last report of each choice, their sum, and that of the reports without a choice. Adding
    one takes constant time."""

    _by_choice: dict[int, Usage] = {}
    _beside: Usage | None = None
    _alone: Usage | None = None

    @property
    def alone_output(self) -> int | None:
        return self._alone.output_tokens if self._alone else None

    def take(self, shape: UsageShape, at: int, index: int) -> Usage | None:
        """Add `shape`, which came beside choice `index`, and return the sum; None if `shape` is
        empty."""
        usage = usage_of(shape, at)
        if usage is None:
            return None
        before = self._by_choice.get(index)
        self._by_choice[index] = usage
        self._beside = usage if len(self._by_choice) == 1 else _sum(self._beside, usage, before)
        return self._alone or self._beside

    def take_alone(self, shape: UsageShape, at: int, *, several: bool) -> Usage | None:
        """Add `shape`, which came in a chunk without choices, and return the sum. `several`: the
        answer has several choices."""
        usage = usage_of(shape, at)
        if usage is not None:
            self._alone = _sum(self._alone, usage) if several else usage
        return usage and self._alone


def _sum(total: Usage | None, usage: Usage, before: Usage | None = None) -> Usage:
    """Return `total` with `usage`, and without `before`, an earlier report that it replaces."""
    if total is None:
        return usage
    before = before or Usage(0)
    return Usage(
        usage.at,
        _most(total.input_tokens, usage.input_tokens),
        _plus(total.output_tokens, usage.output_tokens, before.output_tokens),
        _plus(total.reasoning_tokens, usage.reasoning_tokens, before.reasoning_tokens),
        _most(total.cached_tokens, usage.cached_tokens),
        _most(total.cache_write_tokens, usage.cache_write_tokens),
        _most(total.cache_write_1h_tokens, usage.cache_write_1h_tokens),
    )


def usage_of(shape: UsageShape, at: int) -> Usage | None:
    details, output_details = shape.prompt_tokens_details, shape.completion_tokens_details
    cached = written = reasoning = hour = None
    if details is not None:
        cached, written = details.cached_tokens, details.cache_write_tokens
        if written is None:
            written = details.cache_creation_tokens
        if (lifetimes := details.cache_creation_token_details) is not None:
            hour = min(lifetimes.ephemeral_1h_input_tokens or 0, written or 0) or None
    if cached is None:
        cached = (
            shape.cached_tokens
            if shape.prompt_cache_hit_tokens is None
            else shape.prompt_cache_hit_tokens
        )
    if output_details is not None:
        reasoning = output_details.reasoning_tokens
    output = shape.completion_tokens
    if reasoning and output is not None and _leaves_reasoning_out(shape, output, reasoning):
        output += reasoning
    if shape.prompt_tokens is None and output is None:
        return None
    return Usage(at, shape.prompt_tokens, output, reasoning, cached, written, hour)


def _leaves_reasoning_out(shape: UsageShape, output: int, reasoning: int) -> bool:
    """Return whether ``completion_tokens`` excludes reasoning, as at xAI: the total, or the size,
    shows it."""
    if shape.total_tokens is not None and shape.prompt_tokens is not None:
        return shape.total_tokens == shape.prompt_tokens + output + reasoning
    return reasoning > output


def _most(total: int | None, count: int | None) -> int | None:
    return total if count is None else max(total or 0, count)


def _plus(total: int | None, count: int | None, before: int | None) -> int | None:
    return total if count is None is before else (total or 0) + (count or 0) - (before or 0)


def usage_times(shape: UsageShape) -> dict[str, float]:
    """Return Groq's times, in seconds, which are inside its usage."""
    if shape.queue_time is shape.prompt_time is shape.completion_time is shape.total_time is None:
        return {}
    return {name: value for name in _GROQ_TIMES if (value := getattr(shape, name)) is not None}


def timings_of(timings: Raw) -> dict[str, float]:
    """Return the numbers in llama.cpp's ``timings`` or Cerebras' ``time_info``, at most 32."""
    fields: object = read_json(timings)
    if not isinstance(fields, dict):
        return {}
    return {
        name[:_LONGEST_NAME]: float(value)
        for name, value in islice(fields.items(), _MAX_TIMINGS)
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and name not in _NOT_TIMINGS
        and abs(value) < _LARGEST_TIMING
    }
