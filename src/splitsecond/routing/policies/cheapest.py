"""`cheapest(a, b, ..., within="voice")`: the cheapest branch that is fast enough."""

from collections.abc import Iterator, Sequence
from math import inf

from splitsecond.core import clock
from splitsecond.core.service import Call, Reply, Service
from splitsecond.core.upstream.prompt_size import input_tokens, output_tokens
from splitsecond.routing.machinery.choosing.branch import (
    UNKNOWN_ODDS,
    Branch,
    Choice,
    ask_in_turn,
    in_order,
)
from splitsecond.routing.machinery.choosing.exploration import Exploration
from splitsecond.routing.machinery.choosing.session_choice import CacheUse, SessionChoice
from splitsecond.routing.machinery.choosing.speed import SpeedRanking
from splitsecond.routing.machinery.choosing.ttl_cache import TtlCache, about
from splitsecond.routing.machinery.definition import Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.settings import Duration, UseCase
from splitsecond.routing.policies.race import Race

AT = 0.95
"""The quantile that a limit is compared with."""


class PricedBranch:
    """`fast`: it keeps the limit, None if its speed is unknown. `age_ns`: of its latest sample."""

    __slots__ = ("age_ns", "branch", "cost", "fast")

    def __init__(self, branch: Branch, cost: float, fast: bool | None, age_ns: float) -> None:
        self.branch = branch
        self.cost = cost
        self.fast = fast
        self.age_ns = age_ns

    def __str__(self) -> str:
        return f"{self.branch.label}, " + (
            "no price" if self.cost == inf else f"{self.cost:.2g} USD"
        )


class Cheapest(PolicyService):
    def __init__(
        self,
        context: PolicyContext,
        first: Service,
        second: Service,
        /,
        *others: Service,
        within: UseCase | None = None,
        ttft: Duration | None = None,
        cache: CacheUse | None = None,
    ) -> None:
        super().__init__(context)
        self._branches = context.branches((first, second, *others), best=(Race,))
        self._limit_ns = min(within.ttft_ns if within else inf, ttft.ns if ttft else inf)
        self._speeds = SpeedRanking(context.states, by="ttft", at=AT)
        self._exploring = Exploration()
        self._lately: TtlCache[list[PricedBranch]] = TtlCache()
        self._sessions = (
            SessionChoice(context.states, "cheapest", by="usd") if cache != "off" else None
        )

    async def __call__(self, call: Call) -> Reply:
        return await ask_in_turn(call, self._choices(call))

    def _choices(self, call: Call) -> Iterator[Choice]:
        available = [branch for branch in self._branches if branch.available(self._states, call)]
        if not available:
            yield from in_order(self._branches, "cheapest, none is available")
            return
        now_ns = clock.now_ns()
        if self._limit_ns == inf and len(available) > 1:
            of_session = self._of_session(call, available)
            if of_session is not None:
                yield from of_session
                return
        offers = self._offers(call, available, now_ns)
        if self._limit_ns == inf:
            for offer in offers:
                yield offer.branch, f"cheapest: {offer}", 1.0, available
        else:
            yield from self._within_limit(call, offers, available, now_ns)

    def _within_limit(
        self, call: Call, offers: Sequence[PricedBranch], available: Sequence[Branch], now_ns: int
    ) -> Iterator[Choice]:
        unknown = [offer for offer in offers if offer.fast is None]
        fast = [offer for offer in offers if offer.fast]
        possible = [*fast, *unknown]
        if not possible:
            for prospect in self._speeds.ranked(call, available):
                why = f"cheapest, none is fast enough: {prospect}"
                yield prospect.branch, why, UNKNOWN_ODDS, available
            return
        of_session = self._of_session(call, [offer.branch for offer in possible])
        if of_session is not None:
            yield from of_session
            return
        explored = self._explored(offers, fast, now_ns)
        for offer in explored:
            yield offer.branch, f"cheapest: {offer}, explored", UNKNOWN_ODDS, available
        for offer in possible:
            if offer not in explored:
                yield offer.branch, f"cheapest: {offer}", UNKNOWN_ODDS, available

    def _of_session(self, call: Call, among: Sequence[Branch]) -> Iterator[Choice] | None:
        session = call.notes.session
        if self._sessions is None or session is None:
            return None
        return self._sessions.choices(call, session, among)

    def _explored(
        self, offers: Sequence[PricedBranch], fast: Sequence[PricedBranch], now_ns: int
    ) -> list[PricedBranch]:
        self._exploring.record_call()
        cheaper = offers[: offers.index(fast[0])] if fast else []
        turn = self._exploring.pick(((offer.branch, offer.age_ns) for offer in cheaper), now_ns)
        return [offer for offer in cheaper if offer.branch is turn]

    def _offers(self, call: Call, among: Sequence[Branch], now_ns: int) -> Sequence[PricedBranch]:
        tokens_in = about(input_tokens(call))
        tokens_out = output_tokens(call, self._speeds.typical_output_tokens(call, among, now_ns))
        key = call.stream, tokens_in, tokens_out, *among
        offers = self._lately.get(key, now_ns)
        if offers is None:
            offers = [
                self._offer(branch, tokens_in, tokens_out, stream=call.stream) for branch in among
            ]
            offers.sort(key=lambda offer: offer.cost)
            self._lately.put(key, offers)
        return offers

    def _offer(
        self, branch: Branch, tokens_in: int, tokens_out: int, *, stream: bool
    ) -> PricedBranch:
        estimates = branch.estimates(self._states, stream=stream)
        cost = branch.cost_usd(self._states, tokens_in, tokens_out)
        verdicts = [
            (not keeps, each.age_ns)
            for each in estimates
            if (keeps := each.keeps(self._limit_ns, AT, input_tokens=tokens_in)) is not None
        ]
        too_slow, age_ns = min(verdicts, default=(None, inf))
        return PricedBranch(
            branch,
            inf if cost is None else cost,
            None if too_slow is None else not too_slow,
            age_ns,
        )


cheapest = Policy(
    Cheapest, example='cheapest("a/x", "b/x", within="voice")', branches="alternatives"
)
