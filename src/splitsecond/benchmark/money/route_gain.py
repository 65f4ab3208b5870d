"""What a policy gains over each of its single targets: one figure for speed, one for money.

A run that measures a policy beside its targets has both under the same load. Speed is the median of
total TPS, which contains every wait. Money is the cost of a successful request, with losers, hedges
and retries. A target that the policy names but did not ask is compared, too: leaving it out may be
the gain.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from splitsecond.benchmark.rows.figures import FIGURES, successful, ttft_figure
from splitsecond.benchmark.rows.records import ConditionFindings, RouteGain
from splitsecond.core.grouping import grouped
from splitsecond.core.observation import Observation
from splitsecond.core.wording import Statement, change, level, listed, number, ratio
from splitsecond.log.statistics.resampling import interval, median_draws, resamples
from splitsecond.log.statistics.summary import advised


def route_gains(
    rows: Sequence[ConditionFindings], observations: Sequence[Observation]
) -> list[RouteGain]:
    if not any("(" in row.target for row in rows):
        return []
    answered = grouped(
        (o for o in successful(observations) if o.total_tps is not None), lambda o: o.condition
    )
    random = np.random.default_rng(0)
    valid = [row for row in rows if not row.invalid]
    return [
        _gain(row, other, answered, random)
        for row in valid
        if "(" in row.target
        for other in valid
        if f'"{other.target}"' in row.target
        and level(other) == level(row)
        and answered[row.condition]
        and answered[other.condition]
    ]


def _gain(
    row: ConditionFindings,
    other: ConditionFindings,
    answered: Mapping[str, Sequence[Observation]],
    random: np.random.Generator,
) -> RouteGain:
    both = [answered[each.condition] for each in (row, other)]
    ours, theirs = (FIGURES["total_tps"].sample(each).values for each in both)
    drawn = [resamples([o.round for o in each], random) for each in both]
    draws = [median_draws(values, each) for values, each in zip((ours, theirs), drawn, strict=True)]
    count = min(map(len, draws))
    money = None
    if row.usd_per_request is not None and other.usd_per_request:
        money = row.usd_per_request / other.usd_per_request
    ttft, other_ttft = (
        ttft_figure(open_loop=each.concurrency is None).summary(each) for each in (row, other)
    )
    return RouteGain(
        policy=row.target,
        target=other.target,
        load=level(row),
        rows=[row.condition, other.condition],
        speed=float(np.median(ours) / np.median(theirs)),
        speed_ci95=interval(draws[0][:count] / draws[1][:count]) if count else (None, None),
        cost=money,
        ttft_p50_ms=ttft.p50,
        ttft_p95_ms=ttft.p95,
        target_ttft_p50_ms=other_ttft.p50,
        target_ttft_p95_ms=other_ttft.p95,
        p95_known=None not in (*ttft.interval("p95"), *other_ttft.interval("p95")),
    )


def route_gain_statements(all_gains: Sequence[RouteGain]) -> list[Statement]:
    by_policy = grouped(all_gains, lambda each: (each.load, each.policy))
    totals = [
        Statement(
            f"{load.capitalize()}, by total TPS, {policy} is "
            f"{listed([_in_full(each) for each in gains])}.",
            "\n".join([f"{load.capitalize()}, {policy}", *map(_in_short, gains)]),
        )
        for (load, policy), gains in by_policy.items()
    ]
    waits = [_waits(load, policy, gains) for (load, policy), gains in by_policy.items()]
    return [*totals, *(each for each in waits if each is not None)]


def _waits(load: str, policy: str, gains: Sequence[RouteGain]) -> Statement | None:
    """Return what the policy does to p50 and p95 of TTFT; None if one of its own is unknown."""
    p50, p95 = gains[0].ttft_p50_ms, gains[0].ttft_p95_ms
    if p50 is None or p95 is None:
        return None
    alone = [
        f"{each.target} alone {number(other_p50)} ({change(p50 / other_p50 - 1)}) and "
        f"{number(other_p95)} ({change(p95 / other_p95 - 1)})"
        for each in gains
        if (other_p50 := each.target_ttft_p50_ms) and (other_p95 := each.target_ttft_p95_ms)
    ]
    if not alone:
        return None
    own = f"TTFT p50 {number(p50)} ms and p95 {number(p95)} ms"
    unsure = "" if all(each.p95_known for each in gains) else f" p95 needs -n {advised(0.95)}."
    start = f"{load.capitalize()}, {policy}"
    return Statement(
        f"{start} has {own}; {'; '.join(alone)}.{unsure}",
        "\n".join(
            [start, f"{own};", *(f"{each};" for each in alone[:-1]), f"{alone[-1]}.{unsure}"]
        ),
    )


def _in_full(gain: RouteGain) -> str:
    low, high = gain.speed_ci95
    sure = "" if low is None or high is None else f" (95% interval {ratio(low)} to {ratio(high)})"
    cost = "" if gain.cost is None else f" at {ratio(gain.cost)} times its cost of a request"
    return f"{ratio(gain.speed)} times as fast as {gain.target}{sure}{cost}"


def _in_short(gain: RouteGain) -> str:
    low, high = gain.speed_ci95
    sure = "" if low is None or high is None else f", 95% {ratio(low)}–{ratio(high)}"
    cost = "" if gain.cost is None else f", {ratio(gain.cost)}× the cost"
    return f"against {gain.target}: {ratio(gain.speed)}× the total TPS{sure}{cost}."
