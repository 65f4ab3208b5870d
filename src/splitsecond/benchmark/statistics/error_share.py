"""Model of the share of failed requests, for a control chart.

The requests of the past rounds, taken as one population, give the probability of so many errors
(beta-binomial, with Jeffreys' prior). Its normal score is whitened by the autocorrelation of past
scores, and is divided by their standard deviation if that is above 1. Fewer errors are never
unusual.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from statistics import NormalDist

import numpy as np
from msgspec import Struct

from splitsecond.benchmark.statistics.control_chart import MAX_SURPRISE, SETTLES, clipped
from splitsecond.benchmark.statistics.expectation import MIN, Expectation
from splitsecond.benchmark.statistics.times_model import unbiased

ERROR_WINDOW = 240
"""Number of past rounds that errors are compared with: many, because errors are few."""
NOT_COMPARED = 12
"""Number of last rounds that do not count for the correlation of errors: a drift does not explain
itself."""
RARE = 0.00135
_NORMAL = NormalDist()


class ErrorCount(Struct, frozen=True):
    failed: int
    requests: int


class ErrorShareModel:
    sides: tuple[int, ...] = (1,)

    def __init__(self) -> None:
        self._past: deque[ErrorCount] = deque()
        self._failed = self._requests = 0  # sums of the past
        self._scores: deque[float] = deque(maxlen=ERROR_WINDOW)  # normal scores of all rounds

    def value(self, one: ErrorCount) -> float:
        return one.failed / one.requests

    def expect(self, at: float, one: ErrorCount) -> Expectation | None:
        if len(self._past) < MIN:
            return None
        failed, requests = self._failed, self._requests
        mean, n = (failed + 0.5) / (requests + 1), one.requests
        a, b = failed + 0.5, requests - failed + 0.5
        above, most, more = 1.0, n, 1.0
        for failed_then, probability in enumerate(_counts(n, a, b)):
            more -= probability
            if failed_then == one.failed:
                above = more + probability / 2
            if more < RARE and most == n:
                most = failed_then
            if more < RARE and failed_then >= one.failed:
                break
        return Expectation(
            level=failed / requests,
            low=0.0,
            high=most / n,
            deviation=self.value(one) - failed / requests,
            scatter=math.sqrt(mean * (1 - mean) / n),
            surprise=self._surprise(-_NORMAL.inv_cdf(min(max(above, 1e-9), 1 - 1e-9))),
        )

    def _surprise(self, score: float) -> float:
        scores = np.array(self._scores)[:-NOT_COMPARED]
        scores -= scores.mean() if len(scores) else 0.0
        total, alike, spread = float(scores @ scores), 0.0, 1.0
        if total > 4:  # else only few requests have failed
            alike = unbiased(float(scores[1:] @ scores[:-1]) / total, len(scores))
            spread = max(1.0, math.sqrt(total / len(scores)))
        last = self._scores[-1] if self._scores else 0.0
        self._scores.append(clipped(score, MAX_SURPRISE))
        return (score - alike * last) / (spread * math.sqrt(1 - alike * alike))

    def learn(self, at: float, one: ErrorCount) -> None:
        self._past.append(one)
        self._failed += one.failed
        self._requests += one.requests
        if len(self._past) > ERROR_WINDOW:
            old = self._past.popleft()
            self._failed -= old.failed
            self._requests -= old.requests

    def moved(self, level: float, deviation: float) -> float:
        return min(max(level + deviation, 0.0), 1.0)

    def settle(self, deviation: float, rounds: Sequence[tuple[float, ErrorCount]]) -> None:
        self._past.clear()
        self._failed = self._requests = 0
        for at, one in rounds[-SETTLES:]:
            self.learn(at, one)


def _counts(n: int, a: float, b: float) -> Iterator[float]:
    """Yield the probability of 0, 1, … failures of `n` requests, if their share is Beta(a, b)."""
    log = _log_beta(a, b + n) - _log_beta(a, b)
    for k in range(n + 1):
        yield math.exp(log)
        if k < n:
            log += math.log((n - k) / (k + 1) * (a + k) / (b + n - k - 1))


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
