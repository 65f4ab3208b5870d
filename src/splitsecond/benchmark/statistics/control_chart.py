"""Control chart: when a figure left what was usual, with one value per round, judged by the rounds
before it.

Requests of one round share an hour, so they cannot show how much hours differ; rounds can. So each
round is one value. A model (`times_model`, `error_share`) expects each round from those before it.
Its surprises show a drift:

CUSUM (Page, "Continuous Inspection Schemes", 1954): surprises are added up for either side, each
less `ALLOWANCE`. A sum above `LIMIT` is a drift. It began in the round after the sum was last 0.
Where rounds are correlated, only the first round of a change is a large surprise; the prediction
takes most of the next ones. So a second, slow CUSUM has a smaller allowance and a higher limit. It
may begin anew in each round, with the likelihood ratio of a change in it.

In the first days, when a night cannot be distinguished from a drift, a drift is only a change by
more than half, or a run of unusual rounds (`UnusualRun`) that no night explains: it lasts for too
long, or it began with a step within an hour.

A drift ends when a CUSUM of likelihood ratios between the old and the new level reaches `BACK`. If
it lasts for `SETTLES` more rounds, the new level becomes the usual one, and the pattern stays.
Rounds of a possible drift are not part of what is usual, unless it ended and may have been chance
or a night.

docs/watch.md has the performance in simulations, by `python -m benchmarks.watching`.
"""

from collections import deque
from collections.abc import Collection, Sequence
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
from msgspec import Struct

from splitsecond.benchmark.statistics.expectation import MIN, Expectation

ALLOWANCE, LIMIT = 0.5, 8.5
"""Allowance per round and limit of the CUSUM, in standard deviations."""
SLOW_ALLOWANCE, SLOW_LIMIT = 0.15, 19.5
"""The same of the slow CUSUM. The first round of a change counts at most half of its limit."""
MAX_SURPRISE = 3.5
"""Largest surprise that counts, in standard deviations: two outliers in a row are no drift, three
are."""
BACK, MAX_EVIDENCE = 5.0, 2.0
"""Logarithm of the likelihood ratio that ends a drift, and the most that one round adds to it."""
SETTLES, SLOW_SETTLES = 24, 2
"""The new level is usual after so many rounds, or so many times the rounds until it was found if
that is more. In the first days, it must also last for longer than a night."""
CHANCE = 2.5
"""A drift that ended may have been chance if its change was smaller, in standard deviations:
correlated rounds have such spells."""
MIN_CHANGE, MIN_DRIFT, EARLY_DRIFT = 0.05, 0.02, 0.5
"""Smallest changes: of an unusual round or of a drift that the slow CUSUM finds, of another drift,
and of a drift before the pattern of the day is known."""

State = Literal["learning", "usual", "unusual", "drifted"]
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class JudgedRound(Struct, frozen=True, kw_only=True):
    """Verdict on one round. `side`: above (1), below (−1) or within (0) the band. `usual`: None
    while learning.

    `began`: this round shows a drift. `ended`: it ends one, or makes it the usual level.
    """

    state: State
    side: int = 0
    usual: Expectation | None = None
    began: bool = False
    ended: bool = False


class ChartDrift(Struct, kw_only=True):
    """Drift of a figure from its level `before` to one `side`, from round `since` (from 0) on.
    `after`: the new level.

    `until` is the first usual round afterwards, None while the drift lasts. With `settled`, the
    figure did not return: the drift lasted so long that it is the usual level now. `accepted`:
    somebody has acknowledged it.
    """

    side: int
    since: int
    before: float
    after: float
    until: int | None = None
    settled: bool = False
    accepted: bool = False


class ChartModel(Protocol[T_contra]):
    """Model of what is usual for one kind of figure. Times of rounds are in hours since 1970
    (UTC)."""

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
        """Make the level of a drift the usual one. `deviation`: from the old level; `rounds`: the
        last of the drift."""


def clipped(value: float, most: float) -> float:
    return min(max(value, -most), most)


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
            start = max(
                min(usual.first * (surprise - usual.first * self._allowance), self._limit / 2), 0.0
            )
        if self._sum <= start or (self.slow and not usual.first):
            self._sum, self.since = start, rounds - (start > 0)


