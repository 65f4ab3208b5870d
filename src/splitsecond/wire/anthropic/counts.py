"""Anthropic's counts as `events.Usage`.

Anthropic counts input in three parts, which add up: ``input_tokens`` (neither read from the cache nor written to it),
``cache_creation_input_tokens`` and ``cache_read_input_tokens``. ``output_tokens`` includes thinking, of which newer
models say how much (``output_tokens_details.thinking_tokens``).

In a stream the counts come twice or more, each time those of the whole message so far. What a later event leaves out,
or says 0 of, stays as it was: the counts never go down. The first event, ``message_start``, has all of the input, but
its ``output_tokens`` is a placeholder of a few tokens, which is left out.
"""

from splitsecond.events import Usage
from splitsecond.wire.anthropic.shapes import UsageShape


class Counts:
    """Counts as they come in, and what they amount to so far."""

    def __init__(self) -> None:
        self._fresh: int | None = None
        self._written: int | None = None
        self._read: int | None = None
        self._output: int | None = None
        self._thinking: int | None = None

    def take(self, shape: UsageShape, at: int, *, opening: bool = False) -> Usage | None:
        """What the counts amount to with `shape`; `opening`: it came with ``message_start``. None: nothing is known."""
        self._fresh = _later(self._fresh, shape.input_tokens)
        self._written = _later(self._written, shape.cache_creation_input_tokens)
        self._read = _later(self._read, shape.cache_read_input_tokens)
        if not opening:
            self._output = _later(self._output, shape.output_tokens)
        if shape.output_tokens_details is not None:
            self._thinking = _later(self._thinking, shape.output_tokens_details.thinking_tokens)
        input_tokens = (self._fresh or 0) + (self._written or 0) + (self._read or 0) or None  # no prompt has none
        if input_tokens is None and self._output is None:
            return None
        return Usage(at, input_tokens, self._output, self._thinking, self._read, self._written)


def _later(before: int | None, now: int | None) -> int | None:
    return now if now or before is None else before
