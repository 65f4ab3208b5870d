"""Targets recommended for a use, and the reasons against the others; from a log and from the rows
of a run."""

import re

import numpy as np
import pytest
from msgspec.structs import replace
from tests.analysis.made import closed_loop, failure, renamed, request, row
from tests.cases import each_case

from splitsecond.benchmark.findings.evidence import evidence_of_log, evidence_of_run
from splitsecond.benchmark.findings.recommendation import (
    AtLoad,
    quality_sentence,
    recommend,
    use_statements,
)
from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.records import AskedCondition, Recommendation
from splitsecond.core.catalog.price import Price
from splitsecond.core.clock import wall_time
from splitsecond.core.errors import CallerFault
from splitsecond.core.timing.columns import AttemptColumns
from splitsecond.core.timing.uses import USES
from splitsecond.core.wording import full
from splitsecond.log.production.speed import ProductionSpeed
from splitsecond.log.production.traffic import ProductionTraffic
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse, targets
from splitsecond.testing.fake_service import FakeService

PRICES = {
    "quick/m": Price(input_usd=1, output_usd=1),
    "cheap/m": Price(input_usd=0.1, output_usd=0.1),
}


def speeds(
    ttft_ms: dict[str, float], *, requests: int = 400, failures: dict[str, int] | None = None
) -> list[ProductionSpeed]:
    """Targets whose time to first token is about so long, within 5%."""
    traffic, random, now = ProductionTraffic(PRICES.get), np.random.default_rng(4), wall_time()
    for target, middle in ttft_ms.items():
        attempts = [
            request(target=target, ttft_ms=float(ms))
            for ms in random.normal(middle, middle / 40, requests)
        ]
        attempts += [failure(target=target)] * (failures or {}).get(target, 0)
        traffic.add(AttemptColumns.of((now, attempt) for attempt in attempts))
    return traffic.speeds(1)


def one(use: str, found: list[ProductionSpeed]) -> Recommendation:
    (recommendation,) = recommend(evidence_of_log(found), [use])
    return recommendation


def kept(recommendation: Recommendation) -> dict[str, str]:
    return {c.target: c.keeps for c in recommendation.candidates}


def test_fastest_and_cheapest_target_within_the_limit_are_named() -> None:
    found = one("voice", speeds({"cheap/m": 250, "quick/m": 120, "slow/m": 800}))
    assert kept(found) == {"quick/m": "yes", "cheap/m": "yes", "slow/m": "no"}
    assert (found.fastest, found.cheapest) == ("quick/m", "cheap/m")
    assert found.policy == 'cheapest("quick/m", "cheap/m", within="voice")'
    assert found.candidates[-1].why.startswith("its TTFT p95 is 8")
    rise, miss = found.would_change
    assert rise.startswith("cheap/m would be first if the TTFT p95 of quick/m rises from 12")
    assert miss.startswith("slow/m misses the limit of 300 ms by 1")


def test_target_close_to_the_limit_is_not_recommended() -> None:
    found = one("voice", speeds({"close/m": 289.5}, requests=120))
    (close,) = found.candidates
    low = close.ci95[0]
    assert (close.keeps, found.fastest) == ("unsure", "")
    assert low is not None
    assert close.value is not None
    assert low <= 300 < close.value
    assert close.why == f"its TTFT p95 is {close.value:.0f} ms, and may be {low:.0f} ms"


def test_without_prices_the_fastest_are_raced_by_their_speed() -> None:
    found = one("chat", speeds({"a/m": 300, "b/m": 500}))
    assert (found.cheapest, found.policy) == ("", 'fastest("a/m", "b/m", by="ttft")')


def test_a_batch_without_prices_is_decided_by_throughput() -> None:
    found = one("batch", speeds({"a/m": 300, "b/m": 500}))
    (fall,) = found.would_change
    assert fall.startswith("b/m would be first if the throughput of a/m falls from ")


