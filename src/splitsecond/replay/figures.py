"""Figures of the same calls twice, as they were logged and as they were replayed, and their
differences.

A call that failed counts as slower than all others. Intervals come from leaving out periods of time
in turn, and sessions where there are any (`log/statistics/jackknife`): calls of one slow hour
resemble each other.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.timing.columns import Floats, Integers, Mask
from splitsecond.core.timing.packed_attempt import UNKNOWN
from splitsecond.log.statistics.jackknife import jackknife_intervals
from splitsecond.log.statistics.sample_comparison import holm_levels
from splitsecond.log.statistics.student import t_doubt, t_quantile
from splitsecond.log.statistics.summary import DOUBT, Z95, Interval

PERIODS = 20
"""Periods of equal numbers of calls."""
MIN_CALLS = 200
"""Calls that figures need."""
UNSEEN, UNSEEN_SHARE, UNSEEN_FAILURES = 0.02, 0.01, 0.001
"""Added to each side of an interval where answers were drawn: of today's figure, of a target's
share, of all calls that fail. More calls do not make this smaller. `benchmarks/what_if.py` measured
it: with it, intervals of six hours contain the truth in 96%, and without it in 80%."""
_PERCENTILES = {
    "ttft_p50_ms": ("ttft_ms", 0.5),
    "ttft_p95_ms": ("ttft_ms", 0.95),
    "total_p50_ms": ("total_ms", 0.5),
    "total_p95_ms": ("total_ms", 0.95),
}
NAMES = ("ttft_p50_ms", "ttft_p95_ms", "total_p50_ms", "total_p95_ms", "usd_per_1000", "failed")


class Outcomes(Struct, frozen=True, kw_only=True):
    """How calls ended: one place for each. `ttft_ms` and `total_ms`: infinite for a call that
    failed; `ttft_ms` is NaN for one that was not streamed. `usd`: NaN if unknown. `target`: that
    answered, or UNKNOWN."""

    ttft_ms: Floats
    total_ms: Floats
    usd: Floats
    failed: Mask
    target: Integers

    @classmethod
    def of(
        cls,
        ttft_ns: Integers,
        total_ns: Integers,
        failed: Mask,
        target: Integers,
        usd: Floats,
        stream: Mask,
    ) -> "Outcomes":
        broken = failed | (total_ns == UNKNOWN)
        ttft_ms = np.where(failed | (ttft_ns == UNKNOWN), np.inf, ttft_ns / NS_PER_MS)
        return cls(
            ttft_ms=np.where(stream, ttft_ms, np.nan),
            total_ms=np.where(broken, np.inf, total_ns / NS_PER_MS),
            usd=usd,
            failed=failed,
            target=target,
        )

    def figures(self, which: Mask, targets: int) -> Floats:
        """Return the figures of `NAMES`, then the share of the calls that each target answered."""
        ttft, total, usd = self.ttft_ms[which], self.total_ms[which], self.usd[which]
        ttft = ttft[~np.isnan(ttft)]
        times = [_percentile(values, q) for values in (ttft, total) for q in (0.5, 0.95)]
        n = max(int(which.sum()), 1)
        target = self.target[which]
        shares = np.bincount(target[target != UNKNOWN], minlength=targets) / n
        dollars = float(usd.mean()) * 1000 if len(usd) else math.nan
        return np.array(
            [*times, dollars, float(self.failed[which].mean()) if n else math.nan, *shares]
        )


class FigureChange(Struct, frozen=True, kw_only=True):
    """One figure: `today` as logged, `what_if` as replayed.

    `ci95`: of `difference`, which is what_if − today. `p_value`: None without an interval; of
    several policies adjusted by Holm, and `ci95` with it. A figure is None without a value for it,
    if more calls failed than the percentile leaves out, or if lost races hide too many slow times.
    """

    name: str
    today: float | None
    what_if: float | None = None
    difference: float | None = None
    ci95: Interval = (None, None)
    p_value: float | None = None

    @property
    def is_real(self) -> bool:
        return self.p_value is not None and self.p_value < DOUBT


class Estimate(Protocol):
    """What figures of a policy are made from: `Outcomes`, or corrected ones."""

    @property
    def ttft_ms(self) -> Floats: ...

    @property
    def total_ms(self) -> Floats: ...

    def figures(self, which: Mask, targets: int) -> Floats: ...


def changes(
    today: Estimate, other: Estimate, which: Mask, session: Integers, targets: Sequence[str]
) -> list[FigureChange]:
    """Return the figures of the calls `which`, and the share of each target under its name.

    Failures are rare, and so are the calls that are slower than a p95. So the interval of failures
    and of percentiles is at least that of chance among the calls that are on different sides.
    """
    places = np.flatnonzero(which)
    period = np.zeros(len(which), np.int64)
    period[places] = np.arange(len(places)) * PERIODS // max(len(places), 1)
    sessions = np.where(session == UNKNOWN, np.arange(len(session)), session)[places]

    def both(included: Mask) -> Floats:
        mask = np.zeros(len(which), bool)
        mask[places[included]] = True
        return np.concatenate([side.figures(mask, len(targets)) for side in (today, other)])

    middle = both(np.ones(len(places), bool))
    size = len(NAMES) + len(targets)
    groups = [period[places]] if (session == UNKNOWN).all() else [period[places], sessions]

    def differences(included: Mask) -> Floats:
        figures = both(included)
        return _minus(figures[size:], figures[:size])

    middles = _minus(middle[size:], middle[:size])
    figures = []
    is_finite = np.isfinite(middles)
    intervals = jackknife_intervals(
        lambda included: _finite(differences(included)), _finite(middles), groups
    )
    changed = float((today.total_ms != other.total_ms)[places].mean())
    for place, name in enumerate((*NAMES, *targets)):
        low, high = intervals[place] if is_finite[place] else (None, None)
        if name == "failed" and low is not None and high is not None:
            share = max(middle[place], middle[size + place], 1 / len(places))
            half = max((high - low) / 2, Z95 * math.sqrt(2 * changed * share / len(places)))
            low, high = float(middles[place]) - half, float(middles[place]) + half
        if name in _PERCENTILES and low is not None and high is not None:
            half = max((high - low) / 2, _chance_of_percentile(name, today, other, places))
            low, high = float(middles[place]) - half, float(middles[place]) + half
        if changed and low is not None and high is not None:
            unseen = _unseen_by_matching(name, middle[place])
            low, high = float(low - unseen), float(high + unseen)
        figures.append(
            FigureChange(
                name=name,
                today=_or_none(middle[place]),
                what_if=_or_none(middle[size + place]),
                difference=_or_none(middles[place]),
                ci95=(low, high),
                p_value=_doubt(float(middles[place]), low, high),
            )
        )
    return figures


def _chance_of_percentile(name: str, today: Estimate, other: Estimate, places: Integers) -> float:
    """Return half the interval of the difference of a percentile, by Woodruff's method.

    The share of calls above the percentile is uncertain. Only calls count for which one of the two
    times is above it and the other is not.
    """
    figure, q = _PERCENTILES[name]
    pairs = [getattr(each, figure)[places] for each in (today, other)]
    first, second = (each[~np.isnan(each)] for each in pairs)
    if not len(first):
        return 0.0
    beyond = [each > _percentile(first, q) for each in (first, second)]
    off = Z95 * math.sqrt(float((beyond[0] != beyond[1]).mean()) / len(first))
    edges = [_percentile(first, min(max(q + each, 0.0), 1.0)) for each in (-off, off)]
    half = (edges[1] - edges[0]) / 2
    return half if math.isfinite(half) else 0.0


def _unseen_by_matching(name: str, today: float) -> float:
    """Return by how much a figure may be off because answers are those of other calls."""
    if name == "failed":
        return UNSEEN_FAILURES
    return UNSEEN * abs(today) if name in NAMES else UNSEEN_SHARE


def adjusted(answers: Mapping[str, Sequence[FigureChange]]) -> dict[str, list[FigureChange]]:
    """Return the figures of several policies, each with what Holm's procedure leaves of it among
    all policies."""
    by_policy = {policy: list(figures) for policy, figures in answers.items()}
    if len(by_policy) < 2:
        return by_policy
    for place in range(len(next(iter(by_policy.values())))):
        tested = {policy: each[place].p_value for policy, each in by_policy.items()}
        levels = holm_levels({policy: p for policy, p in tested.items() if p is not None})
        for policy, (p_value, level) in levels.items():
            figure = by_policy[policy][place]
            low, high = figure.ci95
            if low is None or high is None or figure.difference is None:
                continue
            half = (
                (high - low) / 2 * t_quantile(level, PERIODS - 1) / t_quantile(DOUBT, PERIODS - 1)
            )
            ci95 = figure.difference - half, figure.difference + half
            by_policy[policy][place] = replace(figure, p_value=p_value, ci95=ci95)
    return by_policy


def _doubt(difference: float, low: float | None, high: float | None) -> float | None:
    if low is None or high is None:
        return None
    error = (high - low) / 2 / t_quantile(DOUBT, PERIODS - 1)
    if error <= 0:
        return 1.0 if difference == 0 else 0.0
    return t_doubt(difference / error, PERIODS - 1)


def _percentile(values: Floats, q: float) -> float:
    if not len(values):
        return math.nan
    place = min(math.ceil(q * len(values)) - 1, len(values) - 1)
    return float(np.partition(values, max(place, 0))[max(place, 0)])


def _minus(first: Floats, second: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.asarray(first - second)


def _finite(values: Floats) -> Floats:
    """Return `values` with 0 in place of those that have no interval, which would make all of them
    unknown."""
    return np.where(np.isfinite(values), values, 0.0)


def _or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
