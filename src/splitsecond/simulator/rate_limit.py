"""The rate limits of a simulated provider: one token bucket for requests and one for tokens.

A request takes one from the first, and from the second its prompt and its whole response.
"""

import msgspec

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.events import RateLimits
from splitsecond.simulator.profile import RateLimitSpec

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