@pytest.mark.parametrize("counted", ["usage", "events"])
def test_speeds_are_ranked_only_with_equal_token_sources(counted: str) -> None:
    """The tokens of the fastest target are counted by events, and how many tokens an event has is
    unknown."""
    found = speeds({"a/m": 300, "b/m": 320, "quick/m": 100})
    for speed in found:
        speed.token_source = {counted if speed.name == "quick/m" else "usage": speed.requests}
    agent, voice = one("agent", found), one("voice", found)
    assert voice.fastest == "quick/m"
    if counted == "usage":
        assert agent.fastest == "quick/m"
        return
    assert agent.fastest != "quick/m"
    assert "quick/m" not in agent.policy
    assert not any("quick/m" in sentence for sentence in agent.would_change)
    (rating,) = [each for each in agent.candidates if each.target == "quick/m"]
    assert rating is agent.candidates[-1]
    assert (rating.keeps, rating.why) == (
        "unsure",
        "its tokens are counted by events, those of others by usage",
    )


@pytest.fixture(scope="module")
def known() -> list[list[ProductionSpeed]]:
    """The speeds of targets with and without prices, and of one alone."""
    priced = {"quick/m": 10.0, "cheap/m": 20.0}, {"a/m": 10.0, "b/m": 20.0}, {"a/m": 10.0}
    return [speeds(ttft_ms) for ttft_ms in priced]


@each_case("use", USES)
def test_recommendation_is_a_valid_policy(known: list[list[ProductionSpeed]], use: str) -> None:
    for each in known:
        found = one(use, each)
        expression = parse(found.policy)
        assert set(targets(expression)) == {speed.name for speed in each}
        build(expression, lambda name: FakeService(target=name))


def test_few_requests_make_the_verdict_unsure() -> None:
    found = one("voice", speeds({"a/m": 200}, requests=20))
    assert kept(found) == {"a/m": "unsure"}
    assert found.candidates[0].why == "its TTFT p95 has no interval yet; 150 requests give it one"
    assert found.fastest == "a/m"


def test_sure_target_is_ranked_before_an_unsure_one() -> None:
    found = one("voice", [*speeds({"sure/m": 200}), *speeds({"unsure/m": 100}, requests=20)])
    assert (found.fastest, list(kept(found).values())) == ("sure/m", ["yes", "unsure"])
    assert found.policy == '"sure/m"'


def test_fast_target_that_fails_often_is_not_recommended() -> None:
    found = one("voice", speeds({"a/m": 100}, failures={"a/m": 40}))
    assert kept(found) == {"a/m": "no"}
    assert found.candidates[0].why == "9.09% of its requests failed"
    assert (found.fastest, found.cheapest, found.policy) == ("", "", "")


def test_batch_ignores_latency() -> None:
    found = one("batch", speeds({"quick/m": 100, "cheap/m": 12_000}))
    assert [(c.target, c.keeps) for c in found.candidates] == [
        ("cheap/m", "yes"),
        ("quick/m", "yes"),
    ]
    assert (found.fastest, found.cheapest) == ("cheap/m", "cheap/m")
    assert found.policy == 'cheapest("cheap/m", "quick/m")'


LOADS = {
    "first/m": {1: (100.0, 40.0), 8: (200.0, 50.0), 32: (900.0, 60.0)},
    "tokens/m": {1: (250.0, 5.0), 8: (290.0, 6.0), 32: (295.0, 8.0)},
}
"""By target and concurrency: TTFT and the time of a token, in ms. One is first to begin, the other
writes faster."""


def of_run(
    use: str,
    prices: dict[str, Price] | None = None,
    invalid: str = "",
    at: AtLoad | None = None,
    run_loads: dict[str, dict[int, tuple[float, float]]] = LOADS,
) -> Recommendation:
    """The recommendation from a run of `run_loads`. `invalid`: the row, or all rows of the target,
    that are INVALID."""
    asked, observations = [], []
    for target, loads in run_loads.items():
        for concurrency, (ttft_ms, gap_ms) in loads.items():
            name = f"{target}@c{concurrency}"
            asked.append(AskedCondition(condition=name, target=target, concurrency=concurrency))
            made = closed_loop(
                concurrency, 100 // concurrency + 1, ttft_ms=ttft_ms, gap_ms=gap_ms, tokens=101
            )
            observations += renamed(made, name, target)
    rows = condition_rows(asked, observations, [], prices=prices)
    for each in rows:
        each.invalid = ["spoilt"] if invalid in (each.target, each.condition) else []
    (found,) = recommend(evidence_of_run(rows), [use], at)
    return found


