"""When a figure has left what was usual: a control chart, one value for each round, judged by the rounds before it.

Requests of one round share an hour, so they cannot say how far hours lie apart; rounds can. Each is therefore one
value, and what is usual is the level and the scatter of the last `WINDOW` rounds (Shewhart, "Economic Control of
Quality of Manufactured Product", 1931). A round more than three times the scatter from the level is unusual. Two such
in a row on the same side are a drift, or `LEANING` rounds in a row that lie on one side by more than the scatter
alone: run rules after the Western Electric "Statistical Quality Control Handbook" (1956), stricter than its own, since
hours that follow each other are alike. `BACK` rounds in a row that do neither end a drift. A drift that has lasted
`SETTLES` rounds is what is usual from then on.

Times and speeds are judged by their logarithm, since what slows them multiplies. Their level is the median. Their
scatter is 2.2219 times the lower quartile of the differences between any two rounds: Qn of Rousseeuw and Croux
("Alternatives to the Median Absolute Deviation", 1993) without its correction for few values. Outliers bear on it as
little as on the median absolute deviation, but of 8 rounds it knows about as much as the standard deviation does. Both
are uncertain where rounds are few, so the limits are wider then, by a factor fitted to simulated normal values. What is
less than `LEAST_CHANGE` is never unusual: nobody feels it, and where nothing scatters everything would be.

The share of errors is judged by counts. Unusual is what the requests of the past rounds, taken as one urn, give as
rarely as three deviations (beta-binomial, with Jeffreys' prior). Fewer errors are no news.

What that is worth, in simulated rounds (the tests hold it to this, with some room). 1,000 independent rounds give 3
unusual ones, and less than 0.1 false drifts; with the tails of Student's t of 4 degrees 20 and 0.3. Rounds that
resemble the one before (correlation 0.5) give 1.1 false drifts, hourly ones with nights 16 % faster than days 1.8, most
of them while the first day is learned. A figure that becomes 50 % slower is found with the second round. A slowdown of
20 % is found after 2 rounds where rounds scatter by 4 % (nine times in ten within 4), after 6 at 6 % (within 10), after
9 at 8 % (one in five not within 50). At 10 % six in ten are not found within 50: then a round needs more requests.
"""

import math
from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

WINDOW = 72
LEAST = 8
"""Rounds before which nothing is called unusual."""
OUTSIDE = 2
LEANING = 8
BACK = 3
SETTLES = 24
LEAST_CHANGE = 0.05
TO_DEVIATION = 2.2219
"""From the lower quartile of the differences of two normal values to their standard deviation."""
RARE, NOT_RARE = 0.00135, 0.1587
"""How much of a normal distribution lies more than three deviations above its middle, and more than one."""

State = Literal["learning", "usual", "unusual", "drifted"]
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Band(Struct, frozen=True):
    """What is usual: the level, between `near` it leans to no side, between `far` it is not unusual."""

    level: float
    near: tuple[float, float]
    far: tuple[float, float]


class Judged(Struct, frozen=True, kw_only=True):
    """How one round stands. `side`: above (1), below (−1) or within (0) its far limits. `band`: None while learning.

    `began`: with this round it is known that the figure has drifted.
    """

    state: State
    side: int = 0
    band: Band | None = None
    began: bool = False


class Drift(Struct, kw_only=True):
    """A figure that left its level `before` to one `side` with round `since`, counted from 0. `after`: its level since.

    `until` is the first round that was as usual again, None while the drift lasts. With `settled` it was not as before:
    it had lasted so long that it is what is usual.
    """

    side: int
    since: int
    before: float
    after: float
    until: int | None = None
    settled: bool = False


class Yardstick(Protocol[T_contra]):
    """What a sort of figure is judged by."""

    def value(self, one: T_contra) -> float:
        """The figure of a round."""

    def level(self, rounds: Sequence[T_contra]) -> float:
        """That of several."""

    def band(self, past: Sequence[T_contra], one: T_contra) -> Band:
        """What is usual after `past`, for a round such as `one`."""


class Times:
    """Times or speeds, each above 0."""

    def value(self, one: float) -> float:
        """The figure itself."""
        return one

    def level(self, rounds: Sequence[float]) -> float:
        """Their median."""
        return float(np.median(rounds))

    def band(self, past: Sequence[float], one: float) -> Band:
        """By their logarithms (see the file)."""
        logs = np.log(past)
        level = float(np.median(logs))
        first, second = _pairs(len(logs))
        scatter = TO_DEVIATION * float(np.quantile(np.abs(logs[first] - logs[second]), 0.25))
        scatter *= 1 + 3.1 / (len(logs) - 2)
        least = math.log1p(LEAST_CHANGE)
        near, far = max(scatter, least), max(3 * scatter, least)
        return Band(math.exp(level), _around(level, near), _around(level, far))


