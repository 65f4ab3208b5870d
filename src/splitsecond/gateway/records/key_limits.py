"""Limits of client keys: requests per minute and US dollars per day.

Requests are counted in the minutes of the monotonic clock. The share of the previous minute that a sliding minute still
covers counts too, so no key gets twice its limit around the turn of a minute. Dollars are counted as attempts end, lost
ones included, by the gateway's prices; a day is a day in UTC. Refused requests do not count.

Several workers share a `SharedCounters`, without a lock. A request is counted first, and the count is taken back if the
counts of all workers then exceed the limit. Of two requests that reach two workers in the same microsecond, at most one
gets the last place (possibly neither; then the next request does).

The cost that a call may reach is reserved while it is in flight (`reservation`). It is charged as its attempts end, and
then the reservation is released. If the worker dies first, the reservation is charged (`orphans`). A call is admitted
while anything is left, so the last call of a day can exceed the limit; with several workers, the last call of each.

In a fleet of gateways (`shared` in the configuration) the use of this gateway is compared with its ceiling
(`fleet_ceilings`) instead of the limit, and minutes begin with those of the database's clock.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from splitsecond import clock
from splitsecond.analysis.wording import counted_as
from splitsecond.gateway.error_response import QUOTA, Headers, LimitReached
from splitsecond.gateway.records.fleet_ceilings import NANO, FleetCeilings
from splitsecond.gateway.records.journal import Journal, Reservation
from splitsecond.gateway.records.reservation import ReservedTokens, reserved
from splitsecond.gateway.records.shared_counters import SharedCounters
from splitsecond.observation import Observation
from splitsecond.policies.expression import Expression
from splitsecond.router.settings import ClientKey
from splitsecond.service import Call

MOST_RESERVED_USD = 1e6
"""Largest reservation of one call, so that the sum of many stays in the range of the shared counters."""
MINUTE_NS = 60 * clock.NS_PER_S
DAY_S = 24 * 3600
RESERVED_NS = clock.NS_PER_S
"""Retry-After for a client whose calls in flight have reserved all that is left."""
CEILING_NS = clock.NS_PER_S
"""Retry-After for a client that has used only this gateway's part: the next exchange with the database raises it."""
NEVER_REACHED = "the gateway has not reached the database that it shares its limits by"

Price = Callable[[Observation], float | None]
"""Returns the cost of an attempt in US dollars; None if it is not known, and then it counts as 0."""


