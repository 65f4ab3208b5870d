"""Comparison of two samples: the ratio of their percentiles, its interval, and whether chance
explains the difference.

Requests share slow minutes, so the unit is a round of the run. Each round gives one number for each
side: the logarithm of its percentile. Two targets of one run are paired round by round, so a slow
minute that affects both cancels (paired t); two runs are compared by the scatter of each (Welch's
t, degrees of freedom rounded down). Interval and test are one calculation: the interval excludes 1
exactly if p is below its level. The ratio is that of the percentiles of all requests, which tables
show, or the nearer bound if it lies outside the interval of the rounds.

Student's t, not an enumeration of sign flips: with five rounds no p-value could be below 1/16.
`benchmarks/coverage.py` measures its false alarms.

A report makes many comparisons. `holm` adjusts them together (Holm, Scandinavian Journal of
Statistics, 1979): at most one report in twenty contains any difference that is not real.

Of two runs, that level is far in the tail of t, where t trusts that rounds are normal. A server
that is in one of two states for whole rounds is not. So the rounds of both runs are also regrouped
at random, in all comparisons of the report, and p is at least the share of regroupings with so
small a p (the null distribution is pooled over comparisons as in Tusher, Tibshirani and Chu, PNAS,
2001). Pairs in five rounds have only 16 sign patterns, too few for it.

A failed request counts as slow as the slowest that was answered on either side. Where a percentile
itself lies among the failed requests, there is no ratio.
"""

import math
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from splitsecond.log.statistics.student import t_doubt, t_doubts, t_quantile
from splitsecond.log.statistics.summary import (
    DOUBT,
    MIN_ROUNDS,
    FigureSample,
    Floats,
    finite,
    needed,
    percentile,
)

LEFT_OVER = 1.1
"""Factor on the variance between rounds: pauses of three correlation times leave a correlation of
0.05 between neighbours, which makes the scatter of a mean about this much larger than the scatter
of the rounds shows."""
POWER_T = 0.4
"""Two-sided doubt of the t that a true difference exceeds four times in five (one-sided 0.2)."""
LARGEST_LOG = 700.0
"""Largest logarithm of a bound: two rounds a side that differ widely give one whose ratio no float
can hold."""
REGROUPINGS = 500
"""Random regroupings for each comparison of a report."""
MAX_REGROUPED = 100
"""Most rounds of both runs that are regrouped: the means of more rounds are normal, whatever a
round is."""
STILL_ALIKE = 1.3
"""Factor on the share of regroupings: a correlation of 0.05 between neighbours makes it about this
much more likely that all five rounds of either side are in one state than after a regrouping, which
separates them."""
MIN_LOG_RATIO = math.log(1.005)
"""Differences below half a percent are named by nobody: the ratio prints as 1.00, and they can be
the instrument's."""
TIE = 1e-9
"""Relative difference of p-values that is rounding: regroupings that exchange equal rounds."""

Blocks = dict[int, float]
"""One number for each round."""
Parts = Mapping[int, tuple[float, float]]
"""What a ratio divides, for each round."""


