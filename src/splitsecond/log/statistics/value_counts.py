"""Distributions of millions of values in little memory, and intervals that respect slow hours and
days.

Values are kept as counts: how often each occurred in each cell (a name, a batch of hours, a class
of lengths). A value has 24 bits; once the distinct ones exceed `MAX_VALUES`, more of its last bits
are dropped, up to `COARSEST`, which moves a figure by at most 0.03%.

Requests of one hour resemble each other, so batch means take hours or days as the independent
units. Let p be the share of all values below the percentile's estimate, and p_k that of batch k
with n_k of the n values. Then p varies with

s^2 = R / (R - 1) * sum(n_k^2 (p_k - p)^2) / n^2,

never less than with the variance of independent requests. The interval p ± t s, by Student's t with
R - 1 degrees of freedom, is read off the distribution (Asmussen and Glynn, Stochastic Simulation,
2007, IV.5; the ratio estimator of cluster sampling).

Where some values are only lower bounds (requests closed before their first token), all shares come
from the Kaplan-Meier curve, and the least variance from Greenwood's formula. A few such values
without batches have the intervals of Brookmeyer and Crowley (Biometrics 1982), with Greenwood's
variance on the log-minus-log scale. The gateway, which must not load numpy, has this curve in
`core/timing/survival`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from splitsecond.core.timing.columns import Floats, Integers, Mask
from splitsecond.log.statistics.student import t_quantile
from splitsecond.log.statistics.summary import (
    PERCENTILES,
    Z95,
    Interval,
    Summary,
    still_needed,
    summary_of,
)

MAX_VALUES = 300_000
"""Most distinct values of one figure before they are rounded: 5 MB."""
COARSEST = 12
"""Most bits that are dropped from the 24 of a value; then it has a precision of 1/2048."""
BITS_AT_ONCE = 3
PENDING = 400_000
"""Values that wait to be counted: 3 MB."""
BATCHES_NEEDED = 5
"""Least number of batches for an interval from their differences."""
BATCH_NEEDS = 10
"""Least number of values of a batch, on average."""
FAR_APART = 16
"""Average distance of numbers from which on sorting them is quicker than counting."""
FEW = 100_000
"""Up to so many values, an interval without batches comes from exact ranks."""


class ValueCounts:
    """Number of times that each value occurred in each cell, and whether it is a lower bound
    (`closed`).

    Cells are numbers from 0, below 2**31. Values are kept in single precision.
    """

    def __init__(self, coarsest: int = COARSEST) -> None:
        self._coarsest = coarsest
        self._keys, self._counts = np.empty(0, np.int64), np.empty(0, np.int64)
        self._pending = np.empty(PENDING, np.int64)
        self._waiting = 0
        self._dropped_bits = 0

    def add(self, cells: Integers, values: Floats, closed: Mask | None = None) -> None:
        at = np.flatnonzero(values >= 0)
        keys = cells[at] << 31
        keys |= values[at].astype(np.float32).view(np.int32)
        keys <<= 1
        if closed is not None:
            keys |= closed[at]
        while len(keys):
            part, keys = np.split(keys, [len(self._pending) - self._waiting])
            self._pending[self._waiting : self._waiting + len(part)] = part
            self._waiting += len(part)
            if self._waiting == len(self._pending):
                self._merge()

    def of(self, cells: Iterable[int], bits: int = 0) -> "Counted":
        """Return the counts of some cells, ordered by cell, then by value.

        `bits`: a number in `cells` stands for all cells whose numbers begin with it, without the
        last `bits` bits.
        """
        if self._waiting:
            self._merge()
        numbers = np.array(sorted(cells), np.int64)
        edges = np.searchsorted(
            self._keys, np.stack([numbers, numbers + 1], 1) << (32 + bits)
        ).tolist()
        keys, counts = (
            np.concatenate([np.empty(0, np.int64), *(column[low:high] for low, high in edges)])
            for column in (self._keys, self._counts)
        )
        values = ((keys & 0xFFFF_FFFF) >> 1).astype(np.uint32).view(np.float32).astype(np.float64)
        return Counted(
            cells=keys >> 32, values=values, closed=(keys & 1).astype(bool), counts=counts
        )

    def _merge(self) -> None:
        new = self._rounded(self._pending[: self._waiting])
        self._waiting = 0
        new.sort()
        starts = _starts(new)
        keys, counts = new[starts], np.diff(starts, append=len(new))
        places = np.searchsorted(self._keys, keys)
        present = (
            self._keys.take(places, mode="clip") == keys
            if len(self._keys)
            else np.zeros(len(keys), bool)
        )
        self._counts[places[present]] += counts[present]
        fresh = np.flatnonzero(~present)
        inserted = places[fresh] + np.arange(len(fresh))
        old = np.ones(len(self._keys) + len(fresh), bool)
        old[inserted] = False
        self._keys = _filled(old, self._keys, inserted, keys[fresh])
        self._counts = _filled(old, self._counts, inserted, counts[fresh])
        self._limit()

    def _limit(self) -> None:
        before = self._dropped_bits
        while (
            len(self._keys) > MAX_VALUES
            and self._dropped_bits < self._coarsest
            and len(_starts(self._keys >> 1 + self._dropped_bits)) > MAX_VALUES
        ):
            self._dropped_bits = min(self._dropped_bits + BITS_AT_ONCE, self._coarsest)
        if self._dropped_bits > before:
            self._keys, self._counts = _summed(self._rounded(self._keys), self._counts)

    def _rounded(self, keys: Integers) -> Integers:
        dropped = self._dropped_bits
        if not dropped:
            return keys
        middle = 1 << dropped
        return keys & ~((2 << dropped) - 2) | middle


def _starts(ordered: Integers | Floats) -> Integers:
    new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return np.flatnonzero(new)


def _filled(old: Mask, values: Integers, inserted: Integers, more: Integers) -> Integers:
    merged = np.empty(len(old), np.int64)
    merged[old] = values
    merged[inserted] = more
    return merged


def _summed(keys: Integers, counts: Integers) -> tuple[Integers, Integers]:
    if (keys[1:] < keys[:-1]).any():
        order = np.argsort(keys, kind="stable")
        keys, counts = keys[order], counts[order]
    starts = _starts(keys)
    return keys[starts], np.add.reduceat(counts, starts) if len(starts) else counts


class Counted(Struct, frozen=True):
    cells: Integers
    values: Floats
    closed: Mask
    counts: Integers | Floats


class _Curve:
    def __init__(self, values: Floats, closed: Mask, weights: Floats) -> None:
        ended = weights * ~closed if closed.any() else weights
        if (values[1:] <= values[:-1]).any():  # of several cells, or closed and not closed
            order = np.argsort(values, kind="stable")
            values = values[order]
            starts = _starts(values)
            weights, ended = (np.add.reduceat(each[order], starts) for each in (weights, ended))
            values = values[starts]
        self.values, self.weights = values, ended
        gone = np.cumsum(weights)
        self._at_risk: Floats = np.subtract(gone[-1:], gone - weights)
        self._alive: Floats = np.maximum(self._at_risk - ended, 0.0)
        self._alive[self._alive < 1e-9 * self._at_risk] = 0.0
        self.ended: Floats = gone / gone[-1:]
        if closed.any():
            self.ended = np.subtract(1, np.cumprod(self._alive / self._at_risk))

    @classmethod
    def of(cls, counted: "Counted") -> "_Curve":
        return cls(counted.values, counted.closed, counted.counts.astype(np.float64))

    def share(self, value: float) -> float:
        place = int(np.searchsorted(self.values, value, side="right"))
        return float(self.ended[place - 1]) if place else 0.0

    def quantile(self, share: float) -> float | None:
        if share <= 0:
            return None
        place = int(np.searchsorted(self.ended, share - 1e-12))
        return float(self.values[place]) if place < len(self.values) else None

    def greenwood(self) -> Floats:
        """Return Greenwood's sum at each value: the variance of the share still waiting, divided by
        its square."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.cumsum(
                np.where(self._alive > 0, self.weights / (self._at_risk * self._alive), 0.0)
            )

    def variance(self, value: float) -> float:
        place = int(np.searchsorted(self.values, value, side="right"))
        return (
            float((1 - self.ended[place - 1]) ** 2 * self.greenwood()[place - 1]) if place else 0.0
        )


