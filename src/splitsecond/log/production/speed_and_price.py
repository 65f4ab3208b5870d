"""Speed against price: which targets no other beats on both, and whether speed goes with price.

The correlation is Spearman's, so one extreme price does not decide it. Its interval is that of
Bonett and Wright (Psychometrika 2000): Fisher's z with a standard error of √((1 + r²/2) / (n − 3)).
A perfect order of few targets is no perfect correlation, so r is taken to be at most 1 − 1/n there;
in simulations of normal data with 5 to 12 targets the interval contained the true correlation in 93
to 100 of 100 cases.
"""

from collections.abc import Mapping, Sequence
from math import atanh, inf, sqrt, tanh
from typing import Literal

import numpy as np
from msgspec import Struct

from splitsecond.core.money.cost import usd
from splitsecond.core.wording import Statement, counted_as, in_a_line, listed, number, ratio
from splitsecond.log.production.speed import ProductionSpeed
from splitsecond.log.statistics.summary import Z95, Floats, Interval

NEEDS = 5
"""Least number of targets for an interval of the correlation that says anything."""


class PricedSpeed(Struct, kw_only=True):
    """Speed and price of one target at one load: TPS p50 of one request, and US dollars per million
    tokens.

    `frontier`: whether no target that costs no more is faster; "unsure" where intervals overlap.
    """

    target: str
    row: str = ""
    load: str = ""
    tps: float
    tps_ci95: Interval = (None, None)
    usd_per_million: float
    cost_adjusted_tps: float | None = None
    tokens_per_usd: float | None = None
    frontier: str = ""


class SpeedAndPrice(Struct, kw_only=True):
    """Speed against price of the targets. `correlation`: Spearman's, with its interval; `needs`:
    the number of targets that the interval needs and lacks. `figure`: what the speed is, "TPS" or
    "total TPS"."""

    targets: list[PricedSpeed]
    correlation: float | None
    ci95: Interval
    needs: int = 0
    figure: str = "TPS"


def logged_speed_and_price(
    speeds: Sequence[ProductionSpeed], usd_per_million: Mapping[str, float | None]
) -> SpeedAndPrice | None:
    """Return speed in production against price; None if fewer than two targets have both.

    If a target with a price has no TPS, because its responses were not streamed, the speed is total
    TPS for all.
    """
    priced = [
        (speed, price)
        for speed in speeds
        if (price := usd_per_million.get(speed.name)) and speed.total_tps.p50
    ]
    streamed = all(speed.tps.p50 for speed, _ in priced)
    points = []
    for speed, price in priced:
        figure = speed.tps if streamed else speed.total_tps
        tps, interval = figure.p50 or 0.0, figure.interval("p50")
        points.append(
            PricedSpeed(
                target=speed.name,
                tps=tps,
                tps_ci95=interval,
                usd_per_million=price,
                cost_adjusted_tps=tps / price,
            )
        )
    return weighed(points, figure="TPS" if streamed else "total TPS")


def weighed(points: list[PricedSpeed], figure: str = "TPS") -> SpeedAndPrice | None:
    if len(points) < 2:
        return None
    for point in points:
        point.frontier = _frontier(point, points)
    r, interval = spearman([p.tps for p in points], [p.usd_per_million for p in points])
    return SpeedAndPrice(
        targets=points,
        correlation=r,
        ci95=interval,
        needs=0 if len(points) >= NEEDS else NEEDS,
        figure=figure,
    )


def _frontier(point: PricedSpeed, points: Sequence[PricedSpeed]) -> str:
    better = [
        other
        for other in points
        if (other.usd_per_million <= point.usd_per_million and other.tps > point.tps)
        or (other.usd_per_million < point.usd_per_million and other.tps == point.tps)
    ]
    high = point.tps_ci95[1]
    surely = [
        o for o in better if (low := o.tps_ci95[0]) is not None and high is not None and low > high
    ]
    return "yes" if not better else "no" if surely else "unsure"


