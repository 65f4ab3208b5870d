"""What was worked out a moment ago, and still holds.

What is known of targets changes a few times a second (see `samples`); to look it all up again for each of a thousand
calls a second costs more than all else that a policy does.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

from splitsecond import clock

HOLDS_NS = 25 * clock.NS_PER_MS
MOST = 256

T = TypeVar("T")


class Glance(Generic[T]):
    """Values by key, forgotten all together `holds_ns` after the first of them."""

    def __init__(self, holds_ns: int = HOLDS_NS) -> None:
        self._holds_ns = holds_ns
        self._values: dict[Hashable, T] = {}
        self._until_ns = 0

    def get(self, key: Hashable, now_ns: int) -> T | None:
        """The value, if there is one that holds."""
        if now_ns >= self._until_ns or len(self._values) >= MOST:
            self._values.clear()
            self._until_ns = now_ns + self._holds_ns
        return self._values.get(key)

    def put(self, key: Hashable, value: T) -> None:
        """Keep `value`."""
        self._values[key] = value


def about(tokens: int) -> int:
    """`tokens` to three binary digits, at most a quarter less: prompts that are nearly as long are one key."""
    shift = max(tokens.bit_length() - 3, 0)
    return tokens >> shift << shift
