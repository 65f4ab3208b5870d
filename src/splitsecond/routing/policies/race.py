"""`race(a, b, ...)`: all branches are asked at once, and the first one with a token answers."""

from collections.abc import Sequence
from typing import Literal

from splitsecond.core import clock
from splitsecond.core.service import Call, Reply, Service
from splitsecond.core.upstream.prompt_size import input_tokens, output_tokens
from splitsecond.routing.machinery.choosing.branch import (
    Branch,
    ask_in_turn,
    in_order,
    usual_output_tokens,
)
from splitsecond.routing.machinery.completion_race import CompletionRace
from splitsecond.routing.machinery.contest import Contest
from splitsecond.routing.machinery.definition import Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.settings import SpendingRate

RaceFigure = Literal["ttft", "total"]
SAVED_S = 600
"""The most seconds' worth of money that an account saves, so that a quiet night does not pay for a
storm."""


class SpendingAccount:
    """Money that arrives at a constant rate. In any `t` seconds at most ``(t + SAVED_S) ×
    usd_per_s`` are spent.

    The account begins full.
    """

    def __init__(self, usd_per_s: float) -> None:
        self._usd_per_ns = usd_per_s / clock.NS_PER_S
        self._most = self._saved = SAVED_S * usd_per_s
        self._at_ns: int | None = None

    def withdraw(self, usd: float, now_ns: int) -> bool:
        passed_ns = 0 if self._at_ns is None else now_ns - self._at_ns
        self._at_ns = now_ns
        self._saved = min(self._saved + passed_ns * self._usd_per_ns, self._most)
        if usd > self._saved:
            return False
        self._saved -= usd
        return True

    def __repr__(self) -> str:
        return f"<SpendingAccount {self._saved:.4f} of {self._most:.4f} USD>"


class Race(PolicyService):
    """Asks all branches at once.

    `by`: what wins, the first token (also None) or the whole answer. `spend`: the most that losers
    may cost.
    """

    def __init__(
        self,
        context: PolicyContext,
        first: Service,
        second: Service,
        /,
        *others: Service,
        by: RaceFigure | None = None,
        spend: SpendingRate | None = None,
    ) -> None:
        super().__init__(context)
        self._branches = context.branches([first, second, *others])
        self._by_total = by == "total"
        self._unknown = 0  # streamed calls with a branch of unknown speed
        self._account = None if spend is None else SpendingAccount(spend.usd_per_s)

    async def __call__(self, call: Call) -> Reply:
        racing = self._branches
        if self._account is not None:
            healthy = [
                branch for branch in self._branches if branch.available(self._states, call)
            ] or self._branches
            if reason := self._reason_against(call, healthy, self._account):
                others = [branch for branch in self._branches if branch not in healthy]
                return await ask_in_turn(call, in_order([*healthy, *others], f"race, {reason}"))
            racing = healthy
        services = [branch.service for branch in racing]
        if self._by_total:
            tokens, whole = (
                self._output_tokens(call, racing),
                not call.stream or self._learns(racing),
            )
            services = CompletionRace(call, racing, self._states, tokens, whole=whole).candidates()
        async with Contest(call) as contest:
            for service in services:
                contest.enter(service)
        return contest.reply()

    def _learns(self, racing: Sequence[Branch]) -> bool:
        for branch in racing:
            if all(each.tpot_ns() is None for each in branch.estimates(self._states, stream=True)):
                self._unknown += 1
                return self._unknown & (self._unknown - 1) == 0
        return False

    def _reason_against(
        self, call: Call, healthy: Sequence[Branch], account: SpendingAccount
    ) -> str:
        if len(healthy) == 1:
            return "one branch is available"
        losing = self._losing_usd(call, healthy)
        if losing is None:
            return "no price is known"
        return "" if account.withdraw(losing, clock.now_ns()) else "its money is spent"

    def _losing_usd(self, call: Call, among: Sequence[Branch]) -> float | None:
        tokens_in, tokens_out = input_tokens(call), self._output_tokens(call, among)
        costs = [self._cost_usd(branch, tokens_in, tokens_out) for branch in among]
        known_costs = [cost for cost in costs if cost is not None]
        if not known_costs:
            return None
        priced = [max(known_costs) if cost is None else cost for cost in costs]
        return sum(priced) - min(priced)

    def _output_tokens(self, call: Call, among: Sequence[Branch]) -> int:
        return output_tokens(call, usual_output_tokens(call, among, self._states))

    def _cost_usd(self, branch: Branch, tokens_in: int, tokens_out: int) -> float | None:
        costs: list[float | None] = []
        for info in map(self._states.info, branch.names):
            closed_early = info.closing_stops_billing and not self._by_total
            costs.append(
                info.cost_usd(tokens_in, min(tokens_out, 1) if closed_early else tokens_out)
            )
        known_costs = [cost for cost in costs if cost is not None]
        if len(known_costs) < len(costs):
            return None
        return sum(known_costs) if isinstance(branch.service, Race) else max(known_costs)


race = Policy(Race, example='race("a/x", "b/x")', branches="alternatives")
