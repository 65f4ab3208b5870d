"""Differences between two arms that chance alone makes: sessions or keys are dealt anew.

With few keys that differ, the scatter within an arm does not show its own uncertainty: an arm
without a slow key looks both fast and sure. Chance dealt the keys to the arms, so dealing them
anew shows which differences it makes where there are none (Fisher's randomization test, 1935).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from splitsecond.core.timing.columns import Floats, Integers, Mask

DEALS = 999
"""With the arms as they are they make 1,000."""
BLOCK = 1 << 18
"""Calls or units times deals that are counted at once: they fit into the cache of a processor."""


class Reassignment:
    """`unit`: the number of each call's unit, from 0. `second`: whether the call is in the second
    arm. Each deal has as many units in the second arm as there are."""

    def __init__(self, unit: Integers, second: Mask) -> None:
        self._unit = unit
        self._labels = second[np.unique(unit, return_index=True)[1]]

    def of_quantiles(self, values: Floats, quantiles: Sequence[float]) -> list[Floats]:
        """Return, for each quantile, the size of the logarithm of second / first in each deal,
        sorted. `values`: NaN for calls that do not count."""
        order = np.argsort(values)[: int((~np.isnan(values)).sum())]
        ordered, unit = values[order], self._unit[order]
        if not len(ordered):
            return [np.full(DEALS, np.inf) for _ in quantiles]
        places = np.arange(1, len(ordered) + 1, dtype=np.int32)
        differences: list[list[Floats]] = [[] for _ in quantiles]
        for deals in self._deals():
            seconds = np.cumsum(deals[:, unit], axis=1, dtype=np.int32)
            firsts = places - seconds
            for q, logs in zip(quantiles, differences, strict=True):
                first, second = (ordered[_reached(counts, q)] for counts in (firsts, seconds))
                with np.errstate(invalid="ignore"):
                    logs.append(np.log(second) - np.log(first))
        return [_sizes(logs) for logs in differences]

    def of_mean(self, values: Floats, *, ratio: bool) -> Floats:
        """Return the size of the difference of the means of each deal, sorted; with `ratio` that
        of their logarithms."""
        there = ~np.isnan(values)
        sums = np.bincount(self._unit[there], values[there], len(self._labels))
        counts = np.bincount(self._unit[there], minlength=len(self._labels))
        differences = []
        for deals in self._deals():
            of_second, in_second = (deals.astype(np.float64) @ each for each in (sums, counts))
            with np.errstate(invalid="ignore", divide="ignore"):
                second = of_second / in_second
                first = (sums.sum() - of_second) / (counts.sum() - in_second)
                differences.append(np.log(second) - np.log(first) if ratio else second - first)
        return _sizes(differences)

    def _deals(self) -> Iterator[Mask]:
        """Yield blocks of deals: whether each unit is in the second arm; the same each time."""
        random, size = np.random.default_rng(0), max(BLOCK // len(self._unit), 1)
        for begin in range(0, DEALS, size):
            labels = np.tile(self._labels, (min(size, DEALS - begin), 1))
            yield random.permuted(labels, axis=1)


def _reached(counts: npt.NDArray[np.signedinteger[Any]], q: float) -> Integers:
    """Return the place of the `q` quantile of each row. `counts`: how many values are counted up to
    each place."""
    needed = np.maximum(np.ceil(q * counts[:, -1]), 1)
    return np.asarray((counts >= needed[:, None]).argmax(axis=1))


def _sizes(differences: Sequence[Floats]) -> Floats:
    joined = np.concatenate(differences)
    return np.sort(np.where(np.isfinite(joined), np.abs(joined), np.inf))
