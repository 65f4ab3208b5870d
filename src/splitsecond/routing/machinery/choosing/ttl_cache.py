"""A cache for values that hold for a few milliseconds.

What is known about targets changes a few times a second (see `samples`). Looking it all up again
for each of a thousand calls a second would cost more than everything else that a policy does.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

from splitsecond.core import clock

TTL_NS = 25 * clock.NS_PER_MS
MAX_ENTRIES = 256

T = TypeVar("T")


class TtlCache(Generic[T]):
    """Values by key. All of them expire together, `ttl_ns` after the first one."""

    def __init__(self, ttl_ns: int = TTL_NS) -> None:
        self._ttl_ns = ttl_ns
        self._values: dict[Hashable, T] = {}
        self._until_ns = 0

    def get(self, key: Hashable, now_ns: int) -> T | None:
        if now_ns >= self._until_ns or len(self._values) >= MAX_ENTRIES:
            self._values.clear()
            self._until_ns = now_ns + self._ttl_ns
        return self._values.get(key)

    def put(self, key: Hashable, value: T) -> None:
        self._values[key] = value


def about(tokens: int) -> int:
    """Round `tokens` down to three binary digits, by at most a quarter, so that similar prompts
    share a key."""
    shift = max(tokens.bit_length() - 3, 0)
    return tokens >> shift << shift
