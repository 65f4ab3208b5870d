"""The floor of an answer's speed, over arrivals that are given."""

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.service import RateFloor
from splitsecond.core.timing.rate_floor import CHECKS, RateCheck

FLOOR = RateFloor(tokens_per_s=8.0, over_ns=20 * NS_PER_S)


def found(
    seconds: list[float], *, characters: int = 4, until_s: float = 100.0
) -> tuple[float, float] | None:
    """When the answer is found too slow, and its rate then. Tokens arrive at `seconds`, in
    order."""
    arrivals, lengths = [round(seconds[0] * NS_PER_S)], [characters]
    check = RateCheck(FLOOR, arrivals, lengths)
    later = [round(second * NS_PER_S) for second in seconds[1:]]
    checks = 0
    while (due_ns := check.due_ns) <= until_s * NS_PER_S:
        arrived = [at for at in later if arrivals[-1] < at <= due_ns]
        arrivals.extend(arrived)
        lengths.extend([characters] * len(arrived))
        checks += 1
        if (rate := check.rate(due_ns)) is not None:
            return due_ns / NS_PER_S, rate
        assert check.due_ns > due_ns, "the next check is not later"
    assert checks <= CHECKS * until_s / 20, "too many checks"
    return None


def steady(begin_s: float, end_s: float, rate: float) -> list[float]:
    return [begin_s + number / rate for number in range(round((end_s - begin_s) * rate))]


def test_slow_stream_is_found_after_the_first_window() -> None:
    assert found(steady(1, 100, 4)) == (21, 4.0)
    assert found(steady(1, 100, 9)) is None


def test_stream_that_slows_down_is_found_when_its_rate_falls() -> None:
    slow = found([*steady(0, 40, 20), *steady(40, 100, 2)])
    assert slow is not None
    at, rate = slow
    # With 20 tokens a second for x of the 20 s and 2 for the rest it is 8 at x = 6.7 s.
    assert 53.3 <= at <= 53.4 + 20 / CHECKS
    assert 4 < rate < 8


def test_a_pause_is_not_slow() -> None:
    assert found([*steady(0, 5, 50), *steady(17, 100, 50)]) is None, "a silent part of 12 s"
    assert found([*steady(0, 5, 50), *steady(95, 100, 50)]) is None, "a very long one"
    assert found([0.5]) is None, "silence to the end"


def test_after_a_pause_the_rate_counts_again() -> None:
    assert found([*steady(0, 5, 50), *steady(30, 100, 2)]) == (50, 2.0)


def test_many_short_pauses_are_slow() -> None:
    assert found(steady(0, 100, 0.2)) == (20, 0.2)


def test_a_chunk_of_many_characters_is_many_tokens() -> None:
    assert found(steady(0, 100, 1), characters=40) is None
    assert found(steady(0, 100, 1), characters=28) is not None
    assert found(steady(0, 100, 9), characters=1) is None, "a chunk is one token at least"


def test_the_time_of_a_reader_that_paused_does_not_count() -> None:
    arrivals = [0, *(round(second * NS_PER_S) for second in steady(0.1, 10, 20))]
    check = RateCheck(FLOOR, arrivals, [4] * len(arrivals))
    check.restart(60 * NS_PER_S)
    assert check.due_ns == 80 * NS_PER_S
    arrivals.extend(round(second * NS_PER_S) for second in steady(60.1, 80, 20))
    assert check.rate(80 * NS_PER_S) is None
