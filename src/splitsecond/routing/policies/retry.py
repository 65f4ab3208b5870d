"""`retry(x, times=2, wait="10s", extra_load=0.1)`: the same target is asked again, a little
later."""

import asyncio
from collections.abc import Sequence

from splitsecond.core import clock
from splitsecond.core.errors import Fault
from splitsecond.core.service import Call, Reply, Service
from splitsecond.routing.machinery.budget import MAX_SAVED, ExtraRequestBudget
from splitsecond.routing.machinery.definition import ExtraLoad, Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.fault_handling import all_failed, remedy, retry_after_ns
from splitsecond.routing.machinery.settings import Count, Duration, Share

TIMES = Count.parse("times", 2)
EXTRA_LOAD = Share.parse("extra_load", 0.1)
FIRST_WAIT_NS = 100 * clock.NS_PER_MS
LONGEST_BACKOFF_NS = 5 * clock.NS_PER_S
TIMER_NS = 2 * clock.NS_PER_MS
"""Timers of an event loop can fire a millisecond early, and until then the target that asked us to
wait is rejected."""
WAIT = Duration.parse("wait", "10s")
"""After a longer wait the caller is better served by the failure itself."""


class Retry(PolicyService):
    """Asks `service` again, up to `times` times.

    `wait`: the longest wait for an attempt. `extra_load`: the share of calls that may be repeated.
    """

    def __init__(
        self,
        context: PolicyContext,
        service: Service,
        *,
        times: Count = TIMES,
        wait: Duration = WAIT,
        extra_load: Share = EXTRA_LOAD,
    ) -> None:
        super().__init__(context)
        self._service = service
        self._times = times.value
        self._longest_ns = wait.ns
        self._chance = context.chance
        self._budget = ExtraRequestBudget(
            extra_load.value, reserve=MAX_SAVED, within=context.budget
        )

    async def __call__(self, call: Call) -> Reply:
        self._budget.deposit()
        causes: list[Fault] = []
        while True:
            try:
                return await self._service(call)
            except Fault as fault:
                causes.append(fault.without_traceback())
                wait_ns = self._wait_ns(call, causes)
                if wait_ns is None:
                    if len(causes) == 1 or remedy(fault) == "change":
                        raise
                    raise all_failed(causes) from None
            await asyncio.sleep(wait_ns / clock.NS_PER_S)

    def _wait_ns(self, call: Call, causes: Sequence[Fault]) -> int | None:
        if len(causes) > self._times or remedy(causes[-1]) not in ("again", "later"):
            return None
        longest_ns = min(FIRST_WAIT_NS << min(len(causes) - 1, 10), LONGEST_BACKOFF_NS)
        wait_ns = round(longest_ns * self._chance.uniform(0.5, 1))
        if asked_ns := retry_after_ns(causes[-1]):
            wait_ns = max(wait_ns, asked_ns + TIMER_NS)
        too_late = call.deadline_ns is not None and clock.now_ns() + wait_ns >= call.deadline_ns
        if too_late or wait_ns > self._longest_ns + TIMER_NS or not self._budget.withdraw():
            return None
        return wait_ns


retry = Policy(
    Retry,
    example='retry("a/x", times=2, wait="10s", extra_load=0.1)',
    extra=ExtraLoad(reserve=MAX_SAVED),
    needs_stream=(),
)
