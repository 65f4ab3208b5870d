"""`weighted(a, b, ..., weights="3,1")`: each branch gets its share of the calls.

What it does. With weights 3 and 1 three calls of four go to `a`, evenly mixed (a a b a), and always in the same order:
this is the smooth weighted round-robin of nginx. Each call adds its weight to every branch's account; the branch with
the highest account is asked, and pays the sum of the weights. Without `weights` all are equal. Branches that are down,
or at their rate limit, are left out, and get nothing for the time when they were.

What it costs. Nothing.

When it helps. To spread calls over several keys or quotas of known size, to bring a new target in slowly, and to
compare two targets by the same traffic.

When it hurts. Where the aim is speed: it sends as many calls to a branch that has become slow.

Where it stands. Inside `fallback`, since the failure of the chosen branch is raised; around everything else. Each
worker process counts for itself.
"""

from collections.abc import Iterator, Sequence

from splitsecond.errors import CallerFault
from splitsecond.policy.choosing.branch import Branch, Choice, ask_in_turn, branches, in_order
from splitsecond.policy.settings import shares, written
from splitsecond.policy.targets.standing import Standing
from splitsecond.service import Call, Reply, Service


def weighted(
    *services: Service,
    weights: str | None = None,
    standing: Standing | None = None,
    names: Sequence[Sequence[str]] = (),
) -> Service:
    """The service that shares calls out by `weights`, a whole number for each of `services`."""
    given = [1] * len(services) if weights is None else shares("weights", weights)
    if len(given) != len(services):
        raise CallerFault(
            f"weighted has {len(services)} branches and {len(given)} weights ({weights})",
            kind="bad_policy",
            hint='Give each branch one, as in weighted("a/x", "b/x", weights="3,1").',
        )
    return Weighted(branches(services, names), given, weights, standing or Standing())


class Weighted:
    """See `weighted`."""

    def __init__(self, among: Sequence[Branch], given: Sequence[int], weights: str | None, standing: Standing) -> None:
        self._branches = among
        self._given = given
        self._weights = weights
        self._standing = standing
        self._accounts = [0] * len(among)

    def __repr__(self) -> str:
        return written("weighted", [branch.service for branch in self._branches], weights=self._weights)

    async def __call__(self, call: Call) -> Reply:
        return await ask_in_turn(call, self._choices())

    def _choices(self) -> Iterator[Choice]:
        """The branches that are well, each when it is its turn among those that are left."""
        well = [place for place, branch in enumerate(self._branches) if branch.available(self._standing)]
        if not well:
            yield from in_order(self._branches, "weighted, none is well")
        while well:
            place = self._turn(well)
            well.remove(place)
            branch = self._branches[place]
            yield branch, f"weighted: {branch.label}"

    def _turn(self, well: Sequence[int]) -> int:
        accounts = self._accounts
        for place in well:
            accounts[place] += self._given[place]
        best = max(well, key=accounts.__getitem__)
        accounts[best] -= sum(self._given[place] for place in well)
        return best