class SampleComparison(Struct, frozen=True, kw_only=True):
    """One percentile of two samples. `ratio` is second / first, with its interval; either may be
    None (unknown).

    `p_value` is None without enough rounds or values for a test; after `holm` it is the adjusted
    one, and `ci95` the interval at the level of that adjustment, so it covers at least 95%. `real`:
    chance does not explain the difference, which is at least `MIN_LOG_RATIO`. `detectable`: the
    ratio, above 1, of a difference that a test like this one finds four times in five. `log_ratio`,
    `error` (its standard error) and `freedom` are what the test computes with; `rounds` the number
    of rounds of the smaller side, `level` the probability that the interval misses. `needs`: the
    values that each sample needs for this percentile, 0 if there are enough. `sides`: the
    logarithms of the rounds of two runs, which `holm` regroups; None for pairs, and where there are
    too few or enough rounds.
    """

    first: float | None
    second: float | None
    ratio: float | None = None
    ci95: tuple[float, float] | None = None
    p_value: float | None = None
    real: bool = False
    detectable: float | None = None
    log_ratio: float = 0.0
    error: float = 0.0
    freedom: int = 0
    rounds: int = 0
    level: float = DOUBT
    needs: int = 0
    sides: tuple[Floats, Floats] | None = None

    def interval(self, doubt: float) -> tuple[float, float]:
        half = t_quantile(doubt, self.freedom) * self.error
        return _exp(self.log_ratio - half), _exp(self.log_ratio + half)

    def doubt_of(self, log_limit: float) -> float:
        away = abs(self.log_ratio - log_limit)
        if self.error <= 0:
            return 1.0 if away <= 1e-12 else 0.0
        return t_doubt(away / self.error, self.freedom)

    def rounds_for(self, ratio: float) -> int:
        one = self.error * math.sqrt(self.rounds)
        rounds = MIN_ROUNDS
        for _ in range(20):  # t depends on the number of rounds
            freedom = max(self.freedom * rounds // max(self.rounds, 1), 1)
            root = (
                (t_quantile(self.level, freedom) + t_quantile(POWER_T, freedom))
                * one
                / math.log(ratio)
            )
            if rounds == (rounds := max(math.ceil(root**2), MIN_ROUNDS)):
                break
        return rounds


def untested(first: float | None, second: float | None, needs: int = 0) -> SampleComparison:
    return SampleComparison(first=first, second=second, ratio=_ratio(first, second), needs=needs)


def compare_samples(
    first: FigureSample, second: FigureSample, quantiles: Mapping[str, float], *, paired: bool
) -> dict[str, SampleComparison]:
    """Compare two samples of positive values at each of the named `quantiles`.

    `paired`: both were measured in the same rounds of one run. If the rounds of a sample are not
    `spread`, nothing is tested: requests within a round share a slow minute, so parts of it would
    show differences that are none.
    """
    a, b = _capped(first, second)
    a_order, b_order = np.sort(first.values), np.sort(second.values)
    comparisons = {}
    for name, q in quantiles.items():
        percentiles = finite(percentile(a_order, q)), finite(percentile(b_order, q))
        if min(len(a_order), len(b_order)) < needed(q):
            comparisons[name] = untested(*percentiles, needed(q))
            continue
        if not (first.spread and second.spread):
            comparisons[name] = untested(*percentiles)
            continue
        size = min(_round_size(first), _round_size(second))
        blocks = (
            log_percentiles(a, first.rounds, q, size),
            log_percentiles(b, second.rounds, q, size),
        )
        comparisons[name] = compare_blocks(*blocks, paired=paired, percentiles=percentiles)
    return comparisons


def compare_blocks(
    first: Blocks, second: Blocks, *, paired: bool, percentiles: tuple[float | None, float | None]
) -> SampleComparison:
    plain = untested(*percentiles)
    sides = None
    if paired:
        common = first.keys() & second.keys()
        differences = np.array([second[number] - first[number] for number in sorted(common)])
        rounds = len(differences)
        if rounds < MIN_ROUNDS or not np.isfinite(differences).all():
            return plain
        middle, variance, freedom = (
            float(differences.mean()),
            float(_variance(differences)),
            rounds - 1,
        )
    else:
        a, b = np.array(list(first.values())), np.array(list(second.values()))
        rounds = min(len(a), len(b))
        if rounds < 2 or not (np.isfinite(a).all() and np.isfinite(b).all()):
            return plain
        own = _variance(a), _variance(b)
        middle, variance = float(b.mean() - a.mean()), float(own[0] + own[1])
        freedom = int(welch(own, (len(a) - 1, len(b) - 1)))
        sides = (a, b) if rounds >= MIN_ROUNDS and len(a) + len(b) <= MAX_REGROUPED else None
    comparison = replace(
        plain,
        log_ratio=middle,
        error=math.sqrt(variance),
        freedom=freedom,
        rounds=rounds,
        sides=sides,
    )
    return judged(comparison, comparison.doubt_of(0.0), DOUBT)


def ratio_blocks(parts: Parts) -> Blocks:
    """Return the logarithm of Σ amounts / Σ sizes as each round moves it; nothing if one of them is
    0.

    The ratio is made linear in its sums, so that a round with a size of 0 counts too, and small
    ones do not count more than large ones. The mean of the rounds is the logarithm of the ratio.
    """
    amounts, sizes = (sum(part[at] for part in parts.values()) for at in (0, 1))
    if amounts <= 0 or sizes <= 0:
        return {}
    whole, n = math.log(amounts / sizes), len(parts)
    return {
        number: whole + n * (amount / amounts - size / sizes)
        for number, (amount, size) in parts.items()
    }


def judged(comparison: SampleComparison, p_value: float, doubt: float) -> SampleComparison:
    low, high = comparison.interval(doubt)
    ratio = _ratio(comparison.first, comparison.second)
    return replace(
        comparison,
        p_value=p_value,
        level=doubt,
        real=p_value < DOUBT and abs(comparison.log_ratio) >= MIN_LOG_RATIO,
        ratio=None if ratio is None else min(max(ratio, low), high),
        ci95=None if ratio is None else (low, high),
        detectable=_exp(
            (t_quantile(doubt, comparison.freedom) + t_quantile(POWER_T, comparison.freedom))
            * comparison.error
        ),
    )


Key = TypeVar("Key")


def holm(comparisons: Mapping[Key, SampleComparison]) -> dict[Key, SampleComparison]:
    tested = {key: c for key, c in comparisons.items() if c.p_value is not None}
    regrouped = _Regrouped(tested.values())
    levels = holm_levels({key: regrouped.doubt(c) for key, c in tested.items()})
    judgements = {
        key: judged(regrouped.widened(c, *levels[key]), *levels[key]) for key, c in tested.items()
    }
    return {**comparisons, **judgements}


class _Regrouped:
    def __init__(self, tested: Collection[SampleComparison]) -> None:
        random = np.random.default_rng(0)
        sides = [c.sides for c in tested if c.sides]
        # Comparisons without sides lower the levels too, so the others make up for them.
        times = math.ceil(REGROUPINGS * len(tested) / len(sides)) if sides else 0
        self._doubts = np.sort(
            np.concatenate([_regrouped(*each, times, random) for each in sides] or [np.empty(0)])
        )

    def doubt(self, of: SampleComparison) -> float:
        by_t = of.doubt_of(0.0)
        if not of.sides:
            return by_t
        reached = int(np.searchsorted(self._doubts, by_t * (1 + TIE), side="right"))
        return min(max(by_t, STILL_ALIKE * (reached + 1) / (len(self._doubts) + 1)), 1.0)

    def widened(self, of: SampleComparison, adjusted: float, level: float) -> SampleComparison:
        if not of.sides:
            return of
        allowed = math.ceil(level * (len(self._doubts) + 1) / STILL_ALIKE) - 1
        by_t = t_quantile(level, of.freedom)
        needed_doubt = (
            min(level, float(self._doubts[allowed - 1]) / (1 + TIE)) if allowed > 0 else 0.0
        )
        error = of.error * t_quantile(needed_doubt, of.freedom) / by_t
        if adjusted >= DOUBT:  # needed_doubt may be 0, where t has no quantile
            error = max(error, abs(of.log_ratio) / by_t * (1 + TIE))
        return replace(of, error=error)


def _regrouped(first: Floats, second: Floats, times: int, random: np.random.Generator) -> Floats:
    """Return the two-sided p-values by t after `times` random regroupings of the rounds of two
    runs.

    A regrouping that leaves both runs as they are, or exchanges them, says nothing about chance and
    is left out.
    """
    size, both = len(first), np.concatenate((first, second))
    places = random.permuted(np.tile(np.arange(len(both)), (times, 1)), axis=1)
    from_first = (places[:, :size] < size).sum(axis=1)
    places = places[(from_first < size) & ~((from_first == 0) & (size == len(second)))]
    a, b = both[places[:, :size]], both[places[:, size:]]
    own = _variance(a), _variance(b)
    away, error = np.abs(b.mean(axis=1) - a.mean(axis=1)), np.sqrt(own[0] + own[1])
    t = np.divide(away, error, out=np.where(away > 1e-12, np.inf, 0.0), where=error > 0)
    return t_doubts(t, welch(own, (size - 1, len(second) - 1)))


def holm_levels(p_values: Mapping[Key, float]) -> dict[Key, tuple[float, float]]:
    """Return for each test its adjusted p-value and the level at which it is decided, by Holm's
    procedure.

    The smallest of m p-values is held against 0.05 / m, the next against 0.05 / (m − 1), until one
    is not below; the others are then held against the same level, so the interval at that level
    agrees with the verdict.
    """
    ordered = sorted(p_values, key=lambda key: p_values[key])
    levels: dict[Key, tuple[float, float]] = {}
    adjusted, left = 0.0, len(ordered)
    for key in ordered:
        adjusted = max(adjusted, min(left * p_values[key], 1.0))
        levels[key] = adjusted, DOUBT / left
        if adjusted < DOUBT:
            left = max(left - 1, 1)
    return levels


def log_percentiles(values: Floats, rounds: npt.NDArray[np.int64], q: float, size: int) -> Blocks:
    """Return the logarithm of the `q` quantile of each round, as a round of `size` values would
    show it.

    The p95 of 10 values is lower than that of 100 from the same server. So a larger round counts
    with the mean over all its subsamples of `size` values, if the rounds differ in size.
    """
    order = np.lexsort((values, rounds))
    numbers, starts = np.unique(rounds[order], return_index=True)
    parts = np.split(values[order], starts[1:])
    if all(len(part) <= size for part in parts):
        logs = [_log(percentile(part, q)) for part in parts]
    else:
        logs = [_mean_log_percentile(part, q, size) for part in parts]
    return dict(zip(map(int, numbers), logs, strict=True))


def _round_size(sample: FigureSample) -> int:
    """Return the number of values in a typical round: the median, so that one broken round does not
    set it."""
    return (
        int(np.median(np.unique(sample.rounds, return_counts=True)[1])) if len(sample.rounds) else 0
    )


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _mean_log_percentile(ordered: Floats, q: float, size: int) -> float:
    if ordered[0] <= 0 or not np.isfinite(ordered[-1]):  # a weight of 0 times infinity is no number
        return _log(percentile(ordered, q))
    return float(subsample_weights(len(ordered), min(size, len(ordered)), q) @ np.log(ordered))


@lru_cache(16)
def subsample_weights(n: int, size: int, q: float) -> Floats:
    """Return the weight of each of `n` ordered values in the mean `q` quantile of all subsamples of
    `size` values.

    The k-th of `size` is the i-th of `n` with the hypergeometric probability C(i−1, k−1) C(n−i,
    size−k) / C(n, size).
    """
    place = (size - 1) * q
    low, part = math.floor(place), place - math.floor(place)
    return (1 - part) * _rank_shares(n, size, low + 1) + (
        part * _rank_shares(n, size, low + 2) if part else 0.0
    )


def _rank_shares(n: int, size: int, k: int) -> Floats:
    """Return the probability of each of `n` ranks that it is rank `k` of a subsample of `size`
    values."""
    log_factorial = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, n + 1)))))

    def log_choose(of: npt.NDArray[np.int64], k: int) -> Floats:
        return np.asarray(log_factorial[of] - log_factorial[k] - log_factorial[of - k])

    below = np.arange(k - 1, n - size + k)  # how many values are lower
    shares = np.zeros(n)
    ways = (
        log_choose(below, k - 1)
        + log_choose(n - 1 - below, size - k)
        - log_choose(np.array(n), size)
    )
    shares[below] = np.exp(ways)
    return shares


