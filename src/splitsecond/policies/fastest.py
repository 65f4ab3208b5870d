"""`fastest(a, b, ..., by="total", at=0.5)`: the branch that will probably be fastest for this call.

What it does. For each branch the time of the answer is predicted from the latest calls to its target, in this process
and before it: the first token for a prompt of this length plus a time per token. The branch with the shortest time is
asked; of nearly equal ones the one with fewer requests in flight. `by="ttft"` compares only the first token, `by="tps"`
only the time per token; `at=0.9` compares the time that nine calls of ten keep to. Branches that are down or at their
rate limit are left out; if all are, they are asked in their order.

Requests that wait for their first token count while they wait, so a branch that falls silent loses its calls before
their first failure. Up to one call in fifty goes to branches without recent samples, so that a recovered one is found
(`choosing/exploration`).

What it costs. No extra requests. One call in fifty may get a slower answer because it explores, and each branch is
explored at most once in five seconds.

When it helps. When the branches are equally good, and the fastest of them changes with the hour and the length of the
prompt. This is so for one open model at several providers.

When it hurts. With few calls: below a few a minute the samples are old, and the choice is close to chance. If the
branches are different models, users get the answers of whichever is fastest. And a conversation that moves loses its
prompt cache: with long prompts `sticky` may be faster.

Where it goes. Inside `fallback`, which acts when the chosen branch fails before its first token; around `limit`,
`retry` and `deadline`. A branch that is a policy is judged by its first available target; `race` and `fastest` by their
best.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from splitsecond.policies.choosing.branch import Branch, Choice, ask_in_turn, in_order
from splitsecond.policies.choosing.speed import SpeedRanking
from splitsecond.policies.definition import Policy, PolicyContext, PolicyService
from splitsecond.policies.race import Race
from splitsecond.policies.settings import Quantile
from splitsecond.policies.targets.target_states import TargetStates
from splitsecond.service import Call, Reply, Service

Figure = Literal["total", "ttft", "tps"]
MEDIAN = Quantile.parse("at", 0.5)


class SpeedChoice:
    """Orders branches by their expected speed on behalf of `policy`. `by` and `at`: see `fastest`."""

    def __init__(self, policy: str, states: TargetStates, by: Figure, at: Quantile) -> None:
        self._policy = policy
        self._states = states
        self._speeds = SpeedRanking(states, by=by, at=at.value)

    def choices(self, call: Call, among: Sequence[Branch]) -> Iterator[Choice]:
        """Return the branches to ask, the fastest first."""
        available = [branch for branch in among if branch.available(self._states, call)]
        if not available:
            yield from in_order(among, f"{self._policy}, none is available")
            return
        for prospect in self._speeds.ranked(call, available):
            yield prospect.branch, f"{self._policy}: {prospect}"


class Fastest(PolicyService):
    """Asks the fastest branch."""

    def __init__(
        self,
        context: PolicyContext,
        first: Service,
        second: Service,
        /,
        *others: Service,
        by: Figure = "total",
        at: Quantile = MEDIAN,
    ) -> None:
        super().__init__(context)
        self._branches = context.branches((first, second, *others), best=(Race, Fastest))
        self._choice = SpeedChoice("fastest", context.states, by, at)

    async def __call__(self, call: Call) -> Reply:
        return await ask_in_turn(call, self._choice.choices(call, self._branches))


fastest = Policy(Fastest, example='fastest("a/x", "b/x", by="total", at=0.5)', alternatives=True)
