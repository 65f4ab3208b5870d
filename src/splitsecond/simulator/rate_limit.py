"""The rate limits of a simulated provider: one token bucket for requests and one for tokens.

A request takes one from the first, and from the second its prompt and its whole response. The
headers of a response report both, in the two forms that `core/wire/rate_limits` reads.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from splitsecond.core.clock import NS_PER_MS, NS_PER_S, NS_PER_US
from splitsecond.core.events import RateLimits
from splitsecond.simulator.profile import RateLimitSpec

Headers = list[tuple[bytes, bytes]]
_MINUTE_NS = 60 * NS_PER_S


class _Bucket(msgspec.Struct):
    """A token bucket of `limit` a minute. `missing` is what was used and not yet refilled at
    `at_ns`, in minute-ns.

    Integers only, so that a client that waits exactly the reported time is served.
    """

    limit: int
    missing: int = 0
    at_ns: int = 0

    def refill(self, now_ns: int) -> None:
        self.missing = max(0, self.missing - (now_ns - self.at_ns) * self.limit)
        self.at_ns = now_ns

    def wait_ns(self, amount: int) -> int:
        short = self.missing - max(self.limit - amount, 0) * _MINUTE_NS
        return max(0, -(-short // self.limit))

    def take(self, amount: int) -> None:
        self.missing = min(self.missing + amount * _MINUTE_NS, self.limit * _MINUTE_NS)

    def state(self) -> tuple[int, int, int]:
        return (
            self.limit - -(-self.missing // _MINUTE_NS),
            self.limit,
            -(-self.missing // self.limit),
        )


class LimitExceeded(msgspec.Struct, frozen=True):
    unit: str
    limit: int
    wait_ns: int


class SimulatedRateLimit:
    def __init__(self, spec: RateLimitSpec) -> None:
        limits = {"requests": spec.requests_per_minute, "tokens": spec.tokens_per_minute}
        self._buckets = {
            unit: _Bucket(limit) for unit, limit in limits.items() if limit is not None
        }

    def take(self, tokens: int, now_ns: int) -> LimitExceeded | None:
        amounts = {"requests": 1, "tokens": tokens}
        exceeded: LimitExceeded | None = None
        for unit, bucket in self._buckets.items():
            bucket.refill(now_ns)
            wait_ns = bucket.wait_ns(amounts[unit])
            if wait_ns > (exceeded.wait_ns if exceeded else 0):
                exceeded = LimitExceeded(unit, bucket.limit, wait_ns)
        if exceeded is None:
            for unit, bucket in self._buckets.items():
                bucket.take(amounts[unit])
        return exceeded

    def state(self) -> RateLimits:
        states = {unit: bucket.state() for unit, bucket in self._buckets.items()}
        none = (None, None, None)
        return RateLimits(*states.get("requests", none), *states.get("tokens", none))


def openai_limits(limits: RateLimits, now: datetime) -> Headers:
    """Return the headers of OpenAI: a reset is a duration (``120ms``, ``6m0s``)."""
    return _headers(limits, "x-ratelimit-{what}-{unit}", _duration_text)


def anthropic_limits(limits: RateLimits, now: datetime) -> Headers:
    """Return the headers of Anthropic: a reset is a moment in whole seconds, relative to `now`, in
    UTC."""
    return _headers(
        limits, "anthropic-ratelimit-{unit}-{what}", lambda reset_ns: _moment_text(now, reset_ns)
    )


def _headers(limits: RateLimits, name: str, reset: Callable[[int], str]) -> Headers:
    both = (
        ("requests", limits.requests_left, limits.requests_limit, limits.requests_reset_ns),
        ("tokens", limits.tokens_left, limits.tokens_limit, limits.tokens_reset_ns),
    )
    return [
        (name.format(unit=unit, what=what).encode(), value.encode())
        for unit, left, limit, reset_ns in both
        if left is not None
        for what, value in (
            ("limit", f"{limit}"),
            ("remaining", f"{left}"),
            ("reset", reset(reset_ns or 0)),
        )
    ]


def _duration_text(ns: int) -> str:
    if ns < NS_PER_S:
        return f"{-(-ns // NS_PER_MS)}ms"
    seconds = -(-ns // NS_PER_MS) / 1000
    minutes = int(seconds // 60)
    rest = f"{seconds - 60 * minutes:.3f}".rstrip("0").rstrip(".")
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _moment_text(now: datetime, ns: int) -> str:
    then = now + timedelta(microseconds=ns // NS_PER_US)
    if then.microsecond:
        then = then.replace(microsecond=0) + timedelta(seconds=1)
    return then.strftime("%Y-%m-%dT%H:%M:%SZ")
