"""`weighted(a, b, ..., weights="3,1")`: each branch gets its share of the calls."""

from collections.abc import Iterator, Sequence

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Reply, Service
from splitsecond.routing.machinery.choosing.branch import Choice, ask_in_turn, in_order
from splitsecond.routing.machinery.definition import Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.settings import Weights


class Weighted(PolicyService):
    def __init__(
        self,
        context: PolicyContext,
        first: Service,
        second: Service,
        /,
        *others: Service,
        weights: Weights | None = None,
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

    async def __call__(self, call: Call) -> Reply:
        return await ask_in_turn(call, self._choices(call))

    def _choices(self, call: Call) -> Iterator[Choice]:
        available = [place for place, branch in enumerate(self._branches) if branch.available(self._states, call)]
        if not available:
            yield from in_order(self._branches, "weighted, none is available")
        while available:
            place = self._turn(available)
            available.remove(place)
            branch = self._branches[place]
            yield branch, f"weighted: {branch.label}"

    def _turn(self, available: Sequence[int]) -> int:
        accounts = self._accounts
        for place in available:
            accounts[place] += self._weights[place]
        best = max(available, key=accounts.__getitem__)
        accounts[best] -= sum(self._weights[place] for place in available)
        return best


weighted = Policy(Weighted, example='weighted("a/x", "b/x", weights="3,1")', branches="alternatives", needs_stream=())
