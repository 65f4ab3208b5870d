"""What a policy gains over its single targets."""

import msgspec
import pytest
from tests.analysis.made import MS, renamed, request

from splitsecond.benchmark.money.route_gain import route_gain_statements, route_gains
from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.records import AskedCondition, RouteGain
from splitsecond.core.catalog.price import Price
from splitsecond.core.observation import Observation
from splitsecond.core.wording import full

RACE = 'race("a/m", "b/m")'
PRICES = {name: Price(input_usd=10, output_usd=10) for name in ("a/m", "b/m")}


def answers(target: str, *, ttft_ms: float) -> list[Observation]:
    made: list[Observation] = []
    for n in range(20):
        begin_ms = made[-1].end_ns / MS if made else 1000.0
        made.append(
            request(begin_ms, ttft_ms=ttft_ms + n, gap_ms=10, tokens=11, name=f"{target}{n}")
        )
    return renamed(made, f"{target}@c1", target)


def raced() -> tuple[list[AskedCondition], list[Observation]]:
    """A race is as fast as its faster target, and pays for both."""
    calls = answers(RACE, ttft_ms=100)
    attempts = [
        msgspec.structs.replace(o, id=f"{o.id}.{role}", target=target, role=role)
        for o in calls
        for target, role in (("a/m", "winner"), ("b/m", "loser"))
    ]
    observations = [*calls, *attempts, *answers("a/m", ttft_ms=100), *answers("b/m", ttft_ms=300)]
    asked = [
        AskedCondition(condition=f"{name}@c1", target=name, concurrency=1)
        for name in (RACE, "a/m", "b/m")
    ]
    return asked, observations


def gains(prices: dict[str, Price] | None = None) -> list[RouteGain]:
    asked, observations = raced()
    return route_gains(condition_rows(asked, observations, [], prices=prices), observations)


def test_a_race_against_each_of_its_targets() -> None:
    found = gains(PRICES)
    assert [(each.policy, each.target) for each in found] == [(RACE, "a/m"), (RACE, "b/m")]
    # E2E of the medians
    assert [each.speed for each in found] == pytest.approx([1, 410 / 210], rel=0.02)
    low, high = found[1].speed_ci95
    assert low is not None
    assert high is not None
    assert low < found[1].speed < high < 2.1
    assert [each.cost for each in found] == pytest.approx([2, 2])
    said, waits = full(route_gain_statements(found))
    assert said.startswith(
        f"At concurrency 1, by total TPS, {RACE} is 1.00 times as fast as a/m (95% interval "
    )
    assert said.endswith("at 2.00 times its cost of a request.")
    assert waits == (
        f"At concurrency 1, {RACE} has TTFT p50 110 ms and p95 118 ms; a/m alone 110 (0%) and 118 "
        "(0%); b/m alone 310 (−64.6%) and 318 (−62.9%). p95 needs -n 150."
    )


def test_a_target_that_a_policy_left_out_is_compared_too() -> None:
    asked, observations = raced()
    unasked = [o for o in observations if o.role != "loser"]
    found = route_gains(condition_rows(asked, unasked, [], prices=PRICES), unasked)
    assert [each.target for each in found] == ["a/m", "b/m"]


def test_without_prices_the_gain_is_of_speed_alone() -> None:
    found = gains()
    assert [each.cost for each in found] == [None, None]
    assert "cost" not in full(route_gain_statements(found))[0]


def test_run_without_a_policy_has_no_route_gain() -> None:
    asked = [AskedCondition(condition="a/m@c1", target="a/m", concurrency=1)]
    observations = answers("a/m", ttft_ms=100)
    assert route_gains(condition_rows(asked, observations, []), observations) == []
