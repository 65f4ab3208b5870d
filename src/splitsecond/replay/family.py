"""A small family of other policies over the targets of a log, and which of them is better than
today's."""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.timing.packed_attempt import UNKNOWN
from splitsecond.core.wording import number, percent
from splitsecond.log.store.request_columns import RequestColumns
from splitsecond.replay.answer import WhatIf
from splitsecond.replay.figures import MIN_CALLS, FigureChange
from splitsecond.routing.construction.expression import Expression, parse

MAX_TARGETS = 3
"""Targets of the family: the fastest of those that were asked often enough."""
DEADLINE = 2.0
"""A deadline for the first token, in multiples of the target's p95."""
WEIGHTS = ("1,1", "3,1")
MAX_DEARER = 0.1
"""A policy that surely costs more than this share more is not proposed."""


class Proposal(Struct, frozen=True, kw_only=True):
    """`policy`: the one of the family that improves the figure `by` most and surely; "": none does.

    `answer`: of all policies of the family, their tests adjusted together. `refused`: of these,
    those that are better by the figure, but fail more or cost more, each with the reason.
    """

    by: str
    policy: str
    answer: WhatIf
    refused: dict[str, str]


def family(logged: RequestColumns, today: Expression) -> list[Expression]:
    """Return a fallback in each order of the fastest targets, without and with a deadline, hedges
    between them, and weights; without `today`. Empty for fewer than two targets."""
    names = _fastest(logged)
    texts = []
    for first, p95_s in names.items():
        others = [f'"{name}"' for name in names if name != first]
        if others:
            order = ", ".join([f'"{first}"', *others])
            deadline = number(DEADLINE * p95_s).replace(",", "")
            texts += [
                f"fallback({order})",
                f'fallback({order}, ttft="{deadline}s")',
                f'hedge("{first}", {others[0]})',
            ]
    if len(names) > 1:
        two = ", ".join(f'"{name}"' for name in list(names)[:2])
        texts += [f'weighted({two}, weights="{each}")' for each in WEIGHTS]
    policies = map(parse, texts)
    return [each for each in policies if repr(each) != repr(today)]


def _fastest(logged: RequestColumns) -> dict[str, float]:
    """Return the fastest targets by TTFT p50, with their TTFT p95 in seconds."""
    attempts, times = logged.attempts, {}
    for place, name in enumerate(logged.targets):
        own = attempts.target == place
        ttft = attempts.first_token_ns[own] - attempts.sent_ns[own]
        ttft = ttft[(attempts.first_token_ns[own] != UNKNOWN) & (attempts.sent_ns[own] != UNKNOWN)]
        if len(ttft) >= MIN_CALLS:
            p50, p95 = np.quantile(ttft, (0.5, 0.95))
            times[name] = float(p50), float(p95) / NS_PER_S
    ordered = sorted(times, key=lambda name: times[name][0])
    return {name: times[name][1] for name in ordered[:MAX_TARGETS]}


def propose(answer: WhatIf, by: str) -> Proposal:
    """Return which policy of `answer` improves the figure `by`, one of `figures.NAMES`, most."""
    best, least, refused = "", float("inf"), {}
    for each in answer.answers:
        figures = {figure.name: figure for figure in each.figures}
        figure = figures.get(by)
        if figure is None or not figure.is_real or not (figure.difference or 0.0) < 0:
            continue
        if why := _worse(figures):
            refused[each.policy] = why
        elif figure.what_if is not None and figure.what_if < least:
            best, least = each.policy, figure.what_if
    return Proposal(by=by, policy=best, answer=answer, refused=refused)


def _worse(figures: Mapping[str, FigureChange]) -> str:
    """Return why a policy is not to be proposed though its figure is better; "": nothing is in the
    way."""
    failed, cost = figures.get("failed"), figures.get("usd_per_1000")
    if failed is not None and failed.is_real and (failed.difference or 0.0) > 0:
        return "more calls fail"
    if (
        cost is not None
        and cost.is_real
        and (cost.difference or 0.0) > MAX_DEARER * (cost.today or 0.0)
    ):
        return f"it costs more than {percent(MAX_DEARER)} more"
    return ""
