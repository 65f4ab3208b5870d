"""A table of published times per concurrency, from which the times of each request are drawn.

Each figure (TTFT, tokens per second) is log-normal at each level, through its published p50 and
p95. Between two levels both are interpolated on logarithmic scales, by the number of requests in
flight at the arrival, including the new one. Outside the levels the nearest one applies, because
the table has no data there.

The draws are stratified, so that a short benchmark shows the table and not chance. The published
tables rest on 50 requests for each condition; with so few, the p95 of independent draws is
sometimes wrong by half. So the quantiles of one level walk through 50 equal strata and use each
once in any 50 consecutive requests; each ten of them have one of every tenth. The position of a
quantile in its stratum changes from one round of 50 to the next, within the middle half. A
simulated provider therefore has the spread of the published one, but not its sampling noise: do not
use it to judge confidence intervals.

Each figure of each level of each provider has a random order of its own, so providers are slow at
independent moments, as in a race.
"""

from math import exp, log
from random import Random
from statistics import NormalDist, correlation

import msgspec

from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.simulator.profile import Quantiles, TableRow

STRATA = 50
_TENTH = STRATA // 10
_MAX_CORRELATION = 0.1
"""Largest correlation of the orders of the two figures."""
_JITTER = 0.5
_GOLDEN = (0.7548776662466927, 0.5698402909980532)
"""The plane's golden ratio and its square (Roberts, The Unreasonable Effectiveness of Quasirandom
Sequences, 2018)."""
_Z95 = NormalDist().inv_cdf(0.95)


class Pace(msgspec.Struct, frozen=True):
    ttft_ns: int
    gap_ns: float

    def planned_ns(self, arrived_ns: int, index: int) -> int:
        return arrived_ns + self.ttft_ns + round(index * self.gap_ns)


class LatencyTable:
    """Draws the pace of each request. The same seed and the same arrivals give the same paces."""

    def __init__(self, rows: tuple[TableRow, ...], seed: int = 0) -> None:
        self._rows = rows
        self._orders = [_orders(Random(f"{seed}/{level}")) for level in range(len(rows))]
        self._drawn = [0] * len(rows)

    def draw(self, in_flight: int) -> Pace:
        level, row = self._at(in_flight)
        count = self._drawn[level]
        self._drawn[level] += 1
        ttft_z, tps_z = map(_normal_quantile, self._orders[level], (count, count), _GOLDEN)
        ttft_ms = _lognormal(row.ttft_ms.p50, row.ttft_ms.p95, ttft_z)
        tps = _lognormal(row.tps.p50, row.tps.p95, tps_z)
        return Pace(round(ttft_ms * NS_PER_MS), NS_PER_S / tps)

    def _at(self, in_flight: int) -> tuple[int, TableRow]:
        rows = self._rows
        above = next((i for i, row in enumerate(rows) if row.concurrency >= in_flight), None)
        if above is None:
            return len(rows) - 1, rows[-1]
        if above == 0:
            return 0, rows[0]
        low, high = rows[above - 1], rows[above]
        part = log(in_flight / low.concurrency) / log(high.concurrency / low.concurrency)
        here = TableRow(
            concurrency=in_flight,
            ttft_ms=_between(low.ttft_ms, high.ttft_ms, part),
            tps=_between(low.tps, high.tps, part),
        )
        return (above if part >= 0.5 else above - 1), here


def _orders(random: Random) -> tuple[list[int], list[int]]:
    while True:
        first, second = _order(random), _order(random)
        if abs(correlation(first, second)) < _MAX_CORRELATION:
            return first, second


def _order(random: Random) -> list[int]:
    tenths = [
        random.sample(range(first, first + _TENTH), _TENTH) for first in range(0, STRATA, _TENTH)
    ]
    return [
        stratum for ten in zip(*tenths, strict=True) for stratum in random.sample(ten, len(ten))
    ]


def _normal_quantile(order: list[int], count: int, golden: float) -> float:
    turn, place = divmod(count, STRATA)
    offset = 0.5 + _JITTER * ((turn + 0.5) * golden % 1.0 - 0.5)
    return NormalDist().inv_cdf((order[place] + offset) / STRATA)


def _lognormal(p50: float, p95: float, z: float) -> float:
    return p50 * exp(log(p95 / p50) * z / _Z95)


def _between(low: Quantiles, high: Quantiles, part: float) -> Quantiles:
    return Quantiles(
        exp(log(low.p50) + part * log(high.p50 / low.p50)),
        exp(log(low.p95) + part * log(high.p95 / low.p95)),
    )
