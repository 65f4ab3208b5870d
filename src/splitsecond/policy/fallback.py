"""`fallback(a, b, ..., ttft="2s")`: the next is asked when one has failed before its first token.

What it does. The branches are asked one after another, in their order, until one brings a token. What leads to the
next one: failed connections, timeouts, 408, 429, 5xx, an error inside a 200, an answer without a token; also a refused
key or an unknown model, since the next target may be another. A broken connection or a 500 is tried once more on the
same branch first, unless it asked us to wait. A silent target is not asked twice, and one that said Retry-After is not
asked again in this call. A prompt that was too long for one target goes only to those that take a longer one, or of
which that is not known.

What goes back to the caller at once: a request that is wrong in itself (400, 413, 422), because every target would
refuse it, and asking them all only makes the error slow; and a prompt that is too long for all who are left.

`ttft` is how long one branch may take to its first token, a second try included. There is one deadline for all
attempts, the call's own: each branch gets what is left of it, and none is asked after it. When all have failed:
`AllFailed`, with the first target's failure first, as that is the one that the operator named first, then the others.

After the first token nothing falls back, but there are two settings for it. `stall="10s"`: an answer that brings no
further token for so long is broken off. `resume`: an answer that breaks is carried on at another branch (`resume`).

What it costs. Nothing while the first branch works. A failure costs the time that was waited for it: with `ttft` at
most that much for each branch. Second tries have a budget (a tenth of the calls, and 10), so that a branch that is down
does not get twice the requests; they count together with the hedges and retries of the same expression.

When it helps. Against outages and rate limits; it is the one policy that every route should have.

When it hurts. With a `ttft` near what the first branch usually takes: slow minutes then move everybody to the next
branch, which pays for it. And where the branches are not equally good: users get the other model's answers.

Where it stands. Outside of `race`, `hedge`, `retry` and `limit`, since it acts on what they gave up on; inside a
`deadline` with `total`.
"""

from collections.abc import Iterable, Sequence

from splitsecond import clock
from splitsecond.errors import AllFailed, Fault
from splitsecond.policy.answers.carrying import MakeTeller
from splitsecond.policy.budget import MOST_SAVED, Budget
from splitsecond.policy.choosing.branch import Branch, branches
from splitsecond.policy.deadline import Deadline
from splitsecond.policy.remedy import TOO_LONG, all_failed, answered, check_time, emptied, remedy
from splitsecond.policy.resume import carried_on, way, with_stall
from splitsecond.policy.settings import duration, written
from splitsecond.policy.targets.standing import Standing
from splitsecond.service import Call, Reply, Service

SECOND_TRIES = 0.1
"""The share of a branch's calls that may be tried twice: a branch that only fails must not get twice the requests."""


def fallback(
    *services: Service,
    ttft: str | None = None,
    stall: str | None = None,
    resume: str | None = None,
    standing: Standing | None = None,
    names: Sequence[Sequence[str]] = (),
    budget: Budget | None = None,
    teller: MakeTeller | None = None,
) -> Service:
    """The service that asks `services` in turn. `ttft`: the longest wait for one branch's first token.

    `stall`: the longest silence after it. `resume`: how an answer that breaks is carried on, which takes `teller`.
    `budget`: what all policies around draw on for extra requests.
    """
    given, known = branches(services, names), standing or Standing()
    made = Fallback(given, known, budget, ttft=ttft, stall=stall, resume=resume)
    stall_ns = None if stall is None else duration("stall", stall)
    if resume is None or teller is None:
        return made
    inside = [name for branch in given for name in branch.names]
    return carried_on(made, inside, way("resume", resume), known, teller, stall_ns=stall_ns)


class Fallback:
    """See `fallback`."""

    def __init__(
        self,
        among: Sequence[Branch],
        standing: Standing,
        budget: Budget | None = None,
        *,
        ttft: str | None = None,
        stall: str | None = None,
        resume: str | None = None,
    ) -> None:
        self._branches = among
        self._standing = standing
        self._ttft = ttft
        self._stall, self._stall_ns = stall, None if stall is None else duration("stall", stall)
        self._resume = resume
        twice: list[Service] = [_Twice(branch.service, budget) for branch in among]
        steps = twice if ttft is None else [Deadline(step, ttft=ttft) for step in twice]
        self._steps = tuple(zip(among, steps, strict=True))

    def __repr__(self) -> str:
        services = [branch.service for branch in self._branches]
        return written("fallback", services, ttft=self._ttft, stall=self._stall, resume=self._resume)

    async def __call__(self, call: Call) -> Reply:
        if self._stall_ns is not None:
            call = with_stall(call, self._stall_ns)
        causes: list[Fault] = []
        longer_than = -1
        for branch, step in self._steps:
            if longer_than >= 0 and not self._takes_more(branch, longer_than):
                continue
            try:
                if call.deadline_ns is not None:
                    check_time(call, clock.now_ns(), branch.service)
                return await step(call)
            except Fault as fault:
                causes.append(fault.kept())
                if remedy(fault) == "change":
                    raise
                longer_than = max(longer_than, self._too_long_for(fault, branch))
        raise all_failed(causes) if len(causes) > 1 else causes[0]

    def _too_long_for(self, fault: Fault, branch: Branch) -> int:
        """The context, in tokens, for which the prompt is too long; -1: it is not, or that is not known."""
        refusals = [each for each in _causes(fault) if each.kind == TOO_LONG]
        names = [each.target or branch.names[0] for each in refusals]
        return max((self._standing.facts(name).context_tokens or -1 for name in names), default=-1)

    def _takes_more(self, branch: Branch, tokens: int) -> bool:
        """Whether one of its targets takes a longer prompt than `tokens`, as far as is known."""
        contexts = [self._standing.facts(name).context_tokens for name in branch.names]
        return any(context is None or context > tokens for context in contexts)


def _causes(fault: Fault) -> Iterable[Fault]:
    return fault.causes if isinstance(fault, AllFailed) else (fault,)


class _Twice:
    """A branch that gets a second try where that may help at once, and where the budget allows."""

    def __init__(self, branch: Service, budget: Budget | None) -> None:
        self._branch = branch
        self._budget = Budget(SECOND_TRIES, reserve=MOST_SAVED, within=budget)

    def __repr__(self) -> str:
        return repr(self._branch)

    async def __call__(self, call: Call) -> Reply:
        self._budget.deposit()
        try:
            reply = await self._branch(call)  # as `answered` asks: this is done for each call
            if reply.empty:
                raise await emptied(self._branch, reply)
            return reply
        except Fault as fault:
            if remedy(fault) != "again" or not self._budget.withdraw():
                raise
            first = fault.kept()
        try:
            check_time(call, clock.now_ns(), self._branch)
            return await answered(self._branch, call)
        except Fault as fault:
            if remedy(fault) == "change":
                raise
            raise all_failed([first, fault.kept()]) from None