@pytest.mark.parametrize(
    ("ttft_ms", "requests", "first"),
    [
        ({"one/m": 120, "two/m": 250, "slow/m": 800}, 400, ["one/m"]),
        ({"one/m": 120, "two/m": 120.5, "slow/m": 800}, 400, ["one/m", "two/m"]),
        ({"one/m": 120, "two/m": 250}, 20, ["one/m", "two/m"]),  # p95 has no bounds
    ],
)
def test_first_is_who_chance_did_not_put_first(
    ttft_ms: dict[str, float], requests: int, first: list[str]
) -> None:
    found = one("voice", speeds(ttft_ms, requests=requests))
    assert sorted(found.may_be_first) == first
    (said,) = full(use_statements([found], "voice"))
    if found.is_clear:
        assert said.startswith("For voice, one/m is the best of 3 (TTFT p95 12")
    else:
        assert said.startswith(f"For voice, no target is clearly the best of {len(ttft_ms)}: ")


def test_voice_is_judged_at_the_heaviest_load() -> None:
    """The target that is faster for one user is too slow for many."""
    found = of_run("voice")
    assert [(c.target, c.keeps, c.load, c.up_to) for c in found.candidates] == [
        ("tokens/m", "yes", "concurrency 32", "concurrency 32"),
        ("first/m", "no", "concurrency 32", "concurrency 8"),
    ]
    assert found.fastest == "tokens/m"
    assert (
        "first/m meets the limit up to concurrency 8, not at concurrency 32." in found.would_change
    )
    assert found.candidates[0].rows == ["tokens/m@c1", "tokens/m@c8", "tokens/m@c32"]


def test_the_caller_can_name_the_load_that_decides() -> None:
    found = of_run("voice", at=AtLoad(1, closed=True))
    assert [(c.target, c.load) for c in found.candidates] == [
        ("first/m", "concurrency 1"),
        ("tokens/m", "concurrency 1"),
    ]
    with pytest.raises(CallerFault, match="no target was measured at 5 requests/s") as refused:
        of_run("voice", at=AtLoad(5, closed=False))
    assert (
        refused.value.hint
        == "Targets were measured at concurrency 1, concurrency 8 and concurrency 32."
    )


def test_target_without_a_valid_row_at_the_load_is_unsure() -> None:
    found = of_run("voice", invalid="tokens/m@c32")
    assert [(c.target, c.keeps, c.load, c.why) for c in found.candidates] == [
        ("tokens/m", "unsure", "concurrency 8", "it has no valid row at concurrency 32"),
        ("first/m", "no", "concurrency 32", "its TTFT p95 is 900 ms"),
    ]


def test_target_of_unknown_ability_is_not_recommended() -> None:
    """The fastest target is not known to take images."""
    evidence = [
        [
            replace(each, unknown="it is unknown") if each.target == "quick/m" else each
            for each in loads
        ]
        for loads in evidence_of_log(speeds({"quick/m": 100, "a/m": 200, "slow/m": 800}))
    ]
    (found,) = recommend(evidence, ["voice"])
    assert [(c.target, c.keeps) for c in found.candidates] == [
        ("a/m", "yes"),
        ("quick/m", "unsure"),
        ("slow/m", "no"),
    ]
    assert (found.fastest, found.policy) == ("a/m", '"a/m"')


def test_few_requests_recommend_nobody() -> None:
    found = one("voice", speeds({"a/m": 200}, requests=19))
    assert kept(found) == {"a/m": "unsure"}
    assert found.candidates[0].why == "only 19 requests, fewer than 20"
    assert (found.fastest, found.cheapest, found.policy) == ("", "", "")


@pytest.mark.parametrize(
    ("use", "best"),
    [
        ("voice", "tokens/m"),
        ("completion", "tokens/m"),
        ("agent", "tokens/m"),
        ("long-form", "tokens/m"),
    ],
)
def test_each_use_has_its_own_criterion(use: str, best: str) -> None:
    assert of_run(use).fastest == best


