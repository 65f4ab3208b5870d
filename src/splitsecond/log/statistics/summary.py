"""Summaries of samples: percentiles and their 95% confidence intervals.

Percentiles are exact: linear interpolation between the two nearest values (Hyndman and Fan's type
7, numpy's default). A failed request counts as slower than all others: its value is infinite, and a
percentile that lies among the failed requests is None.

Requests share slow minutes, so n of them tell less than n independent ones. The scatter between the
rounds of a run shows how much less (batch means: the share of values up to the percentile, round by
round): the effective n is the number of independent values whose share would scatter as much,
divided by the square of Student's t over the normal value, as in Korn and Graubard (Survey
Methodology, 1998); it is never more than n. The interval is the one that so many independent values
would have, from order statistics: the number of values below the true percentile is binomial, so
two ranks bracket it 19 times in 20.

Each bound has the effective n of the share of values up to the bound itself, as in Francisco and
Fuller (Annals of Statistics, 1991): of a server that is fast or slow for whole rounds, they differ
most between the two states.

A sample that names the session of each value (`clusters`) has the effective n of its rounds or that
of its sessions, whichever is less; with too few of both it has no interval.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from splitsecond.log.statistics.student import t_quantile

Floats = npt.NDArray[np.float64]
RoundNumbers = npt.NDArray[np.int64]
Interval = tuple[float | None, float | None]

PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
TAIL = 0.025
"""Probability that each side of a two-sided 95% interval may miss."""
Z95 = 1.959963984540054
"""97.5% point of the normal distribution."""

DOUBT = 0.05
"""Probability that a two-sided 95% interval misses."""

MEAN_NEEDS = 6
"""Least number of values for an interval of the mean. Below it Student's t says little, because
times are skewed."""

MIN_ROUNDS = 5
"""Least number of rounds that show how much requests scatter between rounds."""
MIN_CLUSTERS = 8
"""Least number of sessions that show how much they scatter. They differ more than rounds do: in
length, not only in speed."""

ADVISED_STEP = 50
"""Advice on the number of requests is a multiple of this, so that it is one number everywhere."""

MAX_STEPS = 20
"""Most steps in which a bound moves to where its own effective n agrees with it; it seldom takes
more than five."""


class FigureSample(Struct, frozen=True):
    """Values of one figure and the round of each. A request that failed has an infinite value, on
    the bad side.

    `spread`: there are at least `MIN_ROUNDS` rounds, or each round is a run of its own, so their
    scatter is known. `clusters`: numbers the session of each value; None: the values of a round are
    independent of each other.
    """

    values: Floats
    rounds: RoundNumbers
    spread: bool
    clusters: RoundNumbers | None = None

    @property
    def groupings(self) -> list[RoundNumbers]:
        """The numbers by which values resemble each other: their rounds, their sessions, or
        both."""
        return groupings(self.rounds if self.spread else None, self.clusters)


class Summary(Struct, kw_only=True):
    """Distribution of `n` values: exact percentiles (linear interpolation, never beyond the
    maximum).

    `failed` of the n are requests that failed and count as slower than all others; a percentile
    among them is null. `mean`, `min` and `max` are those of the others. `ci95` maps "p50", "p95",
    "p99" and "mean" to a 95% confidence interval; a bound that n values cannot give is null.
    `rounds` is the number of rounds whose scatter the intervals include; with 0 they describe only
    the seconds of this sample. `sessions` is the number of sessions whose scatter they include;
    with 0 of both they assume independent requests. `n_effective` is the number of independent
    requests that the n are worth for the median, `autocorrelation` that of the means of successive
    rounds (lag 1). `needs` maps the percentiles that n is too small for to the n they need. `ci95`
    and `needs` are empty for ITL, whose gaps are not independent of each other, and for the turns
    of too few sessions. For TPS the percentiles run from the fast end: 95% of requests were at
    least as fast as p95.
    """

    n: int
    failed: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    ci95: dict[str, Interval] = {}
    needs: dict[str, int] = {}
    rounds: int = 0
    sessions: int = 0
    n_effective: float | None = None
    autocorrelation: float | None = None

    def interval(self, statistic: str) -> Interval:
        return self.ci95.get(statistic, (None, None))


def percentile(ordered: Floats, q: float) -> float:
    """Return the `q` quantile (0 to 1) of values in ascending order, linearly interpolated; at
    least one.

    Between a finite and an infinite value it is infinite.
    """
    place = (len(ordered) - 1) * q
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    a, b, part = float(ordered[low]), float(ordered[high]), place - low
    if part == 0:
        return a
    return a if math.isinf(a) else min(a + (b - a) * part, b)


def needed(q: float, rounds: int = 0) -> int:
    """Return how many values give the `q` quantile both bounds: 6 for p50, 72 for p95, 368 for p99.

    In a few rounds it takes more, even if the rounds do not differ: 105 for p95 in 8 rounds, 145 in
    5.
    """
    independent = math.ceil(math.log(TAIL) / math.log(max(q, 1 - q)))
    return math.ceil(independent / known_share(rounds))


def advised(q: float) -> int:
    """Return a round number of requests that gives the `q` quantile both bounds in any run: 150 for
    p95, 750 for p99.

    A run that needs an interval has at least `MIN_ROUNDS` rounds, or is one sample, which needs
    less.
    """
    return ADVISED_STEP * math.ceil(needed(q, MIN_ROUNDS) / ADVISED_STEP)


def known_share(rounds: int, z: float = Z95, doubt: float = DOUBT) -> float:
    """Return the share of the effective n that remains because the scatter of so many rounds is
    only estimated.

    A normal value exceeds `z` in size with probability `doubt`.
    """
    return (z / t_quantile(doubt, rounds - 1)) ** 2 if rounds else 1.0


def binomial(n: int, p: float) -> Floats:
    k = np.arange(n + 1)
    log_factorial = np.concatenate(([0.0], np.cumsum(np.log(k[1:]))))
    log_ways = log_factorial[n] - log_factorial - log_factorial[::-1]
    probabilities: Floats = np.exp(log_ways + k * math.log(p) + (n - k) * math.log(1 - p))
    return probabilities


@lru_cache(maxsize=4096)
def rank_interval(n: int, q: float) -> tuple[int | None, int | None]:
    """Return the 1-based ranks of `n` ordered values that bracket the true `q` quantile with 95%
    confidence."""
    below = np.cumsum(binomial(n, q))
    # below[j]: the probability that at most j values lie below the quantile.
    low = int(np.searchsorted(below, TAIL, side="right"))
    high = int(np.searchsorted(below, 1 - TAIL, side="left")) + 1
    return low or None, high if high <= n else None


def percentile_interval(ordered: Floats, q: float, worth: float | None = None) -> Interval:
    """Return the 95% confidence interval of the `q` quantile of values in ascending order.

    `worth`: the number of independent values that they are worth; by default they are independent.
    """
    n = len(ordered)
    independent = n if worth is None else max(int(worth), 1)
    low, high = rank_interval(independent, q)
    scale = (n + 1) / (independent + 1)
    low_rank = 0 if low is None else math.floor(low * scale)
    high_rank = n + 1 if high is None else math.ceil(high * scale)
    return (
        finite(ordered[low_rank - 1]) if low_rank >= 1 else None,
        finite(ordered[high_rank - 1]) if high_rank <= n else None,
    )


def finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def ratio_variance(amounts: Floats, sizes: Floats) -> float:
    total = float(sizes.sum())
    away = amounts - amounts.sum() / total * sizes
    return len(sizes) / (len(sizes) - 1) * float(np.square(away).sum()) / total**2


def ratio_interval(amounts: Floats, sizes: Floats, least_variance: float = 0.0) -> Interval:
    """Return the 95% interval of Σ amounts / Σ sizes over rounds, by Student's t; unknown below
    `MIN_ROUNDS`."""
    if len(sizes) < MIN_ROUNDS or not sizes.sum():
        return None, None
    half = t_quantile(DOUBT, len(sizes) - 1) * math.sqrt(
        max(ratio_variance(amounts, sizes), least_variance)
    )
    middle = float(amounts.sum() / sizes.sum())
    return middle - half, middle + half


def groupings(rounds: RoundNumbers | None, clusters: RoundNumbers | None) -> list[RoundNumbers]:
    groups = [] if rounds is None else [rounds]
    return (
        groups
        if clusters is None or len(np.unique(clusters)) < MIN_CLUSTERS
        else [*groups, clusters]
    )


def sums(of: npt.NDArray[Any], groups: RoundNumbers) -> Floats:
    numbers, which = np.unique(groups, return_inverse=True)
    return np.bincount(which, weights=of, minlength=len(numbers)).astype(np.float64)


def grouped_ratio_interval(amounts: Floats, sizes: Floats, by: Sequence[RoundNumbers]) -> Interval:
    """Return the 95% interval of Σ amounts / Σ sizes of values that resemble each other within the
    groups of `by`.

    It is the widest of the intervals by Student's t over the groups of each; unknown without any.
    """
    if not by or not sizes.sum():
        return None, None
    middle = float(amounts.sum() / sizes.sum())
    halves = []
    for groups in by:
        a, s = sums(amounts, groups), sums(sizes, groups)
        halves.append(t_quantile(DOUBT, len(s) - 1) * math.sqrt(ratio_variance(a, s)))
    return middle - max(halves), middle + max(halves)


def grouped_share_interval(met: npt.NDArray[Any], by: Sequence[RoundNumbers]) -> Interval:
    """Return the 95% interval of a share of values that resemble each other within the groups of
    `by`.

    Wilson's, with the least effective n of them; unknown without any.
    """
    n = len(met) if by else 0
    pairs = [(sums(met, groups), sums(np.ones(n), groups)) for groups in by]
    worth = [effective_n(*pair) * known_share(len(pair[1])) for pair in pairs]
    return _wilson(float(met.mean()), min([*worth, float(n)])) if n else (None, None)


def share_interval(met: Floats, sent: Floats, of_round: int | None = None) -> Interval:
    """Return the 95% interval of the share Σ met / Σ sent: Wilson's, with the effective n of the
    rounds.

    Below `MIN_ROUNDS` rounds, requests count as independent. From there on, a round counts as at
    most `of_round`.
    """
    n = float(sent.sum())
    if not n:
        return None, None
    share = float(met.sum()) / n
    if len(sent) >= MIN_ROUNDS:
        n = effective_n(met, sent) * known_share(len(sent))
        n = n if of_round is None else min(n, of_round * len(sent))
    return _wilson(share, n)


def _wilson(share: float, n: float) -> Interval:
    middle, half = (
        share + Z95**2 / (2 * n),
        Z95 * math.sqrt(share * (1 - share) / n + (Z95 / (2 * n)) ** 2),
    )
    whole = 1 + Z95**2 / n
    return max((middle - half) / whole, 0.0) if share else 0.0, min(
        (middle + half) / whole, 1.0
    ) if share < 1 else 1.0


def effective_n(met: Floats, sent: Floats) -> float:
    """Return how many independent requests have a share Σ met / Σ sent that scatters as much: at
    most Σ sent."""
    n = float(sent.sum())
    return min(_worth(ratio_variance(met, sent), float(met.sum()) / n), n)


def _worth(variance: float, share: float) -> float:
    return share * (1 - share) / variance if variance > 0 else math.inf


def summary_of(
    values: Sequence[float] | Floats | FigureSample,
    *,
    higher_is_better: bool = False,
    independent: bool = True,
    of_round: int | None = None,
) -> Summary:
    """Summarise `values`, in their unit.

    With `higher_is_better`, percentiles run from the largest value down, and p95 is what 95% of the
    values reach. Without `independent` there are no intervals and no `needs`, because n says
    nothing about the error then. In the interval of a percentile, a round counts as at most
    `of_round` independent values (None: as many as it has).
    """
    sample = values if isinstance(values, FigureSample) else _of_one_round(values)
    batches = [_Batches(sample.values, groups) for groups in sample.groupings]
    independent = independent and (sample.clusters is None or bool(batches))
    ordered = np.sort(sample.values)
    n, answered = len(ordered), ordered[np.isfinite(ordered)]
    fewest = min((each.count for each in batches), default=0)
    if not len(answered):
        return Summary(n=0, needs=still_needed(0, fewest) if independent else {})
    places = {name: 1 - q if higher_is_better else q for name, q in PERCENTILES.items()}
    at = {name: percentile(ordered, q) for name, q in places.items()}
    summary = Summary(
        n=n,
        failed=n - len(answered),
        p50=finite(at["p50"]),
        p95=finite(at["p95"]),
        p99=finite(at["p99"]),
        mean=float(answered.mean()),
        min=float(answered[0]),
        max=float(answered[-1]),
    )
    _add_scatter(summary, batches, at["p50"], spread=sample.spread)
    if independent:
        most = n if of_round is None else min(n, of_round * summary.rounds)
        summary.ci95 = _intervals(ordered, places, batches, most)
        summary.needs = still_needed(n, fewest)
    return summary


def _of_one_round(values: Sequence[float] | Floats) -> FigureSample:
    numbers = np.asarray(values, dtype=np.float64)
    return FigureSample(numbers, np.zeros(len(numbers), dtype=np.int64), spread=False)


def _add_scatter(
    summary: Summary, batches: Sequence["_Batches"], median: float, *, spread: bool
) -> None:
    """Add what is known of the scatter between rounds (with `spread`) and between sessions."""
    if spread:
        summary.rounds, summary.autocorrelation = batches[0].count, batches[0].autocorrelation()
    if len(batches) > spread:
        summary.sessions = batches[-1].count
    if batches:
        summary.n_effective = min([each.worth(median) for each in batches] + [summary.n])


def _intervals(
    ordered: Floats, places: Mapping[str, float], batches: Sequence["_Batches"], most: int
) -> dict[str, Interval]:
    if not batches:
        independent = {name: percentile_interval(ordered, q) for name, q in places.items()}
        return independent | {"mean": mean_interval(ordered[np.isfinite(ordered)])}
    intervals = {name: _interval(ordered, q, batches, most) for name, q in places.items()}
    return intervals | {"mean": _widest([each.mean_interval() for each in batches])}


def _widest(intervals: Sequence[Interval]) -> Interval:
    lows, highs = zip(*intervals, strict=True)
    return None if None in lows else min(lows), None if None in highs else max(highs)


def _interval(ordered: Floats, q: float, batches: Sequence["_Batches"], most: int) -> Interval:
    def bounds(at: float) -> Interval:
        sizes = (each.worth(at) * known_share(each.count) for each in batches)
        return percentile_interval(ordered, q, min([*sizes, most]))

    low, high = bounds(percentile(ordered, q))
    for _ in range(MAX_STEPS):
        further = None if low is None else bounds(low)[0]
        if low is None or (further is not None and further >= low):
            break
        low = further
    for _ in range(MAX_STEPS):
        further = None if high is None else bounds(high)[1]
        if high is None or (further is not None and further <= high):
            break
        high = further
    return low, high


class _Batches:
    def __init__(self, values: Floats, groups: RoundNumbers) -> None:
        numbers, self._group = np.unique(groups, return_inverse=True)
        self._values = values
        self.count = len(numbers)
        self._sizes = self._sums(np.ones(len(values)))
        self._answered = np.isfinite(values)
        self._answers = self._sums(self._answered)
        self._totals = self._sums(np.where(self._answered, values, 0.0))

    def _sums(self, of: npt.NDArray[Any]) -> Floats:
        return np.bincount(self._group, weights=of, minlength=self.count).astype(np.float64)

    def worth(self, at: float) -> float:
        below = self._sums(self._answered if at == math.inf else self._values <= at)
        return _worth(ratio_variance(below, self._sizes), float(below.sum()) / len(self._values))

    def mean_interval(self) -> Interval:
        answered = self._values[self._answered]
        if len(answered) < MEAN_NEEDS:
            return None, None
        return ratio_interval(
            self._totals, self._answers, float(answered.var(ddof=1)) / len(answered)
        )

    def autocorrelation(self) -> float | None:
        return lag_one(self._totals[self._answers > 0] / self._answers[self._answers > 0])


def lag_one(values: Floats) -> float | None:
    away = values - values.mean() if len(values) else values
    square = float(np.square(away).sum())
    return (
        float((away[1:] * away[:-1]).sum()) / square
        if len(values) >= MIN_ROUNDS and square > 0
        else None
    )


def mean_interval(values: Floats) -> Interval:
    if len(values) < MEAN_NEEDS:
        return None, None
    half = t_quantile(DOUBT, len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
    mean = float(values.mean())
    return mean - half, mean + half


def still_needed(n: int, rounds: int = 0) -> dict[str, int]:
    return {name: least for name, q in PERCENTILES.items() if n < (least := needed(q, rounds))}
