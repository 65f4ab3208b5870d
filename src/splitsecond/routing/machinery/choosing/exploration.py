"""Exploration: sometimes route to a branch that is not the best.

A policy that always takes the best branch never notices that another one has become better. So a
small share of the calls goes in turn to the branches about which nothing recent is known. Branches
about which nothing at all is known get up to `COLD_START` calls at once; one whose speed is only
old, for example from a bench before the start, does not.
"""

from collections.abc import Iterable
from math import inf

from splitsecond.core import clock
from splitsecond.routing.machinery.budget import ExtraRequestBudget
from splitsecond.routing.machinery.choosing.branch import Branch

SHARE = 0.02
"""The largest share of the calls. With ten calls a second that is one in `STALE_NS`, enough to
notice within half a minute that a branch has recovered."""
COLD_START = 10
"""Calls to branches of unknown speed that are not counted against `SHARE`."""
STALE_NS = 5 * clock.NS_PER_S
"""Knowledge that is older is not recent."""
MIN_INTERVAL_NS = clock.NS_PER_S
"""The least time between two explorations of one branch: the first should be answered before the
second."""


class Exploration:
    def __init__(self) -> None:
        self._budget = ExtraRequestBudget(SHARE)
        self._cold_left = COLD_START

    def record_call(self) -> None:
        self._budget.deposit()

    def pick(self, others: Iterable[tuple[Branch, float]], now_ns: int) -> Branch | None:
        """Return the branch to explore with this call, or None.

        `others`: the branches that are not the best, with the age of what is known about them (ns),
        infinite: nothing.
        """
        candidate, unknown, before_ns = None, False, now_ns - MIN_INTERVAL_NS
        for branch, age_ns in others:
            cold = age_ns == inf and self._cold_left > 0
            longest_ago = cold > unknown or (cold == unknown and branch.last_asked_ns < before_ns)
            if (
                age_ns >= STALE_NS
                and longest_ago
                and branch.last_asked_ns < now_ns - MIN_INTERVAL_NS
            ):
                candidate, unknown, before_ns = branch, cold, branch.last_asked_ns
        if unknown:
            self._cold_left -= 1
            return candidate
        return candidate if candidate is not None and self._budget.withdraw() else None
