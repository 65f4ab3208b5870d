"""Kernel time is placed on the monotonic clock by a difference of two wall readings."""

import pytest

from splitsecond import clock


def test_an_arrival_lies_its_lag_before_now() -> None:
    with clock.using(lambda: 1_000, lambda: 5_000):
        assert clock.now_ns() == 1_000
        assert clock.arrival(4_400) == (400, 600)


def test_a_wall_clock_that_stepped_back_gives_no_lag() -> None:
    with clock.using(lambda: 1_000, lambda: 5_000):
        assert clock.arrival(5_001) == (1_000, 0)


def test_the_clock_comes_back_after_an_error() -> None:
    real = clock.now_ns()
    with pytest.raises(RuntimeError), clock.using(lambda: 0):
        raise RuntimeError
    assert clock.now_ns() >= real


def test_wall_time_is_utc() -> None:
    with clock.using(lambda: 0, lambda: 86_400 * clock.NS_PER_S):
        assert clock.wall_time().isoformat() == "1970-01-02T00:00:00+00:00"
