"""`hedge(a, b, extra_load=0.05)`: the second branch is asked too when the first is slower than
usual."""

import asyncio
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, Fault, TimedOut
from splitsecond.core.service import Call, Reply, Service
from splitsecond.core.timing.survival import SurvivalCurve
from splitsecond.core.upstream.prompt_size import input_tokens
from splitsecond.routing.machinery.budget import ExtraRequestBudget
from splitsecond.routing.machinery.contest import Contest
from splitsecond.routing.machinery.definition import Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.fault_handling import answered, only_probed, unsent
from splitsecond.routing.machinery.settings import Share
from splitsecond.routing.targets.target_states import TargetStates

EXTRA_LOAD = Share.parse("extra_load", 0.05)
LONGEST_TOKENS = 20_000
"""The longest prompt that is hedged."""
MIN_DELAY_NS = 10 * clock.NS_PER_MS
"""With a shorter delay a hedge is a race: the difference would come from our own timers."""
TIMER_NS = clock.NS_PER_MS
"""The resolution of the loop's timers: a token that arrives exactly at the percentile is not
late."""
REMEMBERED = 1000
"""Samples of a `LatencyWindow`. They age by number only: old ones of a rarely used target still
count."""
_REFRESH = 16
"""The plan is made anew when one sample in so many is new."""


class HedgePlan(NamedTuple):
    """After which time a call that has no token is hedged, and with which probability."""

    delay: float
    probability: float


class LatencyWindow:
    """The times to first token of the latest calls, and when to hedge a `share` of calls like
    these.

    Calls that were closed before their first token (a hedge won, the caller left, a deadline
    passed) are censored samples of the survival curve.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._samples: deque[tuple[int, bool]] = deque(maxlen=REMEMBERED)
        self._new = 0
        self._plan: HedgePlan | None = None

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, ns: int, *, censored: bool = False) -> None:
        self._samples.append((ns, censored))
        self._new += 1

    def plan(self) -> HedgePlan | None:
        if self._samples and (self._plan is None or self._new * _REFRESH >= len(self._samples)):
            curve = SurvivalCurve([(ns, censored, 1.0) for ns, censored in self._samples])
            self._plan = hedge_plan(curve, self._share)
            self._new = 0
        return self._plan


def hedge_plan(curve: SurvivalCurve, share: float) -> HedgePlan:
    """Return the plan that hedges at most this `share` of the calls and saves most time with each
    hedge.

    Usually every call is hedged that exceeds the time which a `share` of them exceed. If more calls
    than that are slow, that time is a slow one. An earlier hedge saves more then, with a
    probability that keeps the share (Kaler, He, Elnikety, "Optimal Reissue Policies for Reducing
    Tail Latency", SPAA 2017). It must save more than the median, the time that the second attempt
    is expected to take.
    """
    usual, latest, whole = curve.quantile(0.5), curve.quantile(1 - share), curve.mean(curve.longest)

    def saved(delay: float) -> float:
        waiting = curve.waiting(delay)
        return (whole - curve.mean(delay + usual)) / waiting if waiting > 0 else 0.0

    values = curve.values
    earlier = values[bisect_left(values, usual) : bisect_left(values, latest)]
    best = max(earlier, key=saved, default=latest)
    if saved(best) <= max(saved(latest), usual):
        return HedgePlan(latest, 1.0)
    return HedgePlan(best, min(share / curve.waiting(best), 1.0))


class Hedge(PolicyService):
    def __init__(
        self,
        context: PolicyContext,
        first: Service,
        second: Service,
        *,
        extra_load: Share = EXTRA_LOAD,
    ) -> None:
        super().__init__(context)
        self._first, self._second = context.branches((first, second))
        self._enough = math.ceil(1 / extra_load.value)
        self._latencies = LatencyWindow(extra_load.value)
        self._budget = ExtraRequestBudget(extra_load.value, within=context.budget)
        if context.names:
            _check_places(context.names[0], context.names[1], context.states)

    async def __call__(self, call: Call) -> Reply:
        self._budget.deposit()
        plan = self._plan()
        was_down = False

        async def opening(call: Call) -> Reply:
            nonlocal was_down
            try:
                return await self._timed(call)
            except Fault as fault:
                was_down = only_probed(fault) or unsent(fault)
                raise

        async with Contest(call) as contest:
            first = contest.enter(opening)
            await asyncio.wait(
                [first], timeout=None if plan is None else plan.delay / clock.NS_PER_S
            )
            if was_down or (plan and not first.done() and self._is_hedged(call, plan)):
                contest.enter(self._second.service)
        return contest.reply()

    def _is_hedged(self, call: Call, plan: HedgePlan) -> bool:
        chosen = plan.probability == 1.0 or self._states.chance.random() < plan.probability
        return chosen and self._may_help(call) and self._budget.withdraw()

    def _may_help(self, call: Call) -> bool:
        if not self._second.available(self._states, call) or input_tokens(call) >= LONGEST_TOKENS:
            return False
        first, second = self._first, self._second
        return first.available(self._states, call) or not _provider(
            self._states, [*first.names, *second.names]
        )

    def _plan(self) -> HedgePlan | None:
        plan = self._latencies.plan()
        if plan is None or len(self._latencies) < self._enough:
            return None
        return HedgePlan(max(plan.delay + TIMER_NS, MIN_DELAY_NS), plan.probability)

    async def _timed(self, call: Call) -> Reply:
        began_ns = clock.now_ns()
        try:
            reply = await answered(self._first.service, call)
        except (asyncio.CancelledError, TimedOut):
            self._latencies.add(clock.now_ns() - began_ns, censored=True)
            raise
        self._latencies.add(clock.now_ns() - began_ns)
        return reply


def _check_places(first: Sequence[str], second: Sequence[str], states: TargetStates) -> None:
    names = [*first, *second]
    provider, regions = _provider(states, names), {states.info(name).region for name in names}
    tiers = {states.info(name).tier for name in names}
    if set(first) == set(second):
        where = f"the same target, {' and '.join(first)}"
    elif provider and len(regions) == len(tiers) == 1 and all(regions):
        where = f"{provider} in {regions.pop()}"
    else:
        return
    raise CallerFault(
        f"both branches of hedge are at {where}, and would be slow together",
        kind="bad_policy",
        hint="Name a target of another provider, or in another region.",
    )


def _provider(states: TargetStates, names: Sequence[str]) -> str:
    providers = {states.info(name).provider for name in names}
    return providers.pop() if len(providers) == 1 else ""


hedge = Policy(Hedge, example='hedge("a/x", "b/x", extra_load=0.05)', branches="alternatives")
