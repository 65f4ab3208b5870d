"""Production speed of targets, from the requests in the gateway's log: grade, latency, cost and
drift.

The production figure is total TPS: output tokens divided by the time from the arrival of the call
to its end, for successful requests only. Its median decides the grade (Straive, "How fast are LLMs
in production?", September 2024: 1 from 100 tokens/s, 2 from 70, 3 from 50, 4 from 30, else 5;
models with fewer than 500 requests are not graded). TTFT is that of streamed responses; attempts
closed before their first token, and those that timed out, are censored samples.

Requests of one hour resemble each other, and so do neighbouring days, so intervals, drifts and
comparisons take periods of several hours or days as their units. Two targets that serve one model
are compared at common hours and lengths (`traffic`). Drifts and comparisons of one report are each
tested together (Holm, Scandinavian Journal of Statistics, 1979).
"""

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from splitsecond.core.catalog.model_names import identify
from splitsecond.core.grouping import grouped
from splitsecond.core.wording import (
    Statement,
    in_a_line,
    listed,
    number,
    ratio,
    span,
)
from splitsecond.log.production.drift import (
    Medians,
    SpeedDrift,
    SpeedOfPeriod,
    drift_statement,
    tested,
)
from splitsecond.log.statistics.sample_comparison import holm_levels
from splitsecond.log.statistics.summary import DOUBT, Floats, Interval, Summary

SCHEMA = "splitsecond.speed/2"
GRADES = ((100.0, 1), (70.0, 2), (50.0, 3), (30.0, 4))
SLOWEST = 5
MIN = 500
"""Least number of successful requests for a grade."""
PERIODS_NEEDED = 5
"""Least number of periods in which two targets are compared."""
PERIODS = {1: "hour", 6: "six hours", 24: "day", 168: "week"}
"""Periods, by their length in hours."""
UNCERTAIN = 1.1
"""Ratio of the bounds of TTFT from which a sentence states them."""
MAX_DAYS = 60
"""Days from which on weeks are the periods."""
MIN_JOINED = 7
"""Least number of periods that remain when neighbouring ones are joined."""
DRIFTS = ("drift", "ttft_drift")
NAMED_MODELS = 6
"""Models of a row that a sentence names."""

By = Literal[
    "target", "model", "provider", "maker", "host", "hosting", "hardware", "region", "hour", "size",
    "key", "team", "tag",
]  # fmt: skip


def grade(total_tps: float) -> int:
    return next((level for least, level in GRADES if total_tps >= least), SLOWEST)


def period_hours(span_s: float) -> int:
    days = span_s / 86_400
    if days > MAX_DAYS:
        return 168
    return 24 if days >= PERIODS_NEEDED + 1 else 6 if 4 * days >= PERIODS_NEEDED + 1 else 1


