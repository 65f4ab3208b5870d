"""`hedge(a, b, extra_load=0.05)`: the second is asked too when the first is later than it usually is.

What it does. The call goes to `a`. If `a` is slower than its own 95th percentile (for ``extra_load=0.05``), `b` gets
the same call; the first to bring a token answers and the other is closed. The percentile is learned live from the
latest calls to `a`, those that were closed before their token included (see `latency`).

What it costs. `extra_load` more requests, and never more: the percentile makes it so on average, a budget makes it so
always, also when `a` has become slow for ever and every call would be hedged. A call deposits `extra_load` of a hedge,
a hedge costs a whole one, and the account begins empty. Together with the retries and second tries of the same
expression it sends no more than the largest of their shares.

That is also why nothing is hedged at first: with 5 % the 20th call is the first to afford a hedge, and 1 / 0.05 = 20
samples are the fewest of which one is expected beyond the percentile. With 1 % it takes 100.

When it helps. On tails that are bad luck: a slow machine, a queue, a lost packet. Dean and Barroso ("The Tail at
Scale", 2013) cut the 99.9th percentile to a twentieth by 2 % more load.

When it hurts. When `a` is slow for everybody (the budget then caps the harm, and the help), on long prompts (their
input is paid twice), and where `b` shares what makes `a` slow. So `b` must be another target than `a`, and not one of
the same provider in the same region, which is refused where the policy is made. Where their regions are not known it is
taken, but then nothing is hedged while `a` is down or at its rate limit, as that may well be `b`'s trouble too.

Nor is hedged while `b` is not well, or its rate limit is used up; and no prompt of 20,000 tokens or more, whose first
token is late for good reason, and whose input is most of what an answer costs.

A failure of `a` before `b` was asked is raised at once: a fast failure is mostly one that `b` would share or that
`fallback` handles, and it must not eat the budget for slowness. After `b` was asked, it is for `b` to answer. Where `a`
is not asked at all because it is down (`standing`), `b` is asked in its place, which costs nothing more; and so it is
where the call was to find out whether `a` is well again, and it is not.

Where it stands. Inside `fallback` and `deadline`. Around `limit`, so that waiting in our own queue counts as slow; and
around `retry`, so that waiting for another try does.
"""

import asyncio
import math
from collections.abc import Sequence

from splitsecond import clock
from splitsecond.errors import CallerFault, Fault, TimedOut
from splitsecond.policy.budget import Budget
from splitsecond.policy.choosing.branch import Branch, branches
from splitsecond.policy.choosing.prompt_size import input_tokens
from splitsecond.policy.contest import Contest
from splitsecond.policy.latency import Latencies
from splitsecond.policy.remedy import only_tried
from splitsecond.policy.settings import share, written
from splitsecond.policy.targets.standing import Standing
from splitsecond.service import Call, Reply, Service

EXTRA_LOAD = 0.05
LONGEST_TOKENS = 20_000
"""Of a prompt that is hedged."""
LEAST_DELAY_NS = 10 * clock.NS_PER_MS
"""Below this a hedge is a race: the difference would be made by our own timers."""
TIMER_NS = clock.NS_PER_MS
"""As fine as the loop's timers are: a token that comes at the percentile itself is not late."""


def hedge(
    first: Service,
    second: Service,
    *,
    extra_load: float = EXTRA_LOAD,
    standing: Standing | None = None,
    names: Sequence[Sequence[str]] = (),
    budget: Budget | None = None,
) -> Service:
    """The service that hedges `first` with `second`. `extra_load`: the share of calls that may be sent twice.

    `budget`: what all policies around draw on for extra requests. Raises `CallerFault` where both are in one place.
    """
    own = Budget(share("extra_load", extra_load), within=budget)
    given, known = branches((first, second), names), standing or Standing()
    if names:
        _check_places(names[0], names[1], known)
    return Hedge(given[0], given[1], extra_load, own, known)


class Hedge:
    """See `hedge`."""

    def __init__(self, first: Branch, second: Branch, extra_load: float, budget: Budget, standing: Standing) -> None:
        self._first = first
        self._second = second
        self._extra_load = extra_load
        self._enough = math.ceil(1 / extra_load)
        self._latencies = Latencies(extra_load)
        self._budget = budget
        self._standing = standing

    def __repr__(self) -> str:
        return written("hedge", (self._first.service, self._second.service), extra_load=self._extra_load)

    async def __call__(self, call: Call) -> Reply:
        self._budget.deposit()
        delay_ns = self._delay_ns()
        async with Contest(call) as contest:
            opening = _Opening(self._timed)
            first = contest.enter(opening)
            await asyncio.wait([first], timeout=None if delay_ns is None else delay_ns / clock.NS_PER_S)
            if opening.was_down or (not first.done() and self._may_help(call) and self._budget.withdraw()):
                contest.enter(self._second.service)
        return contest.reply()

    def _may_help(self, call: Call) -> bool:
        """Whether the second is worth asking beside the first."""
        if not self._second.available(self._standing) or input_tokens(call) >= LONGEST_TOKENS:
            return False
        first, second = self._first, self._second
        return first.available(self._standing) or not _provider(self._standing, [*first.names, *second.names])

    def _delay_ns(self) -> int | None:
        """How long to wait for the first before the second is asked. None: not known well enough to hedge."""
        quantile_ns = self._latencies.quantile_ns()
        if quantile_ns is None or len(self._latencies) < self._enough:
            return None
        return max(quantile_ns + TIMER_NS, LEAST_DELAY_NS)

    async def _timed(self, call: Call) -> Reply:
        """The first branch, with an eye on the clock."""
        began_ns = clock.now_ns()
        try:
            reply = await self._first.service(call)
        except (asyncio.CancelledError, TimedOut):
            self._latencies.add(clock.now_ns() - began_ns, censored=True)
            raise
        if not reply.empty:
            self._latencies.add(clock.now_ns() - began_ns)
        return reply


class _Opening:
    """The first branch, for one call; `was_down`: it was not asked, or has failed again as it was tried out."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.was_down = False

    async def __call__(self, call: Call) -> Reply:
        try:
            return await self._service(call)
        except Fault as fault:
            self.was_down = only_tried(fault)
            raise


def _check_places(first: Sequence[str], second: Sequence[str], standing: Standing) -> None:
    """Raises `CallerFault` where whatever makes the first slow makes the second slow too."""
    names = [*first, *second]
    provider, regions = _provider(standing, names), {standing.facts(name).region for name in names}
    if set(first) == set(second):
        where = f"the same target, {' and '.join(first)}"
    elif provider and len(regions) == 1 and all(regions):
        where = f"{provider} in {regions.pop()}"
    else:
        return
    raise CallerFault(
        f"both branches of hedge are at {where}, and would be slow together",
        kind="bad_policy",
        hint="Name a target of another provider, or in another region.",
    )


def _provider(standing: Standing, names: Sequence[str]) -> str:
    """The provider of all targets with these `names`; "" where they have several, or it is not known."""
    providers = {standing.facts(name).provider for name in names}
    return providers.pop() if len(providers) == 1 else ""