class KeyLimits:
    """The limits of all `keys`. `counters`: shared by all workers; None: this process counts alone.

    `journal` lists the calls that have a reservation, in case this worker dies. `most_output` returns the maximum
    output of a target's model in tokens, None if it is not known. `ceilings`: this gateway's part of the limits; None:
    it is not in a fleet.
    """

    def __init__(
        self,
        keys: Iterable[ClientKey],
        price: Price,
        *,
        counters: SharedCounters | None = None,
        journal: Journal | None = None,
        most_output: Callable[[str], int | None] = lambda target: None,
        ceilings: FleetCeilings | None = None,
    ) -> None:
        self._price = price
        self._ceilings = ceilings
        self._counters = counters or SharedCounters()
        self._journal = journal
        self._most_output = most_output
        self._limited = frozenset(key.name for key in keys if key.usd_per_day is not None)

    def carry_over(self, spent_usd: Mapping[str, float]) -> None:
        """Count what clients spent today before the counters began. Only the first call counts, so a restarted worker
        does no harm; of several workers, only one may call it."""
        for client, usd in spent_usd.items():
            self._counters.carry_over(client, today(), usd)

    def admit(self, key: ClientKey) -> Headers:
        """Count one request of `key`. Return headers with what is left. Raises `LimitReached`."""
        if key.usd_per_day is not None:
            self._check_money(key.name, key.usd_per_day)
        limit = key.requests_per_minute
        return [] if limit is None else self._admit_request(key.name, limit)

    def counts(self, client: str) -> bool:
        """Return whether `client` has a spending limit."""
        return client in self._limited

    def reserve(self, call: Call, route: str, expression: Expression) -> Callable[[], None] | None:
        """Reserve the cost that `call` may reach, served by `expression` as `route`.

        Returns a function that releases the reservation, to be called once; None if no price is known.
        """
        usages = reserved(call, expression, partial(self._usage_usd, call), self._most_output)
        usd = min(sum(self._usage_usd(call, each) for each in usages), MOST_RESERVED_USD)
        if not usd:
            return None
        self._counters.reserve(call.client, usd)
        slot = None
        if self._journal is not None:
            slot = self._journal.write(
                Reservation(
                    call=call.id,
                    client=call.client,
                    route=route,
                    operation=call.operation,
                    stream=call.stream,
                    start_ns=call.start_ns,
                    usd=usd,
                    usages=usages,
                )
            )
        return partial(self._release, call.client, usd, slot)

    def _usage_usd(self, call: Call, usage: ReservedTokens) -> float:
        attempt = Observation(
            id=call.id,
            call=call.id,
            target=usage.target,
            sent_ns=0,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
        )
        return self._price(attempt) or 0.0

    def _release(self, client: str, usd: float, slot: int | None) -> None:
        if self._journal is not None and slot is not None:
            self._journal.erase(slot)
        self._counters.reserve(client, -usd)

    def charge(self, client: str, attempt: Observation) -> None:
        """Charge the cost of `attempt` to `client`."""
        if client in self._limited and (usd := self._price(attempt)):
            self._counters.spend(client, today(), usd)

    def requests_used(self, client: str) -> float:
        """Return the requests of `client` in the last minute, in all workers of the fleet."""
        minute, into_ns = divmod(self._minutes_ns(), MINUTE_NS)
        current, previous = self._counters.requests(client, minute)
        others = 0 if self._ceilings is None else self._ceilings.others("requests", client)
        return others + current + previous * (1 - into_ns / MINUTE_NS)

    def spent_usd(self, client: str) -> float:
        """Return what `client` spent today in all workers of the fleet, in US dollars; 0 for a key without a limit."""
        others = 0.0 if self._ceilings is None else self._ceilings.others("usd", client) / NANO
        return others + self._counters.spent_usd(client, today())

    def reserved_usd(self, client: str) -> float:
        """Return what is reserved for the calls of `client` in flight, in all workers, in US dollars."""
        return self._counters.reserved_usd(client)

    def _check_money(self, name: str, limit: float) -> None:
        spent = self.spent_usd(name)
        if self._ceilings is not None:
            self._check_money_of_fleet(self._ceilings, name, limit, spent)
        if spent >= limit:
            raise LimitReached(
                f"the key {name!r} has spent its {limit:g} USD for today ({spent:.4f})",
                kind=QUOTA,
                retry_after_ns=DAY_S * clock.NS_PER_S - _since_midnight_ns(),
                hint="The limit is reset at midnight UTC.",
            )
        reserved_usd = self.reserved_usd(name)
        if spent + reserved_usd >= limit:
            raise LimitReached(
                f"the key {name!r} has {limit:g} USD for today: {spent:.4f} are spent, and its calls in flight may "
                f"cost {reserved_usd:.4f}",
                kind="rate_limit_exceeded",
                retry_after_ns=RESERVED_NS,
                hint="Wait until some of them have ended.",
            )

    def _check_money_of_fleet(self, ceilings: FleetCeilings, name: str, limit: float, spent: float) -> None:
        own = self._counters.spent_usd(name, today()) + self.reserved_usd(name)
        if own * NANO < ceilings.ceiling("usd", name, clock.now_ns()):
            return
        ceilings.refuse("usd", name)
        if spent < limit:
            raise LimitReached(
                f"the key {name!r} has {limit:g} USD for today, and this gateway's part of it is used or reserved"
                if ceilings.reached_ns
                else f"the key {name!r} has a limit, and {NEVER_REACHED}",
                kind="rate_limit_exceeded",
                retry_after_ns=CEILING_NS,
                hint="Try again: the gateways divide what is left about once a second.",
            )

    def _minutes_ns(self) -> int:
        """Return the time whose minutes are counted."""
        return clock.now_ns() if self._ceilings is None else clock.now_ns() + self._ceilings.offset_ns

    def _admit_request(self, name: str, limit: int) -> Headers:
        minute, into_ns = divmod(self._minutes_ns(), MINUTE_NS)
        self._counters.request(name, minute)  # before the others are read: see the module's docstring
        current, previous = self._counters.requests(name, minute)
        used = current + previous * (1 - into_ns / MINUTE_NS)
        others, most = 0, limit
        if (ceilings := self._ceilings) is not None:
            others = ceilings.others("requests", name)
            most = min(limit, ceilings.ceiling("requests", name, clock.now_ns()))
        if used > most:
            self._counters.request(name, minute, -1)
            wait_ns = CEILING_NS
            if ceilings is not None:
                ceilings.refuse("requests", name)
            if ceilings is None or (used - 1 + others >= limit and current - 1 + previous > 0):
                wait_ns = _wait_ns(current - 1, previous, max(most, 1), into_ns)
            raise LimitReached(
                f"the key {name!r} has a limit, and {NEVER_REACHED}"
                if ceilings is not None and not ceilings.reached_ns
                else f"the key {name!r} may make {counted_as(limit, 'request')} per minute",
                kind="rate_limit_exceeded",
                retry_after_ns=wait_ns,
                headers=_headers(limit, 0, wait_ns),
                hint=f"Wait {wait_ns / clock.NS_PER_S:.1f} s.",
            )
        return _headers(limit, max(int(limit - used - others), 0), 2 * MINUTE_NS - into_ns)


def today() -> int:
    """Return the number of the day in UTC, from 1970."""
    return int(clock.wall_time().timestamp()) // DAY_S


def _since_midnight_ns() -> int:
    return round(clock.wall_time().timestamp() % DAY_S * clock.NS_PER_S)


def _wait_ns(current: int, previous: int, limit: int, into_ns: int) -> int:
    """Return the time until one more request is allowed, if no other is made before."""
    if current + 1 <= limit:
        share = 1 - (limit - 1 - current) / previous  # the share of the minute that must have passed
        return max(1, round(share * MINUTE_NS) - into_ns)
    share = 1 - (limit - 1) / current
    return MINUTE_NS - into_ns + round(share * MINUTE_NS)


def _headers(limit: int, left: int, reset_ns: int) -> Headers:
    """Return the headers in OpenAI's form. The reset is the time until the whole limit is free again."""
    return [
        (b"x-ratelimit-limit-requests", b"%d" % limit),
        (b"x-ratelimit-remaining-requests", b"%d" % left),
        (b"x-ratelimit-reset-requests", b"%.3fs" % (reset_ns / clock.NS_PER_S)),
    ]