def summarise(sample: Counted, batches: Integers, *, higher_is_better: bool = False) -> Summary:
    """Summarise counted values. `batches`: the batch of each of them.

    With enough batches the intervals are those of batch means, otherwise those of independent
    requests.
    """
    n, censored = int(sample.counts.sum()), bool(sample.closed.any())
    parts = _parts(sample, batches) if _enough(sample, batches) else []
    if not parts and n <= FEW:
        if censored:
            return _censored_summary(_Curve.of(sample), n)
        values = np.repeat(sample.values, sample.counts.astype(np.int64))
        return summary_of(values, higher_is_better=higher_is_better)
    curve, curves = _Curve.of(sample), [_Curve.of(part) for part in parts]
    sizes = np.array([part.counts.sum() for part in parts], np.float64)
    at: dict[str, float | None] = {}
    ci95: dict[str, Interval] = {}
    for name, percentile in PERCENTILES.items():
        q = 1 - percentile if higher_is_better else percentile
        value = at[name] = curve.quantile(q) if censored else _interpolated(curve, q)
        ci95[name] = (
            (None, None) if value is None else _batch_interval(curve, curves, sizes, q, value)
        )
    mean = None if censored else float(np.average(sample.values, weights=sample.counts))
    if mean is not None:
        least = float(np.average((sample.values - mean) ** 2, weights=sample.counts)) / n
        half = _half(
            np.array([np.average(part.values, weights=part.counts) for part in parts]), sizes, least
        )
        ci95["mean"] = mean - half, mean + half
    return Summary(
        n=n,
        p50=at["p50"],
        p95=at["p95"],
        p99=at["p99"],
        mean=mean,
        min=float(curve.values[0]),
        max=None if censored else float(curve.values[-1]),
        ci95=ci95,
        needs=still_needed(n),
    )


