"""Two samples of one figure: how far apart their percentiles are, and whether chance could do that.

The interval of the ratio is a bootstrap (percentile method). No resample is drawn: the k-th smallest of n values drawn
with replacement is the value at place n·U of the sorted sample, where U, the k-th smallest of n uniform numbers, is
Beta(k, n+1−k); so a draw costs two random numbers whatever n is. The p-value is a permutation test: if both samples
came from one source, how often would a random split of them differ by at least as much?

Both treat requests as independent and know only these requests. That the provider was slower on another day is
outside of what they can say, unless both samples were taken side by side.
"""

import math
from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from splitsecond.analysis.spread import Floats, needed, percentile

DRAWS = 2000
PERMUTATIONS = 1999
PERMUTED_VALUES = 20_000_000
"""Of large samples fewer permutations are drawn, so that a test stays under a second or so."""
FEWEST_PERMUTATIONS = 199
SIGNIFICANT = 0.05


class Contrast(Struct, frozen=True, kw_only=True):
    """One percentile of two samples. `ratio` is second / first, with its 95 % interval; either may be unknown.

    `p_value` is None where a sample has fewer than two values.
    """

    first: float
    second: float
    ratio: float | None
    ci95: tuple[float, float] | None
    p_value: float | None

    @property
    def real(self) -> bool:
        """Whether the difference is more than chance: by the test, and by the interval where there is one."""
        if self.p_value is None or self.p_value >= SIGNIFICANT:
            return False
        return self.ci95 is None or not self.ci95[0] <= 1 <= self.ci95[1]


def contrast(
    first: Floats, second: Floats, quantiles: Mapping[str, float], random: np.random.Generator
) -> dict[str, Contrast]:
    """Compare two samples of positive values at each of the named `quantiles`. Each needs at least one value."""
    a, b = np.sort(first), np.sort(second)
    p_values = _permutation_test(a, b, list(quantiles.values()), random)
    return {
        name: Contrast(
            first=(x := percentile(a, q)),
            second=(y := percentile(b, q)),
            ratio=y / x if x > 0 else None,
            ci95=_ratio_interval(a, b, q, random),
            p_value=p_value,
        )
        for (name, q), p_value in zip(quantiles.items(), p_values, strict=True)
    }


def _ratio_interval(a: Floats, b: Floats, q: float, random: np.random.Generator) -> tuple[float, float] | None:
    if min(len(a), len(b)) < needed(q):
        return None
    below, above = _resampled(a, q, random), _resampled(b, q, random)
    if below.min() <= 0:
        return None
    low, high = np.percentile(above / below, (2.5, 97.5))
    return float(low), float(high)


def _resampled(ordered: Floats, q: float, random: np.random.Generator) -> Floats:
    """The `q` quantile of `DRAWS` samples drawn with replacement from `ordered`."""
    n = len(ordered)
    place = (n - 1) * q
    k = math.floor(place) + 1
    u = random.beta(k, n + 1 - k, DRAWS)
    low = ordered[np.minimum((u * n).astype(np.int64), n - 1)]
    if k == n:
        return low
    # The next one up: the least of the n−k uniform numbers that lie above u.
    above = u + (1 - u) * random.beta(1, n - k, DRAWS)
    high = ordered[np.minimum((above * n).astype(np.int64), n - 1)]
    return low + (high - low) * (place - (k - 1))


def _permutation_test(a: Floats, b: Floats, quantiles: list[float], random: np.random.Generator) -> list[float | None]:
    if min(len(a), len(b)) < 2:
        return [None] * len(quantiles)
    pool = np.sort(np.concatenate((a, b)))
    times = int(np.clip(PERMUTED_VALUES // len(pool), FEWEST_PERMUTATIONS, PERMUTATIONS))
    in_a = np.arange(len(pool)) < len(a)
    splits = np.empty((times, len(quantiles) + 1))
    for i in range(times):
        random.shuffle(in_a)
        splits[i] = _apart(pool[in_a], pool[~in_a], quantiles)
    ours = np.array(_apart(a, b, quantiles))
    # Adding in another order must not make a split that equals ours look less far apart, hence the tolerance.
    further, as_far = splits > ours * (1 + 1e-9), splits >= ours * (1 - 1e-9)
    # Where values repeat, many splits have the same percentiles; among those the means say which is further apart.
    counted = (further | (as_far & as_far[:, -1:]))[:, :-1].sum(axis=0)
    return [float(p) for p in (counted + 1) / (times + 1)]


def _apart(a: Floats, b: Floats, quantiles: list[float]) -> list[float]:
    """How far apart two ordered samples are: at each quantile, then in their means."""
    means = abs(float(a.sum()) / len(a) - float(b.sum()) / len(b))
    return [*(abs(percentile(a, q) - percentile(b, q)) for q in quantiles), means]
