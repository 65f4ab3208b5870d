"""Decision whether the share of requests that meet their limits is surely above or surely below a
bound.

The bounds of the true share are those of Clopper and Pearson ("The use of confidence or fiducial
limits", 1934): exact for any number of independent requests. Requests that share a server are not
independent: `Batches` counts them in consecutive batches, whose scatter shows how many independent
requests they are worth (`summary`), by the method of Korn and Graubard (Survey Methodology, 1998).

A few rounds have no scatter to speak of, but they can be too bad for chance. The share of a round
that misses the limits, divided by the allowed one, is 1 on average, so the product of these numbers
over independent rounds exceeds 1 / `DOUBT` with a probability of `DOUBT` at most (Markov's
inequality), whenever one looks (Ville's).
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from splitsecond.log.statistics.student import boundary
from splitsecond.log.statistics.summary import MIN_ROUNDS, binomial, effective_n, known_share

DOUBT = 0.01
"""Probability that one decision is wrong. A step is checked several times, and each check is a
decision."""
Z_DOUBT = 2.3263478740408408
"""Point of the normal distribution that is exceeded with probability `DOUBT`."""

Decision = Literal["above", "below", "undecided"]


class Batches(Struct, frozen=True):
    """Requests in consecutive batches: `met` of `sent` requests of each batch met the limits.

    `rounds`: the batches are rounds. Otherwise they are parts of rounds: they may decide that the
    share is below, but a few moments without a queue do not show that it is above.
    """

    met: Sequence[int]
    sent: Sequence[int]
    rounds: bool = True

    def decided(self, share: float) -> Decision:
        met, n = self._effective
        if decided(math.floor(met), n, share) == "above":
            return "above" if self.rounds else "undecided"
        below = decided(math.ceil(met), n, share) == "below" or (
            self.rounds and self._too_bad(share)
        )
        return "below" if below else "undecided"

    @property
    def bounds(self) -> tuple[float, float]:
        met, n = self._effective
        return bounds(math.floor(met), n)[0], bounds(math.ceil(met), n)[1]

    def _too_bad(self, share: float) -> bool:
        worse = [
            (1 - met / sent) / (1 - share) for met, sent in zip(self.met, self.sent, strict=True)
        ]
        return math.prod(worse) >= 1 / DOUBT

    @property
    def _effective(self) -> tuple[float, int]:
        total = sum(self.sent)
        if len(self.sent) < MIN_ROUNDS:
            return 0.0, 0
        worth = effective_n(
            np.array(self.met, dtype=np.float64), np.array(self.sent, dtype=np.float64)
        )
        n = math.floor(worth * known_share(len(self.sent), Z_DOUBT, 2 * DOUBT))
        return sum(self.met) / total * n, n


def decided(met: int, sent: int, share: float) -> Decision:
    """Return whether the true share that meets the limits is surely at least `share`, surely below,
    or undecided."""
    if sent == 0:
        return "undecided"
    if _at_least(met, sent, share) <= DOUBT:
        return "above"
    return "below" if _at_most(met, sent, share) <= DOUBT else "undecided"


def bounds(met: int, sent: int) -> tuple[float, float]:
    """Return the bounds of the true share; each is wrong with probability `DOUBT` at most."""
    low = 0.0 if met == 0 else boundary(lambda p: _at_least(met, sent, p) > DOUBT, 1.0)
    high = 1.0 if met == sent else boundary(lambda p: _at_most(met, sent, p) <= DOUBT, 1.0)
    return low, high


def fewest(share: float, batches: int) -> int:
    """Return how many requests in so many batches prove `share` if all meet the limits: for 95% in
    12 batches 123."""
    return math.ceil(
        math.ceil(math.log(DOUBT) / math.log(share)) / known_share(batches, Z_DOUBT, 2 * DOUBT)
    )


def fatal(sent: int, share: float) -> int:
    return next(
        (missed for missed in range(1, sent) if decided(sent - missed, sent, share) == "below"),
        sent,
    )


def _at_most(met: int, sent: int, share: float) -> float:
    return min(float(binomial(sent, share)[: met + 1].sum()), 1.0)


def _at_least(met: int, sent: int, share: float) -> float:
    return _at_most(sent - met, sent, 1 - share)
