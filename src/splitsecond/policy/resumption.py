"""Where a route's `resume` goes in its policy.

A route says it of its whole policy; carried on is an answer where there is a choice of who gives it. So it goes to each
policy that chooses among its branches (`race`, `fastest`, …), and inside whatever stands around that (`deadline`,
`limit`, `cache`, `by_task`), which then holds for the whole answer, whoever says it. A single target has nobody to be
carried on at.
"""

import msgspec

from splitsecond.policy.expression import POLICIES, Expression, Rule, targets
from splitsecond.policy.resume import How
from splitsecond.policy.settings import Setting


def resumed(expression: Expression, how: How, stall: str | None = None) -> Expression:
    """`expression`, whose answers are carried on where they break off, or are silent for `stall`.

    A part of it that says itself how it is carried on stays as it is.
    """
    if not isinstance(expression, Rule) or _says_how(expression):
        return expression
    if len(targets(expression)) < 2:
        return expression
    form = POLICIES[expression.policy]
    if not form.alternatives:
        return msgspec.structs.replace(
            expression,
            branches=tuple(resumed(branch, how, stall) for branch in expression.branches),
            named=tuple((name, resumed(branch, how, stall)) for name, branch in expression.named),
        )
    if "resume" in form.settings:
        written = dict(expression.settings)
        more: dict[str, Setting] = {"resume": how, **({"stall": stall} if stall is not None else {})}
        return msgspec.structs.replace(expression, settings=tuple({**more, **written}.items()))
    settings: list[tuple[str, Setting]] = [("how", how)]
    if stall is not None:
        settings.append(("stall", stall))
    return Rule("resume", (expression,), tuple(settings))


def _says_how(rule: Rule) -> bool:
    return rule.policy == "resume" or "resume" in dict(rule.settings)
