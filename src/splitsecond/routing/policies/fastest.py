"""`fastest(a, b, ..., by="total", at="mean")`: the branch that will probably be fastest for this
call."""

from collections.abc import Iterator, Sequence
from typing import Literal

from splitsecond.core.service import Call, Reply, Service
from splitsecond.routing.machinery.choosing.branch import (
    UNKNOWN_ODDS,
    Branch,
    Choice,
    ask_in_turn,
    in_order,
)
from splitsecond.routing.machinery.choosing.session_choice import CacheUse, SessionChoice
from splitsecond.routing.machinery.choosing.speed import SpeedRanking
from splitsecond.routing.machinery.definition import Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.settings import Statistic
from splitsecond.routing.policies.race import Race
from splitsecond.routing.targets.target_states import TargetStates

Figure = Literal["total", "ttft", "tps"]
MEAN = Statistic.parse("at", "mean")


class SpeedChoice:
    """`cache`: whether a session stays with its prompt cache where that is faster. The time per
    token has none."""

    def __init__(
        self, policy: str, states: TargetStates, by: Figure, at: Statistic, cache: CacheUse | None
    ) -> None:
        self._policy = policy
        self._states = states
        self._speeds = SpeedRanking(states, by=by, at=at.quantile)
        self._sessions: SessionChoice | None = None
        if cache != "off" and by != "tps":
            self._sessions = SessionChoice(states, policy, by=by, at=at.quantile)

    def choices(self, call: Call, among: Sequence[Branch]) -> Iterator[Choice]:
        available = [branch for branch in among if branch.available(self._states, call)]
        if not available:
            yield from in_order(among, f"{self._policy}, none is available")
            return
        if (
            self._sessions is not None
            and len(available) > 1
            and (session := call.notes.session) is not None
            and (choices := self._sessions.choices(call, session, available)) is not None
        ):
            yield from choices
            return
        odds = UNKNOWN_ODDS if len(available) > 1 else 1.0
        for prospect in self._speeds.ranked(call, available):
            yield prospect.branch, f"{self._policy}: {prospect}", odds, available


class Fastest(PolicyService):
    def __init__(
        self,
        context: PolicyContext,
        first: Service,
        second: Service,
        /,
        *others: Service,
        by: Figure = "total",
        at: Statistic = MEAN,
        cache: CacheUse | None = None,
    ) -> None:
        super().__init__(context)
        self._branches = context.branches((first, second, *others), best=(Race, Fastest))
        self._choice = SpeedChoice("fastest", context.states, by, at, cache)

    async def __call__(self, call: Call) -> Reply:
        return await ask_in_turn(call, self._choice.choices(call, self._branches))


fastest = Policy(
    Fastest, example='fastest("a/x", "b/x", by="total", at="mean")', branches="alternatives"
)
