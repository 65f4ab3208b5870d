"""Whether a share of requests is surely above a bound or surely below it, by the number that was seen.

Of `sent` independent requests, each of which meets the limits with the chance p, the number that meets them is
binomial. So what was seen rules out every p under which it, or anything further off, would come less often than
`DOUBT`; the bounds of what is left are those of Clopper and Pearson ("The use of confidence or fiducial limits", 1934):
exact, whatever the number of requests, and rather too wide than too narrow. MLPerf's LoadGen decides by the same bound,
and with the same confidence, how many requests its percentiles need (its "early stopping").

Requests that share a server share its slow moments, so they are independent only roughly: what is nearly undecided is
better asked of more requests.
"""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

DOUBT = 0.01
"""The chance of each decision to be wrong. A step is looked at some times, and each look is a decision."""
_HALVINGS = 40

Decision = Literal["above", "below", "undecided"]


def decided(met: int, sent: int, share: float) -> Decision:
    """Whether the true share that meets the limits is surely at least `share`, surely below, or neither is sure."""
    if sent == 0:
        return "undecided"
    if _at_least(met, sent, share) <= DOUBT:
        return "above"
    return "below" if _at_most(met, sent, share) <= DOUBT else "undecided"


def bounds(met: int, sent: int) -> tuple[float, float]:
    """Between which shares the true one lies: either bound is passed with the chance `DOUBT` at most."""
    low = 0.0 if met == 0 else _boundary(lambda p: _at_least(met, sent, p) > DOUBT)
    high = 1.0 if met == sent else _boundary(lambda p: _at_most(met, sent, p) <= DOUBT)
    return low, high


def fewest(share: float) -> int:
    """How many requests it takes to be sure of `share` where every one meets the limits: 90 for 95 %."""
    return math.ceil(math.log(DOUBT) / math.log(share))


def fatal(sent: int, share: float) -> int:
    """So many of `sent` requests that miss decide against `share`, whatever the others do."""
    return next((missed for missed in range(1, sent) if decided(sent - missed, sent, share) == "below"), sent)


def _at_most(met: int, sent: int, share: float) -> float:
    """The chance that at most `met` of `sent` meet the limits, where each does with the chance `share`."""
    k = np.arange(met + 1)
    logs = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, sent + 1)))))
    ways = logs[sent] - logs[k] - logs[sent - k]
    return min(float(np.exp(ways + k * math.log(share) + (sent - k) * math.log(1 - share)).sum()), 1.0)


def _at_least(met: int, sent: int, share: float) -> float:
    """The same of at least `met`: that at most the rest of them miss."""
    return _at_most(sent - met, sent, 1 - share)


def _boundary(beyond: Callable[[float], bool]) -> float:
    """The chance from which on `beyond` is true."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if beyond(middle) else (middle, high)
    return (low + high) / 2
