"""When a share is sure: against known figures, against the definition, and against chance."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitsecond.analysis.proportion import DOUBT, bounds, decided, fatal, fewest


@pytest.mark.parametrize(
    ("met", "sent", "low", "high"),
    [
        (90, 90, 0.01 ** (1 / 90), 1.0),
        (0, 20, 0.0, 1 - 0.01 ** (1 / 20)),
        (8, 10, 0.3883, 0.9845),  # the 1 % and 99 % points of Beta(8, 3) and Beta(9, 2)
    ],
)
def test_bounds_are_those_of_clopper_and_pearson(met: int, sent: int, low: float, high: float) -> None:
    assert bounds(met, sent) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(
    ("share", "requests"),
    [(0.9, 44), (0.95, 90), (0.99, 459)],  # MLPerf's LoadGen asks for as many and a few more, at the same confidence
)
def test_how_many_it_takes_where_every_one_meets_the_limits(share: float, requests: int) -> None:
    assert fewest(share) == requests
    assert decided(requests, requests, share) == "above"
    assert decided(requests - 1, requests - 1, share) == "undecided"


@pytest.mark.parametrize(
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
def test_what_is_sure_of_95_percent(met: int, sent: int, decision: str) -> None:
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
def test_so_many_misses_decide_whatever_the_others_do(sent: int, share: float) -> None:
    missed = fatal(sent, share)
    if missed < sent:
        assert decided(sent - missed, sent, share) == "below"
    assert all(decided(sent - fewer, sent, share) != "below" for fewer in range(missed))


def test_a_share_that_is_just_what_was_asked_for_is_rarely_said_to_be_more_or_less() -> None:
    chance, rounds = Random(3), 2000
    found = [decided(sum(chance.random() < 0.95 for _ in range(200)), 200, 0.95) for _ in range(rounds)]
    for wrong in ("above", "below"):
        assert found.count(wrong) <= rounds * DOUBT + 3 * math.sqrt(rounds * DOUBT)
