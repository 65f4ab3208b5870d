"""When a share is decided: against known figures, against the definition, and against chance."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.log.statistics.proportion import DOUBT, Batches, bounds, decided, fatal, fewest


@pytest.mark.parametrize(
    ("met", "sent", "low", "high"),
    [
        (90, 90, 0.01 ** (1 / 90), 1.0),
        (0, 20, 0.0, 1 - 0.01 ** (1 / 20)),
        (8, 10, 0.3883, 0.9845),  # the 1% and 99% points of Beta(8, 3) and Beta(9, 2)
    ],
)
def test_bounds_equal_those_of_clopper_and_pearson(
    met: int, sent: int, low: float, high: float
) -> None:
    assert bounds(met, sent) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(("share", "requests"), [(0.9, 44), (0.95, 90), (0.99, 459)])
def test_independent_requests_that_all_meet_the_limits(share: float, requests: int) -> None:
    """MLPerf's LoadGen needs as many and a few more, at the same confidence."""
    assert decided(requests, requests, share) == "above"
    assert decided(requests - 1, requests - 1, share) == "undecided"


@pytest.mark.parametrize(("batches", "requests"), [(5, 234), (8, 150), (12, 123)])
def test_requests_in_batches_that_all_meet_the_limits(batches: int, requests: int) -> None:
    """The t of 0.01 on one side is 3.747, 2.998 and 2.718, that of independent requests 2.326."""
    assert fewest(0.95, batches) == requests
    for n, decision in ((requests + batches, "above"), (requests - batches, "undecided")):
        sizes = [n // batches] * batches
        assert Batches(sizes, sizes).decided(0.95) == decision


def test_the_same_requests_decide_less_if_batches_differ() -> None:
    sent = [400] * 5
    alike, unlike = Batches([392] * 5, sent), Batches([400, 400, 400, 400, 360], sent)
    assert (alike.decided(0.95), unlike.decided(0.95)) == ("above", "undecided")
    assert unlike.bounds[0] < alike.bounds[0] < 0.98 < alike.bounds[1] < unlike.bounds[1]


def test_fewer_than_five_batches_are_undecided() -> None:
    found = Batches([500] * 4, [500] * 4)
    assert (found.decided(0.95), found.bounds) == ("undecided", (0.0, 1.0))


@pytest.mark.parametrize(
    ("met", "decision"),
    [([9, 10], "below"), ([2], "undecided"), ([16, 18], "undecided"), ([0, 20], "undecided")],
)
def test_two_very_bad_rounds_are_enough(met: list[int], decision: str) -> None:
    assert Batches(met, [20] * len(met)).decided(0.95) == decision
    assert Batches(met, [20] * len(met), rounds=False).decided(0.95) == "undecided"


def test_rounds_that_are_good_or_bad_rarely_fail_by_chance() -> None:
    """Every tenth round misses half of its limits, so 95% meet them in the long run."""
    random, failed = Random(5), 0
    for _ in range(2000):
        met = [10 if random.random() < 0.1 else 20 for _ in range(4)]
        failed += any(Batches(met[:n], [20] * n).decided(0.95) == "below" for n in range(1, 5))
    assert failed / 2000 <= 2 * DOUBT


def test_parts_of_rounds_show_only_that_a_share_is_below() -> None:
    sent = [400] * 5
    assert Batches(sent, sent, rounds=False).decided(0.95) == "undecided"
    assert Batches([300] * 5, sent, rounds=False).decided(0.95) == "below"


def test_correlated_batches_are_rarely_decided_wrongly() -> None:
    """Each batch has its own share, around the required one. Independent requests would decide more
    often."""
    chance, repeats = Random(5), 1000
    wrong = surely = 0
    for _ in range(repeats):
        shares = [min(chance.betavariate(19, 1), 1.0) for _ in range(8)]
        met = [sum(chance.random() < share for _ in range(60)) for share in shares]
        wrong += Batches(met, [60] * 8).decided(0.95) != "undecided"
        surely += decided(sum(met), 480, 0.95) != "undecided"
    assert wrong <= 0.06 * repeats
    assert surely > 0.15 * repeats


@each_case(
    ("met", "sent", "decision"),
    [
        (0, 0, "undecided"),
        (89, 90, "undecided"),
        (359, 360, "above"),
        (342, 360, "undecided"),
        (79, 90, "below"),
        (0, 3, "below"),
        (0, 1, "undecided"),
    ],
)
def test_share_is_decided_against_95_percent(met: int, sent: int, decision: str) -> None:
    assert decided(met, sent, 0.95) == decision


@given(st.integers(1, 400), st.floats(0.5, 0.999), st.data())
def test_a_decision_is_where_the_bound_lies(sent: int, share: float, data: st.DataObject) -> None:
    met = data.draw(st.integers(0, sent))
    low, high = bounds(met, sent)
    assert 0 <= low <= met / sent <= high <= 1
    found = decided(met, sent, share)
    if abs(low - share) > 1e-9 and abs(high - share) > 1e-9:
        assert (found == "above", found == "below") == (low > share, high < share)


@given(st.integers(1, 300), st.floats(0.5, 0.999))
def test_fatal_number_of_misses_decides_below(sent: int, share: float) -> None:
    missed = fatal(sent, share)
    if missed < sent:
        assert decided(sent - missed, sent, share) == "below"
    assert all(decided(sent - fewer, sent, share) != "below" for fewer in range(missed))


def test_share_equal_to_its_limit_is_rarely_decided() -> None:
    chance, rounds = Random(3), 2000
    found = [
        decided(sum(chance.random() < 0.95 for _ in range(200)), 200, 0.95) for _ in range(rounds)
    ]
    for wrong in ("above", "below"):
        assert found.count(wrong) <= rounds * DOUBT + 3 * math.sqrt(rounds * DOUBT)
