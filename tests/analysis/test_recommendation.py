"""Who is recommended for a use, and who is not, with the reason."""

import numpy as np
import pytest
from tests.analysis.made import failure, request

from splitsecond.analysis.production import Speed, Traffic
from splitsecond.analysis.recommendation import Recommendation, recommend
from splitsecond.catalog.price import Price
from splitsecond.clock import wall_time
from splitsecond.policy.building import build
from splitsecond.policy.expression import parse, targets
from splitsecond.testing.fake_service import FakeService
from splitsecond.timing.uses import USES

PRICES = {"quick/m": Price(input_usd=1, output_usd=1), "cheap/m": Price(input_usd=0.1, output_usd=0.1)}


def speeds(ttft_ms: dict[str, float], *, requests: int = 400, failures: dict[str, int] | None = None) -> list[Speed]:
    """Targets whose time to first token is about so long, within 5 %."""
    traffic, random, now = Traffic(PRICES.get), np.random.default_rng(4), wall_time()
    for target, middle in ttft_ms.items():
        for ms in random.normal(middle, middle / 40, requests):
            traffic.add(now, request(target=target, ttft_ms=float(ms)))
        for _ in range((failures or {}).get(target, 0)):
            traffic.add(now, failure(target=target))
    return traffic.speeds(1)


def one(use: str, found: list[Speed]) -> Recommendation:
    (recommendation,) = recommend(found, [use])
    return recommendation


def kept(recommendation: Recommendation) -> dict[str, str]:
    return {c.target: c.keeps for c in recommendation.candidates}


def test_the_fastest_and_the_cheapest_of_those_in_time() -> None:
    found = one("voice", speeds({"cheap/m": 250, "quick/m": 120, "slow/m": 800}))
    assert kept(found) == {"quick/m": "yes", "cheap/m": "yes", "slow/m": "no"}
    assert (found.fastest, found.cheapest) == ("quick/m", "cheap/m")
    assert found.policy == 'cheapest("quick/m", "cheap/m", within="voice")'
    assert found.candidates[-1].why.startswith("its p95 is 8")


def test_without_prices_the_fastest_are_raced_by_their_speed() -> None:
    found = one("chat", speeds({"a/m": 300, "b/m": 500}))
    assert (found.cheapest, found.policy) == ("", 'fastest("a/m", "b/m", by="ttft")')


@pytest.mark.parametrize("use", USES)
def test_what_is_recommended_is_a_policy(use: str) -> None:
    for priced in ({"quick/m": 10.0, "cheap/m": 20.0}, {"a/m": 10.0, "b/m": 20.0}, {"a/m": 10.0}):
        found = one(use, speeds(priced))
        expression = parse(found.policy)
        assert set(targets(expression)) == set(priced)
        build(expression, lambda name: FakeService(target=name))


def test_few_requests_leave_it_open() -> None:
    found = one("voice", speeds({"a/m": 200}, requests=20))
    assert kept(found) == {"a/m": "unsure"}
    assert found.candidates[0].why == "only 20 requests: the p95 may be longer"
    assert found.fastest == "a/m"


def test_one_that_is_sure_stands_before_one_that_is_not() -> None:
    found = one("voice", [*speeds({"sure/m": 200}), *speeds({"unsure/m": 100}, requests=20)])
    assert (found.fastest, list(kept(found).values())) == ("sure/m", ["yes", "unsure"])
    assert found.policy == '"sure/m"'


def test_who_fails_often_is_not_recommended_however_fast() -> None:
    found = one("voice", speeds({"a/m": 100}, failures={"a/m": 40}))
    assert kept(found) == {"a/m": "no"}
    assert found.candidates[0].why == "9.09 % of its requests failed"
    assert (found.fastest, found.cheapest, found.policy) == ("", "", "")


def test_batch_goes_by_price() -> None:
    found = one("batch", speeds({"quick/m": 100, "cheap/m": 5000}))
    assert [c.target for c in found.candidates] == ["cheap/m", "quick/m"]
    assert (found.fastest, found.cheapest) == ("quick/m", "cheap/m")
