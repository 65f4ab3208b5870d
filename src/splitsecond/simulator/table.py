"""A provider known only from outside: from published times per concurrency to the times of one request.

Each figure (time to first token, tokens per second) is log-normal at each level, through its published p50 and p95.
Between two levels both are interpolated on logarithmic scales, by the requests in flight when the request arrived,
itself included; outside them the nearest level holds, because the table says nothing there.

The draws are stratified, so that a short benchmark shows the table, and not luck. The published tables rest on 50
requests for each condition, where an honest random draw is wrong at p95 by half, every so often. So the quantiles of
one level walk through 50 equal strata and use each once in any 50 consecutive requests, in an order that mixes slow
and fast (a rank-1 lattice; 19/50 and 11/50 keep neighbours in time, and the two figures, apart). Where in its stratum
a quantile lies changes from one round of 50 to the next, within the middle half. A simulated provider therefore has
the spread of the published one, but not the sampling noise: do not use it to judge confidence intervals.
"""

from math import exp, log
from statistics import NormalDist

import msgspec

from splitsecond.clock import NS_PER_MS, NS_PER_S
from splitsecond.simulator.profile import Quantiles, Row

STRATA = 50
_STEPS = (19, 11)
"""How far each figure moves through the strata per request. Coprime to 50, so that each stratum comes once in 50."""
_JITTER = 0.5
_GOLDEN = (0.7548776662466927, 0.5698402909980532)
"""The plane's golden ratio and its square (Roberts, The Unreasonable Effectiveness of Quasirandom Sequences, 2018)."""
_Z95 = NormalDist().inv_cdf(0.95)


class Pace(msgspec.Struct, frozen=True):
    """One request's times: its first token comes `ttft_ns` after its arrival, each further one `gap_ns` later."""

    ttft_ns: int
    gap_ns: float

    def planned_ns(self, arrived_ns: int, index: int) -> int:
        """When token `index` (from 0) is due. Absolute, so rounding does not add up."""
        return arrived_ns + self.ttft_ns + round(index * self.gap_ns)


class Table:
    """Draws the pace of one request after another. The same seed and the same arrivals give the same paces."""

    def __init__(self, rows: tuple[Row, ...], seed: int = 0) -> None:
        self._rows = rows
        self._drawn = [seed * 7919] * len(rows)  # each seed starts elsewhere in the sequence

    def draw(self, in_flight: int) -> Pace:
        """The pace of a request that arrives as one of `in_flight`."""
        level, row = self._at(in_flight)
        count = self._drawn[level]
        self._drawn[level] += 1
        ttft_z, tps_z = (_normal_quantile(count, figure) for figure in (0, 1))
        ttft_ms = _lognormal(row.ttft_ms.p50, row.ttft_ms.p95, ttft_z)
        tps = _lognormal(row.tps.p50, row.tps.p95, tps_z)
        return Pace(round(ttft_ms * NS_PER_MS), NS_PER_S / tps)

    def _at(self, in_flight: int) -> tuple[int, Row]:
        """The nearest level, which does the counting, and what holds at `in_flight`."""
        rows = self._rows
        above = next((i for i, row in enumerate(rows) if row.concurrency >= in_flight), None)
        if above is None:
            return len(rows) - 1, rows[-1]
        if above == 0:
            return 0, rows[0]
        low, high = rows[above - 1], rows[above]
        part = log(in_flight / low.concurrency) / log(high.concurrency / low.concurrency)
        here = Row(
            concurrency=in_flight,
            ttft_ms=_between(low.ttft_ms, high.ttft_ms, part),
            tps=_between(low.tps, high.tps, part),
        )
        return (above if part >= 0.5 else above - 1), here


def _normal_quantile(count: int, figure: int) -> float:
    turn, place = divmod(count, STRATA)
    stratum = place * _STEPS[figure] % STRATA
    offset = 0.5 + _JITTER * ((turn + 0.5) * _GOLDEN[figure] % 1.0 - 0.5)
    return NormalDist().inv_cdf((stratum + offset) / STRATA)


def _lognormal(p50: float, p95: float, z: float) -> float:
    return p50 * exp(log(p95 / p50) * z / _Z95)


def _between(low: Quantiles, high: Quantiles, part: float) -> Quantiles:
    return Quantiles(
        exp(log(low.p50) + part * log(high.p50 / low.p50)),
        exp(log(low.p95) + part * log(high.p95 / low.p95)),
    )
