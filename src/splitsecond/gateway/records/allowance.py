"""What a key may use: requests in a minute, US dollars in a day.

Requests are counted in the minutes of the monotonic clock; of the minute before, the share counts that a window of one
minute still reaches back to, so that nobody gets twice the limit around the turn of a minute. Dollars are counted as
attempts end, those that lost a race included, by the price that the owner of the gateway gives; a day is one in UTC.
What is refused counts for nothing.

Several workers share a `Tally`, without a lock. A request is counted first, and taken back where the counts of all
workers are beyond the limit then: so of two that come to two workers in the same microsecond at most one gets the last
place (it may be neither; then the next one does).

What a call may cost is set aside while it is under way: its prompt, and the longest answer that it allows or else a
usual one, at the dearest of its targets whose price is known. It is charged as its attempts end, and then what was set
aside is given back. A call is let in as long as anything is left, so the last one of a day's allowance can cost more
than that; and where workers look at it in the same microsecond, the last one of each.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from splitsecond import clock
from splitsecond.gateway.configuration.settings import ClientKey
from splitsecond.gateway.records.tally import Tally
from splitsecond.gateway.refusal import QUOTA, Headers, LimitReached
from splitsecond.policy.choosing.prompt_size import input_tokens, longest_output
from splitsecond.service import Call
from splitsecond.timing.observation import Observation

MINUTE_NS = 60 * clock.NS_PER_S
DAY_S = 24 * 3600
HELD_NS = clock.NS_PER_S
"""After how long a client may come again where its own calls hold all that is left."""

Price = Callable[[Observation], float | None]
"""What an attempt cost, in US dollars. None: not known; then it counts as nothing."""


class Allowance:
    """Of all `keys`. `tally`: what workers share; None: this process counts alone."""

    def __init__(self, keys: Iterable[ClientKey], price: Price, *, tally: Tally | None = None) -> None:
        self._price = price
        self._tally = tally or Tally()
        self._counted = frozenset(key.name for key in keys if key.usd_per_day is not None)

    def carry_over(self, spent_usd: Mapping[str, float]) -> None:
        """Counts what was spent today before the tally began, by client. Only the first time counts, so that a worker
        which is started again does no harm; and of several workers only one may."""
        for client, usd in spent_usd.items():
            self._tally.carry_over(client, today(), usd)

    def admit(self, key: ClientKey) -> Headers:
        """Counts one request of `key`. Returns the headers that say what is left; raises `LimitReached`."""
        if key.usd_per_day is not None:
            self._check_money(key.name, key.usd_per_day)
        limit = key.requests_per_minute
        return [] if limit is None else self._admit_request(key.name, limit)

    def counts(self, client: str) -> bool:
        """Whether what `client` spends is counted."""
        return client in self._counted

    def reserve(self, call: Call, targets: Iterable[str]) -> Callable[[], None] | None:
        """Sets aside what `call` may cost at one of `targets`. Returns what gives that back, to be called once."""
        tokens_in, tokens_out = input_tokens(call), longest_output(call)
        usd = 0.0
        for target in targets:
            attempt = Observation(
                id=call.id, call=call.id, target=target, sent_ns=0, input_tokens=tokens_in, output_tokens=tokens_out
            )
            usd = max(usd, self._price(attempt) or 0.0)
        if not usd:
            return None
        self._tally.hold(call.client, usd)
        return partial(self._tally.hold, call.client, -usd)

    def charge(self, client: str, attempt: Observation) -> None:
        """Counts what `attempt` cost `client`."""
        if client in self._counted and (usd := self._price(attempt)):
            self._tally.spend(client, today(), usd)

    def requests_used(self, client: str) -> float:
        """Of its requests in a minute, those that the last one still holds, in all workers."""
        minute, into_ns = divmod(clock.now_ns(), MINUTE_NS)
        current, previous = self._tally.requests(client, minute)
        return current + previous * (1 - into_ns / MINUTE_NS)

    def spent_usd(self, client: str) -> float:
        """What `client` has spent today, in all workers. 0 for a key without a limit, which nobody counts."""
        return self._tally.spent_usd(client, today())

    def held_usd(self, client: str) -> float:
        """What is set aside for calls of `client` that are under way, in all workers."""
        return self._tally.held_usd(client)

    def _check_money(self, name: str, limit: float) -> None:
        spent = self.spent_usd(name)
        if spent >= limit:
            raise LimitReached(
                f"the key {name!r} has spent its {limit:g} USD of today ({spent:.4f})",
                kind=QUOTA,
                retry_after_ns=DAY_S * clock.NS_PER_S - _since_midnight_ns(),
                hint="It may go on at midnight UTC.",
            )
        held = self.held_usd(name)
        if spent + held >= limit:
            raise LimitReached(
                f"the key {name!r} has {limit:g} USD for today: {spent:.4f} are spent, and its calls under way may "
                f"cost {held:.4f}",
                kind="rate_limit_exceeded",
                retry_after_ns=HELD_NS,
                hint="Wait until some of them have ended.",
            )

    def _admit_request(self, name: str, limit: int) -> Headers:
        minute, into_ns = divmod(clock.now_ns(), MINUTE_NS)
        self._tally.request(name, minute)  # before the look at the others: see the file
        current, previous = self._tally.requests(name, minute)
        used = current + previous * (1 - into_ns / MINUTE_NS)
        if used > limit:
            self._tally.request(name, minute, -1)
            wait_ns = _wait_ns(current - 1, previous, limit, into_ns)
            raise LimitReached(
                f"the key {name!r} may make {limit} requests a minute",
                kind="rate_limit_exceeded",
                retry_after_ns=wait_ns,
                headers=_said(limit, 0, wait_ns),
                hint=f"Wait {wait_ns / clock.NS_PER_S:.1f} s.",
            )
        return _said(limit, int(limit - used), 2 * MINUTE_NS - into_ns)


def today() -> int:
    """The day, in UTC, counted from 1970."""
    return int(clock.wall_time().timestamp()) // DAY_S


def _since_midnight_ns() -> int:
    return round(clock.wall_time().timestamp() % DAY_S * clock.NS_PER_S)


def _wait_ns(current: int, previous: int, limit: int, into_ns: int) -> int:
    """How long until one more request fits, if none comes in between."""
    if current + 1 <= limit:
        share = 1 - (limit - 1 - current) / previous  # of the minute that must have passed
        return max(1, round(share * MINUTE_NS) - into_ns)
    share = 1 - (limit - 1) / current
    return MINUTE_NS - into_ns + round(share * MINUTE_NS)


def _said(limit: int, left: int, reset_ns: int) -> Headers:
    """The headers in OpenAI's form. The reset is when all of the limit is there again, if nothing more is asked."""
    return [
        (b"x-ratelimit-limit-requests", b"%d" % limit),
        (b"x-ratelimit-remaining-requests", b"%d" % left),
        (b"x-ratelimit-reset-requests", b"%.3fs" % (reset_ns / clock.NS_PER_S)),
    ]