def _batch_interval(
    curve: _Curve, curves: Sequence[_Curve], sizes: Floats, q: float, value: float
) -> Interval:
    n = curve.weights.sum()
    least = max(q * (1 - q) / n, curve.variance(value))
    half = _half(np.array([part.share(value) for part in curves]), sizes, least)
    return (
        curve.quantile(q - half) if (q - half) * n >= 1 else None,
        curve.quantile(q + half) if (1 - q - half) * n >= 1 else None,
    )


def _censored_summary(curve: _Curve, n: int) -> Summary:
    """Summarise `n` independent times of which some are only lower bounds.

    A percentile is None if it lies beyond all times at which a request ended. `mean` and `max` are
    unknown.
    """
    some = curve.weights > 0
    ends, waiting = curve.values[some], 1 - curve.ended[some]
    with np.errstate(divide="ignore", invalid="ignore"):
        width = np.exp(Z95 * np.sqrt(curve.greenwood()[some]) / np.abs(np.log(waiting)))
        low, high = waiting**width, waiting ** (1 / width)
    last = waiting <= 0  # the end of the curve, where the formula gives nothing
    low[last] = 0.0
    high[last] = high[~last][-1] if (~last).any() else 1.0

    def reached(share: Floats, q: float) -> float | None:
        at = np.flatnonzero(share <= 1 - q + 1e-12)
        return float(ends[at[0]]) if len(at) else None

    at = {name: reached(waiting, q) for name, q in PERCENTILES.items()}
    return Summary(
        n=n,
        p50=at["p50"],
        p95=at["p95"],
        p99=at["p99"],
        min=float(ends[0]) if len(ends) else None,
        ci95={name: (reached(low, q), reached(high, q)) for name, q in PERCENTILES.items()},
        needs=still_needed(round(float(curve.weights.sum()))),
    )