def _capped(first: FigureSample, second: FigureSample) -> tuple[Floats, Floats]:
    both = np.concatenate((first.values, second.values))
    answered = both[np.isfinite(both)]
    if len(answered) in (0, len(both)):
        return first.values, second.values
    low, high = float(answered.min()), float(answered.max())
    return np.clip(first.values, low, high), np.clip(second.values, low, high)


def _exp(logarithm: float) -> float:
    return math.exp(min(max(logarithm, -LARGEST_LOG), LARGEST_LOG))


def _ratio(first: float | None, second: float | None) -> float | None:
    return second / first if first is not None and second is not None and first > 0 else None


def _variance(values: Floats) -> Floats:
    return np.asarray(LEFT_OVER * values.var(axis=-1, ddof=1) / values.shape[-1])


def welch(variances: tuple[Floats, Floats], freedoms: tuple[int, int]) -> npt.NDArray[np.int64]:
    """Return the degrees of freedom of a difference, by Welch and Satterthwaite, rounded down."""
    one, other = variances
    total, parts = one + other, one**2 / freedoms[0] + other**2 / freedoms[1]
    freedom = np.divide(total**2, parts, out=np.full_like(total, sum(freedoms)), where=parts > 0)
    return np.maximum(freedom.astype(np.int64), 1)