@cache
def _pairs(n: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The places of both of each two among `n`."""
    return np.triu_indices(n, 1)


def _around(level: float, reach: float) -> tuple[float, float]:
    return math.exp(level - reach), math.exp(level + reach)


class Errors(Struct, frozen=True):
    """How many requests of a round failed."""

    failed: int
    requests: int


class ErrorShares:
    """Shares of requests that failed."""

    def value(self, one: Errors) -> float:
        """That of one round."""
        return one.failed / one.requests

    def level(self, rounds: Sequence[Errors]) -> float:
        """That of all their requests."""
        return sum(each.failed for each in rounds) / sum(each.requests for each in rounds)

    def band(self, past: Sequence[Errors], one: Errors) -> Band:
        """From none to as many as are not rare (see the file)."""
        failed, requests = sum(each.failed for each in past), sum(each.requests for each in past)
        a, b, n = failed + 0.5, requests - failed + 0.5, one.requests
        near, far = (_most(n, a, b, rare) / n for rare in (NOT_RARE, RARE))
        return Band(failed / requests, (0.0, near), (0.0, far))


def _most(n: int, a: float, b: float, rare: float) -> int:
    """The most failures of `n` requests than which more are `rare`, where the share is Beta(a, b)."""
    more, most = 1.0, -1
    while more >= rare and most < n:
        most += 1
        ways = math.lgamma(n + 1) - math.lgamma(most + 1) - math.lgamma(n - most + 1)
        more -= math.exp(ways + _log_beta(most + a, n - most + b) - _log_beta(a, b))
    return most


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


class Chart(Generic[T]):
    """One figure, round after round. `drifts` are all that were found, in their order."""

    def __init__(self, yardstick: Yardstick[T]) -> None:
        self.drifts: list[Drift] = []
        self._yardstick = yardstick
        self._usual: deque[T] = deque(maxlen=WINDOW)
        self._held: list[T] = []  # leaning in a row, or all since a drift began: not to be called usual yet
        self._leant = 0  # to which side those in a row lean
        self._outside = 0  # how many in a row were outside
        self._back = 0
        self._rounds = 0

    @property
    def drift(self) -> Drift | None:
        """The one that is under way."""
        return self.drifts[-1] if self.drifts and self.drifts[-1].until is None else None

    def add(self, one: T) -> Judged:
        """Judge the next round by those before it, and count it among them."""
        band = self._yardstick.band(self._usual, one) if len(self._usual) >= LEAST else None
        self._rounds += 1
        if band is None:
            self._usual.append(one)
            return Judged(state="learning")
        value = self._yardstick.value(one)
        lean, side = _side(value, band.near), _side(value, band.far)
        drift, began = self.drift, False
        if drift is None:
            began = self._await(one, lean, side, band)
        else:
            self._follow(one, lean, drift)
        drift = self.drift
        drifted = drift is not None and lean == drift.side
        return Judged(state="drifted" if drifted else "unusual" if side else "usual", side=side, band=band, began=began)

    def _await(self, one: T, lean: int, side: int, band: Band) -> bool:
        """No drift is under way. Does one begin?"""
        if lean != self._leant:
            self._usual += self._held  # it came to nothing: such things are part of what is usual
            self._held.clear()
        self._leant = lean
        self._outside = self._outside + 1 if side and self._held else int(side != 0)
        if not lean:
            self._usual.append(one)
            return False
        self._held.append(one)
        if self._outside < OUTSIDE and len(self._held) < LEANING:
            return False
        after = self._yardstick.level(self._held)
        self.drifts.append(Drift(side=lean, since=self._rounds - len(self._held), before=band.level, after=after))
        self._back = 0
        return True

    def _follow(self, one: T, lean: int, drift: Drift) -> None:
        """`drift` is under way. Does it end, or has it become what is usual?"""
        self._held.append(one)
        self._back = 0 if lean == drift.side else self._back + 1
        drift.after = self._yardstick.level(self._held[: len(self._held) - self._back])
        if self._back == BACK:
            drift.until = self._rounds - BACK
            self._usual += self._held[-BACK:]
        elif self._rounds - drift.since == SETTLES:
            drift.until, drift.settled = self._rounds, True
            self._usual.clear()
            self._usual += self._held
        else:
            return
        self._held.clear()
        self._leant = self._outside = 0


def _side(value: float, limits: tuple[float, float]) -> int:
    return int(value > limits[1]) - int(value < limits[0])
