"""Kernel time is converted to the monotonic clock with the difference of the two clocks."""

import pytest

from splitsecond.core import clock


def test_an_arrival_lies_its_lag_before_now() -> None:
    with clock.using(lambda: 1_000, lambda: 5_000):
        assert clock.now_ns() == 1_000
        assert clock.arrival(4_400) == (400, 600)


def test_a_wall_clock_that_stepped_back_gives_no_lag() -> None:
    with clock.using(lambda: 1_000, lambda: 5_000):
        assert clock.arrival(5_001) == (1_000, 0)


def test_interruption_between_clock_reads_keeps_the_arrival_time() -> None:
    """The process is interrupted for 12 ms between the two clocks. A packet came 1 ms before."""
    # microseconds
    monotonic = iter([50_000, 62_000, 62_010, 62_011, 62_012, 62_013, 62_014, 62_015])
    wall = iter([62_000, 62_011, 62_013, 62_015])
    with clock.using(lambda: next(monotonic) * 1000, lambda: (next(wall) + 7_000_000) * 1000):
        at, lag = clock.arrival((49_000 + 7_000_000) * 1000)
    assert at == pytest.approx(49_000_000, abs=2_000)
    assert lag == pytest.approx(1_000_000, abs=2_000)


@pytest.mark.parametrize(("before_us", "after_us"), [(9, 0), (0, 9), (4, 5), (300, 0), (0, 300)])
def test_interruption_never_makes_an_arrival_earlier(before_us: int, after_us: int) -> None:
    """Each reading of both clocks is interrupted, before or after the wall clock. A packet came 20
    µs before."""
    now = 1_000_000

    def monotonic_ns() -> int:
        return now

    def wall_ns() -> int:
        nonlocal now
        now += before_us * clock.NS_PER_US
        wall = now + 7 * clock.NS_PER_S
        now += after_us * clock.NS_PER_US
        return wall

    arrived = now - 20 * clock.NS_PER_US
    with clock.using(monotonic_ns, wall_ns):
        at, lag = clock.arrival(arrived + 7 * clock.NS_PER_S)
    assert arrived <= at <= 1_000_000
    assert at <= arrived + after_us * clock.NS_PER_US
    assert at + lag == 1_000_000


def test_the_clock_comes_back_after_an_error() -> None:
    real = clock.now_ns()
    with pytest.raises(RuntimeError), clock.using(lambda: 0):
        raise RuntimeError
    assert clock.now_ns() >= real


def test_wall_time_is_utc() -> None:
    with clock.using(lambda: 0, lambda: 86_400 * clock.NS_PER_S):
        assert clock.wall_time().isoformat() == "1970-01-02T00:00:00+00:00"


def test_interruption_between_clock_reads_keeps_the_wall_offset() -> None:
    """The first reading is interrupted for 300 µs before the wall clock, the second after it; the
    third is not."""
    moments = iter([0, 310, 1000, 1310, 2000, 2010])  # microseconds of the monotonic clock
    wall = iter([305, 1005, 2005])
    with clock.using(lambda: next(moments) * 1000, lambda: (next(wall) + 7_000_000) * 1000):
        assert clock.wall_offset_us() == 7_000_000


def test_a_quick_reading_of_both_clocks_is_the_only_one() -> None:
    """The first reading is interrupted for 300 µs, the second takes 1 µs; there is no third."""
    moments = iter([0, 301, 1000, 1001])  # microseconds of the monotonic clock
    wall = iter([300, 1001])
    with clock.using(lambda: next(moments) * 1000, lambda: (next(wall) + 7_000_000) * 1000):
        assert clock.wall_offset_ns() == 7_000_000_500
