"""Sum of the usage that a provider reports, in any of its places, as one `Usage`.

Providers differ in three ways. Usage beside a choice (vLLM's ``continuous_usage_stats``, Mistral, Moonshot, Groq) is
for that choice: the last report of each choice counts, and the choices add up. Usage in a chunk without choices is for
the whole answer and takes precedence. But llama.cpp sends one such chunk for each of several choices; then they add up.
All choices have the same prompt, so input tokens never add up.
"""

from itertools import islice

from msgspec import Raw, Struct, field

from splitsecond.core.events import Usage
from splitsecond.core.validation import read_json
from splitsecond.core.wire.openai.shapes import UsageShape

_GROQ_TIMES = ("queue_time", "prompt_time", "completion_time", "total_time")
_NOT_TIMINGS = frozenset({"created"})
_MAX_TIMINGS, _LONGEST_NAME, _LARGEST_TIMING = 32, 64, 1 << 63


class _Total(Struct, eq=False):
    """Sum of usage reports; `usage` is None before the first. Adding one takes constant time, because a provider may
    send any number of them."""

    usage: Usage | None = None
    parts: int = 0

    def add(self, usage: Usage, before: Usage | None = None) -> Usage:
        """Add `usage` and subtract `before`, an earlier report that it replaces. Return the sum."""
        self.parts += before is None
        total = self.usage
        if total is not None and self.parts > 1:
            usage = Usage(
                usage.at,
                _most(total.input_tokens, usage.input_tokens),
                _plus(total.output_tokens, usage.output_tokens, before.output_tokens if before else None),
                _plus(total.reasoning_tokens, usage.reasoning_tokens, before.reasoning_tokens if before else None),
                _most(total.cached_tokens, usage.cached_tokens),
                _most(total.cache_write_tokens, usage.cache_write_tokens),
                _most(total.cache_write_1h_tokens, usage.cache_write_1h_tokens),
            )
        self.usage = usage
        return usage


class UsageTally(Struct, eq=False):
    _by_choice: dict[int, Usage] = {}
    _beside: _Total = field(default_factory=_Total)
    _alone: _Total = field(default_factory=_Total)

    @property
    def alone_output(self) -> int | None:
        return self._alone.usage.output_tokens if self._alone.usage else None

    def take(self, shape: UsageShape, at: int, index: int) -> Usage | None:
        """Add `shape`, which came beside choice `index`, and return the sum; None if `shape` is empty."""
        usage = usage_of(shape, at)
        if usage is None:
            return None
        total = self._beside.add(usage, self._by_choice.get(index))
        self._by_choice[index] = usage
        return self._alone.usage or total

    def take_alone(self, shape: UsageShape, at: int, *, several: bool) -> Usage | None:
        """Add `shape`, which came in a chunk without choices, and return the sum. `several`: the answer has several
        choices."""
        usage = usage_of(shape, at)
        if usage is None:
            return None
        if not several:
            self._alone = _Total()
        return self._alone.add(usage)


def usage_of(shape: UsageShape, at: int) -> Usage | None:
    details, output_details = shape.prompt_tokens_details, shape.completion_tokens_details
    cached = written = reasoning = hour = None
    if details is not None:
        cached, written = details.cached_tokens, details.cache_write_tokens
        if written is None:
            written = details.cache_creation_tokens
        if (kept := details.cache_creation_token_details) is not None:
            hour = min(kept.ephemeral_1h_input_tokens or 0, written or 0) or None
    if cached is None:
        cached = shape.cached_tokens if shape.prompt_cache_hit_tokens is None else shape.prompt_cache_hit_tokens
    if output_details is not None:
        reasoning = output_details.reasoning_tokens
    output = shape.completion_tokens
    if reasoning and output is not None and _leaves_reasoning_out(shape, output, reasoning):
        output += reasoning
    if shape.prompt_tokens is None and output is None:
        return None
    return Usage(at, shape.prompt_tokens, output, reasoning, cached, written, hour)


def _leaves_reasoning_out(shape: UsageShape, output: int, reasoning: int) -> bool:
    """Return whether ``completion_tokens`` excludes reasoning, as at xAI: the total, or the size, shows it."""
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
