"""Forecasts of policies from runs of their targets: arithmetic, pairing, and known truth."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from tests.analysis.made import MS, failure, request

from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.records import AskedCondition, Forecast, Run
from splitsecond.benchmark.runs.forecasting import add_forecasts, forecast_policies
from splitsecond.core.catalog.price import Price
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import Observation

PRICES = {name: Price(input_usd=10, output_usd=20) for name in ("a/m", "b/m", "c/m")}
FULL, PROMPT = (100 * 10 + 11 * 20) / 1e6, 100 * 10 / 1e6


def sent(target: str, ttft_ms: Sequence[float | None], rounds: int = 1) -> list[Observation]:
    """A request for each TTFT, one after another; None failed after 5 ms. The requests of a round
    follow each other."""
    each = -(-len(ttft_ms) // rounds)
    made: list[Observation] = []
    begin_ms = 1000.0
    for n, ms in enumerate(ttft_ms):
        one = failure(begin_ms) if ms is None else request(begin_ms, ttft_ms=ms)
        begin_ms = one.end_ns / MS
        made.append(
            msgspec.structs.replace(
                one, target=target, condition=f"{target}@c1", round=n // each + 1
            )
        )
    return made


def run_of(*targets: list[Observation]) -> tuple[Run, list[Observation]]:
    observations = [o for each in targets for o in each]
    names = dict.fromkeys(o.target for o in observations)
    asked = [AskedCondition(condition=f"{name}@c1", target=name, concurrency=1) for name in names]
    run = Run(
        id="r",
        began="",
        began_ns=0,
        conditions=condition_rows(asked, observations, [], prices=PRICES),
    )
    return run, observations


def forecast(policy: str, *targets: list[Observation]) -> Forecast:
    run, observations = run_of(*targets)
    forecast_policies(run, observations, [policy])
    (found,) = run.forecasts
    return found


def test_a_race_is_the_minimum_of_requests_of_the_same_round() -> None:
    found = forecast(
        'race("a/m", "b/m")', sent("a/m", [100, 500, 100, 500]), sent("b/m", [300, 200, 300, 200])
    )
    assert (found.pairs, found.ttft_p50_ms, found.ttft_p95_ms) == (4, 100, 200)
    assert found.usd_per_request == pytest.approx(FULL + PROMPT)
    assert found.rows == ["a/m@c1", "b/m@c1"]


def test_requests_are_paired_within_a_round() -> None:
    """In each round both are slow or both are fast: pairing across rounds would invent a gain."""
    slow = [100.0] * 10 + [900.0] * 10
    found = forecast(
        'race("a/m", "b/m")',
        sent("a/m", slow, rounds=2),
        sent("b/m", slow[10:] + slow[:10], rounds=1),
    )
    assert found.pairs == 10  # only round 1 is common
    again = forecast('race("a/m", "b/m")', sent("a/m", slow, rounds=2), sent("b/m", slow, rounds=2))
    assert (again.ttft_p50_ms, again.ttft_p95_ms) == (100, 900)


def test_the_minimum_of_three_completions() -> None:
    random = np.random.default_rng(3)
    times = {name: random.exponential(100, 400).tolist() for name in ("a/m", "b/m", "c/m")}
    found = forecast(
        'race("a/m", "b/m", "c/m")', *(sent(name, each, rounds=8) for name, each in times.items())
    )
    low, high = found.ttft_p50_ci95
    assert low is not None
    assert high is not None
    assert low <= 100 * np.log(2) / 3 <= high  # the minimum of three exponentials


def test_fallback_after_a_timeout_adds_the_wait() -> None:
    a, b = sent("a/m", [100, None, 900, 100]), sent("b/m", [50, 50, 50, None])
    found = forecast('fallback("a/m", "b/m", ttft="300ms")', a, b)
    assert found.failed_share == 0
    assert (found.ttft_p50_ms, found.ttft_p95_ms) == (100, 350)
    assert found.usd_per_request == pytest.approx((FULL + FULL + (PROMPT + FULL) + FULL) / 4)


def test_a_fallback_without_a_limit_helps_only_against_failures() -> None:
    found = forecast('fallback("a/m", "b/m")', sent("a/m", [None, 900]), sent("b/m", [50, 50]))
    assert (found.ttft_p50_ms, found.ttft_p95_ms) == (55, 900)


def test_calls_with_only_failed_targets_count_as_failed() -> None:
    found = forecast('fallback("a/m", "b/m")', sent("a/m", [None, 100]), sent("b/m", [None, None]))
    assert (found.failed_share, found.ttft_p95_ms) == (0.5, None)


def test_a_hedge_cuts_the_tail() -> None:
    a = sent("a/m", [100.0] * 19 + [5000.0])
    found = forecast('hedge("a/m", "b/m", extra_load=0.1)', a, sent("b/m", [50.0] * 20))
    assert (found.ttft_p50_ms, found.ttft_p95_ms) == (100, 100)
    assert found.usd_per_request == pytest.approx(FULL + PROMPT / 20)


def test_a_hedge_of_many_slow_requests_is_early_and_by_chance() -> None:
    """Of 30% slow requests, a third is hedged after 100 ms."""
    a = sent("a/m", [100.0] * 140 + [5000.0] * 60)
    found = forecast('hedge("a/m", "b/m", extra_load=0.1)', a, sent("b/m", [50.0] * 200))
    assert found.usd_per_request == pytest.approx(FULL + PROMPT / 10, rel=0.05)


def test_nested_policies_are_forecast() -> None:
    a, b, c = sent("a/m", [None, 400]), sent("b/m", [None, 300]), sent("c/m", [70, 70])
    found = forecast('fallback(race("a/m", "b/m"), "c/m")', a, b, c)
    assert (found.ttft_p50_ms, found.ttft_p95_ms) == (75, 300)


def test_forecast_is_shown_beside_the_measured_policy() -> None:
    policy = 'race("a/m", "b/m")'
    run, observations = run_of(
        sent("a/m", [100] * 8), sent("b/m", [300] * 8), sent(policy, [110] * 8)
    )
    for _ in range(2):  # a run whose findings are computed again
        run.statements = []
        add_forecasts(run, observations)
    forecast_policies(run, observations, [policy])
    (found,) = run.forecasts
    assert (found.ttft_p50_ms, found.measured_ttft_p50_ms) == (100, 110)
    (said,) = run.statements
    assert said == (
        'At concurrency 1, race("a/m", "b/m") would give TTFT p50 100 ms (95% interval 100 to '
        "100) and p95 100 ms, "
        "from 8 requests to each of its targets (the interval of p95 needs 72); measured: p50 110 "
        "ms, p95 110 ms."
    )


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ('fastest("a/m", "b/m")', "cannot forecast fastest"),
        ('fallback("a/m", "b/m", stall="1s")', "cannot forecast fallback with stall"),
        ('race("a/m", "x/m")', "no load with a valid row for each of a/m, x/m"),
    ],
)
def test_policy_that_cannot_be_forecast_is_refused(policy: str, words: str) -> None:
    run, observations = run_of(sent("a/m", [100] * 8), sent("b/m", [300] * 8))
    with pytest.raises(CallerFault, match=words):
        forecast_policies(run, observations, [policy])
    add_forecasts(run, observations)
    assert run.forecasts == []
