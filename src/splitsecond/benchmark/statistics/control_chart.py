"""Control chart: when a figure left what was usual, with one value per round, judged by the rounds before it.

Requests of one round share an hour, so they cannot show how much hours differ; rounds can. So each round is one value.

Times and speeds are judged by their logarithm, because slowdowns multiply, in three steps:

1. Baseline: the median level of the last 14 days, plus a pattern of the hours of the day (UTC): the median deviation of
the rounds in an hour and both neighbours, shrunk towards none if it is little more than noise (after James and Stein,
"Estimation with Quadratic Loss", 1961). From the second weekend on, weekends have an effect of their own if the last
four weeks show one beyond three standard errors. The rounds of a drift count for it: a weekend may look like a drift.

2. Whitening: consecutive deviations from the baseline are alike, as in an AR(1) process. The correlation at the usual
interval is estimated robustly from the scatter of sums and of differences of neighbours (Gnanadesikan and Kettenring,
"Robust Estimates, Residuals, and Outlier Detection with Multiresponse Data", 1972). It predicts part of each deviation,
less after a gap. The rest is the surprise of the round. One outlier changes the prediction by at most three deviations.

3. CUSUM (Page, "Continuous Inspection Schemes", 1954): surprises are added up for either side, each less `ALLOWANCE`. A
sum above `LIMIT` is a drift. It began in the round after the sum was last 0. Where rounds are correlated, only the
first round of a change is a large surprise; the prediction takes most of the next ones. So a second, slow CUSUM has a
smaller allowance and a higher limit. It may begin anew in each round, with the likelihood ratio of a change in it.

Scatters are winsorized standard deviations, so outliers count little. That of the baseline is the larger of two: the
scatter around it, and that of changes from one day to the next, which the fit of the pattern cannot make smaller. Both
scatter and correlation are those of all rounds: without possible drifts, they would be underestimated.

Before `HOURS_KNOWN_AFTER`, a night cannot be distinguished from a drift. So the limits of a single round are wider
then, and only changes by more than half are a drift, or a run of `MIN` unusual rounds that no night explains: it has
lasted for longer, or began with a step within minutes.

A drift ends when a CUSUM of likelihood ratios between the old and the new level reaches `BACK`. If it lasts for
`SETTLES` more rounds, the new level becomes the usual one, and the pattern stays. Rounds of a possible drift are not
part of what is usual.

docs/watch.md has the performance in simulations, by `python -m benchmarks.watching`.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

MIN = 8
HOURS_KNOWN_AFTER = 48
"""Hours from the first round until the pattern of the day is known; it also takes `MIN` changes between days."""
WINDOW_HOURS, WINDOW = 14 * 24, 72
"""What is usual comes from the rounds of so many hours, but at least from so many rounds."""
ALLOWANCE, LIMIT = 0.5, 8.5
"""Allowance per round and limit of the CUSUM, in standard deviations."""
SLOW_ALLOWANCE, SLOW_LIMIT = 0.2, 17.0
"""The same of the slow CUSUM. The first round of a change counts at most half of its limit."""
SLOW_AFTER_HOURS = 6 * 24
"""Hours from the first round until the level is known well enough for the slow CUSUM."""
SLOW_ALIKE = 0.3
"""Correlation up to which the slow CUSUM finds nothing that the other one would miss, and knows its start less well."""
WEEKEND = (2, 3)
"""Days of the weekend in weeks that begin on Thursdays, like 1970."""
WEEKEND_WINDOW_HOURS = 28 * 24
WEEKEND_SURE, WEEKEND_FREEDOM = 3.0, 4
"""Standard errors beyond which weekends differ, and the least degrees of freedom of that error."""
MAX_SURPRISE = 3.5
"""Largest surprise that counts, in standard deviations: two outliers in a row are no drift, three are."""
BACK, MAX_EVIDENCE = 5.0, 2.0
"""Logarithm of the likelihood ratio that ends a drift, and the most that one round adds to it."""
SETTLES, SLOW_SETTLES = 24, 2
"""The new level is usual after so many rounds, or so many times the rounds until it was found if that is more."""
MIN_CHANGE, MIN_DRIFT, EARLY_DRIFT = 0.05, 0.02, 0.5
"""Smallest changes: of an unusual round or of a drift that the slow CUSUM finds, of another drift, and of a drift
before the pattern of the day is known."""
NIGHT_HOURS, STEP_HOURS = 18, 1
"""A run of unusual rounds that is longer than the first is not a night. A step within the second is not one either: day
and night differ little within an hour."""
EARLY_FAR, FAR = 4.5, 3.0
"""Half width of the band in standard deviations, before and after the pattern of the day is known."""
MAX_ALIKE = 0.9
WINSORIZED = 2.5
"""Deviations beyond this many standard deviations count as so many; `_WINSORIZED_SHARE` of a normal one remains."""
_WINSORIZED_SHARE = 0.9887
_MAD_TO_DEVIATION = 1.4826
_MEDIAN_VARIANCE = 1.57
"""Variance of the median of normal values, relative to that of their mean."""
_HOURS = 24

Floats = npt.NDArray[np.float64]
State = Literal["learning", "usual", "unusual", "drifted"]
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Expectation(Struct, frozen=True, kw_only=True):
    """What is usual for a round, and how far the round is from it.

    `level`: the usual level over all hours. `low` and `high`: the band that is usual at this hour. `deviation`: from
    the baseline at this hour, with its standard deviation `scatter`. `surprise`: the part that earlier rounds do not
    predict, in standard deviations. `first`: a change is so many times as large a surprise in its first round as in the
    next ones; 0 if the slow CUSUM does not count this round. `early`: the pattern of the day is not known yet.
    """

    level: float
    low: float
    high: float
    deviation: float
    scatter: float
    surprise: float
    first: float = 0.0
    early: bool = False


class JudgedRound(Struct, frozen=True, kw_only=True):
    """Verdict on one round. `side`: above (1), below (−1) or within (0) the band. `usual`: None while learning.

    `began`: this round shows a drift. `ended`: it ends one, or makes it the usual level.
    """

    state: State
    side: int = 0
    usual: Expectation | None = None
    began: bool = False
    ended: bool = False


class ChartDrift(Struct, kw_only=True):
    """Drift of a figure from its level `before` to one `side`, from round `since` (from 0) on. `after`: the new level.

    `until` is the first usual round afterwards, None while the drift lasts. With `settled`, the figure did not return:
    the drift lasted so long that it is the usual level now. `accepted`: somebody has acknowledged it.
    """

    side: int
    since: int
    before: float
    after: float
    until: int | None = None
    settled: bool = False
    accepted: bool = False


class ChartModel(Protocol[T_contra]):
    """Model of what is usual for one kind of figure. Times of rounds are in hours since 1970 (UTC)."""

    sides: tuple[int, ...]

    def value(self, one: T_contra) -> float:
        """Return the figure of a round."""

    def expect(self, at: float, one: T_contra) -> Expectation | None:
        """Compare the next round with the past; None while too few rounds are known."""

    def learn(self, at: float, one: T_contra) -> None:
        """Add a usual round to the past."""

    def moved(self, level: float, deviation: float) -> float:
        """Return the level at a deviation from `level`."""

    def settle(self, deviation: float, rounds: Sequence[tuple[float, T_contra]]) -> None:
        """Make the level of a drift the usual one. `deviation`: from the old level; `rounds`: the last of the drift."""


class _Baseline(Struct, frozen=True, kw_only=True):
    """What the past says, in logarithms. `hours`: the pattern of the day. `alike`: correlation of rounds `interval`
    hours apart. `reach`: half width of the band."""

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
        self._usual, self._all = _Rounds(), _Rounds()  # without what weekends change, moved when a new level is usual
        self._as_measured = _Rounds()
        self._weekend = 0.0  # deviation of the rounds of weekends
        self._fit: _Baseline | None = None
        self._not_fitted = 0
        self._last: tuple[float, float] | None = None  # time and deviation of the last round, without outliers

    def value(self, one: float) -> float:
        return one

    def expect(self, at: float, one: float) -> Expectation | None:
        weekend, log = self._weekend_at(at), math.log(one)
        usual = self._expected(at, log, weekend) if len(self._usual.at) >= MIN else None
        self._as_measured.add(at, log)
        self._all.add(at, log - weekend)
        return usual

    def _expected(self, at: float, log: float, weekend: float) -> Expectation:
        if self._fit is None or self._not_fitted > len(self._usual.at) // 24:  # so the time per round stays constant
            self._fit = self._fitted()
            self._not_fitted = 0
        fit = self._fit
        expected = fit.level + float(fit.hours[int(at) % _HOURS]) + weekend
        deviation = log - expected
        kept = 0.0
        if self._last is not None and fit.alike:
            kept = min(fit.alike ** ((at - self._last[0]) / fit.interval), MAX_ALIKE)
        predicted = kept * self._last[1] if self._last else 0.0
        spread = fit.scatter * math.sqrt(1 - kept * kept)
        rest = deviation - predicted
        self._last = at, predicted + clipped(rest, 3 * spread)
        if fit.early:
            rest = math.copysign(max(abs(deviation) - math.log1p(EARLY_DRIFT), 0.0), deviation)
        return Expectation(
            level=math.exp(fit.level),
            low=math.exp(expected - fit.reach),
            high=math.exp(expected + fit.reach),
            deviation=deviation,
            scatter=fit.scatter,
            surprise=rest / max(spread, MIN_DRIFT / ALLOWANCE),
            first=1 / (1 - kept) if kept > SLOW_ALIKE and at - self._all.at[0] > SLOW_AFTER_HOURS else 0.0,
            early=fit.early,
        )

    def learn(self, at: float, one: float) -> None:
        self._usual.add(at, math.log(one) - self._weekend * _is_weekend(at))
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

    def _weekend_at(self, at: float) -> float:
        """Return what a weekend changes at `at`. It is estimated anew at the first round of each weekend."""
        if not _is_weekend(at):
            return 0.0
        measured = self._as_measured
        if measured.at and not _is_weekend(measured.at[-1]):
            measured.forget(WEEKEND_WINDOW_HOURS)
            self._weekend = _weekend_effect(measured, self._fit.hours if self._fit else np.zeros(_HOURS))
        return self._weekend

    def _fitted(self) -> _Baseline:
        self._usual.forget(WINDOW_HOURS)
        at, logs = np.array(self._usual.at), np.array(self._usual.logs)
        hour = np.floor(at).astype(np.int64)
        apart = np.diff(at)
        interval = float(np.median(apart))
        wider = 1 + 3.1 / (len(logs) - 2)  # few rounds, uncertain scatter: fitted to simulated normal values
        level = float(np.median(logs))
        grid = _by_day_and_hour(hour, logs - level)
        changes = np.diff(grid, axis=0)
        changes = changes[~np.isnan(changes)]
        if at[-1] - at[0] < HOURS_KNOWN_AFTER or len(changes) < MIN or interval <= 0:
            scatter = _scatter(logs - level) * wider
            return _Baseline(
                level=level,
                hours=np.zeros(_HOURS),
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
        scatter = max(between_days, scatter) * wider
        return _Baseline(
            level=level,
            hours=hours,
            alike=alike,
            interval=interval,
            scatter=max(scatter, MIN_DRIFT),
            reach=max(FAR * scatter, math.log1p(MIN_CHANGE)),
            early=False,
        )

    def _scatter_and_correlation(self, hours: Floats, interval: float) -> tuple[float, float]:
        """Return those of all rounds. Without possible drifts, rounds would differ less than they do."""
        self._all.forget(WINDOW_HOURS)
        at = np.array(self._all.at)
        rest = np.array(self._all.logs) - hours[np.floor(at).astype(np.int64) % _HOURS]
        rest -= np.median(rest)
        regular = np.abs(np.diff(at) - interval) < interval / 2
        return _scatter(rest), _correlation(rest[:-1][regular], rest[1:][regular])


def _is_weekend(at: float) -> bool:
    return int(at // _HOURS) % 7 in WEEKEND


def _weekend_effect(rounds: _Rounds, hours: Floats) -> float:
    """Return how much weekends differ from the other days of their weeks, in logarithms; 0 if that may be chance.

    Days are the units, within weeks that begin on Thursdays, so a slow change of the level matters little.
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
    if not differences or freedom < WEEKEND_FREEDOM:
        return 0.0
    effect = sum(differences) / len(differences)
    error = math.sqrt(squares / freedom * sum(variances)) / len(variances)
    return effect if abs(effect) > WEEKEND_SURE * error else 0.0


