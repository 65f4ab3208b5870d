"""Whose turn it is to be asked although it is not the best: whoever always takes the best never learns of a better one.

Some of the calls, and never more, go to branches of which nothing is known lately, in turn, so that learning has a
price that is known. Ten such calls are there from the start, for a cold start.
"""

from collections.abc import Iterable

from splitsecond import clock
from splitsecond.policy.budget import MOST_SAVED, Budget
from splitsecond.policy.choosing.branch import Branch

SHARE = 0.02
"""Of the calls, at most. At ten calls a second that is one in `NOT_LATELY_NS`, and enough to see in half a minute that
a branch has recovered."""
NOT_LATELY_NS = 5 * clock.NS_PER_S
"""What was learned before that is not known lately."""
ASKED_EVERY_NS = clock.NS_PER_S
"""One branch is not explored more often: what was asked should be answered first."""


class Exploring:
    """The turns of one policy's branches."""

    def __init__(self) -> None:
        self._budget = Budget(SHARE, reserve=MOST_SAVED)

    def called(self) -> None:
        """A call came in."""
        self._budget.deposit()

    def turn(self, others: Iterable[tuple[Branch, float]], now_ns: int) -> Branch | None:
        """The one to ask instead of the best. `others`: those that are not, with the age of what is known of them."""
        found, before_ns = None, now_ns - ASKED_EVERY_NS
        for branch, age_ns in others:
            if age_ns >= NOT_LATELY_NS and branch.asked_ns < before_ns:
                found, before_ns = branch, branch.asked_ns
        return found if found is not None and self._budget.withdraw() else None
