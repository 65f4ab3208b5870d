"""How much of its rate limit a target has left, so that traffic leaves before the refusal and not because of it.

A provider says with each answer how much is left (`events.RateLimits`). That was so when the answer began; what we have
sent since is taken off, each request as one, and as many tokens as requests have lately used. What was said last by the
request that was sent last counts. After the reset nothing is known, and nothing is held against the target.
"""

from splitsecond.clock import NS_PER_S
from splitsecond.events import RateLimits

UNSAID_RESET_NS = 10 * NS_PER_S
"""Azure says what is left and not until when; it counts requests over 10 seconds at most."""
LONGEST_NS = 3600 * NS_PER_S
_SMOOTHING = 8


class Quota:
    """Of one target."""

    __slots__ = ("_number", "_requests_ns", "_tokens_each", "_tokens_ns", "said")

    def __init__(self) -> None:
        self.said = RateLimits()
        """What the provider said last."""
        self._number = 0
        self._requests_ns = self._tokens_ns = 0
        self._tokens_each = 0.0

    def told(self, limits: RateLimits, at_ns: int, number: int) -> None:
        """The answer to our request `number` (they ascend as they are sent) began at `at_ns`, and said this."""
        if number < self._number:
            return
        self.said, self._number = limits, number
        self._requests_ns = at_ns + _within(limits.requests_reset_ns)
        self._tokens_ns = at_ns + _within(limits.tokens_reset_ns)

    def used(self, tokens: int) -> None:
        """A request used so many tokens, of input and output."""
        self._tokens_each += (tokens - self._tokens_each) / (_SMOOTHING if self._tokens_each else 1)

    def left(self, now_ns: int, number: int) -> tuple[int | None, int | None]:
        """The requests and the tokens that are left after request `number` was sent. None: not known, or enough."""
        since = number - self._number
        requests = self.said.requests_left if now_ns < self._requests_ns else None
        tokens = self.said.tokens_left if now_ns < self._tokens_ns else None
        return (
            None if requests is None else max(requests - since, 0),
            None if tokens is None else max(tokens - round(since * self._tokens_each), 0),
        )

    def short_until_ns(self, now_ns: int, number: int) -> int:
        """Until when one more request, after `number`, would be one too many. 0: it is not."""
        requests, tokens = self.left(now_ns, number)
        return max(
            self._requests_ns if requests is not None and requests < 1 else 0,
            self._tokens_ns if tokens is not None and tokens < max(self._tokens_each, 1) else 0,
        )


def _within(reset_ns: int | None) -> int:
    return UNSAID_RESET_NS if reset_ns is None else min(reset_ns, LONGEST_NS)
