"""The whole search against simulated servers of known capacity: a few searches of
benchmarks/capacity_truth.py."""

import pytest
from benchmarks.capacity_of_sessions import SERVERS
from benchmarks.capacity_of_sessions import searched as searched_sessions
from benchmarks.capacity_of_sessions import truth as true_sessions
from benchmarks.capacity_truth import TOO_HIGH, kind, searched, true_share, truth, waits


def test_truth_equals_the_erlang_formula() -> None:
    """The capacity of 32 slots with 10 s of service, where 95% of the requests wait for at most 300
    ms."""
    assert waits(23.4, 0.3 * (3.2 - 2.34) / (1 - 23.4 / 32)) == pytest.approx(0.0485, abs=1e-4)
    assert truth(kind("M/M/c", 10, rate=True)) == pytest.approx(2.346, abs=0.001)
    assert (
        true_share(kind("M/M/c", 10, rate=False), 42)
        >= 0.95
        > true_share(kind("M/M/c", 10, rate=False), 43)
    )


@pytest.mark.system
@pytest.mark.parametrize("seed", [1, 2])
def test_closed_loop_capacity_is_within_10_percent(seed: int) -> None:
    server = kind("M/M/c", 10, rate=False)
    assert 0.9 <= (searched(server, seed).claimed or 0) / truth(server) <= TOO_HIGH


@pytest.mark.system
@pytest.mark.parametrize("seed", [0, 1])
def test_number_of_sessions_is_found_and_eviction_named(seed: int) -> None:
    found = searched_sessions(SERVERS["small, eviction"], seed, first=16)
    true = true_sessions(SERVERS["small, eviction"], turns=10_000)
    assert 0.8 * true <= (found.capacity.holds or 0) <= 1.1 * true
    assert (found.capacity.likely or found.capacity.holds or 0) == pytest.approx(true, rel=0.1)
    assert found.capacity.cause == "eviction"
    assert any("The cause is eviction" in sentence for sentence in found.statements)


@pytest.mark.system
def test_slow_prefill_is_named_as_computing() -> None:
    found = searched_sessions(SERVERS["small, prefill"], 1, first=24)
    assert (
        0
        < (found.capacity.holds or 0)
        <= 1.1 * true_sessions(SERVERS["small, prefill"], turns=10_000)
    )
    assert found.capacity.cause == "computing"
