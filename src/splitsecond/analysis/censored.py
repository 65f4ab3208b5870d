"""Percentiles of times some of which are only known to be longer than so much: the Kaplan-Meier estimate.

A request that was closed before its first token (it lost a race, its client left, a deadline passed) tells that the
token would have come later. To leave such requests out makes a slow target look fast, as those that are closed are the
slow ones. So each counts among those that wait until it was closed, and never as one that ended.

The interval of a percentile is Brookmeyer and Crowley's (Biometrics 1982): all times at which the curve's own 95 %
interval holds the percentile, with Greenwood's variance on the log-minus-log scale, so that it stays between 0 and 1.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from splitsecond.analysis.findings import Spread
from splitsecond.analysis.spread import PERCENTILES, Floats, needed, spread

Z95 = 1.959963984540054


def censored_spread(values: Sequence[float] | Floats, closed: Sequence[int] | npt.NDArray[np.bool_]) -> Spread:
    """The `Spread` of times of which those `closed` are lower bounds. Without any it is that of `spread`.

    A percentile that too many were closed before is None: it lies beyond all that was seen. `mean` and `max` are None
    where anything was closed, as nobody knows them.
    """
    times, ended = np.asarray(values, dtype=np.float64), ~np.asarray(closed, dtype=bool)
    if ended.all():
        return spread(times)
    curve = _Curve(times, ended)
    needs = {name: needed(q) for name, q in PERCENTILES.items() if curve.ended < needed(q)}
    at = {name: curve.reached(q) for name, q in PERCENTILES.items()}
    return Spread(
        n=len(times),
        p50=at["p50"],
        p95=at["p95"],
        p99=at["p99"],
        min=float(times[ended].min()) if curve.ended else None,
        ci95={name: curve.interval(q) for name, q in PERCENTILES.items()},
        needs=needs,
    )


class _Curve:
    """The share that still waits after each time at which one ended, and that share's interval."""

    def __init__(self, times: Floats, ended: npt.NDArray[np.bool_]) -> None:
        self.ended = int(ended.sum())
        self._times, ends = np.unique(times[ended], return_counts=True)
        waiting = len(times) - np.searchsorted(np.sort(times), self._times, side="left")
        with np.errstate(divide="ignore", invalid="ignore"):
            self._share: Floats = np.cumprod(1 - ends / waiting, dtype=np.float64)
            variance = np.cumsum(ends / (waiting * (waiting - ends).astype(np.float64)))
            log = np.log(self._share)
            wide = np.exp(Z95 * np.sqrt(variance) / np.abs(log))
            self._low: Floats = self._share**wide
            self._high: Floats = self._share ** (1 / wide)
        last = self._share <= 0  # nobody waits any more: the curve's end, where the formula has none
        self._low[last] = 0.0
        self._high[last] = self._high[~last][-1] if (~last).any() else 1.0

    def reached(self, q: float) -> float | None:
        """The first time by which the share `q` had ended."""
        return self._first(self._share, q)

    def interval(self, q: float) -> tuple[float | None, float | None]:
        """Between which times it lies, 19 times in 20."""
        return self._first(self._low, q), self._first(self._high, q)

    def _first(self, share: Floats, q: float) -> float | None:
        at = np.flatnonzero(share <= 1 - q + 1e-12)
        return float(self._times[at[0]]) if len(at) else None