def clipped(value: float, most: float) -> float:
    return min(max(value, -most), most)


def _by_day_and_hour(hour: npt.NDArray[np.int64], values: Floats) -> Floats:
    """Return the mean of each hour as an array (days with rounds, 24); NaN: no value. `hour`: hours since 1970."""
    days, day = np.unique(hour // _HOURS, return_inverse=True)
    cells = day * _HOURS + hour % _HOURS
    counts = np.bincount(cells, minlength=len(days) * _HOURS)
    sums = np.bincount(cells, values, minlength=len(days) * _HOURS)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means.reshape(len(days), _HOURS)


def _pattern(grid: Floats, scatter: float) -> Floats:
    near = np.sort(np.concatenate([np.roll(grid, by, axis=1) for by in (-1, 0, 1)]), axis=0)  # NaN is last
    counts = len(near) - np.isnan(near).sum(axis=0)
    known = counts > 0
    columns = np.arange(_HOURS)
    found = (near[np.maximum(counts - 1, 0) // 2, columns] + near[counts // 2, columns]) / 2
    found = np.where(known, found - found[known].mean(), 0.0)
    noise = _MEDIAN_VARIANCE * scatter**2 * float(np.mean(1 / counts[known]))
    variance = float(np.mean(found[known] ** 2))
    # 1.5: the noise of neighbouring hours is shared, so its estimate is uncertain.
    return found * max(0.0, 1 - 1.5 * noise / variance) if variance > 0 else found


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
    """Correct the bias of `n` values (Kendall, "Note on Bias in the Estimation of Autocorrelation", 1954).

    The result is from 0 to `MAX_ALIKE`.
    """
    return min(max(correlation + (1 + 3 * correlation) / n, 0.0), MAX_ALIKE)


class _Cusum:
    """Sum of the surprises of one side. `since`: the round after which it was last 0."""

    def __init__(self, side: int, since: int, *, slow: bool) -> None:
        self.side, self.since, self.slow = side, since, slow
        self._allowance, self._limit = (SLOW_ALLOWANCE, SLOW_LIMIT) if slow else (ALLOWANCE, LIMIT)
        self._sum = 0.0

    @property
    def over(self) -> bool:
        return self._sum > self._limit

    def add(self, usual: Expectation, rounds: int) -> None:
        """Add the round with the number `rounds`, from 1."""
        surprise = self.side * clipped(usual.surprise, MAX_SURPRISE)
        self._sum += surprise - self._allowance
        start = 0.0
        if self.slow:
            start = max(min(usual.first * (surprise - usual.first * self._allowance), self._limit / 2), 0.0)
        if self._sum <= start or (self.slow and not usual.first):
            self._sum, self.since = start, rounds - (start > 0)


class ControlChart(Generic[T]):
    """Control chart of one figure. `drifts` are all that were found, in order."""

    def __init__(self, model: ChartModel[T]) -> None:
        self.drifts: list[ChartDrift] = []
        self._model = model
        self._rounds = 0
        self._held: list[tuple[float, T, float]] = []  # time, figure, deviation; perhaps of a drift, so not yet usual
        self._before: deque[tuple[float, float]] = deque(maxlen=MIN)  # time and figure of the last usual rounds
        self._restart()

    def _restart(self) -> None:
        self._held.clear()
        self._cusums = [_Cusum(side, self._rounds, slow=slow) for slow in (False, True) for side in self._model.sides]
        self._run_side, self._run_since = 0, self._rounds  # the run of unusual rounds in the first days
        self._found = 0  # the round that showed the current drift
        self._change = 0.0  # the median deviation of the current drift
        self._back = 0.0  # evidence that it has ended
        self._returned = 0  # number of rounds in a row with such evidence

    @property
    def drift(self) -> ChartDrift | None:
        return self.drifts[-1] if self.drifts and self.drifts[-1].until is None else None

    def add(self, at: float, one: T) -> JudgedRound:
        """Judge the next round by those before it, and add it to them. `at`: hours since 1970 (UTC)."""
        usual = self._model.expect(at, one)
        self._rounds += 1
        if usual is None:
            self._learn(at, one)
            self._restart()
            return JudgedRound(state="learning")
        self._held.append((at, one, usual.deviation))
        value = self._model.value(one)
        side = int(value > usual.high) - int(value < usual.low)
        drift = self.drift
        if drift is None:
            self._follow_run(usual, value, side)
        began = drift is None and self._await(usual)
        ended = drift is not None and self._follow(usual, drift)
        drifted = self.drift is not None and not self._returned
        state: State = "drifted" if drifted else "unusual" if side else "usual"
        return JudgedRound(state=state, side=side, usual=usual, began=began, ended=ended)

    def accept(self) -> None:
        """Acknowledge all drifts. The level of one that lasts is the usual one from now on."""
        drift = self.drift
        if drift is not None:
            self._settle(drift)
        for each in self.drifts:
            each.accepted = True

    def _follow_run(self, usual: Expectation, value: float, side: int) -> None:
        """Follow a run of the first days: it begins with an unusual round, and ends half way back to the level."""
        edge = usual.high if self._run_side > 0 else usual.low
        if self._run_side and self._run_side * (value - (usual.level + edge) / 2) > 0:
            return
        self._run_side = side if usual.early else 0
        self._run_since = self._rounds - abs(self._run_side)

    def _await(self, usual: Expectation) -> bool:
        for cusum in self._cusums:
            cusum.add(usual, self._rounds)
        found = next(((each.side, each.since) for each in self._cusums if each.over and self._large(each)), None)
        if found is None and self._lasts(usual.level):
            found = self._run_side, self._run_since
        self._learn_until(found[1] if found else min(self._run_since, *(cusum.since for cusum in self._cusums)))
        if found:
            self.drifts.append(ChartDrift(side=found[0], since=found[1], before=usual.level, after=usual.level))
            self._found = self._rounds
            self._measure(self.drifts[-1])
        return found is not None

    def _lasts(self, level: float) -> bool:
        """Return whether no night explains the run of unusual rounds."""
        if self._rounds - self._run_since < MIN:
            return False
        run = [(at, self._model.value(one)) for at, one, _ in self._held[self._run_since - self._rounds :]]
        if run[-1][0] - run[0][0] >= NIGHT_HOURS:
            return True
        if len(self._before) < MIN or run[MIN - 1][0] - self._before[0][0] > STEP_HOURS:
            return False
        before, after = (float(np.median([value for _, value in part])) for part in (self._before, run[:MIN]))
        return self._run_side * (after - before) > abs(after - level) / 2

    def _large(self, cusum: _Cusum) -> bool:
        since = [deviation for _, _, deviation in self._held[cusum.since - self._rounds :]]
        return not cusum.slow or cusum.side * float(np.median(since)) > MIN_CHANGE

    def _learn_until(self, end: int) -> None:
        usual = len(self._held) - (self._rounds - end)
        for at, one, _ in self._held[:usual]:
            self._learn(at, one)
        del self._held[:usual]

    def _learn(self, at: float, one: T) -> None:
        self._model.learn(at, one)
        self._before.append((at, self._model.value(one)))

    def _measure(self, drift: ChartDrift) -> None:
        drifted = self._held[: len(self._held) - self._returned]
        self._change = float(np.median([deviation for _, _, deviation in drifted[-SETTLES:]]))
        drift.after = self._model.moved(drift.before, self._change)

    def _follow(self, usual: Expectation, drift: ChartDrift) -> bool:
        change = drift.side * self._change / usual.scatter
        ratio = min(change, 2.0) * (change / 2 - drift.side * usual.deviation / usual.scatter)
        self._back = max(self._back + clipped(ratio, MAX_EVIDENCE), 0.0)
        self._returned = self._returned + 1 if self._back else 0
        self._measure(drift)
        if self._back > BACK:
            drift.until = self._rounds - self._returned
            for at, one, _ in self._held[-self._returned :]:
                self._learn(at, one)
        elif self._rounds - self._found == max(SETTLES, SLOW_SETTLES * (self._found - drift.since)):
            self._settle(drift)
            return True
        else:
            return False
        self._restart()
        return True

    def _settle(self, drift: ChartDrift) -> None:
        drift.until, drift.settled = self._rounds, True
        self._model.settle(self._change, [(at, one) for at, one, _ in self._held])
        self._before.clear()
        self._restart()
