"""`fallback(a, b, ..., ttft="2s")`: the next is asked when one has failed before its first token.

What it does. The branches are asked one after another, in their order, until one brings a token. What leads to the
next one: failed connections, timeouts, 408, 429, 5xx, an error inside a 200, an answer without a token; also a refused
key, an unknown model and a prompt too long, since the next target may be another. A broken connection or a 500 is tried
once more on the same branch first, unless it asked us to wait. A silent target is not asked twice, and one that said
Retry-After is not asked again in this call.

What goes back to the caller at once: a request that is wrong in itself (400, 413, 422), because every target would
refuse it, and asking them all only makes the error slow.

`ttft` is how long one branch may take to its first token, a second try included. There is one deadline for all
attempts, the call's own: each branch gets what is left of it, and none is asked after it. When all have failed:
`AllFailed`, with the first target's failure first, as that is the one that the operator named first, then the others.

What it costs. Nothing while the first branch works. A failure costs the time that was waited for it: with `ttft` at
most that much for each branch. Second tries have a budget (a tenth of the calls, and 10), so that a branch that is down
does not get twice the requests.

When it helps. Against outages and rate limits; it is the one policy that every route should have.

When it hurts. With a `ttft` near what the first branch usually takes: slow minutes then move everybody to the next
branch, which pays for it. And where the branches are not equally good: users get the other model's answers.

Where it stands. Outside of `race`, `hedge`, `retry` and `limit`, since it acts on what they gave up on; inside a
`deadline` with `total`. After the first token nothing falls back.
"""

from splitsecond import clock
from splitsecond.errors import Fault
from splitsecond.policy.budget import MOST_SAVED, Budget
from splitsecond.policy.deadline import Deadline
from splitsecond.policy.remedy import all_failed, answered, check_time, remedy
from splitsecond.policy.settings import written
from splitsecond.service import Call, Reply, Service

SECOND_TRIES = 0.1
"""The share of a branch's calls that may be tried twice: a branch that only fails must not get twice the requests."""


def fallback(*branches: Service, ttft: str | None = None) -> Service:
    """The service that asks `branches` in turn. `ttft`: the longest wait for one branch's first token."""
    return Fallback(branches, ttft)


class Fallback:
    """See `fallback`."""

    def __init__(self, branches: tuple[Service, ...], ttft: str | None) -> None:
        self._branches = branches
        self._ttft = ttft
        self._steps: list[Service] = list(map(_Twice, branches))
        if ttft is not None:
            self._steps = [Deadline(step, ttft=ttft) for step in self._steps]

    def __repr__(self) -> str:
        return written("fallback", self._branches, ttft=self._ttft)

    async def __call__(self, call: Call) -> Reply:
        causes: list[Fault] = []
        for branch, step in zip(self._branches, self._steps, strict=True):
            try:
                check_time(call, clock.now_ns(), branch)
                return await step(call)
            except Fault as fault:
                causes.append(fault)
                if remedy(fault) == "change":
                    raise
        raise all_failed(causes)


class _Twice:
    """A branch that gets a second try where that may help at once, and where the budget allows."""

    def __init__(self, branch: Service) -> None:
        self._branch = branch
        self._budget = Budget(SECOND_TRIES, reserve=MOST_SAVED)

    def __repr__(self) -> str:
        return repr(self._branch)

    async def __call__(self, call: Call) -> Reply:
        self._budget.deposit()
        try:
            return await answered(self._branch, call)
        except Fault as fault:
            if remedy(fault) != "again" or not self._budget.withdraw():
                raise
            first = fault
        try:
            check_time(call, clock.now_ns(), self._branch)
            return await answered(self._branch, call)
        except Fault as fault:
            if remedy(fault) == "change":
                raise
            raise all_failed([first, fault]) from None
