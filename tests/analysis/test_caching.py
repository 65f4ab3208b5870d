"""Savings of a prompt cache: TTFT by the test, cost by the bill, and verdicts that claim no
more."""

from typing import Any

import msgspec
import numpy as np
import pytest
from tests.analysis.made import MS, S, asked, failure, request
from tests.cases import each_case

from splitsecond.benchmark.money.caching import cache_savings
from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.records import CacheSaving, ConditionFindings
from splitsecond.core.catalog.price import Price
from splitsecond.core.money.cost import Prices
from splitsecond.core.observation import Observation

PRICE = Price(input_usd=10.0, output_usd=20.0, cached_usd=1.0, cache_write_usd=12.5)
PRICES = {"a/x": PRICE}
ROWS = [asked(condition="c"), asked(condition="c-reuse", cache_reuse=True)]


def requests(
    condition: str, ttft_ms: float, n: int = 40, seed: int = 1, rounds: int = 8, **changes: Any
) -> list[Observation]:
    """A closed loop of one, whose TTFT is scattered by a twentieth; the prompts have 1,000
    tokens."""
    chance, at, made = np.random.default_rng(seed), 1000.0, []
    for number in range(n):
        ttft = ttft_ms * chance.normal(1, 0.05)
        fields = {
            "condition": condition,
            "input_tokens": 1000,
            "round": number * rounds // n + 1,
            **changes,
        }
        made.append(request(at, ttft_ms=ttft, name=f"{condition}-{number}", **fields))
        at = made[-1].end_ns / MS
    return made


def warmup(condition: str, **changes: Any) -> Observation:
    return request(
        100.0,
        name=f"{condition}-w",
        condition=condition,
        role="warmup",
        input_tokens=1000,
        **changes,
    )


def saving_of(observations: list[Observation], prices: Prices = PRICES, **row: Any) -> CacheSaving:
    rows = [
        msgspec.structs.replace(found, **row)
        for found in condition_rows(ROWS, observations, [], prices=prices)
    ]
    (saving,) = cache_savings(rows, observations, prices)
    return saving


def both(fresh_ms: float, reuse_ms: float, **reuse: Any) -> list[Observation]:
    return requests("c", fresh_ms) + requests("c-reuse", reuse_ms, seed=2, **reuse)


def test_four_rounds_show_no_saving() -> None:
    observations = requests("c", 400, rounds=4) + requests("c-reuse", 240, seed=2, rounds=4)
    assert "there is no saving of TTFT that n = 40 in fewer than five rounds could show" in (
        saving_of(observations, prices={}).verdict
    )


def test_time_and_money_are_saved() -> None:
    filled = warmup("c-reuse", cached_tokens=0, cache_write_tokens=900)
    saving = saving_of([*both(400, 240, cached_tokens=900, cache_write_tokens=0), filled])
    p50, p95 = saving.ttft
    assert (p50.figure, p50.percentile, p95.percentile) == ("ttft_ms", "p50", "p95")
    assert p50.change == pytest.approx(-0.4, abs=0.03)
    assert p50.ci95 is not None
    assert p50.ci95[0] < -0.4 < p50.ci95[1] < -0.3
    assert (saving.requests, saving.hits, saving.cached_share) == (40, 40, 0.9)
    assert saving.usd_per_request_fresh == pytest.approx(0.01)
    # 40 requests with 100 tokens at 10 $ and 900 at 1 $; one with 100 at 10 $ and 900 at 12.5 $.
    assert saving.usd_per_request_reuse == pytest.approx((40 * 0.0019 + 0.01225) / 41)
    words = saving.verdict
    assert words.startswith(
        "a/x at concurrency 1: the prompt cache saves 39.7% of TTFT at p50, 401 to 242 ms (95%"
    )
    assert words.endswith(
        "and $7.85 per 1,000 requests; 90% of the input came from it, in 40 of 40 requests."
    )


def test_longer_answers_do_not_raise_the_cost_with_cache_reuse() -> None:
    saving = saving_of(requests("c", 400) + requests("c-reuse", 240, tokens=90, cached_tokens=900))
    assert saving.usd_per_request_reuse == pytest.approx(0.0019)


