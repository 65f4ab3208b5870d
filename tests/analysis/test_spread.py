"""Percentiles against numpy, intervals against their promise, and the numbers that anyone can look up."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitsecond.analysis.spread import mean_interval, needed, percentile, percentile_interval, rank_interval, spread

VALUES = st.lists(st.floats(-1e12, 1e12, allow_subnormal=False), min_size=1, max_size=80)
QUANTILES = st.floats(0, 1)


@given(VALUES, QUANTILES)
def test_percentiles_are_those_of_numpy_and_never_past_the_ends(values: list[float], q: float) -> None:
    ordered = np.sort(np.array(values))
    got = percentile(ordered, q)
    assert ordered[0] <= got <= ordered[-1]
    assert got == pytest.approx(float(np.percentile(ordered, 100 * q)), rel=1e-9, abs=1e-3)


@given(VALUES)
def test_the_fast_end_is_the_mirror_image(values: list[float]) -> None:
    fast, slow = spread(values, fast_end=True), spread([-v for v in values])
    for name in ("p50", "p95", "p99"):
        assert getattr(fast, name) == pytest.approx(-getattr(slow, name), rel=1e-6, abs=1e-3)
        low, high = slow.ci95[name]
        assert fast.ci95[name] == (None if high is None else -high, None if low is None else -low)


def test_a_percentile_needs_the_n_that_the_binomial_says() -> None:
    assert [needed(q) for q in (0.5, 0.95, 0.99, 0.05)] == [6, 72, 368, 72]


@given(st.integers(1, 600), st.sampled_from([0.01, 0.05, 0.5, 0.95, 0.99]))
def test_both_bounds_exist_from_the_n_that_is_needed(n: int, q: float) -> None:
    assert (None not in rank_interval(n, q)) == (n >= needed(q))


@pytest.mark.parametrize(
    ("n", "q", "ranks"),
    [(6, 0.5, (1, 6)), (10, 0.5, (2, 9)), (20, 0.5, (6, 15)), (100, 0.5, (40, 61)), (50, 0.95, (44, None))],
)
def test_the_ranks_of_the_tables(n: int, q: float, ranks: tuple[int, int | None]) -> None:
    assert rank_interval(n, q) == ranks


@pytest.mark.parametrize("n", [10, 50, 300])
@pytest.mark.parametrize("q", [0.5, 0.95])
def test_intervals_cover_at_least_as_often_as_they_say(n: int, q: float) -> None:
    random = np.random.default_rng(7)
    truth = -math.log(1 - q)
    covered = 0
    for _ in range(1000):
        low, high = percentile_interval(np.sort(random.exponential(size=n)), q)
        covered += (low is None or low <= truth) and (high is None or truth <= high)
    assert covered >= 935


def test_the_interval_of_the_mean() -> None:
    # Student's t with 5 degrees of freedom is 2.5706 at 97.5 %; the standard deviation of 1..6 is 1.8708.
    low, high = mean_interval(np.arange(1.0, 7.0))
    half = 2.5706 * 1.8708 / math.sqrt(6)
    assert low == pytest.approx(3.5 - half, abs=0.005)
    assert high == pytest.approx(3.5 + half, abs=0.005)


def test_five_values_give_no_interval_of_the_mean() -> None:
    assert mean_interval(np.arange(5.0)) == (None, None)


def test_a_worked_example() -> None:
    made = spread([float(v) for v in range(1, 101)])
    assert (made.n, made.p50, made.mean, made.min, made.max) == (100, 50.5, 50.5, 1.0, 100.0)
    assert made.p95 == pytest.approx(95.05)
    assert made.p99 == pytest.approx(99.01)
    assert made.ci95["p50"] == (40.0, 61.0)
    assert made.ci95["p99"][1] is None
    assert made.needs == {"p99": 368}


def test_the_p95_of_a_speed_is_its_slow_tail() -> None:
    made = spread([float(v) for v in range(1, 101)], fast_end=True)
    assert made.p95 == pytest.approx(5.95)
    assert made.ci95["p95"][0] is not None
    assert made.max == 100.0


def test_no_values_give_no_figures() -> None:
    made = spread([])
    assert (made.n, made.p50, made.mean, made.ci95) == (0, None, None, {})
    assert made.needs == {"p50": 6, "p95": 72, "p99": 368}


def test_dependent_values_get_no_intervals_and_no_needs() -> None:
    made = spread([1.0, 2.0, 3.0], independent=False)
    assert (made.p50, made.ci95, made.needs) == (2.0, {}, {})
