"""Intervals of estimates without a formula, from values that resemble each other within rounds or
sessions.

The estimate is made again without each group in turn, and its scatter gives the standard error (the
grouped jackknife; Efron and Stein, Annals of Statistics, 1981). Student's t has as many degrees of
freedom as there are groups, less one. With five to ten groups this is a little too wide, where
drawing groups with replacement is clearly too narrow. With rounds and sessions, the larger of the
two errors counts.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from splitsecond.log.statistics.student import t_quantile
from splitsecond.log.statistics.summary import DOUBT, Floats, Interval, RoundNumbers

MAX_GROUPS = 40
"""Most groups that are left out: more sessions are left out several at a time, because an estimate
takes a while."""
Flags = npt.NDArray[np.bool_]


def jackknife_intervals(
    estimate: Callable[[Flags], Floats | None], middle: Floats, by: Sequence[RoundNumbers]
) -> list[Interval]:
    """Return the 95% interval of each number of `middle`, which is the estimate from all values.

    `estimate` makes it from the values that its argument flags, and returns None where they are too
    few; then there is no interval.
    """
    return intervals_of_estimates(lambda parts: list(map(estimate, parts)), middle, by)


def intervals_of_estimates(
    estimates: Callable[[Flags], Sequence[Floats | None]],
    middle: Floats,
    by: Sequence[RoundNumbers],
) -> list[Interval]:
    """Return the same intervals. `estimates` makes one estimate for each row of its argument."""
    half = np.zeros(len(middle))
    for groups in by:
        numbers = np.unique(groups, return_inverse=True)[1] % MAX_GROUPS
        without = estimates(np.unique(numbers)[:, None] != numbers)
        values = np.array([each for each in without if each is not None])
        if len(values) < len(without):
            return [(None, None)] * len(middle)
        n = len(values)
        error = np.sqrt((n - 1) / n * np.square(values - values.mean(axis=0)).sum(axis=0))
        half = np.maximum(half, t_quantile(DOUBT, n - 1) * error)
    if not by or not all(math.isfinite(each) for each in half):
        return [(None, None)] * len(middle)
    return [(float(m - h), float(m + h)) for m, h in zip(middle, half, strict=True)]
