"""`race(a, b, ...)`: all are asked at once, and the first to bring a token answers.

What it does. Every branch gets the call at the same moment. The first one with a content-bearing token wins: headers,
a role or a ping do not count, or else a target that greets early and then stalls would win. Losers are closed at once.
A branch that fails, or ends without a token, has not won; the others run on. When all fail: `AllFailed`, in the order
in which the branches stand. A target that has fallen silent is noticed by the races that it loses (`targets/silence`),
and is not asked until it is due to be tried again.

What it costs. The input tokens of every branch, and what each loser had made by the time it was closed; some providers
bill a closed request to its end. Also a place under every provider's rate limit.

`spend="0.60/h"` bounds that, in US dollars an hour ("0.01/m": a minute): so much is paid into an account as time goes
by, up to ten minutes' worth, which is there from the start. A call is raced where the account can pay for its losers,
and pays. Else the first branch that is well is asked alone. What losers cost is expected, before anybody has lost:
each branch is priced with the prompt and one token, or with a whole answer where its provider bills a closed request to
the end, or nobody knows; all but the cheapest lose. A target without a known price counts as the dearest of the others;
where no price is known at all there is no race, and `chosen` says so.

When it helps. Where a late first token is worth money: the race is as fast as its best branch on each single call, so
it cuts the median and the tail, and it rides out the failure of any one branch without a pause.

When it hurts. On long prompts (input dominates the price), near a rate limit, and where the branches share what is
slow: two requests to one overloaded provider make it slower. A target with a fast first token and few tokens per
second wins every race, and loses the time again afterwards.

Where it stands. Inside `fallback`, because falling back begins when every racer has failed. Around `limit`, because a
racer that is refused must not stop the others. Around `deadline` or inside it: the same, but around means that each
branch has its own.
"""

from collections.abc import Sequence

from splitsecond import clock
from splitsecond.policy.choosing.branch import Branch, ask_in_turn, branches, in_order
from splitsecond.policy.choosing.prompt_size import input_tokens, output_tokens
from splitsecond.policy.contest import Contest
from splitsecond.policy.settings import spending, written
from splitsecond.policy.spending import Account
from splitsecond.policy.targets.facts import Facts
from splitsecond.policy.targets.standing import Standing
from splitsecond.service import Call, Reply, Service


def race(
    *services: Service,
    spend: str | None = None,
    standing: Standing | None = None,
    names: Sequence[Sequence[str]] = (),
) -> Service:
    """The service that races `services`. `spend`: what losers may cost, in US dollars for a time."""
    account = None if spend is None else Account(spending("spend", spend))
    return Race(branches(services, names), spend, account, standing or Standing())


class Race:
    """See `race`."""

    def __init__(self, among: Sequence[Branch], spend: str | None, account: Account | None, standing: Standing) -> None:
        self._branches = among
        self._services = [branch.service for branch in among]
        self._spend = spend
        self._account = account
        self._standing = standing

    def __repr__(self) -> str:
        return written("race", self._services, spend=self._spend)

    async def __call__(self, call: Call) -> Reply:
        services = self._services
        if self._account is not None:
            well = [branch for branch in self._branches if branch.available(self._standing)] or self._branches
            if why := self._why_not(call, well, self._account):
                return await ask_in_turn(call, in_order([*well, *self._others(well)], f"race, {why}"))
            services = [branch.service for branch in well]
        async with Contest(call) as contest:
            for service in services:
                contest.enter(service)
        return contest.reply()

    def _others(self, well: Sequence[Branch]) -> list[Branch]:
        return [branch for branch in self._branches if branch not in well]

    def _why_not(self, call: Call, well: Sequence[Branch], account: Account) -> str:
        """Why `call` is not raced; "": it is, and is paid for."""
        if len(well) == 1:
            return "one is well"
        losing = self._losing_usd(call, well)
        if losing is None:
            return "no price is known"
        return "" if account.withdraw(losing, clock.now_ns()) else "its money is spent"

    def _losing_usd(self, call: Call, among: Sequence[Branch]) -> float | None:
        """What losers may cost at most; None: not known."""
        tokens_in = input_tokens(call)
        estimates = [each for branch in among for each in branch.estimates(self._standing, stream=call.stream)]
        usual = [tokens for each in estimates if (tokens := each.output_tokens()) is not None]
        tokens_out = output_tokens(call, usual)
        costs = [self._cost_usd(branch, tokens_in, tokens_out) for branch in among]
        known = [cost for cost in costs if cost is not None]
        if not known:
            return None
        priced = [max(known) if cost is None else cost for cost in costs]
        return sum(priced) - min(priced)

    def _cost_usd(self, branch: Branch, tokens_in: int, tokens_out: int) -> float | None:
        """What it costs that the branch is asked and loses; None: not known. Of a race in it, what all of that cost."""
        costs = [_cost_usd(self._standing.facts(name), tokens_in, tokens_out) for name in branch.names]
        known = [cost for cost in costs if cost is not None]
        if len(known) < len(costs):
            return None
        return sum(known) if isinstance(branch.service, Race) else max(known)


def _cost_usd(facts: Facts, tokens_in: int, tokens_out: int) -> float | None:
    """What an answer costs that is closed before its first token."""
    return facts.cost_usd(tokens_in, min(tokens_out, 1) if facts.closing_stops_billing else tokens_out)