def test_a_provider_that_caches_nothing_saves_nothing() -> None:
    saving = saving_of(both(400, 400, cached_tokens=0))
    assert (saving.hits, saving.cached_share) == (0, 0.0)
    assert saving.verdict.startswith(
        "a/x at concurrency 1: the provider reports no cached tokens, and there is no saving of "
        "TTFT that n = 40 could "
        "show ("
    )
    assert "$" not in saving.verdict


def test_unreported_cache_is_detected_by_its_ttft() -> None:
    saving = saving_of(both(400, 240), prices={})
    assert saving.cached_share is None
    assert (saving.usd_per_request_fresh, saving.usd_per_request_reuse) == (None, None)
    assert (
        "reports no cached tokens, but prompts that share a beginning save 39.7%" in saving.verdict
    )
    assert saving.verdict.endswith(": it may cache without reporting it.")


@each_case(
    ("reuse_ms", "counts", "words"),
    [
        (
            400,
            {"cached_tokens": 900},
            ("no saving of TTFT that n = 40 could show (", "saves $8.10 per 1,000 requests;"),
        ),
        (
            240,
            {"cached_tokens": 900, "cache_write_tokens": 0, "input_tokens": 9000},
            ("saves 39.7%", "costs $71.90 per"),
        ),
        (240, {"cached_tokens": 5}, ("saves 39.7%", "ms (95% interval 3", "; 0.5% of the input")),
        (
            600,
            {"cached_tokens": 900},
            ("no saving but a higher TTFT at p50", "but the prompt cache saves $8.10 per"),
        ),
        (
            600,
            {"cached_tokens": 100, "cache_write_tokens": 900},
            ("filling the prompt cache costs $1.35 per",),
        ),
        (
            400,
            {"cached_tokens": 0, "cache_write_tokens": 900},
            ("no cached tokens", "filling a cache costs $2.25 per"),
        ),
    ],
)
def test_time_and_money_may_disagree(
    reuse_ms: float, counts: dict[str, int], words: tuple[str, ...]
) -> None:
    verdict = saving_of(both(400, reuse_ms, **counts)).verdict
    assert [part for part in words if part not in verdict] == []


def test_a_machine_by_the_hour_is_paid_for_its_time() -> None:
    prices = {"a/x": Price(per_hour_usd=3600.0)}
    saving = saving_of(both(400, 240, cached_tokens=900), prices)
    # 400 ms, and 100 ms of streaming
    assert saving.usd_per_request_fresh == pytest.approx(0.5, rel=0.03)
    assert saving.usd_per_request_reuse == pytest.approx(0.34, rel=0.03)


def test_saving_is_not_judged_without_valid_responses() -> None:
    only = [*requests("c", 400), failure(9e5, condition="c-reuse")]
    assert saving_of(only).verdict.endswith(
        "are unknown, because one kind of prompts has no response."
    )
    invalid = saving_of(both(400, 240), invalid=["the client was too late"]).verdict
    assert invalid.endswith(
        "are not judged, because INVALID: a/x at concurrency 1 and a/x at concurrency 1 with "
        "cache reuse."
    )


def test_saving_needs_rows_with_and_without_cache_reuse() -> None:
    rows = condition_rows(ROWS, both(400, 240), [])
    assert (
        cache_savings(rows[:1], both(400, 240), {})
        == cache_savings(rows[1:], both(400, 240), {})
        == []
    )


def test_in_an_open_loop_the_wait_counts_from_when_it_was_due() -> None:
    observations = [msgspec.structs.replace(o, due_ns=(o.sent_ns or 0) - S) for o in both(400, 240)]
    pair = [msgspec.structs.replace(one, concurrency=None, rate=2.0) for one in ROWS]
    (saving,) = cache_savings(condition_rows(pair, observations, []), observations, {})
    assert saving.ttft[0].figure == "ttft_due_ms"
    assert saving.ttft[0].before == pytest.approx(1400, rel=0.02)
    assert (saving.fresh, saving.reuse) == ("c", "c-reuse")


def test_same_observations_give_the_same_savings() -> None:
    observations = both(400, 380, cached_tokens=900)
    rows: list[ConditionFindings] = condition_rows(ROWS, observations, [])
    assert cache_savings(rows, observations, {}) == cache_savings(rows, observations, {})
