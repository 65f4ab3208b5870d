"""`fastest(a, b, ..., by="total", at=0.5)`: the branch that will probably be fastest for this call.

What it does. For each branch the time of the answer is expected from what its target did lately, in this process and
before it: the first token for a prompt of this length plus a time per token. The shortest is asked; of nearly equal
ones the one with less under way. `by="ttft"` looks at the first token only, `by="tps"` at the time per token only;
`at=0.9` at the time that nine of ten keep. Branches that are down, or at their rate limit, are left out; where all are,
they are asked as they stand.

Requests that wait for their first token count while they wait, so a branch that falls silent loses its calls before
the first of them has failed. Up to one call in fifty goes to branches of which nothing is known lately, and so one that
has recovered is found (see `exploring`).

What it costs. No more requests. One call in fifty may get a slower answer for the sake of knowledge, and no branch
more than one in five seconds.

When it helps. Where the branches are equally good and which of them is fastest changes by hour and by length of the
prompt; that is so for one open model at several providers.

When it hurts. With few calls: below some per minute what is known is old, and choosing is close to chance. Where the
branches are different models, users get the answers of whichever is quick. And a conversation that moves loses its
prompt cache: where prompts are long, `sticky` may be faster.

Where it stands. Inside `fallback`, which acts when the chosen one fails before its first token; around `limit`,
`retry` and `deadline`. A branch that is a policy is judged by its first target that is well; `race` and `fastest` by
their best.
"""

from collections.abc import Iterator, Sequence

from splitsecond.policy.choosing.branch import Branch, Choice, ask_in_turn, branches, in_order
from splitsecond.policy.choosing.speed import Speeds
from splitsecond.policy.race import Race
from splitsecond.policy.settings import figure, quantile, written
from splitsecond.policy.targets.standing import Standing
from splitsecond.service import Call, Reply, Service


def fastest(
    *services: Service,
    by: str = "total",
    at: float = 0.5,
    standing: Standing | None = None,
    names: Sequence[Sequence[str]] = (),
) -> Service:
    """The service that asks the fastest of `services`. `names`: of the targets in each."""
    given = branches(services, names, best=(Race, Fastest))
    return Fastest(given, standing or Standing(), figure("by", by), quantile("at", at))


class Fastest:
    """See `fastest`. Other policies that choose by speed among some of their branches use `choices`."""

    def __init__(self, among: Sequence[Branch], standing: Standing, by: str, at: float) -> None:
        self._branches = among
        self._standing = standing
        self._by = by
        self._at = at
        self._speeds = Speeds(standing, by=by, at=at)

    def __repr__(self) -> str:
        return written("fastest", [branch.service for branch in self._branches], by=self._by, at=self._at)

    async def __call__(self, call: Call) -> Reply:
        return await ask_in_turn(call, self.choices(call, self._branches, "fastest"))

    def choices(self, call: Call, among: Sequence[Branch], policy: str) -> Iterator[Choice]:
        """The branches to ask, best first, on behalf of `policy`."""
        well = [branch for branch in among if branch.available(self._standing)]
        if not well:
            yield from in_order(among, f"{policy}, none is well")
            return
        for prospect in self._speeds.ranked(call, well):
            yield prospect.branch, f"{policy}: {prospect}"
