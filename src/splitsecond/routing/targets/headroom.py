"""Remaining part of a target's rate limit, so that traffic moves away before requests are refused.

A provider reports the rest with each answer (`events.RateLimits`), as it was when the answer began.
Each request sent since then counts as one request and as many tokens as requests have used lately.
The report in the answer to the request that was sent last counts.

Other workers of a fleet use the same key. The latest report to any of them counts here, too, and
what they have sent since then is estimated from the rate at which they send (`others_per_s`).
"""

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.events import RateLimits

UNKNOWN_RESET_NS = 10 * NS_PER_S
"""Azure reports what is left but not when it resets; it counts requests over 10 seconds at most."""
LONGEST_NS = 3600 * NS_PER_S
MIN_NEWER_NS = NS_PER_S // 2
"""By how much the report of another worker must be newer: its time is known to a few hundred
milliseconds only."""
_SMOOTHING = 8


class RateLimitHeadroom:
    __slots__ = (
        "_number",
        "_requests_ns",
        "_tokens_each",
        "_tokens_ns",
        "at_ns",
        "limits",
        "others_per_s",
        "own",
    )

    def __init__(self) -> None:
        self.limits = RateLimits()
        """The provider's latest report."""
        self.at_ns = 0
        """When that answer began."""
        self.own: tuple[RateLimits, int] | None = None
        """The latest report to this worker, and when that answer began."""
        self.others_per_s = 0.0
        """Requests per second that other workers send with the same key."""
        self._number = 0
        self._requests_ns = self._tokens_ns = 0
        self._tokens_each = 0.0

    def observe(self, limits: RateLimits, at_ns: int, number: int) -> None:
        if number < self._number:
            return
        self.own = limits, at_ns
        self._take(limits, at_ns, number)

    def receive(self, limits: RateLimits, at_ns: int, number: int) -> None:
        if at_ns - self.at_ns > MIN_NEWER_NS:
            self._take(limits, at_ns, max(number, self._number))

    def record_tokens(self, tokens: int) -> None:
        self._tokens_each += (tokens - self._tokens_each) / (_SMOOTHING if self._tokens_each else 1)

    def remaining(self, now_ns: int, number: int) -> tuple[int | None, int | None]:
        since = (
            number - self._number + int(self.others_per_s * max(now_ns - self.at_ns, 0) / NS_PER_S)
        )
        requests = self.limits.requests_left if now_ns < self._requests_ns else None
        tokens = self.limits.tokens_left if now_ns < self._tokens_ns else None
        return (
            None if requests is None else max(requests - since, 0),
            None if tokens is None else max(tokens - round(since * self._tokens_each), 0),
        )

    def exhausted_until_ns(self, now_ns: int, number: int) -> int:
        requests, tokens = self.remaining(now_ns, number)
        return max(
            self._requests_ns if requests is not None and requests < 1 else 0,
            self._tokens_ns if tokens is not None and tokens < max(self._tokens_each, 1) else 0,
        )

    def _take(self, limits: RateLimits, at_ns: int, number: int) -> None:
        self.limits, self.at_ns, self._number = limits, at_ns, number
        self._requests_ns = at_ns + _reset_within(limits.requests_reset_ns)
        self._tokens_ns = at_ns + _reset_within(limits.tokens_reset_ns)


def _reset_within(reset_ns: int | None) -> int:
    return UNKNOWN_RESET_NS if reset_ns is None else min(reset_ns, LONGEST_NS)