def closed_bounds(sample: Counted) -> dict[str, Interval]:
    """Return bounds of the percentiles that hold whatever made requests end as lower bounds; none
    without such ones.

    The least possible percentile counts them as ended at once, the largest as never ended (None).
    The Kaplan-Meier estimate lies between them. It assumes that the end of a wait tells nothing
    about how long it would have been: but a race closes its losers when the winner has a token,
    which takes longer for a long prompt at both targets.
    """
    if not sample.closed.any():
        return {}
    weights = sample.counts.astype(np.float64)
    at_once = _Curve(sample.values, np.zeros_like(sample.closed), weights)
    last = sample.values.max() + 1
    never = _Curve(np.where(sample.closed, last, sample.values), sample.closed, weights)
    return {name: (at_once.quantile(q), never.quantile(q)) for name, q in PERCENTILES.items()}


def median(sample: Counted) -> float | None:
    return _interpolated(_Curve.of(sample), 0.5) if len(sample.values) else None


def period_medians(sample: Counted, periods: Integers) -> dict[int, float]:
    parts = _parts(sample, periods)
    names = distinct(periods)[0].tolist()
    return {
        name: median
        for name, part in zip(names, parts, strict=bool(names))
        if part.counts.sum() >= BATCH_NEEDS
        and (median := _Curve.of(part).quantile(0.5)) is not None
    }


def _enough(sample: Counted, batches: Integers) -> bool:
    """Return whether the batches are enough for an interval: a few large ones among many small
    count as few (Kish)."""
    if not len(batches):
        return False
    sizes = np.bincount(distinct(batches)[1], sample.counts)
    effective = sizes.sum() ** 2 / (sizes**2).sum()
    return bool(effective >= BATCHES_NEEDED and sizes.sum() >= BATCH_NEEDS * len(sizes))


def _parts(sample: Counted, batches: Integers) -> list[Counted]:
    columns: tuple[npt.NDArray[Any], ...] = (
        sample.cells,
        sample.values,
        sample.closed,
        sample.counts,
    )
    if (batches[1:] < batches[:-1]).any():
        order = np.argsort(batches, kind="stable")
        batches, columns = batches[order], tuple(column[order] for column in columns)
    starts = np.flatnonzero(np.diff(batches)) + 1
    return [
        Counted(*part)
        for part in zip(*(np.split(column, starts) for column in columns), strict=True)
    ]


def _half(figures: Floats, sizes: Floats, least: float) -> float:
    """Return half of the 95% interval of a mean of batches; of independent requests without
    batches.

    `least`: the variance of independent requests, below which it cannot be.
    """
    if not len(figures):
        return Z95 * float(least**0.5)
    share = sizes / sizes.sum()
    middle = float((share * figures).sum())
    count = len(sizes)
    variance = count / (count - 1) * float((share**2 * (figures - middle) ** 2).sum())
    freedom = max(round(1 / float((share**2).sum())) - 1, 1)
    return t_quantile(0.05, freedom) * float(max(variance, least) ** 0.5)


def _interpolated(curve: _Curve, q: float) -> float:
    below = np.cumsum(curve.weights)
    place = (below[-1] - 1) * q
    low, high = curve.values[
        np.searchsorted(below, [np.floor(place), np.ceil(place)], side="right")
    ]
    return float(low + (high - low) * (place - np.floor(place)))


def distinct(numbers: Integers) -> tuple[Integers, Integers]:
    """Return the distinct numbers in order, and the place of each number among them: `np.unique`,
    without a sort if the numbers are close together."""
    least, most = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if most - least > FAR_APART * len(numbers):
        return np.unique(numbers, return_inverse=True)
    present = np.flatnonzero(np.bincount(numbers - least))
    places = np.zeros(most - least + 1, np.int64)
    places[present] = np.arange(len(present))
    return present + least, places[numbers - least]
