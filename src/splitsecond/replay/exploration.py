"""What to route for a week so that the log can answer: a small share of the calls, to targets by
turns.

Only attempts that do not depend on what happened before tell how a target answers any call. So the
share goes to each target of the other policy in turn, whatever today's policy would choose.
"""

import numpy as np
from msgspec import Struct

from splitsecond.core.clock import US_PER_DAY
from splitsecond.core.timing.columns import US_PER_HOUR
from splitsecond.core.timing.packed_attempt import UNKNOWN
from splitsecond.log.store.request_columns import RequestColumns
from splitsecond.replay.history import MIN_SIMILAR, prompt_class
from splitsecond.routing.construction.expression import Expression, TargetName, targets

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
HOURS_NEAR = 2
"""Hours within which similar attempts count: one before a call and one after it."""


class Exploration(Struct, frozen=True, kw_only=True):
    """A policy to route for a week, with which `policy` can be replayed.

    `explored`: the targets that get the share, in turn. `per_day`: their attempts a day in all.
    `coverage`: the share of the calls that would then have enough similar attempts. `needed`: the
    least share with which most of them do; None: none of at most 50%.
    """

    policy: str
    route: str
    explored: list[str]
    share: float
    per_day: float
    coverage: float
    needed: float | None


def exploration(
    logged: RequestColumns, today: Expression, policy: Expression, share: float, calls: int
) -> Exploration:
    """Return what to route. `calls`: how many the log has from the first to the last of
    `logged`."""
    came_us = logged.calls.came_us
    days = max(int(came_us[-1] - came_us[0]) / US_PER_DAY, 1 / 24) if len(came_us) else 1.0
    explored = targets(policy)
    weight = max(round(1 / share) - 1, 1)
    inside = ", ".join(repr(TargetName(name)) for name in explored)
    turns = inside if len(explored) == 1 else f"weighted({inside})"
    shares = {each: _coverage(logged, each / len(explored)) for each in (share, *SHARES)}
    needed = [each for each, coverage in shares.items() if coverage >= 0.8]
    return Exploration(
        policy=repr(policy),
        route=f'weighted({today!r}, {turns}, weights="{weight},1")',
        explored=explored,
        share=share,
        per_day=calls / days * share,
        coverage=shares[share],
        needed=min(needed, default=None),
    )


def _coverage(logged: RequestColumns, share: float) -> float:
    """Return the share of the calls with enough similar ones within an hour that a target gets by
    chance."""
    counts = logged.calls
    has_tokens = counts.input_tokens != UNKNOWN
    kind = prompt_class(counts.input_tokens[has_tokens]) * 2 + counts.stream[has_tokens]
    hour = (counts.came_us[has_tokens] - counts.came_us[:1]) // US_PER_HOUR
    _, place = np.unique(np.stack([kind, hour]), axis=1, return_inverse=True)
    in_an_hour = np.bincount(place.ravel())[place.ravel()]
    return (
        float((in_an_hour * HOURS_NEAR * share >= MIN_SIMILAR).mean()) if has_tokens.any() else 0.0
    )