class ControlChart(Generic[T]):
    """Control chart of one figure. `drifts` are all that were found, in order."""

    def __init__(self, model: ChartModel[T]) -> None:
        self.drifts: list[ChartDrift] = []
        self._model = model
        self._rounds = 0
        # time, figure, deviation; perhaps of a drift, so not yet usual
        self._held: list[tuple[float, T, float]] = []
        # time and figure of the last usual rounds
        self._before: deque[tuple[float, float]] = deque(maxlen=MIN)
        self._restart()

    def _restart(self) -> None:
        self._held.clear()
        self._cusums = [
            _Cusum(side, self._rounds, slow=slow)
            for slow in (False, True)
            for side in self._model.sides
        ]
        self._run = UnusualRun(self._rounds)
        self._found = 0  # the round that showed the current drift
        self._change = 0.0  # the median deviation of the current drift
        self._back = 0.0  # evidence that it has ended
        self._returned = 0  # number of rounds in a row with such evidence

    @property
    def drift(self) -> ChartDrift | None:
        return self.drifts[-1] if self.drifts and self.drifts[-1].until is None else None

    def add(self, at: float, one: T) -> JudgedRound:
        """Judge the next round by those before it, and add it to them. `at`: hours since 1970
        (UTC)."""
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
            self._run.follow(usual, value, side, self._rounds)
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

    def _await(self, usual: Expectation) -> bool:
        for cusum in self._cusums:
            cusum.add(usual, self._rounds)
        drift = next(
            ((each.side, each.since) for each in self._cusums if each.over and self._large(each)),
            None,
        )
        if drift is None and self._run.lasts(
            self._values_since(self._run.since), self._before, usual.level
        ):
            drift = self._run.side, self._run.since
        self._learn_until(
            drift[1] if drift else min(self._run.since, *(cusum.since for cusum in self._cusums))
        )
        if drift:
            self.drifts.append(
                ChartDrift(side=drift[0], since=drift[1], before=usual.level, after=usual.level)
            )
            self._found = self._rounds
            self._measure(self.drifts[-1])
        return drift is not None

    def _values_since(self, number: int) -> list[tuple[float, float]]:
        """Return the times and figures of the rounds from `number` on."""
        held = self._held[number - self._rounds :] if number < self._rounds else []
        return [(at, self._model.value(one)) for at, one, _ in held]

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
            # chance, or a night of the first days
            may_be_usual = usual.early or abs(self._change) < CHANCE * usual.scatter
            for at, one, _ in self._held[0 if may_be_usual else -self._returned :]:
                self._learn(at, one)
        elif self._stays(drift, usual):
            self._settle(drift)
            return True
        else:
            return False
        self._restart()
        return True

    def _stays(self, drift: ChartDrift, usual: Expectation) -> bool:
        rounds = max(SETTLES, SLOW_SETTLES * (self._found - drift.since))
        hours = self._held[-1][0] - self._held[0][0]
        return self._rounds - self._found >= rounds and hours >= NIGHT_HOURS * usual.early

    def _settle(self, drift: ChartDrift) -> None:
        drift.until, drift.settled = self._rounds, True
        self._model.settle(self._change, [(at, one) for at, one, _ in self._held])
        self._before.clear()
        self._restart()


NIGHT_HOURS, STEP_HOURS = 18, 1
"""A run of unusual rounds that is longer than the first is not a night. A step within the second is
not one either: day and night differ little within an hour."""
Rounds = Sequence[tuple[float, float]]
"""Times of rounds, in hours, and their figures."""


class UnusualRun:
    """Successive rounds on one `side` of the usual level, 1 or −1, after the round `since`.

    `side` is 0 while rounds are usual.
    """

    def __init__(self, since: int) -> None:
        self.side, self.since = 0, since

    def follow(self, usual: Expectation, value: float, side: int, number: int) -> None:
        """Add the round with this number, from 1. A run begins with an unusual round, and ends half
        way back."""
        edge = usual.high if self.side > 0 else usual.low
        if self.side and self.side * (value - (usual.level + edge) / 2) > 0:
            return
        self.side = side if usual.early else 0
        self.since = number - abs(self.side)

    def lasts(self, run: Rounds, before: Collection[tuple[float, float]], level: float) -> bool:
        """Return whether no night explains the run. `before`: the last usual rounds."""
        if len(run) < MIN:
            return False
        if run[-1][0] - run[0][0] >= NIGHT_HOURS:
            return True
        if len(before) < MIN or run[MIN - 1][0] - min(before)[0] > STEP_HOURS:
            return False
        old, new = (float(np.median([value for _, value in part])) for part in (before, run[:MIN]))
        return self.side * (new - old) > abs(new - level) / 2
