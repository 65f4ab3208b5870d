"""What to route for a week so that the log can answer: a small share of the calls, to targets by turns.

Only attempts that do not depend on what happened before tell how a target answers any call. So the share goes to each
target of the other policy in turn, whatever today's policy would choose.
"""

import numpy as np
from msgspec import Struct

from splitsecond.core.timing.packed_attempt import UNKNOWN
from splitsecond.log.store.request_columns import RequestColumns
from splitsecond.routing.construction.expression import Expression, TargetName, targets
from splitsecond.what_if.history import MIN_SIMILAR, prompt_class

WEEK_DAYS = 7
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
HOURS_NEAR = 2
"""Hours within which similar attempts count: one before a call and one after it."""


class Exploration(Struct, frozen=True, kw_only=True):
    """A policy to route for a week, with which `policy` can be replayed.

    `explored`: the targets that get the share, in turn. `per_day`: their attempts a day in all. `coverage`: the share
    of the calls that would then have enough similar attempts. `needed`: the least share with which most of them do;
    None: none of at most 50%.
    """

    policy: str
    route: str
    explored: list[str]
    share: float
    per_day: float
    coverage: float
    needed: float | None


def exploration(
    logged: RequestColumns, today: Expression, policy: Expression, share: float, days: float, calls: int
) -> Exploration:
    """Return what to route. `calls`: how many the log has in these `days`."""
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
        per_day=calls / max(days, 1 / 24) * share,
        coverage=shares[share],
        needed=min(needed, default=None),
    )


def _coverage(logged: RequestColumns, share: float) -> float:
    """Return the share of the calls with enough similar ones within an hour that a target gets by chance."""
    counts = logged.calls
    known = counts.input_tokens != UNKNOWN
    kind = prompt_class(counts.input_tokens[known]) * 2 + counts.stream[known]
    hour = counts.came_us[known] // 3_600_000_000
    _, place = np.unique(np.stack([kind, hour]), axis=1, return_inverse=True)
    in_an_hour = np.bincount(place.ravel())[place.ravel()]
    return float((in_an_hour * HOURS_NEAR * share >= MIN_SIMILAR).mean()) if known.any() else 0.0
