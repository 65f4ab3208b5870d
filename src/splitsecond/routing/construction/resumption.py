"""Placement of a route's `resume` setting within its policy.

A route sets it for its whole policy, but an answer can only be resumed where there are several
targets. So the setting goes to each policy that chooses among its branches (`race`, `fastest`, …),
inside the policies around that (`deadline`, `limit`, `cache`, `by_task`), which then hold for the
whole answer. A single target cannot resume anywhere.
"""

import msgspec

from splitsecond.core.clock import NS_PER_MS
from splitsecond.routing.construction.expression import Expression, PolicyExpression, targets
from splitsecond.routing.machinery.settings import SettingLiteral


def resumed(expression: Expression, stall_ns: int | None = None) -> Expression:
    """Return `expression` with answers that are resumed if they break off, or are silent for
    `stall_ns`.

    A part of it with a `resume` of its own stays as it is.
    """
    if not isinstance(expression, PolicyExpression) or _has_resume(expression):
        return expression
    if len(targets(expression)) < 2:
        return expression
    form = expression.definition
    if not form.alternatives:
        return msgspec.structs.replace(
            expression,
            branches=tuple(resumed(branch, stall_ns) for branch in expression.branches),
            named=tuple((name, resumed(branch, stall_ns)) for name, branch in expression.named),
        )
    stall: dict[str, SettingLiteral] = (
        {} if stall_ns is None else {"stall": _duration_text(stall_ns)}
    )
    if "resume" in form.settings:
        settings = {"resume": "replay", **stall, **dict(expression.settings)}
        return msgspec.structs.replace(expression, settings=tuple(settings.items()))
    return PolicyExpression("resume", (expression,), tuple(stall.items()))


def _duration_text(ns: int) -> str:
    ms = max(ns // NS_PER_MS, 1)
    return f"{ms}ms" if ms % 1000 else f"{ms // 1000}s"


def _has_resume(part: PolicyExpression) -> bool:
    return part.policy == "resume" or "resume" in dict(part.settings)
