"""Services from expressions: the policies, their targets behind circuit breakers, and one budget
for all of them."""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from splitsecond.core.service import Service
from splitsecond.routing.construction.expression import (
    Expression,
    PolicyExpression,
    TargetName,
    targets,
)
from splitsecond.routing.machinery.budget import BudgetedService, ExtraRequestBudget
from splitsecond.routing.machinery.definition import PolicyContext
from splitsecond.routing.machinery.replies.resumable import MakeEncoder
from splitsecond.routing.targets.target_states import TargetStates


def build(
    expression: Expression,
    target: Callable[[str], Service],
    states: TargetStates | None = None,
    *,
    make_encoder: MakeEncoder | None = None,
    trim_logprobs: Callable[[bytes], bytes] | None = None,
    guarded: bool = True,
    route: str = "",
) -> Service:
    """Return the service that `expression` describes.

    `states`: the states of the targets, by which policies choose and each attempt is guarded; they
    must observe every observation. None: no attempt is guarded, and policies begin without
    knowledge. `guarded` False: policies choose by `states`, but attempts are not guarded. `route`:
    the name of its route.
    """
    services = {name: target(name) for name in targets(expression)}
    target_states = states or TargetStates()
    context = PolicyContext(
        states=target_states,
        chance=target_states.chance,
        route=route,
        budget=_budget(expression),
        make_encoder=make_encoder,
        trim_logprobs=trim_logprobs,
    )

    def service_of(
        part: Expression,
        others: frozenset[str],
        needs_stream: bool,
        continued: bool,
        compares_caches: bool,
    ) -> Service:
        if isinstance(part, TargetName):
            service = services[part.name]
            if states is None or not guarded:
                return service
            among = others | {part.name}
            return states.guard(
                part.name,
                service,
                among,
                needs_stream=needs_stream,
                compares_caches=compares_caches,
            )
        policy = part.definition
        first, later, named_others = _others_of_branches(part, others, target_states)
        stream = needs_stream or policy.waits_for_token(dict(part.settings))
        inside = continued or policy.continues(dict(part.settings))
        caches = compares_caches or policy.compares_caches(dict(part.settings))
        named_branches = {
            name: service_of(branch, named_others, stream, inside, caches)
            for name, branch in part.named
        }
        branches = [
            service_of(branch, later if n else first, stream, inside, caches)
            for n, branch in enumerate(part.branches)
        ]
        names = tuple(map(targets, part.parts))
        return policy.service(
            branches,
            named_branches,
            dict(part.settings),
            replace(context, names=names, continued=continued),
        )

    service = service_of(
        expression, frozenset(), needs_stream=False, continued=False, compares_caches=False
    )
    return service if context.budget is None else BudgetedService(service, context.budget)


def _others_of_branches(
    part: PolicyExpression, others: frozenset[str], states: TargetStates
) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return the targets that can answer in the place of the first branch, of a later one, and of a
    named one."""
    policy = part.definition
    if policy.alternatives:
        for_all = others | _reached(part, states)
    else:
        for_all = others if len(part.parts) == 1 or policy.takes_over else frozenset[str]()
    first = _reached(part.branches[1], states) if policy.backed else for_all
    if not policy.takes_over:
        return first, for_all, for_all
    return (
        first,
        for_all.union(*(_reached(branch, states) for branch in part.branches[1:])),
        for_all,
    )


def _reached(part: Expression, states: TargetStates) -> frozenset[str]:
    if isinstance(part, TargetName):
        return frozenset({part.name})
    policy = part.definition
    if policy.reachable is not None:
        return frozenset(
            policy.reachable(list(map(targets, part.branches)), states, **dict(part.settings))
        )
    return frozenset[str]().union(*(_reached(each, states) for each in part.parts))


def _budget(expression: Expression) -> ExtraRequestBudget | None:
    extras = list(_extras(expression))
    if not extras:
        return None
    return ExtraRequestBudget(
        max(share for share, _ in extras), reserve=max(reserve for _, reserve in extras)
    )


def _extras(expression: Expression) -> Iterator[tuple[float, int]]:
    if isinstance(expression, TargetName):
        return
    extra = expression.definition.extra_requests(dict(expression.settings))
    if extra is not None:
        yield extra
    for branch in expression.parts:
        yield from _extras(branch)
