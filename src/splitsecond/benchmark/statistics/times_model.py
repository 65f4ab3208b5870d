"""What is usual for the times and speeds of rounds: the model of their control chart.

They are judged by their logarithm, because slowdowns multiply, in two steps:

1. Baseline: the median level of the last 28 days, plus a pattern of the hours of the day (UTC): the
   median deviation of the rounds in an hour and both neighbours, shrunk towards none if it is
   little more than noise (after James and Stein, "Estimation with Quadratic Loss", 1961). From the
   second weekend on, weekends have an effect of their own if the last 28 days show one beyond three
   standard errors. The rounds of a drift count for it: a weekend may look like a drift. Of the
   first weekend, only what goes beyond `WEEKEND_DRIFT` can be a drift.

2. Whitening: consecutive deviations from the baseline are alike, as in an AR(1) process. The
   correlation at the usual interval is estimated robustly from the scatter of sums and of
   differences of neighbours (Gnanadesikan and Kettenring, "Robust Estimates, Residuals, and Outlier
   Detection with Multiresponse Data", 1972). It predicts part of each deviation, less after a gap.
   The rest is the surprise of the round. One outlier changes the prediction by at most three
   deviations.

Scatters are winsorized standard deviations, so outliers count little. That of the baseline is the
mean of two: the scatter around it, and that of changes from one day to the next, which the fit of
the pattern cannot make smaller. Both scatter and correlation are those of all rounds: without
possible drifts, they would be underestimated.

Before `HOURS_KNOWN_AFTER`, a night cannot be distinguished from a drift, so the limits of a single
round are wider. On the second day, they are around the hours of the first.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from splitsecond.benchmark.statistics.control_chart import (
    ALLOWANCE,
    EARLY_DRIFT,
    MIN_CHANGE,
    MIN_DRIFT,
    SETTLES,
    clipped,
)
from splitsecond.benchmark.statistics.expectation import MIN, Expectation

HOURS_KNOWN_AFTER = 48
"""Hours from the first round until the pattern of the day is known; it also takes `MIN` changes
between days."""
WINDOW_HOURS, WINDOW = 28 * 24, 72
"""What is usual comes from the rounds of so many hours, but at least from so many rounds."""
SLOW_AFTER_HOURS = 6 * 24
"""Hours from the first round until the level is known well enough for the slow CUSUM."""
SLOW_ALIKE = 0.3
"""Correlation up to which the slow CUSUM finds nothing that the other one would miss, and knows its
start less well."""
WEEKEND = (2, 3)
"""Days of the weekend in weeks that begin on Thursdays, like 1970."""
WEEKEND_DRIFT = 0.2
"""Change that does not count on the first weekend."""
WEEKEND_SURE, WEEKEND_FREEDOM = 3.0, 4
"""Standard errors beyond which weekends differ, and the least degrees of freedom of that error."""
EARLY_FAR, FAR = 4.5, 3.0
"""Half width of the band in standard deviations, before and after the pattern of the day is
known."""
MAX_ALIKE = 0.9
WINSORIZED = 2.5
"""Deviations beyond this many standard deviations count as so many; `_WINSORIZED_SHARE` of a normal
one remains."""
_WINSORIZED_SHARE = 0.9887
_MAD_TO_DEVIATION = 1.4826
_MEDIAN_VARIANCE = 1.57
"""Variance of the median of normal values, relative to that of their mean."""
_HOURS = 24


Floats = npt.NDArray[np.float64]


class _Baseline(Struct, frozen=True, kw_only=True):
    """What the past says, in logarithms. `hours`: the pattern of the day. `alike`: correlation of
    rounds `interval` hours apart. `reach`: half width of the band."""

    level: float
    hours: Floats
    alike: float
    interval: float
    scatter: float
    reach: float
    early: bool


class _Rounds:
    """Rounds in order: their hours since 1970 and the logarithms of their figure."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.logs: list[float] = []

    def add(self, at: float, log: float) -> None:
        self.at.append(at)
        self.logs.append(log)

    def forget(self, window_hours: float) -> None:
        """Remove the rounds before the window, but keep at least `WINDOW`."""
        old = sum(each < self.at[-1] - window_hours for each in self.at)
        old = max(min(old, len(self.at) - WINDOW), 0)
        del self.at[:old], self.logs[:old]

    def move(self, rounds: int, by: float) -> None:
        self.logs[:rounds] = [each + by for each in self.logs[:rounds]]


