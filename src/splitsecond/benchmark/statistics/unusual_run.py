"""The rule for lasting changes in the first days of a watch, when a night cannot be distinguished
from a drift.

The CUSUM counts only changes by more than half then. So a smaller change is a drift if no night
explains the run of unusual rounds that it makes: the run lasts for too long, or it began with a
step within an hour.
"""

from collections.abc import Collection, Sequence

import numpy as np

from splitsecond.benchmark.statistics.expectation import MIN, Expectation

NIGHT_HOURS, STEP_HOURS = 18, 1
"""A run of unusual rounds that is longer than the first is not a night. A step within the second is
not one either: day and night differ little within an hour."""
Rounds = Sequence[tuple[float, float]]
"""Times of rounds, in hours, and their figures."""


class UnusualRun:
    """Successive rounds on one `side` of the usual level, 1 or −1, after the round `since`.

    `side` is 0 while rounds are usual.
    """

    def __init__(self, since: int) -> None:
        self.side, self.since = 0, since

    def follow(self, usual: Expectation, value: float, side: int, number: int) -> None:
        """Add the round with this number, from 1. A run begins with an unusual round, and ends half
        way back."""
        edge = usual.high if self.side > 0 else usual.low
        if self.side and self.side * (value - (usual.level + edge) / 2) > 0:
            return
        self.side = side if usual.early else 0
        self.since = number - abs(self.side)

    def lasts(self, run: Rounds, before: Collection[tuple[float, float]], level: float) -> bool:
        """Return whether no night explains the run. `before`: the last usual rounds."""
        if len(run) < MIN:
            return False
        if run[-1][0] - run[0][0] >= NIGHT_HOURS:
            return True
        if len(before) < MIN or run[MIN - 1][0] - min(before)[0] > STEP_HOURS:
            return False
        old, new = (float(np.median([value for _, value in part])) for part in (before, run[:MIN]))
        return self.side * (new - old) > abs(new - level) / 2
