"""Bootstrap of figures that have no formula for their interval, such as where two targets cross.

Requests of one round resemble each other, so whole rounds are drawn where a run has `MIN_ROUNDS` of
them; otherwise single requests. Intervals are the percentiles of the draws.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from splitsecond.log.statistics.summary import MIN_ROUNDS, Floats

DRAWS, FEWEST_DRAWS = 1000, 200
DRAWN_VALUES = 10_000_000
"""Limit on the values drawn in all: large samples get fewer draws, so that an interval takes less
than a second."""
MIN_REQUESTS = 6
"""Least number of requests for an interval."""

Indices = npt.NDArray[np.int64]


def resamples(rounds: Sequence[int], random: np.random.Generator) -> list[Indices]:
    n = len(rounds)
    if n < MIN_REQUESTS:
        return []
    times = int(np.clip(DRAWN_VALUES // n, FEWEST_DRAWS, DRAWS))
    names = np.unique(rounds)
    if len(names) < MIN_ROUNDS:
        return list(random.integers(0, n, (times, n)))
    parts = [np.flatnonzero(np.asarray(rounds) == name) for name in names]
    picks = random.integers(0, len(parts), (times, len(parts)))
    return [np.concatenate([parts[i] for i in pick]) for pick in picks]


def interval(draws: Floats) -> tuple[float, float]:
    low, high = np.percentile(draws, (2.5, 97.5))
    return float(low), float(high)


def median_draws(values: Floats, drawn: Sequence[Indices]) -> Floats:
    return np.array([_median(values[each]) for each in drawn])


def _median(values: Floats) -> float:
    """Return the median as `np.median` does, which takes ten times as long for a hundred values."""
    low, high = (len(values) - 1) // 2, len(values) // 2
    parted = np.partition(values, (low, high))
    return float((parted[low] + parted[high]) / 2)
