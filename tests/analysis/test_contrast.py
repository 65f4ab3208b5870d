"""The bootstrap and the permutation test against what they promise, on samples whose truth is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitsecond.analysis import contrast as room
from splitsecond.analysis.contrast import Contrast, contrast
from splitsecond.analysis.spread import Floats

MEDIAN = {"p50": 0.5}


def of_medians(a: Floats, b: Floats, seed: int = 0) -> Contrast:
    return contrast(a, b, MEDIAN, np.random.default_rng(seed))["p50"]


def sample(seed: int, n: int, scale: float = 100.0) -> Floats:
    return scale * np.random.default_rng(seed).lognormal(sigma=0.2, size=n)


def test_a_real_difference_is_seen() -> None:
    found = of_medians(sample(1, 50), sample(2, 50, scale=150.0))
    assert found.real
    assert found.ratio == pytest.approx(1.5, abs=0.15)
    assert found.ci95 is not None
    assert found.ci95[0] < 1.5 < found.ci95[1]
    assert found.p_value == 1 / 2000


def test_chance_alone_is_rarely_taken_for_a_difference() -> None:
    assert sum(of_medians(sample(2 * i, 25), sample(2 * i + 1, 25)).real for i in range(60)) <= 5


def test_the_interval_covers_the_true_ratio_as_often_as_it_says() -> None:
    covered = 0
    for i in range(300):
        interval = room._ratio_interval(
            np.sort(sample(2 * i, 40)), np.sort(sample(2 * i + 1, 40, scale=130.0)), 0.5, np.random.default_rng(i)
        )
        assert interval is not None
        covered += interval[0] <= 1.3 <= interval[1]
    assert covered >= 0.92 * 300


@pytest.mark.parametrize("q", [0.0, 0.05, 0.5, 0.95, 1.0])
def test_the_short_cut_draws_from_the_same_distribution_as_resampling(q: float) -> None:
    ordered, random = np.sort(sample(3, 30)), np.random.default_rng(4)
    drawn = room._resampled(ordered, q, random)
    resampled = np.percentile(random.choice(ordered, size=(4000, 30)), 100 * q, axis=1)
    for place in (10, 50, 90):
        assert np.percentile(drawn, place) == pytest.approx(np.percentile(resampled, place), rel=0.03)


def test_the_same_seed_gives_the_same_answer() -> None:
    a, b = sample(1, 30), sample(2, 30)
    assert of_medians(a, b, seed=5) == of_medians(a, b, seed=5)


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=12), st.lists(st.floats(1, 1e6), min_size=1, max_size=12))
def test_any_two_samples_give_numbers_that_hang_together(a: list[float], b: list[float]) -> None:
    found = of_medians(np.array(a), np.array(b))
    assert found.ratio == pytest.approx(found.second / found.first)
    assert (found.ci95 is None) == (min(len(a), len(b)) < 6)
    assert found.p_value is None or 0 < found.p_value <= 1
    assert (found.p_value is None) == (min(len(a), len(b)) < 2)


def test_all_permutations_of_equal_values_differ_as_little() -> None:
    found = of_medians(np.full(10, 5.0), np.full(10, 5.0))
    assert (found.p_value, found.real) == (1.0, False)


def test_zero_has_no_ratio() -> None:
    found = of_medians(np.zeros(10), np.ones(10))
    assert (found.ratio, found.ci95) == (None, None)


def test_a_percentile_that_n_is_too_small_for_gets_no_interval() -> None:
    found = contrast(sample(1, 50), sample(2, 50), {"p95": 0.95}, np.random.default_rng(0))["p95"]
    assert found.ci95 is None
    assert found.p_value is not None


@pytest.mark.parametrize(
    ("p_value", "ci95", "real"),
    [(0.01, (1.1, 1.2), True), (0.01, None, True), (0.01, (0.9, 1.2), False), (0.2, (1.1, 1.2), False)],
)
def test_real_takes_both_the_test_and_the_interval(
    p_value: float, ci95: tuple[float, float] | None, real: bool
) -> None:
    assert Contrast(first=1, second=2, ratio=2, ci95=ci95, p_value=p_value).real is real
