"""An expression made into a service: its policies, its targets behind their guards, and one budget for them all."""

from collections.abc import Callable, Iterator

from splitsecond.policy.answers.carrying import MakeTeller
from splitsecond.policy.budget import Budget, Counted
from splitsecond.policy.cascade import Trim
from splitsecond.policy.expression import Expression, TargetName, targets
from splitsecond.policy.forms import POLICIES
from splitsecond.policy.settings import (
    share,
)
from splitsecond.policy.targets.standing import Standing
from splitsecond.service import Service


def build(
    expression: Expression,
    target: Callable[[str], Service],
    standing: Standing | None = None,
    *,
    without_logprobs: Trim | None = None,
    teller: MakeTeller | None = None,
    guarded: bool = True,
) -> Service:
    """The service that `expression` describes; `target` gives the service of each name, and is asked once for each.

    `standing`: how the targets stand, which the policies choose by and each attempt is guarded by. It must be told of
    each observation. None: nothing is guarded, and policies that choose by it begin with nothing known.
    `without_logprobs` takes log-probabilities that only a policy asked for out of an answer's bytes.
    `teller` makes it possible to carry on an answer that broke; None: none is.
    `guarded` False: `standing` is only chosen by.
    """
    services = {name: target(name) for name in targets(expression)}
    known = standing or Standing()
    budget = _budget(expression)

    def made(part: Expression, others: frozenset[str]) -> Service:
        if isinstance(part, TargetName):
            service = services[part.name]
            if standing is None or not guarded:
                return service
            return standing.guard(part.name, service, others | {part.name})
        form = POLICIES[part.policy]
        if form.alternatives:
            given = others | _reached(part, known)
        else:
            given = others if len(part.parts) == 1 or form.steps_in else frozenset[str]()
        later = given.union(*(_reached(branch, known) for branch in part.branches[1:])) if form.steps_in else given
        more: dict[str, object] = {"standing": known, "names": list(map(targets, part.parts))} if form.live else {}
        if form.trims:
            more["without_logprobs"] = without_logprobs
        if form.extra is not None:
            more["budget"] = budget
        if form.tells:
            more["teller"] = teller
        first = _reached(part.branches[1], known) if form.backed else given
        named = {name: made(branch, given) for name, branch in part.named}
        branches = [made(branch, later if n else first) for n, branch in enumerate(part.branches)]
        return form.make(*branches, **named, **dict(part.settings), **more)

    service = made(expression, frozenset())
    return service if budget is None else Counted(service, budget)


def _budget(expression: Expression) -> Budget | None:
    """For the extra requests of all policies in `expression`: as much as the most generous may send alone."""
    found = list(_extras(expression))
    if not found:
        return None
    return Budget(max(share for share, _ in found), reserve=max(reserve for _, reserve in found))


def _extras(expression: Expression) -> Iterator[tuple[float, int]]:
    if isinstance(expression, TargetName):
        return
    extra = POLICIES[expression.policy].extra
    if extra is not None:
        yield share("extra_load", dict(expression.settings).get("extra_load", extra[0])), extra[1]
    for branch in expression.parts:
        yield from _extras(branch)


def _reached(part: Expression, standing: Standing) -> frozenset[str]:
    """The targets of `part` that a call may go to."""
    if isinstance(part, TargetName):
        return frozenset({part.name})
    form = POLICIES[part.policy]
    if form.reaches is not None:
        return frozenset(form.reaches(list(map(targets, part.branches)), standing, **dict(part.settings)))
    return frozenset[str]().union(*(_reached(branch, standing) for branch in part.parts))
