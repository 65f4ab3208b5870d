"""Drift of production speed: the change from the earlier to the later days of a log.

A drift compares the medians of the later days with those of the earlier ones, with their
autocorrelation. The later days are the second half, or the last quarter (at least four days), so
that a change of the last days shows too; what is found by either counts twice (Bonferroni).
"""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from splitsecond.core.wording import Statement, change, evidence, number
from splitsecond.log.statistics.sample_comparison import SampleComparison
from splitsecond.log.statistics.summary import DOUBT, Floats

NEEDED = 4
"""Least number of days before and after. With fewer, the scatter of the days is not known."""
LATER = (1 / 2, 1 / 4)
"""Shares of the days that are held against those before them."""
MAX_ALIKE = 0.9
"""Largest correlation of neighbouring periods for a drift."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

DriftFigure = Literal["total_tps", "ttft_ms"]
Medians = Mapping[int, float]
"""The median of each period."""


class SpeedDrift(Struct, frozen=True, kw_only=True):
    """Change of a figure from the earlier to the later periods, by the median of each.

    `ratio` is later / earlier (geometric means) with its 95% interval. `real`: a test of the
    periods rejects chance; `p_value` is adjusted for the number of drifts tested. `periods`: the
    number of them before and after, `period` what they are.
    """

    figure: DriftFigure = "total_tps"
    before: float
    after: float
    ratio: float
    ci95: tuple[float, float]
    p_value: float
    real: bool
    periods: tuple[int, int]
    period: str


class SpeedOfPeriod(Struct, frozen=True, kw_only=True):
    """One period of a row: the day on which it `began` (UTC), medians, and how many requests were
    answered and failed. None: too few responses for a median."""

    began: str
    ttft_ms: float | None
    total_tps: float | None
    answered: int
    failed: int

    @property
    def error_share(self) -> float:
        ended = self.answered + self.failed
        return self.failed / ended if ended else 0.0


def day_of(period: int, hours: int) -> str:
    """Return the day on which a period of so many hours began, numbered from 1970."""
    return f"{EPOCH + timedelta(hours=period * hours):%Y-%m-%d}"


def drift_of(medians: Medians, period: str, figure: DriftFigure = "total_tps") -> SpeedDrift | None:
    """Return the change with the smallest p-value, or None with too few periods."""
    if not medians:
        return None
    after, span = max(medians) + 1, max(medians) - min(medians) + 1
    drifts = [
        each
        for later in {max(share * span, NEEDED) for share in LATER}
        if (each := _split(medians, after - later, period, figure)) is not None
    ]
    if not drifts:
        return None
    drift = min(drifts, key=lambda each: each.p_value)
    return replace(drift, p_value=min(drift.p_value * len(drifts), 1.0))


def _split(medians: Medians, at: float, period: str, figure: DriftFigure) -> SpeedDrift | None:
    parts = [
        np.log([value for when, value in medians.items() if (when >= at) is later])
        for later in (False, True)
    ]
    if min(map(len, parts)) < NEEDED:
        return None
    rest = [part - part.mean() for part in parts]
    alike = _correlation(rest)
    wider = (1 + alike) / (1 - alike)
    # one variance for both parts: four days alone do not show theirs well
    variance = sum(float(part @ part) for part in rest) / (len(medians) - 2) * wider
    error = math.sqrt(variance * sum(1 / len(part) for part in parts))
    freedom = max(int((len(medians) - 2) / wider), 1)
    before, after = (float(np.exp(part.mean())) for part in parts)
    moved, ci95, p_value = tested(math.log(after / before), error, freedom)
    return SpeedDrift(
        figure=figure, before=before, after=after, ratio=moved, ci95=ci95, p_value=p_value,
        real=False, periods=(len(parts[0]), len(parts[1])), period=period,
    )  # fmt: skip


def _correlation(parts: Sequence[Floats]) -> float:
    """Return the correlation of neighbours, from 0 to `MAX_ALIKE`, without its bias.

    See Kendall, "Note on Bias in the Estimation of Autocorrelation", Biometrika 1954.
    """
    squares, n = sum(float(part @ part) for part in parts), sum(map(len, parts))
    products = sum(float(part[1:] @ part[:-1]) for part in parts)
    biased = products / squares if squares else 0.0
    return min(max(biased + (1 + 3 * biased) / n, 0.0), MAX_ALIKE)


def tested(
    log_ratio: float, error: float, freedom: int
) -> tuple[float, tuple[float, float], float]:
    """Return a ratio with its 95% interval and p-value."""
    comparison = SampleComparison(
        first=None, second=None, log_ratio=log_ratio, error=error, freedom=freedom
    )
    return math.exp(log_ratio), comparison.interval(DOUBT), comparison.doubt_of(0.0)


def drift_statement(name: str, drift: SpeedDrift) -> Statement:
    moved, between = change(drift.ratio - 1), (change(drift.ci95[0] - 1), change(drift.ci95[1] - 1))
    is_ttft = drift.figure == "ttft_ms"
    direction = "slower" if (drift.ratio > 1) == is_ttft else "faster"
    values = f"{number(drift.before)} to {number(drift.after)}"
    values = f"TTFT {values} ms" if is_ttft else f"{values} total tokens/s"
    medians = {"day": "the daily medians", "week": "the weekly medians"}[drift.period]
    parts = (
        f"{medians} of the last {drift.periods[1]} {drift.period}s with the "
        f"{drift.periods[0]} before"
    )
    return Statement(
        f"{name} has become {direction}, {values}{evidence(moved, between, drift.p_value)}. This "
        f"compares {parts}.",
        f"{name} is {direction} than before, {values}{evidence(moved, between, short=True)}.",
    )