def spearman(first: Sequence[float], second: Sequence[float]) -> tuple[float | None, Interval]:
    n = len(first)
    a, b = (_ranks(values) for values in (first, second))
    if n < 3 or a.std() == 0 or b.std() == 0:
        return None, (None, None)
    r = float(np.corrcoef(a, b)[0, 1])
    if n < NEEDS:
        return r, (None, None)
    largest = 1 - 1 / n
    z, error = (
        atanh(min(max(r, -largest), largest)),
        sqrt((1 + min(r * r, largest**2) / 2) / (n - 3)),
    )
    low = -1.0 if r <= -largest else tanh(z - Z95 * error)
    high = 1.0 if r >= largest else tanh(z + Z95 * error)
    return r, (low, high)


def _ranks(values: Sequence[float]) -> Floats:
    numbers = np.asarray(values, dtype=np.float64)
    ranks: Floats = (
        (numbers[:, None] > numbers[None, :]).sum(axis=1)
        + (numbers[:, None] >= numbers[None, :]).sum(axis=1)
        + 1
    ) / 2
    return ranks


def speed_and_price_statements(comparison: SpeedAndPrice | None) -> list[Statement]:
    if comparison is None:
        return []
    best = sorted(
        (p for p in comparison.targets if p.frontier != "no"), key=lambda p: p.usd_per_million
    )
    doubts = [", cannot tell yet" if p.frontier == "unsure" else "" for p in best]
    frontier = [
        f"{p.target} ({number(p.tps)} tokens/s at {usd(p.usd_per_million)}{doubt})"
        for p, doubt in zip(best, doubts, strict=True)
    ]
    short = [
        f"{p.target} {number(p.tps)} at {usd(p.usd_per_million)}{doubt.replace(',', '')}"
        for p, doubt in zip(best, doubts, strict=True)
    ]
    first, *others = sorted(comparison.targets, key=lambda p: -(p.cost_adjusted_tps or 0.0))
    name, unit = f"cost-adjusted {comparison.figure}", "tokens/s per dollar and million tokens"
    if all(_adjusted(first, 0) > _adjusted(other, 1) for other in others):
        adjusted = (
            f"{first.target} has the highest {name}: {number(first.cost_adjusted_tps)} {unit}."
        )
    else:
        values = listed([f"{p.target} {number(p.cost_adjusted_tps)}" for p in (first, *others)])
        adjusted = f"No target is clearly first in {name}: {values} {unit}."
    return [
        Statement(
            f"No other target is both faster and cheaper than {listed(frontier)}; prices are per "
            "million tokens.",
            in_a_line(f"Frontier, {comparison.figure} at $/M tokens: ", short),
        ),
        Statement(adjusted, adjusted.replace(unit, "tokens/s per $/M tokens")),
        _correlation_statement(comparison.correlation, comparison.ci95, len(comparison.targets)),
    ]


def _adjusted(of: PricedSpeed, bound: Literal[0, 1]) -> float:
    """Return a bound of the cost-adjusted speed; where it is unknown, the one that leaves all
    open."""
    tps = of.tps_ci95[bound]
    return (inf if bound else 0.0) if tps is None else tps / of.usd_per_million


def _correlation_statement(r: float | None, interval: Interval, targets: int) -> Statement:
    over = counted_as(targets, "target")
    low, high = interval
    if r is None or low is None or high is None:
        if targets < NEEDS:
            return Statement(
                f"{over} are too few to tell whether speed goes with price: it takes {NEEDS}."
            )
        return Statement(
            f"Whether speed goes with price is unknown: all {over} have the same speed or the "
            "same price."
        )
    verdict = "Speed and price show no clear correlation"
    if not low <= 0 <= high:
        verdict = f"Targets that cost more are {'faster' if r > 0 else 'slower'}"
    spearmans, bounds = f"Spearman {_signed(r)} over {over}", f"{_signed(low)} to {_signed(high)}"
    return Statement(
        f"{verdict} here ({spearmans}, 95% interval {bounds}).",
        f"{verdict} ({spearmans}, 95% {bounds}).",
    )


def _signed(value: float) -> str:
    return f"{'−' if value < 0 else ''}{ratio(abs(value))}"