class TimesModel:
    sides: tuple[int, ...] = (1, -1)

    def __init__(self) -> None:
        self._usual, self._all = _Rounds(), _Rounds()  # moved when a new level is usual
        self._as_measured = _Rounds()
        self._weekend = 0.0  # deviation of the rounds of weekends
        self._parts = 0  # number of changes between weekends and other days
        self._fit: _Baseline | None = None
        self._not_fitted = 0
        # time and deviation of the last round, without outliers
        self._last: tuple[float, float] | None = None

    def value(self, one: float) -> float:
        return one

    def expect(self, at: float, one: float) -> Expectation | None:
        log = math.log(one)
        self._follow_week(at)
        usual = self._expected(at, log) if len(self._usual.at) >= MIN else None
        self._as_measured.add(at, log)
        self._all.add(at, log)
        return usual

    def _expected(self, at: float, log: float) -> Expectation:
        # so the time per round stays constant
        if self._fit is None or self._not_fitted > len(self._usual.at) // 24:
            self._fit = self._fitted()
            self._not_fitted = 0
        fit = self._fit
        expected = fit.level + float(fit.hours[int(at) % _HOURS])
        if _is_weekend(at):
            expected += self._weekend
        deviation = log - expected
        first_weekend = self._parts == 1 and _is_weekend(at)
        unknown = EARLY_DRIFT if fit.early else WEEKEND_DRIFT if first_weekend else 0.0
        beyond = math.copysign(max(abs(deviation) - math.log1p(unknown), 0.0), deviation)
        correlation = 0.0
        if self._last is not None and fit.alike:
            correlation = min(fit.alike ** ((at - self._last[0]) / fit.interval), MAX_ALIKE)
        predicted = correlation * self._last[1] if self._last else 0.0
        spread = fit.scatter * math.sqrt(1 - correlation * correlation)
        rest = beyond - predicted
        self._last = at, predicted + clipped(rest, 3 * spread)
        return Expectation(
            level=math.exp(fit.level),
            low=math.exp(expected - fit.reach),
            high=math.exp(expected + fit.reach),
            deviation=deviation,
            scatter=fit.scatter,
            surprise=rest / max(spread, MIN_DRIFT / ALLOWANCE),
            first=1 / (1 - correlation)
            if correlation > SLOW_ALIKE and at - self._all.at[0] > SLOW_AFTER_HOURS
            else 0.0,
            early=fit.early,
        )

    def learn(self, at: float, one: float) -> None:
        self._usual.add(at, math.log(one))
        self._not_fitted += 1

    def moved(self, level: float, deviation: float) -> float:
        return level * math.exp(deviation)

    def settle(self, deviation: float, rounds: Sequence[tuple[float, float]]) -> None:
        """Move the past to the new level: its pattern, correlation and scatter stay."""
        self._all.move(len(self._all.at) - len(rounds), deviation)
        self._usual.move(len(self._usual.at), deviation)
        for at, one in rounds[-SETTLES:]:
            self.learn(at, one)
        self._fit = self._last = None

    def _follow_week(self, at: float) -> None:
        """Estimate what weekends change, anew at the start and the end of each weekend."""
        measured = self._as_measured
        if not measured.at or _is_weekend(at) == _is_weekend(measured.at[-1]):
            return
        self._parts += 1
        measured.forget(WINDOW_HOURS)
        hours = self._fit.hours if self._fit else np.zeros(_HOURS)
        # the first weekend must not change the level of the other days
        first = self._parts == 2 and not _is_weekend(at)
        effect, error = _weekend_effect(self._usual if first else measured, hours)
        self._weekend = effect if first or abs(effect) > WEEKEND_SURE * error else 0.0
        self._fit = None

    def _fitted(self) -> _Baseline:
        self._usual.forget(WINDOW_HOURS)
        at, logs = self._weekdays(self._usual)
        hour = np.floor(at).astype(np.int64)
        apart = np.diff(at)
        interval = float(np.median(apart))
        # few rounds, uncertain scatter: fitted to simulated normal values
        wider = 1 + 3.1 / (len(logs) - 2)
        level = float(np.median(logs))
        grid = _by_day_and_hour(hour, logs - level)
        changes = np.diff(grid, axis=0)
        changes = changes[~np.isnan(changes)]
        if at[-1] - at[0] < HOURS_KNOWN_AFTER or len(changes) < MIN or interval <= 0:
            scatter = _scatter(logs - level) * wider
            return _Baseline(
                level=level,
                hours=_mean_day(grid) if at[-1] - at[0] >= _HOURS else np.zeros(_HOURS),
                alike=0.0,
                interval=1.0,
                scatter=max(scatter, MIN_CHANGE),
                reach=max(EARLY_FAR * scatter, math.log1p(MIN_CHANGE)),
                early=True,
            )
        between_days = _scatter(changes - np.median(changes)) / math.sqrt(2)
        hours = _pattern(grid, between_days)
        rest = logs - hours[hour % _HOURS]
        level = float(np.median(rest))
        scatter, alike = self._scatter_and_correlation(hours, interval)
        scatter = (between_days + scatter) / 2 * wider
        return _Baseline(
            level=level,
            hours=hours,
            alike=alike,
            interval=interval,
            scatter=max(scatter, MIN_DRIFT),
            reach=max(FAR * scatter, math.log1p(MIN_CHANGE)),
            early=False,
        )

    def _weekdays(self, rounds: _Rounds) -> tuple[Floats, Floats]:
        """Return the hours and logarithms without what weekends change."""
        at, logs = np.array(rounds.at), np.array(rounds.logs)
        return at, logs - self._weekend * np.isin(at // _HOURS % 7, WEEKEND)

    def _scatter_and_correlation(self, hours: Floats, interval: float) -> tuple[float, float]:
        """Return those of all rounds. Without possible drifts, rounds would differ less than they
        do."""
        self._all.forget(WINDOW_HOURS)
        at, logs = self._weekdays(self._all)
        rest = logs - hours[np.floor(at).astype(np.int64) % _HOURS]
        rest -= np.median(rest)
        regular = np.abs(np.diff(at) - interval) < interval / 2
        return _scatter(rest), _correlation(rest[:-1][regular], rest[1:][regular])


def _is_weekend(at: float) -> bool:
    return int(at // _HOURS) % 7 in WEEKEND


def _weekend_effect(rounds: _Rounds, hours: Floats) -> tuple[float, float]:
    """Return how much weekends differ from the other days of their weeks, in logarithms, and its
    standard error; infinite: unknown.

    Days are the units, within weeks that begin on Thursdays, so a slow change of the level matters
    little.
    """
    at = np.array(rounds.at)
    hour = np.floor(at).astype(np.int64)
    days, day = np.unique(hour // _HOURS, return_inverse=True)
    means = np.bincount(day, np.array(rounds.logs) - hours[hour % _HOURS]) / np.bincount(day)
    differences, variances, squares, freedom = [], [], 0.0, 0
    for week in np.unique(days // 7):
        own, weekend = days // 7 == week, np.isin(days % 7, WEEKEND)
        both = [part for part in (means[own & ~weekend], means[own & weekend]) if len(part)]
        squares += sum(float(((part - part.mean()) ** 2).sum()) for part in both)
        freedom += sum(len(part) - 1 for part in both)
        if len(both) == 2:
            differences.append(float(both[1].mean() - both[0].mean()))
            variances.append(1 / len(both[0]) + 1 / len(both[1]))
    if not differences:
        return 0.0, math.inf
    effect = sum(differences) / len(differences)
    if freedom < WEEKEND_FREEDOM:
        return effect, math.inf
    return effect, math.sqrt(squares / freedom * sum(variances)) / len(variances)


def _by_day_and_hour(hour: npt.NDArray[np.int64], values: Floats) -> Floats:
    """Return the mean of each hour as an array (days with rounds, 24); NaN: no value. `hour`: hours
    since 1970."""
    days, day = np.unique(hour // _HOURS, return_inverse=True)
    cells = day * _HOURS + hour % _HOURS
    counts = np.bincount(cells, minlength=len(days) * _HOURS)
    sums = np.bincount(cells, values, minlength=len(days) * _HOURS)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means.reshape(len(days), _HOURS)


def _mean_day(grid: Floats) -> Floats:
    """Return the mean of each hour; 0: no value."""
    counts = np.maximum(len(grid) - np.isnan(grid).sum(axis=0), 1)
    return np.asarray(np.nansum(grid, axis=0) / counts)


def _pattern(grid: Floats, scatter: float) -> Floats:
    # NaN is last
    near = np.sort(np.concatenate([np.roll(grid, by, axis=1) for by in (-1, 0, 1)]), axis=0)
    counts = len(near) - np.isnan(near).sum(axis=0)
    has_values = counts > 0
    columns = np.arange(_HOURS)
    pattern = (near[np.maximum(counts - 1, 0) // 2, columns] + near[counts // 2, columns]) / 2
    pattern = np.where(has_values, pattern - pattern[has_values].mean(), 0.0)
    noise = _MEDIAN_VARIANCE * scatter**2 * float(np.mean(1 / counts[has_values]))
    variance = float(np.mean(pattern[has_values] ** 2))
    # 1.5: the noise of neighbouring hours is shared, so its estimate is uncertain.
    return pattern * max(0.0, 1 - 1.5 * noise / variance) if variance > 0 else pattern


def _scatter(values: Floats) -> float:
    if not len(values):
        return 0.0
    most = WINSORIZED * _MAD_TO_DEVIATION * float(np.median(np.abs(values)))
    return math.sqrt(float(np.mean(np.clip(values, -most, most) ** 2))) / _WINSORIZED_SHARE


def _correlation(first: Floats, second: Floats) -> float:
    if len(first) < MIN:
        return 0.0
    sums, differences = _scatter(first + second) ** 2, _scatter(first - second) ** 2
    if not sums + differences:
        return 0.0
    return unbiased((sums - differences) / (sums + differences), len(first))


def unbiased(correlation: float, n: int) -> float:
    """Correct the bias of `n` values (Kendall, "Note on Bias in the Estimation of Autocorrelation",
    1954).

    The result is from 0 to `MAX_ALIKE`.
    """
    return min(max(correlation + (1 + 3 * correlation) / n, 0.0), MAX_ALIKE)
