"""Counts of several workers in one table: none is lost, none is counted twice, and old ones
expire."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitsecond.gateway.records.shared_counters import MAX_NAMES, SharedCounters

WORKERS = 3
steps = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4)), max_size=60)


@pytest.fixture
def memory() -> int:
    return SharedCounters.create(WORKERS)


@pytest.fixture
def workers(memory: int) -> list[SharedCounters]:
    return [SharedCounters(memory, workers=WORKERS, number=number) for number in range(WORKERS)]


@given(steps)
def test_requests_of_this_and_the_last_minute_count_by_name(steps: list[tuple[str, int]]) -> None:
    alone = SharedCounters()
    for name, minute in sorted(steps, key=lambda step: step[1]):
        alone.request(name, minute)
    now = max((minute for _, minute in steps), default=0)
    for name in "abc":
        expected = [steps.count((name, minute)) for minute in (now, now - 1)]
        assert list(alone.requests(name, now)) == expected


def test_requests_of_several_workers_add_up(workers: list[SharedCounters]) -> None:
    for number, worker in enumerate(workers):
        for _ in range(number + 1):
            worker.request("web", 7)
    workers[0].request("web", 8)
    workers[1].request("other", 8)
    assert [worker.requests("web", 8) for worker in workers] == [(1, 6)] * WORKERS
    assert [worker.requests("web", 9) for worker in workers] == [(0, 1)] * WORKERS
    assert workers[2].requests("nobody", 8) == (0, 0)


def test_restarted_worker_continues_its_counters(memory: int) -> None:
    first = SharedCounters(memory, workers=WORKERS, number=0)
    first.request("web", 5)
    first.spend("web", 100, 0.25)
    again, other = (SharedCounters(memory, workers=WORKERS, number=number) for number in (0, 1))
    again.request("web", 5)
    again.spend("web", 100, 0.5)
    assert other.requests("web", 5) == (2, 0)
    assert other.spent_usd("web", 100) == pytest.approx(0.75)


def test_spending_is_counted_by_day(workers: list[SharedCounters]) -> None:
    workers[0].spend("web", 100, 1e-7)
    workers[1].spend("web", 100, 2.5)
    assert workers[2].spent_usd("web", 100) == pytest.approx(2.5 + 1e-7, abs=1e-9)
    workers[0].spend("web", 101, 1.0)
    assert workers[2].spent_usd("web", 101) == pytest.approx(1.0)


@pytest.mark.parametrize("step", [1, -1, 365, -20_000])
def test_wall_clock_step_and_back_keeps_the_sum_of_a_day(
    workers: list[SharedCounters], step: int
) -> None:
    today = 20_500
    for worker in workers[:2]:
        worker.spend("web", today, 1.0)
        worker.spend("web", today + step, 0.25)
        worker.spend("web", today, 0.5)
    assert workers[2].spent_usd("web", today) == pytest.approx(3.0)
    assert workers[2].spent_usd("web", today + step) == pytest.approx(0.5)
    workers[0].spend("web", today + 1, 0.125)
    assert workers[2].spent_usd("web", today) == pytest.approx(3.0), "the last two days are kept"


def test_reservations_of_a_dead_worker_are_charged_once(memory: int) -> None:
    one, two = (SharedCounters(memory, workers=WORKERS, number=number) for number in (0, 1))
    one.reserve("web", 0.3)
    two.reserve("web", 0.1)
    two.reserve("other", 1.0)
    assert one.reserved_usd("web") == two.reserved_usd("web") == pytest.approx(0.4)
    one.reserve("web", -0.3)
    assert two.reserved_usd("web") == pytest.approx(0.1)
    again = SharedCounters(memory, workers=WORKERS, number=1)
    assert again.reserved_usd("web") == pytest.approx(0.1), (
        "nobody has charged it yet, so it must stay reserved"
    )
    assert again.forfeit(["web"], 100) == {"web": pytest.approx(0.1), "": pytest.approx(1.0)}
    assert (one.reserved_usd("web"), one.reserved_usd("other")) == (0, 0)
    assert one.spent_usd("web", 100) == pytest.approx(0.1)
    assert one.spent_usd("other", 100) == pytest.approx(1.0)
    assert again.forfeit(["web"], 100) == {}


def test_spending_carried_over_from_the_log_counts_once(workers: list[SharedCounters]) -> None:
    workers[0].carry_over("web", 100, 3.0)
    workers[0].spend("web", 100, 1.0)
    # the same worker, started again, and the log knows of both
    workers[0].carry_over("web", 100, 4.0)
    assert workers[1].spent_usd("web", 100) == pytest.approx(4.0)


def test_names_beyond_the_table_size_are_still_counted() -> None:
    counters = SharedCounters()
    for number in range(MAX_NAMES + 10):
        counters.request(f"key-{number}", 1)
    assert all(counters.requests(f"key-{number}", 1)[0] >= 1 for number in range(MAX_NAMES + 10))


@pytest.mark.parametrize(("workers", "number"), [(1, 1), (2, -1)])
def test_worker_number_outside_the_table_is_refused(workers: int, number: int) -> None:
    with pytest.raises(ValueError, match="worker"):
        SharedCounters(workers=workers, number=number)


ABSURD = [1e12, 1e300, math.inf, math.nan]


@pytest.mark.parametrize("usd", ABSURD)
def test_absurd_amounts_saturate_at_the_largest(usd: float) -> None:
    counters = SharedCounters()
    for _ in range(3):
        counters.spend("web", 1, usd)
        counters.reserve("web", usd)
        counters.carry_over("web", 1, usd)
    assert 9e9 <= counters.spent_usd("web", 1) < 2e10
    assert 9e9 <= counters.reserved_usd("web") < 1e10
    counters.spend("web", 1, 5.0)
    assert counters.spent_usd("web", 1) >= 9e9
    assert counters.forfeit(["web"], 1)["web"] >= 9e9


@pytest.mark.parametrize("usd", ABSURD[:-1])
def test_release_beyond_the_reservation_stops_at_zero(usd: float) -> None:
    counters = SharedCounters()
    counters.reserve("web", usd)
    counters.reserve("web", -usd)
    counters.reserve("web", -usd)
    assert counters.reserved_usd("web") == 0
    counters.request("web", 1, -5)
    counters.request("web", 1)
    assert counters.requests("web", 1) == (1, 0)
    counters.request("web", 1, 1 << 70)
    assert counters.requests("web", 1) == ((1 << 63) - 1, 0)
