"""`weighted(a, b, ..., weights="3,1")`: each branch gets its share of the calls.

What it does. With weights 3 and 1 three calls of four go to `a`, evenly mixed (a a b a), and always in the same order:
this is the smooth weighted round-robin of nginx. Each call adds its weight to every branch's account; the branch with
the highest account is asked, and pays the sum of the weights. Without `weights` all are equal. Branches that are down
or at their rate limit are left out, and are not compensated for that time.

What it costs. Nothing.

When it helps. To spread calls over several keys or quotas of known size, to introduce a new target slowly, and to
compare two targets with the same traffic.

When it hurts. When the goal is speed: a branch that has become slow gets as many calls as before.

Where it goes. Inside `fallback`, because a failure of the chosen branch is raised; around everything else. Each worker
process counts for itself.
"""

from collections.abc import Iterator, Sequence

from splitsecond.errors import CallerFault
from splitsecond.policies.choosing.branch import Choice, ask_in_turn, in_order
from splitsecond.policies.definition import Policy, PolicyContext, PolicyService
from splitsecond.policies.settings import Weights
from splitsecond.service import Call, Reply, Service


class Weighted(PolicyService):
    """Distributes calls by `weights`, a whole number for each branch."""

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
        """Return the available branches, each when it is its turn among the remaining ones."""
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


weighted = Policy(Weighted, example='weighted("a/x", "b/x", weights="3,1")', alternatives=True, needs_stream=())