def test_an_agent_makes_ten_calls_of_200_tokens() -> None:
    found = {c.target: c.agent_ms for c in of_run("agent").candidates}
    assert found == pytest.approx(
        {"tokens/m": 10 * (295 + 200 * 8), "first/m": 10 * (900 + 200 * 60)}
    )


def test_batch_is_ranked_at_the_load_with_most_tokens_per_dollar() -> None:
    hourly = {"first/m": Price(per_hour_usd=2), "tokens/m": Price(input_usd=9, output_usd=9)}
    found = of_run("batch", hourly)
    assert [(c.target, c.load) for c in found.candidates] == [
        ("first/m", "concurrency 32"),  # a machine is cheapest per token when it is full
        # each token has the same price: the highest throughput decides
        ("tokens/m", "concurrency 32"),
    ]
    assert found.candidates[0].tokens_per_usd == pytest.approx(
        (found.candidates[0].tokens_per_s or 0) * 3600 / 2
    )


def test_invalid_and_cache_reuse_rows_are_no_evidence() -> None:
    assert [c.target for c in of_run("voice", invalid="first/m").candidates] == ["tokens/m"]
    assert evidence_of_run([row(requests=9, cache_reuse=True)]) == []


def test_the_engine_is_not_ranked_beside_providers() -> None:
    rows = [row(requests=9, target="engine/small"), row(requests=9, target="a/x")]
    assert [loads[0].target for loads in evidence_of_run(rows)] == ["a/x"]
    assert [loads[0].target for loads in evidence_of_run(rows[:1])] == ["engine/small"]


def test_the_sentence_of_a_use() -> None:
    found = of_run("agent")
    assert full(use_statements([found], "agent")) == [
        "For agent, tokens/m is the best of 2 (agent time 18.9 s at concurrency 32)."
    ]
    assert full(use_statements([found], "voice")) == []


def test_the_cheapest_at_a_common_mix() -> None:
    """The target with the lower prices has the longer answers, so it is the dearer one at its own
    mix."""
    prices = {
        "cheap/m": Price(input_usd=1, output_usd=4),
        "dear/m": Price(input_usd=1.2, output_usd=4.8),
    }
    traffic, now = ProductionTraffic(prices.get), wall_time()
    for target, tokens in {"cheap/m": 1000, "dear/m": 20}.items():
        attempts = [request(target=target, ttft_ms=100, output_tokens=tokens)] * 400
        traffic.add(AttemptColumns.of((now, attempt) for attempt in attempts))
    speeds = {speed.name: speed for speed in traffic.speeds(1)}
    assert (speeds["cheap/m"].usd_per_million or 0) > (speeds["dear/m"].usd_per_million or 0)
    (found,) = recommend(evidence_of_log(list(speeds.values())), ["chat"])
    assert found.cheapest == "cheap/m"
    common = {rating.target: rating.usd_per_million for rating in found.candidates}
    assert common["cheap/m"] == pytest.approx((100 * 1 + 510 * 4) / 610)
    assert common["dear/m"] == pytest.approx(1.2 * (common["cheap/m"] or 0))


def test_front_of_speed_and_quality_has_unbeaten_targets() -> None:
    scores = {"haiku/m": 61.0, "opus/m": 72.0, "late/m": 60.0, "unscored/m": None}
    waits = {"haiku/m": 256.0, "opus/m": 1505.0, "late/m": 900.0, "unscored/m": 100.0}
    evidence = [
        [replace(each, quality=scores[each.target]) for each in loads]
        for loads in evidence_of_log(speeds(waits, requests=400))
    ]
    (found,) = recommend(evidence, ["chat"])
    assert found.quality_front == ["haiku/m", "opus/m"]
    assert {"haiku/m", "opus/m"} <= set(re.findall(r'"([^"]+)"', found.policy))
    assert re.fullmatch(
        r"No other target beats haiku/m \(TTFT p95 [\d,.]+ ms, score 61\) or opus/m \(TTFT p95 "
        r"[\d,.]+ ms, score 72\) in both TTFT p95 and score.",
        quality_sentence(found),
    )
    assert quality_sentence(one("chat", speeds(waits, requests=400))) == ""
