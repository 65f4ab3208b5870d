"""`weighted(a, b, ..., weights="3,1")`: each branch gets its share of the calls."""

from collections.abc import Iterator, Sequence

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Reply, Service
from splitsecond.routing.machinery.choosing.branch import Branch, Choice, ask_in_turn, in_order
from splitsecond.routing.machinery.choosing.session_choice import CacheUse, SessionChoice
from splitsecond.routing.machinery.definition import Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.settings import Weights

MAX_TURNS_AHEAD = 100
"""How many calls a branch that sessions stay at can be ahead of its share, or another behind: more
are forgotten."""


class Weighted(PolicyService):
    def __init__(
        self,
        context: PolicyContext,
        first: Service,
        second: Service,
        /,
        *others: Service,
        weights: Weights | None = None,
        cache: CacheUse | None = None,
    ) -> None:
        super().__init__(context)
        self._branches = context.branches((first, second, *others))
        count = len(self._branches)
        self._weights = (1,) * count if weights is None else weights.values
        if len(self._weights) != count:
            raise CallerFault(
                f"weighted has {count} branches and {len(self._weights)} weights ({weights})",
                kind="bad_policy",
                hint='Give each branch one, as in weighted("a/x", "b/x", weights="3,1").',
            )
        self._accounts = [0] * count
        self._total = sum(self._weights)
        self._most = MAX_TURNS_AHEAD * self._total
        self._sessions = SessionChoice(context.states, "weighted") if cache != "off" else None

    async def __call__(self, call: Call) -> Reply:
        return await ask_in_turn(call, self._choices(call))

    def _choices(self, call: Call) -> Iterator[Choice]:
        available = [branch for branch in self._branches if branch.available(self._states, call)]
        if not available:
            yield from in_order(self._branches, "weighted, none is available")
        if (
            self._sessions is not None
            and (session := call.notes.session) is not None
            and len(available) > 1
        ):
            home = self._sessions.home(session, available)
            if home is not None:
                self._charge(home[0], available)
                yield home
                available.remove(home[0])
        while available:
            branch = self._turn(available)
            odds = self._weights[branch.place] / self._weight(available)
            yield branch, f"weighted: {branch.label}", odds, available
            available.remove(branch)

    def _turn(self, available: Sequence[Branch]) -> Branch:
        accounts, weights = self._accounts, self._weights
        best = max(available, key=lambda branch: accounts[branch.place] + weights[branch.place])
        self._charge(best, available)
        return best

    def _charge(self, chosen: Branch, available: Sequence[Branch]) -> None:
        accounts, place = self._accounts, chosen.place
        for each in available:
            at = each.place
            accounts[at] = min(accounts[at] + self._weights[at], self._most)
        accounts[place] = max(accounts[place] - self._weight(available), -self._most)

    def _weight(self, available: Sequence[Branch]) -> int:
        if len(available) == len(self._branches):
            return self._total
        return sum(self._weights[each.place] for each in available)


weighted = Policy(
    Weighted,
    example='weighted("a/x", "b/x", weights="3,1")',
    branches="alternatives",
    needs_stream=(),
)
