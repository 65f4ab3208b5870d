"""Survival curve of times of which some are only lower bounds (censored): the weighted Kaplan-Meier
estimate.

A request that was closed before its first token (it lost a race, its client left, a deadline
passed) shows only that the token would have come later. Dropping such requests makes a slow target
look fast, because the slow requests are the ones that are closed; counting them as if the token had
come then does the same. So a censored time counts among those still waiting until it, and never as
one that ended.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import itemgetter

_WEIGHT = itemgetter(2)
TOLERANCE = 1e-9
"""Absorbs the rounding errors of a product of many factors."""


class SurvivalCurve:
    """Share of requests that had ended by each time at which one ended.

    `values` ascend; `ended[i]` is the share that had ended by `values[i]`, and `at_risk[i]` the
    weight of those that had waited until it. `weight` is the weight of all samples, `least` and
    `longest` are the extreme times, censored ones included.
    """

    __slots__ = ("_areas", "at_risk", "ended", "least", "longest", "values", "weight")

    def __init__(self, samples: Iterable[tuple[float, bool, float]]) -> None:
        ordered = sorted(samples)  # at equal times, those that ended come before the censored ones
        self.weight = at_risk = sum(map(_WEIGHT, ordered))
        self.least, self.longest = ordered[0][0], ordered[-1][0]
        values: list[float] = []
        ended: list[float] = []
        risks: list[float] = []
        waiting = 1.0
        for value, censored, weight in ordered:
            if not censored:
                waiting *= 1 - weight / at_risk if at_risk > weight else 0.0
                values.append(value)
                ended.append(1 - waiting)
                risks.append(at_risk)
            at_risk -= weight
        self.values, self.ended, self.at_risk = values, ended, risks
        self._areas: Sequence[float] = ()

    def quantile(self, share: float) -> float:
        place = bisect_left(self.ended, share - TOLERANCE)
        return self.values[place] if place < len(self.values) else self.longest

    def is_lower_bound(self, share: float) -> bool:
        return not self.ended or self.ended[-1] < share - TOLERANCE

    def quantile_of_ended(self, share: float) -> float | None:
        place = bisect_left(self.ended, share - TOLERANCE)
        return self.values[min(place, len(self.values) - 1)] if self.values else None

    def waiting(self, value: float) -> float:
        place = bisect_right(self.values, value)
        return 1 - self.ended[place - 1] if place else 1.0

    def mean(self, limit: float) -> float:
        """Return the mean of the times, each cut off at `limit`: the area below the curve."""
        values, limit = self.values, min(limit, self.longest)
        if not self._areas:
            steps = zip(self.ended, values, values[1:], strict=False)
            self._areas = list(
                accumulate(
                    ((1 - ended) * (b - a) for ended, a, b in steps), initial=sum(values[:1])
                )
            )
        place = bisect_right(values, limit)
        return (
            self._areas[place - 1] + (1 - self.ended[place - 1]) * (limit - values[place - 1])
            if place
            else limit
        )
