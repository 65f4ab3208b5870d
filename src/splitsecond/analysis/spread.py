"""A list of numbers to a `Spread`: percentiles that claim no more than the numbers can show.

Percentiles are exact, by linear interpolation between the two nearest values (Hyndman and Fan's type 7, numpy's
default), so none lies past the maximum. Their intervals come from order statistics: whatever the distribution, the
number of values below the true percentile is binomial, so two ranks can be named between which the percentile lies
19 times in 20. Near the ends there may be no such rank; then that bound is None, and `needed` says how many values
would give one.

All this takes the values as independent. Requests of one run are so only roughly; the gaps between tokens of one
answer are not at all, and get no interval.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from splitsecond.analysis.findings import Spread

Floats = npt.NDArray[np.float64]

PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
TAIL = 0.025
"""What each side of a two-sided 95 % interval may miss."""

MEAN_NEEDS = 6
"""Below this Student's t says little about times, which are skewed, and its expansion below is inexact."""


def percentile(ordered: Floats, q: float) -> float:
    """The `q` quantile (0 to 1) of values in ascending order, linearly interpolated. At least one value."""
    place = (len(ordered) - 1) * q
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    a, b, part = float(ordered[low]), float(ordered[high]), place - low
    return min(a + (b - a) * part, b)


def needed(q: float) -> int:
    """How many values it takes before the `q` quantile has both bounds: 6 for p50, 72 for p95, 368 for p99."""
    return math.ceil(math.log(TAIL) / math.log(max(q, 1 - q)))


def rank_interval(n: int, q: float) -> tuple[int | None, int | None]:
    """The 1-based ranks of `n` ordered values between which the true `q` quantile lies with 95 % confidence."""
    k = np.arange(n + 1)
    log_factorial = np.concatenate(([0.0], np.cumsum(np.log(k[1:]))))
    log_ways = log_factorial[n] - log_factorial - log_factorial[::-1]
    below = np.cumsum(np.exp(log_ways + k * math.log(q) + (n - k) * math.log(1 - q)))
    # below[j]: the chance that at most j values lie under the quantile.
    low = int(np.searchsorted(below, TAIL, side="right"))
    high = int(np.searchsorted(below, 1 - TAIL, side="left")) + 1
    return low or None, high if high <= n else None


def percentile_interval(ordered: Floats, q: float) -> tuple[float | None, float | None]:
    """The 95 % confidence interval of the `q` quantile of values in ascending order."""
    low, high = rank_interval(len(ordered), q)
    return (
        None if low is None else float(ordered[low - 1]),
        None if high is None else float(ordered[high - 1]),
    )


def mean_interval(values: Floats) -> tuple[float | None, float | None]:
    """The 95 % confidence interval of the mean, by Student's t."""
    if len(values) < MEAN_NEEDS:
        return None, None
    half = _student_t(len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
    mean = float(values.mean())
    return mean - half, mean + half


def _student_t(freedom: int) -> float:
    """The 97.5 % point of Student's t: Abramowitz and Stegun 26.7.5, within 0.1 % from 5 degrees of freedom on."""
    z = 1.959963984540054
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * freedom**4)
    )


def spread(values: Sequence[float] | Floats, *, fast_end: bool = False, independent: bool = True) -> Spread:
    """The `Spread` of `values`, in their unit.

    `fast_end`: more is better, so percentiles run from the largest value down, and p95 is what 95 % of the values
    reach. Without `independent` there are no intervals and no `needs`: their n would be an empty claim.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    needs = {name: needed(q) for name, q in PERCENTILES.items() if n < needed(q)} if independent else {}
    if n == 0:
        return Spread(n=0, needs=needs)
    places = {name: 1 - q if fast_end else q for name, q in PERCENTILES.items()}
    at = {name: percentile(ordered, q) for name, q in places.items()}
    ci95 = {name: percentile_interval(ordered, q) for name, q in places.items()} if independent else {}
    if independent:
        ci95["mean"] = mean_interval(ordered)
    return Spread(
        n=n,
        p50=at["p50"],
        p95=at["p95"],
        p99=at["p99"],
        mean=float(ordered.mean()),
        min=float(ordered[0]),
        max=float(ordered[-1]),
        ci95=ci95,
        needs=needs,
    )
