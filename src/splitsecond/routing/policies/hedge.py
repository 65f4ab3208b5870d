"""`hedge(a, b, extra_load=0.05)`: the second branch is asked too when the first is slower than usual."""

import asyncio
import math
from collections import deque
from collections.abc import Sequence

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
"""The resolution of the loop's timers: a token that arrives exactly at the percentile is not late."""
REMEMBERED = 1000
"""Samples of a `LatencyWindow`. They age by number only: old ones of a rarely used target still count."""
_REFRESH = 16
"""A quantile is updated when one sample in so many is new."""


class LatencyWindow:
    """The times to first token of the latest calls, and the quantile that a `share` of them exceed.

    Calls that were closed before their first token (a hedge won, the caller left, a deadline passed) are censored
    samples; the quantile is that of their survival curve. If so many are censored that the quantile exceeds every wait
    that was observed, it is the longest wait: a lower bound.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._samples: deque[tuple[int, bool]] = deque(maxlen=REMEMBERED)
        self._new = 0
        self._quantile_ns: int | None = None

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, ns: int, *, censored: bool = False) -> None:
        self._samples.append((ns, censored))
        self._new += 1

    def quantile_ns(self) -> int | None:
        if self._samples and (self._quantile_ns is None or self._new * _REFRESH >= len(self._samples)):
            curve = SurvivalCurve([(ns, censored, 1.0) for ns, censored in self._samples])
            self._quantile_ns = int(curve.quantile(1 - self._share))
            self._new = 0
        return self._quantile_ns


class Hedge(PolicyService):
    def __init__(
        self, context: PolicyContext, first: Service, second: Service, *, extra_load: Share = EXTRA_LOAD
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
        delay_ns = self._delay_ns()
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
            await asyncio.wait([first], timeout=None if delay_ns is None else delay_ns / clock.NS_PER_S)
            if was_down or (not first.done() and self._may_help(call) and self._budget.withdraw()):
                contest.enter(self._second.service)
        return contest.reply()

    def _may_help(self, call: Call) -> bool:
        if not self._second.available(self._states, call) or input_tokens(call) >= LONGEST_TOKENS:
            return False
        first, second = self._first, self._second
        return first.available(self._states, call) or not _provider(self._states, [*first.names, *second.names])

    def _delay_ns(self) -> int | None:
        quantile_ns = self._latencies.quantile_ns()
        if quantile_ns is None or len(self._latencies) < self._enough:
            return None
        return max(quantile_ns + TIMER_NS, MIN_DELAY_NS)

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
