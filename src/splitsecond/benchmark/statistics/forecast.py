"""What a policy would have given, from requests that were sent to each of its targets alone.

Each target's outcomes stand in one array, request by request of the same round, so that the minimum
of several targets is taken among requests of the same minute. Not part of a forecast: second
attempts, budgets, circuit breakers, and the load that the additional requests would have put on the
targets.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from splitsecond.core.timing.survival import SurvivalCurve
from splitsecond.log.statistics.summary import Floats
from splitsecond.routing.policies.hedge import hedge_plan

MIN_HEDGE_DELAY_MS = 10.0


class Outcomes(Struct, frozen=True, kw_only=True):
    """Outcomes of requests to one target, or of calls of a policy: one value per request in each
    array.

    `ttft_ms` and `e2e_ms` are infinite for a failure, which is known after `failed_ms`. `usd`: cost
    of the whole request; `closed_usd`: cost if it is closed before its first token. NaN: unknown.
    """

    ttft_ms: Floats
    e2e_ms: Floats
    failed_ms: Floats
    usd: Floats
    closed_usd: Floats


def race(branches: Sequence[Outcomes]) -> Outcomes:
    ttft = np.stack([each.ttft_ms for each in branches])
    closed = np.stack([each.closed_usd for each in branches])
    winner = ttft.argmin(axis=0)
    at = np.arange(ttft.shape[1])
    losers = closed.sum(axis=0) - closed[winner, at]
    return Outcomes(
        ttft_ms=ttft.min(axis=0),
        e2e_ms=np.stack([each.e2e_ms for each in branches])[winner, at],
        failed_ms=np.max([each.failed_ms for each in branches], axis=0),
        usd=np.stack([each.usd for each in branches])[winner, at] + losers,
        closed_usd=closed.sum(axis=0),
    )


def fallback(branches: Sequence[Outcomes], ttft_ms: float = np.inf) -> Outcomes:
    *earlier, outcomes = branches
    outcomes = _limited(outcomes, ttft_ms)
    for first in reversed(earlier):
        answered = np.isfinite(first.ttft_ms) & (first.ttft_ms <= ttft_ms)
        waited = np.minimum(first.failed_ms, ttft_ms)  # infinite where it answered in time
        # a failure is not billed
        paid = np.where(np.isfinite(first.failed_ms), 0.0, first.closed_usd)
        outcomes = Outcomes(
            ttft_ms=np.where(answered, first.ttft_ms, waited + outcomes.ttft_ms),
            e2e_ms=np.where(answered, first.e2e_ms, waited + outcomes.e2e_ms),
            failed_ms=np.where(answered, np.inf, waited + outcomes.failed_ms),
            usd=np.where(answered, first.usd, paid + outcomes.usd),
            closed_usd=first.closed_usd,
        )
    return outcomes


def _limited(outcomes: Outcomes, ttft_ms: float) -> Outcomes:
    late = outcomes.ttft_ms > ttft_ms
    return Outcomes(
        ttft_ms=np.where(late, np.inf, outcomes.ttft_ms),
        e2e_ms=np.where(late, np.inf, outcomes.e2e_ms),
        failed_ms=np.where(late, np.minimum(outcomes.failed_ms, ttft_ms), outcomes.failed_ms),
        usd=np.where(late, outcomes.closed_usd, outcomes.usd),
        closed_usd=outcomes.closed_usd,
    )


def hedge(first: Outcomes, second: Outcomes, extra_load: float) -> Outcomes:
    answered = first.ttft_ms[np.isfinite(first.ttft_ms)].tolist()
    if not answered:
        return first
    plan = hedge_plan(SurvivalCurve((ms, False, 1.0) for ms in answered), extra_load)
    delay = max(plan.delay, MIN_HEDGE_DELAY_MS)
    hedged = (first.ttft_ms > delay) & (first.failed_ms > delay)
    hedged &= np.random.default_rng(0).random(len(hedged)) < plan.probability
    after = Outcomes(
        ttft_ms=delay + second.ttft_ms,
        e2e_ms=delay + second.e2e_ms,
        failed_ms=delay + second.failed_ms,
        usd=second.usd,
        closed_usd=second.closed_usd,
    )
    both = race([first, after])
    return Outcomes(
        **{
            name: np.where(hedged, getattr(both, name), getattr(first, name))
            for name in Outcomes.__struct_fields__
        }
    )


def quantile(values: Floats, q: float) -> float:
    """Return the `q` quantile of values that may be infinite: the lowest that this share does not
    exceed."""
    return float(np.quantile(values, q, method="inverted_cdf"))
