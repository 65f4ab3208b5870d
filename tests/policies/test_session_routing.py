"""Whole sessions by policy, beside fixed strategies and an oracle: a small part of
benchmarks.session_routing."""

from random import Random

import pytest
from benchmarks.session_providers import SCENARIOS, Outcome
from benchmarks.session_routing import outcomes

from splitsecond.benchmark.workload.synthetic_sessions import synthetic_sessions

POLICIES = ("fastest", "cheapest", "sticky", "random", "only a", "only b")


def found(scenario: str, number: int = 10, turns: int = 25) -> dict[str, Outcome]:
    """Return the outcomes of some sessions, of which a few teach what the targets are like."""
    every = synthetic_sessions("agent", 5)
    sessions = [
        each for each in Random(5).sample(every.sessions, 3 * number) if len(each.turns) >= turns
    ][:number]
    cut = [type(each)(id=each.id, turns=each.turns[:turns]) for each in sessions]
    return outcomes(SCENARIOS[scenario], cut, 5, POLICIES)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scenario", ["lifetimes", "replicas", "outage"])
def test_sessions_take_little_longer_than_the_oracle_plans(scenario: str) -> None:
    outcome = found(scenario)
    fixed = [outcome[each].mean_s for each in ("sticky", "random", "only a", "only b")]
    assert outcome["fastest"].mean_s < 1.08 * outcome["oracle, time"].mean_s
    assert outcome["fastest"].mean_s < 1.05 * min(fixed)
    assert outcome["cheapest"].usd < 1.08 * outcome["oracle, usd"].usd
    assert outcome["fastest"].cached_share > outcome["random"].cached_share + 0.04
