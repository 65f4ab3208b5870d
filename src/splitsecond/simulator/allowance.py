"""How much a provider with rate limits still serves: a bucket of requests and one of tokens, filled again all the time.

Both are full at first, and hold what may be asked for in a minute; each minute as much flows in again. A request takes
one of the one, and of the other its prompt and all that its answer will be.
"""

import msgspec

from splitsecond.clock import NS_PER_S
from splitsecond.events import RateLimits
from splitsecond.simulator.profile import RateLimitSpec

_MINUTE_NS = 60 * NS_PER_S


class _Bucket(msgspec.Struct):
    """`missing` is what was used of `limit` and had not flowed in again at `at_ns`, times a minute's nanoseconds.

    Without fractions, so that who waits as long as told is served.
    """

    limit: int
    missing: int = 0
    at_ns: int = 0

    def flow(self, now_ns: int) -> None:
        self.missing = max(0, self.missing - (now_ns - self.at_ns) * self.limit)
        self.at_ns = now_ns

    def wait_ns(self, wanted: int) -> int:
        """In how long so much is there; more than it holds is there when it is full."""
        short = self.missing - max(self.limit - wanted, 0) * _MINUTE_NS
        return max(0, -(-short // self.limit))

    def take(self, wanted: int) -> None:
        self.missing = min(self.missing + wanted * _MINUTE_NS, self.limit * _MINUTE_NS)

    def left(self) -> tuple[int, int, int]:
        """How much there is, of how much, and in how long it will be full."""
        return self.limit - -(-self.missing // _MINUTE_NS), self.limit, -(-self.missing // self.limit)


class Short(msgspec.Struct, frozen=True):
    """What a request lacks: `unit` ("requests" or "tokens"), of which there are `limit` a minute, for `wait_ns`."""

    unit: str
    limit: int
    wait_ns: int


class Allowance:
    """What one provider still serves. Times never go back."""

    def __init__(self, spec: RateLimitSpec) -> None:
        limits = {"requests": spec.requests_per_minute, "tokens": spec.tokens_per_minute}
        self._buckets = {unit: _Bucket(limit) for unit, limit in limits.items() if limit is not None}

    def take(self, tokens: int, now_ns: int) -> Short | None:
        """A request with so many tokens takes its part; or nothing, where it lacks what is given back."""
        wanted = {"requests": 1, "tokens": tokens}
        short: Short | None = None
        for unit, bucket in self._buckets.items():
            bucket.flow(now_ns)
            wait_ns = bucket.wait_ns(wanted[unit])
            if wait_ns > (short.wait_ns if short else 0):
                short = Short(unit, bucket.limit, wait_ns)
        if short is None:
            for unit, bucket in self._buckets.items():
                bucket.take(wanted[unit])
        return short

    def state(self) -> RateLimits:
        """How it stands, since the last request."""
        said = {unit: bucket.left() for unit, bucket in self._buckets.items()}
        nothing = (None, None, None)
        return RateLimits(*said.get("requests", nothing), *said.get("tokens", nothing))
