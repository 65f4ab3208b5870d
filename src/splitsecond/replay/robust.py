"""The doubly robust estimate, where the log has the probability of each choice.

The direct method answers calls from other calls that look alike. What they do not share, such as
harder prompts that one target gets, it cannot see. The calls that were sent by chance where the
other policy would have sent them show how far it is off: each counts by one over the probability of
its choice (Dudík, Langford and Li, "Doubly Robust Policy Evaluation and Learning", 2011). The
weights are normalized (Hájek), so an error that all probabilities share has no effect.
"""

import numpy as np

from splitsecond.core.timing.columns import Floats, Integers, Mask
from splitsecond.core.timing.packed_attempt import UNKNOWN
from splitsecond.log.store.rows import MILLION
from splitsecond.replay.figures import MIN_CALLS, Outcomes

MIN_KNOWN = 0.9
"""Share of the calls whose choice must have a known probability."""
MAX_WEIGHT = 50.0
MAX_CLIPPED = 0.05
"""Share of all weight that clipping to `MAX_WEIGHT` may take away."""


class Weights:
    """What each call counts for.

    `first`: the target that each call asked first, in the log, as replayed with its own attempts
    and as replayed with drawn ones. `odds_ppm`: the probability of its choice in the log, in
    millionths; 0 or UNKNOWN if it is unknown.
    """

    def __init__(self, odds_ppm: Integers, first: tuple[Integers, Integers, Integers]) -> None:
        logged, own, drawn = first
        odds = odds_ppm / MILLION
        self.known: Mask = odds > 0
        same = (logged == own) & (own == drawn) & (own != UNKNOWN) & self.known
        self.raw: Floats = np.where(same, 1 / np.where(self.known, odds, 1.0), 0.0)
        self.weight: Floats = np.minimum(self.raw, MAX_WEIGHT)
        self.supported: Mask = same | (self.known & (odds < 1))

    def effective_calls(self, which: Mask) -> float:
        """Return as how many calls of equal weight these say as much."""
        weight = self.weight[which]
        total = float(weight.sum())
        return total**2 / float(np.square(weight).sum()) if total else 0.0

    def refusal(self, which: Mask) -> str:
        """Return why there is no doubly robust estimate for these calls; "" if there is one."""
        share = float(self.known[which].mean()) if which.any() else 0.0
        if share < MIN_KNOWN:
            return f"the log has the probability of the choice of {share:.0%} of the calls"
        raw = float(self.raw[which].sum())
        if raw and 1 - float(self.weight[which].sum()) / raw > MAX_CLIPPED:
            return "the log rarely chose as this policy does, so few calls would count for most"
        if (effective := self.effective_calls(which)) < MIN_CALLS:
            return f"calls that chose as this policy does count as {effective:.0f} of equal weight"
        return ""


class RobustOutcomes:
    """Outcomes that are `drawn` from other calls, corrected by those of the calls' `own`
    attempts."""

    def __init__(self, drawn: Outcomes, own: Outcomes, weights: Weights) -> None:
        self._drawn = drawn
        self._own = own
        self._weights = weights

    @property
    def ttft_ms(self) -> Floats:
        return self._own.ttft_ms

    @property
    def total_ms(self) -> Floats:
        return self._own.total_ms

    def figures(self, which: Mask, targets: int) -> Floats:
        """Return what `Outcomes.figures` does."""
        weight = self._weights.weight[which]
        supported, total = float(self._weights.supported[which].sum()), float(weight.sum())
        weight = weight * (supported / total) if total else weight
        pairs = [
            (getattr(self._drawn, name)[which], getattr(self._own, name)[which])
            for name in ("ttft_ms", "total_ms")
        ]
        times = [_quantile(*pair, weight, q) for pair in pairs for q in (0.5, 0.95)]
        drawn, own = self._drawn, self._own

        def mean(first: Floats, second: Floats) -> float:
            return float((first + weight * (second - first)).mean())

        shares = [
            mean(*((each.target[which] == place).astype(np.float64) for each in (drawn, own)))
            for place in range(targets)
        ]
        failed = mean(*(each.failed[which].astype(np.float64) for each in (drawn, own)))
        dollars = mean(drawn.usd[which], own.usd[which]) * 1000
        return np.array([*times, dollars, failed, *shares])


def first_targets(call: Integers, target: Integers, at: Integers, calls: int) -> Integers:
    """Return the target that each call asked first; UNKNOWN for none."""
    order = np.lexsort((at, call))
    numbers, place = np.unique(call[order], return_index=True)
    first = np.full(calls, UNKNOWN)
    first[numbers] = target[order][place]
    return first


def _quantile(drawn: Floats, own: Floats, weight: Floats, q: float) -> float:
    """Return the value that the share `q` of the corrected distribution does not exceed.

    A weight above 1 makes the drawn value count negatively, so the distribution may fall in places:
    the first value that reaches `q` is taken.
    """
    there = ~np.isnan(drawn)
    values = np.concatenate([drawn[there], own[there]])
    counts = np.concatenate([1 - weight[there], weight[there]])
    if not len(values):
        return float("nan")
    order = np.argsort(values, kind="stable")
    values, reached = values[order], np.cumsum(counts[order])
    last = np.append(values[1:] != values[:-1], True)  # equal values count together
    values, reached = values[last], reached[last]
    return float(values[np.argmax(reached >= q * reached[-1] * (1 - 1e-12))])