def periods_joined(periods: npt.NDArray[np.int64]) -> int:
    """Return how many neighbouring periods are one, so that at least `MIN_JOINED` remain. `periods`
    are from 0."""
    return max((int(periods.max(initial=0)) + 1) // MIN_JOINED, 1)


def period_name(hours: int) -> str:
    days = hours // 24
    return PERIODS.get(hours) or (f"{days} days" if days else f"{hours} hours")


class SpeedComparison(Struct, frozen=True, kw_only=True):
    """Comparison of two targets that serve one model, at common hours and lengths of prompt and
    answer.

    `ratio` is total TPS of `first` / that of `other`, with its 95% interval, over `periods`
    periods; `p_value` is adjusted for the number of comparisons. `share`: the part of the requests
    of the target with fewer of them whose hours and lengths the other has, too. `refused`: why
    there is no comparison; "" if there is one.
    """

    model: str
    first: str
    other: str
    share: float
    periods: int = 0
    ratio: float | None = None
    ci95: tuple[float, float] | None = None
    p_value: float | None = None
    real: bool = False
    refused: str = ""


class ProductionSpeed(Struct, kw_only=True):
    """Production figures of a target, or of all attempts that share another property (`name`).

    `requests` counts attempts: `answered`, `failed`, or `closed` before their end by us or by the
    client. `grade` follows from the median of `total_tps`; `grades` are those that its 95% interval
    allows, best first. Both are empty with too few successful requests (`needs`: how many it
    takes). `ttft_ms` includes `ttft_closed` attempts that were closed before their first token, as
    censored samples; `ttft_bounds` are the least and the largest value that each percentile can
    have then, in ms (None: no limit; empty: none was closed). Tokens are means of a response.
    `in_flight`: mean number of its requests at a time, over the periods in which it has requests.
    `cost_usd` covers all attempts with a known cost; `unpriced` have none. `usd_per_million` is the
    price of the row's own mix of input and output, `common_usd_per_million` the price at which the
    target would serve the mix of all rows, in which the share `common_output_share` is output.
    `token_source`: number of attempts by the source of their token counts. `periods`: the number of
    periods (`period`) that the intervals take as independent; 0: they take requests as independent,
    because there are too few periods. `models`: the models of a row that can have several. `drift`
    is that of total TPS, `ttft_drift` that of TTFT. `by_period`: each day, of a longer log each
    week; empty for a log of a few days.
    """

    name: str
    requests: int
    answered: int
    failed: int
    closed: int
    grade: int | None
    grades: tuple[int, ...] = ()
    needs: int = 0
    total_tps: Summary
    tps: Summary
    ttft_ms: Summary
    ttft_closed: int = 0
    ttft_bounds: dict[str, Interval] = {}
    input_tokens: float | None = None
    output_tokens: float | None = None
    in_flight: float | None = None
    cost_usd: float | None = None
    usd_per_million: float | None = None
    common_usd_per_million: float | None = None
    common_output_share: float | None = None
    unpriced: int = 0
    token_source: dict[str, int] = {}
    faults: dict[str, int] = {}
    periods: int = 0
    period: str = ""
    models: tuple[str, ...] = ()
    drift: SpeedDrift | None = None
    ttft_drift: SpeedDrift | None = None
    by_period: list[SpeedOfPeriod] = []

    @property
    def error_share(self) -> float:
        """Failed requests divided by answered and failed ones; requests that were closed early
        count as neither."""
        ended = self.answered + self.failed
        return self.failed / ended if ended else 0.0


def graded(speed: ProductionSpeed, least: int) -> ProductionSpeed:
    middle, (low, high) = speed.total_tps.p50, speed.total_tps.interval("p50")
    if middle is None or speed.total_tps.n < least:
        return replace(speed, grade=None, grades=(), needs=least)
    possible = () if low is None or high is None else tuple(range(grade(high), grade(low) + 1))
    return replace(speed, grade=grade(middle), grades=possible, needs=0)


def compared(comparison: SpeedComparison, first: Medians, other: Medians) -> SpeedComparison:
    common = sorted(first.keys() & other.keys())
    if len(common) < PERIODS_NEEDED:
        return replace(
            comparison, refused=f"common periods: {len(common)}, needed: {PERIODS_NEEDED}"
        )
    differences: Floats = np.log([first[at] / other[at] for at in common])
    error = float(differences.std(ddof=1)) / math.sqrt(len(common))
    times, ci95, p_value = tested(float(differences.mean()), error, len(common) - 1)
    return replace(comparison, periods=len(common), ratio=times, ci95=ci95, p_value=p_value)


def drifts_adjusted(speeds: Sequence[ProductionSpeed]) -> list[ProductionSpeed]:
    """Adjust the p-values of all drifts, those of total TPS and of TTFT, for their number."""
    levels = holm_levels(
        {
            (at, name): drift.p_value
            for at, speed in enumerate(speeds)
            for name in DRIFTS
            if (drift := getattr(speed, name)) is not None
        }
    )
    for (at, name), (p_value, _) in levels.items():
        drift = replace(getattr(speeds[at], name), p_value=p_value, real=p_value < DOUBT)
        setattr(speeds[at], name, drift)
    return list(speeds)


def comparisons_adjusted(comparisons: Sequence[SpeedComparison]) -> list[SpeedComparison]:
    levels = holm_levels(
        {at: each.p_value for at, each in enumerate(comparisons) if each.p_value is not None}
    )
    return [
        replace(each, p_value=levels[at][0], real=levels[at][0] < DOUBT) if at in levels else each
        for at, each in enumerate(comparisons)
    ]


def same_model(speeds: Iterable[ProductionSpeed]) -> dict[str, list[ProductionSpeed]]:
    by_model = grouped(speeds, lambda speed: identify(speed.name).model)
    return {model: served for model, served in by_model.items() if len(served) > 1}


def speed_statements(
    speeds: Sequence[ProductionSpeed], comparisons: Sequence[SpeedComparison] = ()
) -> list[Statement]:
    with_grade = [speed for speed in speeds if speed.grade is not None]
    drifts = [
        drift_statement(speed.name, drift)
        for speed in speeds
        for drift in (speed.drift, speed.ttft_drift)
        if drift is not None and drift.real
    ]
    return [
        *_fastest(with_grade),
        *_different_models(speeds),
        *_of_models(comparisons),
        *drifts,
        *_bounded(speeds),
    ]


def _different_models(speeds: Sequence[ProductionSpeed]) -> list[Statement]:
    if len({speed.models for speed in speeds}) < 2:
        return []
    rows = []
    for speed in speeds:
        more = len(speed.models) - NAMED_MODELS
        names = [*speed.models[:NAMED_MODELS], *([f"{more:,} more"] if more > 0 else [])]
        rows.append(f"{speed.name} has {listed(names)}")
    return [
        Statement(
            f"The rows have different models, so this also compares models: {'; '.join(rows)}.",
            in_a_line("This also compares models: ", rows),
        )
    ]


def _bounded(speeds: Sequence[ProductionSpeed]) -> list[Statement]:
    rows = [
        f"{speed.name} {listed([f'{name} {_between(bounds)}' for name, bounds in uncertain])}"
        for speed in speeds
        if (
            uncertain := [
                (name, speed.ttft_bounds[name])
                for name in ("p50", "p95")
                if _uncertain(speed, name)
            ]
        )
    ]
    if not rows:
        return []
    return [
        Statement(
            "TTFT is uncertain where attempts were closed before their first token: "
            f"{'; '.join(rows)}. Races close "
            "attempts with long prompts later, so the figures may be too high.",
            in_a_line("TTFT is uncertain, as races closed attempts: ", rows),
        )
    ]


def _uncertain(speed: ProductionSpeed, name: str) -> bool:
    low, high = speed.ttft_bounds.get(name, (0.0, 0.0))
    return low is not None and (high is None or high > UNCERTAIN * low)


def _between(bounds: Interval) -> str:
    low, high = bounds
    return (
        f"is {number(low)} ms or more"
        if high is None
        else f"is between {number(low)} and {number(high)} ms"
    )


def _fastest(speeds: Sequence[ProductionSpeed]) -> list[Statement]:
    if not speeds:
        return []
    best = speeds[0]
    place = " is the fastest" if len(speeds) > 1 else ""
    statements = [
        Statement(
            f"{best.name}{place}: {number(best.total_tps.p50)} total tokens/s, grade {best.grade}."
        )
    ]
    unsure = [
        f"{s.name} ({listed(list(map(str, s.grades)), 'or')})" for s in speeds if len(s.grades) > 1
    ]
    if unsure:
        before = "The grade is not certain: "
        statements.append(Statement(f"{before}{listed(unsure)}.", in_a_line(before, unsure)))
    return statements


def _of_models(comparisons: Sequence[SpeedComparison]) -> list[Statement]:
    sentences = []
    for (model, first), pairs in grouped(
        comparisons, lambda each: (each.model, each.first)
    ).items():
        if tested := [each for each in pairs if not each.refused]:
            sentences.append(
                Statement(
                    f"{model} at {first} is {listed([_times(each) for each in tested])}, at equal "
                    "hours and lengths.",
                    in_a_line(
                        f"At equal hours and lengths, {first} is ",
                        [_times(each, short=True) for each in tested],
                    ),
                )
            )
        sentences += [
            Statement(f"{first} and {each.other} are not compared: {each.refused}.")
            for each in pairs
            if each.refused
        ]
    return sentences


def _times(pair: SpeedComparison, *, short: bool = False) -> str:
    at, times = ("", "×") if short else ("at ", " times")
    if not pair.real or pair.ratio is None or pair.ci95 is None:
        return f"not clearly faster than {at}{pair.other}"
    low, high = map(ratio, pair.ci95)
    bounds = f"95% {span(low, high)}" if short else f"{low} to {high}"
    if pair.ratio < 1:
        return f"slower than {at}{pair.other} ({ratio(pair.ratio)}{times} as fast, {bounds})"
    return f"{ratio(pair.ratio)}{times} as fast as {at}{pair.other} ({bounds})"


def speed_remarks(speeds: Sequence[ProductionSpeed]) -> list[str]:
    few = [speed for speed in speeds if speed.needs]
    remarks = (
        [
            f"Without a grade: {len(few):,} of {len(speeds):,}. A grade needs {few[0].needs:,} "
            "successful requests."
        ]
        if few
        else []
    )
    if any("hour" in speed.period for speed in speeds):
        remarks.append(
            "The log covers fewer than six days, so the intervals are of these days only."
        )
    if any(speed.ttft_closed for speed in speeds):
        remarks.append(
            "Requests closed before their first token count in TTFT as longer than their wait."
        )
    events = [speed.name for speed in speeds if speed.token_source.get("events")]
    if events:
        remarks.append(
            f"Tokens counted by events, because the provider reports none: {', '.join(events)}."
        )
    estimated = [speed.name for speed in speeds if speed.token_source.get("estimate")]
    if estimated:
        remarks.append(
            f"Tokens estimated, because reported counts cannot be true: {', '.join(estimated)}."
        )
    return remarks
