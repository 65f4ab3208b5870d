"""Limits of client keys and of teams of keys: requests per minute, US dollars per day and month.

Requests are counted in the minutes of the monotonic clock. The share of the previous minute that a
sliding minute still covers counts too, so no key gets twice its limit around the turn of a minute.
Dollars are counted as attempts end, lost ones included, by the gateway's prices; days and months
are those of UTC. A call of a key that has a team counts for both.

Several workers share a `SharedCounters`, without a lock. A request is counted first, and the count
is taken back if the counts of all workers then exceed the limit. Of two requests that reach two
workers in the same microsecond, at most one gets the last place (possibly neither; then the next
request does).

The cost that a call may reach is reserved while it is in flight (`reservation`). A call is admitted
while anything is left, so the last call of a day can exceed the limit; with several workers, the
last call of each.

Unknown is not free. A call waits until the prices of its targets are known, and what its key and
team have spent before the gateway started; if that takes too long, or a target that costs money has
no price, the call is refused. An answer that is longer than was reserved, because its provider
ignores the request's limit, extends its reservation as it arrives, and ends when its key or team
has nothing left.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from msgspec import structs

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, Fault
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call
from splitsecond.core.wording import counted_as
from splitsecond.gateway.records.fleet_ceilings import NANO, FleetCeilings, Limit
from splitsecond.gateway.records.journal import Journal, Reservation
from splitsecond.gateway.records.limits import (
    RequestLimit,
    SpendingLimit,
    next_period,
    owner,
    spending_limits,
    today,
)
from splitsecond.gateway.records.reservation import Cost, ReservedTokens, estimated, reserved
from splitsecond.gateway.records.shared_counters import SharedCounters, SpendingPeriod
from splitsecond.routing.construction.expression import Expression, targets
from splitsecond.routing.requests.error_response import QUOTA, Headers, LimitReached
from splitsecond.routing.router.settings import ClientKey
from splitsecond.routing.router.target_directory import TargetDirectory

MAX_RESERVED_USD = 1e6
"""Largest reservation of one call, so that the sum of many stays in the range of the shared
counters."""
MINUTE_NS = 60 * clock.NS_PER_S
RESERVED_NS = clock.NS_PER_S
"""Retry-After for a client whose calls in flight have reserved all that is left."""
CEILING_NS = clock.NS_PER_S
"""Retry-After for a client that has used only this gateway's part: the next exchange with the
database raises it."""
UNKNOWN_NS = clock.NS_PER_S
"""Retry-After for a client whose call may have a cost that is not known yet."""
NEVER_REACHED = "the gateway has not reached the database that it shares its limits by"


_CEILINGS: dict[SpendingPeriod, Limit] = {"day": "usd", "month": "usd_per_month"}


class KeyLimits:
    """The limits of all `keys` and their teams. `journal` lists the calls that have a reservation,
    in case this worker dies. `ceilings`: this gateway's part of the limits; None: it is not in a
    fleet. `unknown` returns what the cost of calls to some targets depends on and is not known yet,
    "" for nothing; `learn` waits for it.
    """

    def __init__(
        self,
        keys: Iterable[ClientKey],
        directory: TargetDirectory,
        *,
        counters: SharedCounters | None = None,
        journal: Journal | None = None,
        ceilings: FleetCeilings | None = None,
        unknown: Callable[[Sequence[str]], str] = lambda targets: "",
        learn: Callable[[Sequence[str]], Awaitable[None]] | None = None,
    ) -> None:
        self._directory = directory
        self._ceilings = ceilings
        self._counters = counters or SharedCounters()
        self._journal = journal
        self._unknown = unknown
        self._learn = learn
        self._requests: dict[str, list[RequestLimit]] = {}
        self._spending: dict[str, list[SpendingLimit]] = {}
        self._counted: dict[str, tuple[str, ...]] = {}  # the counters of what a client spends
        for key in keys:
            for bearer in key.bearers:
                if bearer.requests_per_minute is not None:
                    limit = RequestLimit(bearer.counter, owner(bearer), bearer.requests_per_minute)
                    self._requests.setdefault(key.name, []).append(limit)
                self._spending.setdefault(key.name, []).extend(spending_limits(bearer))
            team = () if key.team is None or not key.team.in_usd else (key.team.counter,)
            self._counted[key.name] = key.counter, *team
        self._spending = {name: limits for name, limits in self._spending.items() if limits}

    def carry_over(self, spent_usd: Mapping[str, tuple[float, float]]) -> None:
        """Count what was spent before the counters began, by counter: today, and on the days before
        it in this month. Only the first call counts, so a restarted worker does no harm; of several
        workers, only one may call it."""
        for counter, (usd, earlier_usd) in spent_usd.items():
            self._counters.carry_over(counter, today(), usd, earlier_usd)

    def admit(self, key: ClientKey) -> Headers:
        """Count one request of `key`, and of its team. Return headers with what is left of the
        limit that has least. Raises `LimitReached`."""
        for spending in self._spending.get(key.name, ()):
            self._check_money(spending)
        admitted: dict[str, tuple[int, Headers]] = {}
        try:
            for limit in self._requests.get(key.name, ()):
                admitted[limit.counter] = self._admit_request(limit)
        except LimitReached:
            for counter in admitted:  # the team refuses what the key allows
                self._counters.request(counter, self._minutes_ns() // MINUTE_NS, -1)
            raise
        return min(admitted.values())[1] if admitted else []

    def counts(self, client: str) -> bool:
        return client in self._spending

    async def cost_known(self, client: str, expression: Expression, limited: str = "") -> None:
        """Return when the cost of a call of `client`, served by `expression`, can be computed.
        `limited`: what has the limit, in words; "": the key.

        Raises `LimitReached` if that takes too long, and `CallerFault` for a target whose price
        nobody knows.
        """
        names = list(targets(expression))
        limited = limited or self._spending[client][0].owner
        words = self._unknown(names)
        if words and self._learn is not None:
            await self._learn(names)
            words = self._unknown(names)
        if words:
            raise LimitReached(
                f"{limited} has a limit in USD, and {words} is not known yet",
                kind="cost_unknown",
                retry_after_ns=UNKNOWN_NS,
                hint="Try again in a moment.",
            )
        for name in names:
            if self._directory.price_state(name) == "missing":
                raise CallerFault(
                    f"the price of {name} is not known, and {limited} has a limit in USD",
                    kind="price_unknown",
                    status=403,
                    hint="The gateway's operator can set it: price, in the entry of the provider "
                    "or of its model.",
                )

    def reserve(self, call: Call, route: str, expression: Expression) -> "OpenReservation | None":
        """Reserve the cost that `call` may reach, served by `expression` as `route`.

        None: it costs nothing. Raises `LimitReached` if the key or its team has nothing left.
        """
        for limit in self._spending[call.client]:
            self._check_money(limit)
        usages, cost = self.planned(call, expression)
        usd = min(sum(map(cost, usages)), MAX_RESERVED_USD)
        if not usd:
            return None
        entry = Reservation(
            call=call.id,
            client=call.client,
            team=call.notes.team,
            route=route,
            operation=call.operation,
            stream=call.stream,
            start_ns=call.start_ns,
            usd=usd,
            usages=usages,
        )
        return OpenReservation(self, self._journal, entry, cost)

    def hold(self, client: str, usd: float) -> None:
        """Reserve more for calls of `client`, or less if `usd` is negative."""
        for counter in self._counted[client]:
            self._counters.reserve(counter, usd)

    def planned(
        self, call: Call, expression: Expression
    ) -> tuple[tuple[ReservedTokens, ...], Cost]:
        """Return the tokens that `call` may use, served by `expression`, and what returns the cost
        of such tokens."""
        any_tier = "service_tier" in call.body or "speed" in call.body
        estimate = call.notes.estimate = call.notes.estimate or estimated(call)

        def cost(usage: ReservedTokens) -> float:
            tokens = usage.input_tokens, usage.output_tokens
            for_an_hour = estimate.for_an_hour
            return (
                self._directory.dearest_usd(
                    usage.target, *tokens, any_tier=any_tier, for_an_hour=for_an_hour
                )
                or 0.0
            )

        return reserved(
            call, expression, cost, self._directory.output_tokens, self._directory.context_tokens
        ), cost

    def cost_usd(self, attempt: Observation) -> float:
        """Return the cost of an attempt in US dollars; 0 if it is not known."""
        return self._directory.cost_usd(attempt) or 0.0

    def nothing_left(self, client: str) -> SpendingLimit | None:
        """Return the limit that calls of `client` have reached; None if something is left."""
        for limit in self._spending[client]:
            spent = self.spent_usd(limit.counter, limit.period)
            if spent + self.reserved_usd(limit.counter) >= limit.usd:
                return limit
        return None

    def charge(self, client: str, attempt: Observation) -> None:
        if client in self._spending and (usd := self._directory.cost_usd(attempt)):
            day = today()
            for counter in self._counted[client]:
                self._counters.spend(counter, day, usd)

    def requests_used(self, counter: str) -> float:
        minute, into_ns = divmod(self._minutes_ns(), MINUTE_NS)
        current, previous = self._counters.requests(counter, minute)
        others = 0 if self._ceilings is None else self._ceilings.others("requests", counter)
        return others + current + previous * (1 - into_ns / MINUTE_NS)

    def spent_usd(self, counter: str, period: SpendingPeriod = "day") -> float:
        others = 0.0
        if self._ceilings is not None:
            others = self._ceilings.others(_CEILINGS[period], counter) / NANO
        return others + self._counters.spent_usd(counter, today(), period)

    def reserved_usd(self, counter: str) -> float:
        return self._counters.reserved_usd(counter)

    def _check_money(self, limit: SpendingLimit) -> None:
        spent = self.spent_usd(limit.counter, limit.period)
        if self._ceilings is not None:
            self._check_money_of_fleet(self._ceilings, limit, spent)
        if spent >= limit.usd:
            begins = next_period(limit.period)
            raise LimitReached(
                f"{limit.owner} has spent its {limit.usd:g} USD for {limit.period_words} "
                f"({spent:.4f})",
                kind=QUOTA,
                retry_after_ns=round((begins - clock.wall_time()).total_seconds() * clock.NS_PER_S),
                hint=f"The budget begins again on {begins:%Y-%m-%d} at 00:00 UTC.",
            )
        reserved_usd = self.reserved_usd(limit.counter)
        if spent + reserved_usd >= limit.usd:
            raise LimitReached(
                f"{limit.owner} has {limit.usd:g} USD for {limit.period_words}: {spent:.4f} are "
                f"spent, and its calls in flight may cost {reserved_usd:.4f}",
                kind="rate_limit_exceeded",
                retry_after_ns=RESERVED_NS,
                hint="Wait until some of them have ended.",
            )

    def _check_money_of_fleet(
        self, ceilings: FleetCeilings, limit: SpendingLimit, spent: float
    ) -> None:
        counter, shared = limit.counter, _CEILINGS[limit.period]
        own = self._counters.spent_usd(counter, today(), limit.period) + self.reserved_usd(counter)
        if own * NANO < ceilings.ceiling(shared, counter, clock.now_ns()):
            return
        ceilings.refuse(shared, counter)
        if spent < limit.usd:
            raise LimitReached(
                f"{limit.owner} has {limit.usd:g} USD for {limit.period_words}, and this gateway's "
                f"part of it is used or reserved"
                if ceilings.reached_ns
                else f"{limit.owner} has a limit, and {NEVER_REACHED}",
                kind="rate_limit_exceeded",
                retry_after_ns=CEILING_NS,
                hint="Try again: the gateways divide what is left about once a second.",
            )

    def _minutes_ns(self) -> int:
        return (
            clock.now_ns() if self._ceilings is None else clock.now_ns() + self._ceilings.offset_ns
        )

    def _admit_request(self, request_limit: RequestLimit) -> tuple[int, Headers]:
        """Count a request. Return how many are left, and the headers that say so."""
        name, limit = request_limit.counter, request_limit.requests
        minute, into_ns = divmod(self._minutes_ns(), MINUTE_NS)
        # before the others are read: see the module's docstring
        self._counters.request(name, minute)
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
                f"{request_limit.owner} has a limit, and {NEVER_REACHED}"
                if ceilings is not None and not ceilings.reached_ns
                else f"{request_limit.owner} may make {counted_as(limit, 'request')} per minute",
                kind="rate_limit_exceeded",
                retry_after_ns=wait_ns,
                headers=_headers(limit, 0, wait_ns),
                hint=f"Wait {wait_ns / clock.NS_PER_S:.1f} s.",
            )
        left = max(int(limit - used - others), 0)
        return left, _headers(limit, left, 2 * MINUTE_NS - into_ns)


class OpenReservation:
    """The reservation `entry` of one call in flight. `cost` returns what tokens may cost, in US
    dollars.

    `release` it once, when the call has ended. It holds no call: the notes of its call refer to it.
    """

    def __init__(
        self,
        limits: KeyLimits,
        journal: Journal | None,
        entry: Reservation,
        cost: Cost,
    ) -> None:
        self._limits = limits
        self._journal = journal
        self._entry = entry
        self._cost = cost
        limits.hold(entry.client, entry.usd)
        self._slot = None if journal is None else journal.write(entry)

    def release(self) -> None:
        if self._journal is not None and self._slot is not None:
            self._journal.erase(self._slot)
        self._limits.hold(self._entry.client, -self._entry.usd)

    def extend(self, target: str, output_tokens: int) -> Fault | None:
        """Reserve what so many output tokens of `target` cost, if that is more than what is
        reserved.

        Returns the fault that ends the answer, if nothing of a limit is left then; else None.
        """
        entry = self._entry
        planned = next((each for each in entry.usages if each.target == target), entry.usages[0])
        actual = structs.replace(planned, target=target, output_tokens=output_tokens)
        usd = min(self._cost(actual), MAX_RESERVED_USD)
        if usd <= entry.usd:
            return None
        self._limits.hold(entry.client, usd - entry.usd)
        usages = tuple(actual if each is planned else each for each in entry.usages)
        self._entry = structs.replace(entry, usd=usd, usages=usages)
        if self._journal is not None and self._slot is not None:
            self._journal.rewrite(self._slot, self._entry)
        limit = self._limits.nothing_left(entry.client)
        if limit is None:
            return None
        return CallerFault(
            f"the answer was ended after about {output_tokens:,} tokens, more than were reserved "
            f"for it: {limit.owner} has nothing left of its {limit.usd:g} USD for "
            f"{limit.period_words}",
            kind=QUOTA,
            status=429,
            phase="between tokens",
        )


def _wait_ns(current: int, previous: int, limit: int, into_ns: int) -> int:
    if current + 1 <= limit:
        # the share of the minute that must have passed
        share = 1 - (limit - 1 - current) / previous
        return max(1, round(share * MINUTE_NS) - into_ns)
    share = 1 - (limit - 1) / current
    return MINUTE_NS - into_ns + round(share * MINUTE_NS)


def _headers(limit: int, left: int, reset_ns: int) -> Headers:
    return [
        (b"x-ratelimit-limit-requests", b"%d" % limit),
        (b"x-ratelimit-remaining-requests", b"%d" % left),
        (b"x-ratelimit-reset-requests", b"%.3fs" % (reset_ns / clock.NS_PER_S)),
    ]
