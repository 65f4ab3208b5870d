"""`weighted(a, b, ..., weights="3,1")`: each branch gets its share of the calls."""

from collections.abc import Iterator, Sequence

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Reply, Service
from splitsecond.routing.machinery.choosing.branch import Choice, ask_in_turn, in_order
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
        self._most = MAX_TURNS_AHEAD * sum(self._weights)
        self._sessions = SessionChoice(context.states, "weighted") if cache != "off" else None

    async def __call__(self, call: Call) -> Reply:
        return await ask_in_turn(call, self._choices(call))

    def _choices(self, call: Call) -> Iterator[Choice]:
        available = [
            place
            for place, branch in enumerate(self._branches)
            if branch.available(self._states, call)
        ]
        if not available:
            yield from in_order(self._branches, "weighted, none is available")
        if (
            self._sessions is not None
            and (session := call.notes.session) is not None
            and len(available) > 1
        ):
            home = self._sessions.kept(session, [self._branches[place] for place in available])
            if home is not None:
                place = self._branches.index(home[0])
                self._charge(place, available)
                available.remove(place)
                yield home
        while available:
            place = self._turn(available)
            available.remove(place)
            branch = self._branches[place]
            yield branch, f"weighted: {branch.label}"

    def _turn(self, available: Sequence[int]) -> int:
        accounts = self._accounts
        best = max(available, key=lambda place: accounts[place] + self._weights[place])
        self._charge(best, available)
        return best

    def _charge(self, chosen: int, available: Sequence[int]) -> None:
        for place in available:
            self._accounts[place] = min(self._accounts[place] + self._weights[place], self._most)
        self._accounts[chosen] = max(
            self._accounts[chosen] - sum(self._weights[place] for place in available), -self._most
        )


weighted = Policy(
    Weighted,
    example='weighted("a/x", "b/x", weights="3,1")',
    branches="alternatives",
    needs_stream=(),
)
