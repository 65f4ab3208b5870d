"""The whole search against simulated servers of known capacity: a few searches of benchmarks/capacity_truth.py."""

from functools import cache

import pytest
from benchmarks.capacity_of_sessions import SERVERS
from benchmarks.capacity_of_sessions import searched as searched_sessions
from benchmarks.capacity_of_sessions import truth as true_sessions
from benchmarks.capacity_truth import TOO_HIGH, kind, searched, true_share, truth, waits


def test_truth_equals_the_erlang_formula() -> None:
    """The capacity of 32 slots with 10 s of service, where 95% of the requests wait for at most 300 ms."""
    assert waits(23.4, 0.3 * (3.2 - 2.34) / (1 - 23.4 / 32)) == pytest.approx(0.0485, abs=1e-4)
    assert truth(kind("M/M/c", 10, rate=True)) == pytest.approx(2.346, abs=0.001)
    assert true_share(kind("M/M/c", 10, rate=False), 42) >= 0.95 > true_share(kind("M/M/c", 10, rate=False), 43)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", [1, 2])
def test_closed_loop_capacity_is_within_10_percent(seed: int) -> None:
    server = kind("M/M/c", 10, rate=False)
    assert 0.9 <= (searched(server, seed).claimed or 0) / truth(server) <= TOO_HIGH


@cache
def true_number(server: str) -> int:
    return true_sessions(SERVERS[server], turns=10_000)


@pytest.mark.system
@pytest.mark.parametrize(("server", "cause"), [("small, eviction", "eviction"), ("small, prefill", "computing")])
@pytest.mark.parametrize("seed", [0, 1])
def test_number_of_sessions_and_its_cause_are_found(server: str, cause: str, seed: int) -> None:
    found = searched_sessions(SERVERS[server], seed, first=16)
    true = true_number(server)
    assert 0.8 * true <= (found.capacity.holds or 0) <= 1.1 * true
    assert (found.capacity.likely or found.capacity.holds or 0) == pytest.approx(true, rel=0.1)
    assert found.capacity.cause == cause
    assert any(f"The cause is {cause}" in sentence for sentence in found.statements)
