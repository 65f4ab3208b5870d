"""Where a route's `resume` goes in its policy.

A route says it of its whole policy; carried on is an answer where there is a choice of who gives it. So it goes to each
policy that chooses among its branches (`race`, `fastest`, …), and inside whatever stands around that (`deadline`,
`limit`, `cache`, `by_task`), which then holds for the whole answer, whoever says it. A single target has nobody to be
carried on at.
"""

import msgspec

from splitsecond.clock import NS_PER_MS
from splitsecond.policy.answers.carrying import How
from splitsecond.policy.expression import Expression, Rule, targets
from splitsecond.policy.forms import POLICIES
from splitsecond.policy.settings import Setting


def resumed(expression: Expression, how: How, stall_ns: int | None = None) -> Expression:
    """`expression`, whose answers are carried on where they break off, or are silent for `stall_ns`.

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
            branches=tuple(resumed(branch, how, stall_ns) for branch in expression.branches),
            named=tuple((name, resumed(branch, how, stall_ns)) for name, branch in expression.named),
        )
    stall: dict[str, Setting] = {} if stall_ns is None else {"stall": _text(stall_ns)}
    if "resume" in form.settings:
        settings = {"resume": how, **stall, **dict(expression.settings)}
        return msgspec.structs.replace(expression, settings=tuple(settings.items()))
    return Rule("resume", (expression,), (("how", how), *stall.items()))


def _text(ns: int) -> str:
    ms = max(ns // NS_PER_MS, 1)
    return f"{ms}ms" if ms % 1000 else f"{ms // 1000}s"


def _says_how(rule: Rule) -> bool:
    return rule.policy == "resume" or "resume" in dict(rule.settings)
