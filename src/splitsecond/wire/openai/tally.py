"""The provider's own counts, wherever it puts them, as one `Usage`.

Three habits have to be told apart. Usage beside a choice (vLLM's ``continuous_usage_stats``, Mistral, Moonshot, Groq)
is that choice's own: the last one for each choice counts, and the choices add up. Usage in a chunk without choices is
the whole answer's and wins over those. But llama.cpp sends one such chunk for each choice of an answer with several;
then they add up. The prompt is the same for all choices, so input tokens never add up.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from splitsecond.events import Usage
from splitsecond.wire.openai.shapes import UsageShape

_GROQ_TIMES = ("queue_time", "prompt_time", "completion_time", "total_time")
_NOT_TIMINGS = frozenset({"created"})


class UsageTally(Struct, eq=False):
    """Usage as it comes in, and what it amounts to so far."""

    _by_choice: dict[int, Usage] = {}
    _alone: list[Usage] = []

    @property
    def alone_output(self) -> int | None:
        """Output tokens by the chunks that hold usage alone; None before the first of them."""
        return _sum(usage.output_tokens for usage in self._alone)

    def take(self, shape: UsageShape, at: int, index: int) -> Usage | None:
        """What the usage amounts to with `shape`, which came beside choice `index`. None: `shape` says nothing."""
        usage = _usage_of(shape, at)
        if usage is None:
            return None
        self._by_choice[index] = usage
        return self._total(at) if self._alone or len(self._by_choice) > 1 else usage

    def take_alone(self, shape: UsageShape, at: int, *, several: bool) -> Usage | None:
        """The same for a `shape` in a chunk without choices. `several`: the answer has several choices."""
        usage = _usage_of(shape, at)
        if usage is None:
            return None
        self._alone = [*self._alone, usage] if several else [usage]
        return self._total(at)

    def _total(self, at: int) -> Usage:
        usages = self._alone or list(self._by_choice.values())
        if len(usages) == 1:
            return usages[0]
        return Usage(
            at,
            max((u.input_tokens for u in usages if u.input_tokens is not None), default=None),
            _sum(u.output_tokens for u in usages),
            _sum(u.reasoning_tokens for u in usages),
            max((u.cached_tokens for u in usages if u.cached_tokens is not None), default=None),
            max((u.cache_write_tokens for u in usages if u.cache_write_tokens is not None), default=None),
        )


def _usage_of(shape: UsageShape, at: int) -> Usage | None:
    details, output_details = shape.prompt_tokens_details, shape.completion_tokens_details
    cached = written = reasoning = None
    if details is not None:
        cached, written = details.cached_tokens, details.cache_write_tokens
    if cached is None:
        cached = shape.cached_tokens if shape.prompt_cache_hit_tokens is None else shape.prompt_cache_hit_tokens
    if output_details is not None:
        reasoning = output_details.reasoning_tokens
    output = shape.completion_tokens
    if reasoning and output is not None and _leaves_reasoning_out(shape, output, reasoning):
        output += reasoning
    if shape.prompt_tokens is None and output is None:
        return None
    return Usage(at, shape.prompt_tokens, output, reasoning, cached, written)


def _leaves_reasoning_out(shape: UsageShape, output: int, reasoning: int) -> bool:
    """Whether ``completion_tokens`` does not include reasoning, as at xAI: the total, or the size, gives it away."""
    if shape.total_tokens is not None and shape.prompt_tokens is not None:
        return shape.total_tokens == shape.prompt_tokens + output + reasoning
    return reasoning > output


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def usage_times(shape: UsageShape) -> dict[str, float]:
    """The times, in seconds, that Groq keeps inside its usage."""
    if shape.queue_time is shape.prompt_time is shape.completion_time is shape.total_time is None:
        return {}
    return {name: value for name in _GROQ_TIMES if (value := getattr(shape, name)) is not None}


def timings_of(fields: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among llama.cpp's ``timings`` or Cerebras' ``time_info``."""
    return {
        name: float(value)
        for name, value in fields.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in _NOT_TIMINGS
    }
