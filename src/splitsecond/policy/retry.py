"""`retry(x, times=2, extra_load=0.1)`: the same target is asked again, a little later.

What it does. After a failure that may pass (a broken connection, 408, 429, 5xx, an error inside a 200, our own limit)
it waits and asks again, at most `times` times. It waits 100 ms, then 200, 400, … up to 5 s, each between half and all
of that by chance, so that those who failed together do not come back together; and never less than Retry-After says.
When the failure cannot pass, the tries or the budget are used up, or the wait would be longer than the deadline allows
(or than 10 s), the failure is raised: as `AllFailed` with all of them, where there were several. A target that stays
silent is not asked twice.

What it costs. `extra_load` more requests, and 10. A number of tries alone is no limit: when a provider is down, two
retries are three times the load. The 10 are there because a budget that begins empty would not retry the first failure
of a service that is rarely used. Together with the hedges and second tries of the same expression it sends no more
than the largest of their shares.

When it helps. With a single target, or where another one would give a different answer.

When it hurts. Where there is a second target: `fallback` goes there at once instead of waiting, and tries once more
itself where that helps without waiting.

Where it stands. Close to a target, inside `fallback`, `race`, `hedge` and `deadline`. Around `limit`, so that nobody
holds a place while waiting to try again.
"""

import asyncio
from collections.abc import Sequence
from random import Random

from splitsecond import clock
from splitsecond.errors import Fault
from splitsecond.policy.budget import MOST_SAVED, Budget
from splitsecond.policy.remedy import all_failed, remedy, retry_after_ns
from splitsecond.policy.settings import count, share, written
from splitsecond.service import Call, Reply, Service

EXTRA_LOAD = 0.1
FIRST_WAIT_NS = 100 * clock.NS_PER_MS
LONGEST_BACKOFF_NS = 5 * clock.NS_PER_S
LONGEST_WAIT_NS = 10 * clock.NS_PER_S
"""A caller who is told to come back later than this does better to hear it."""


def retry(
    service: Service,
    *,
    times: int = 2,
    extra_load: float = EXTRA_LOAD,
    budget: Budget | None = None,
    chance: Random | None = None,
) -> Service:
    """`service`, asked again up to `times` times. `extra_load`: the share of calls that may be. `chance`: for tests.

    `budget`: what all policies around draw on for extra requests.
    """
    own = Budget(share("extra_load", extra_load), reserve=MOST_SAVED, within=budget)
    return Retry(service, count("times", times), extra_load, own, chance or Random())


class Retry:
    """See `retry`."""

    def __init__(self, service: Service, times: int, extra_load: float, budget: Budget, chance: Random) -> None:
        self._service = service
        self._times = times
        self._extra_load = extra_load
        self._chance = chance
        self._budget = budget

    def __repr__(self) -> str:
        return written("retry", [self._service], times=self._times, extra_load=self._extra_load)

    async def __call__(self, call: Call) -> Reply:
        self._budget.deposit()
        causes: list[Fault] = []
        while True:
            try:
                return await self._service(call)
            except Fault as fault:
                causes.append(fault.kept())
                wait_ns = self._wait_ns(call, causes)
                if wait_ns is None:
                    if len(causes) == 1 or remedy(fault) == "change":
                        raise
                    raise all_failed(causes) from None
            await asyncio.sleep(wait_ns / clock.NS_PER_S)

    def _wait_ns(self, call: Call, causes: Sequence[Fault]) -> int | None:
        """How long to wait before the next try. None: there is none."""
        if len(causes) > self._times or remedy(causes[-1]) not in ("again", "later"):
            return None
        longest_ns = min(FIRST_WAIT_NS << min(len(causes) - 1, 10), LONGEST_BACKOFF_NS)
        wait_ns = max(round(longest_ns * self._chance.uniform(0.5, 1)), retry_after_ns(causes[-1]))
        too_late = call.deadline_ns is not None and clock.now_ns() + wait_ns >= call.deadline_ns
        if too_late or wait_ns > LONGEST_WAIT_NS or not self._budget.withdraw():
            return None
        return wait_ns
