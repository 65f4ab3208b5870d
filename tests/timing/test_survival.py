"""The survival curve: against plain quantiles, and under censoring and weights."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitsecond.core.timing.survival import SurvivalCurve

SAMPLES = st.lists(
    st.tuples(st.floats(1, 100), st.booleans(), st.floats(1 / 64, 1)), min_size=1, max_size=40
)


def test_a_quantile_without_censored_samples_is_the_plain_one() -> None:
    curve = SurvivalCurve((ns, False, 1.0) for ns in range(1, 101))
    assert (curve.quantile(0.95), curve.quantile(0)) == (95, 1)


def test_a_censored_sample_counts_as_later_than_its_time() -> None:
    plain = [(10, False, 1.0)] * 9
    # closed before any other: no information
    assert SurvivalCurve([*plain, (1, True, 1.0)]).quantile(0.8) == 10
    assert SurvivalCurve([*plain, (20, False, 1.0)]).quantile(0.95) == 20
    censored = SurvivalCurve([*plain, (20, True, 1.0)])
    assert censored.quantile(0.95) == 20  # beyond every wait: at least the longest
    assert (censored.is_lower_bound(0.95), censored.is_lower_bound(0.9)) == (True, False)
    assert censored.quantile_of_ended(0.95) == 10
    assert (censored.waiting(9), censored.waiting(10), censored.longest) == (
        1.0,
        1 - censored.ended[-1],
        20,
    )


def test_weights_count_as_so_many_samples() -> None:
    assert SurvivalCurve([(1, False, 0.9), (5, False, 0.1)]).quantile(0.8) == 1
    assert SurvivalCurve([(1, False, 0.1), (5, False, 0.9)]).quantile(0.2) == 5
    once = SurvivalCurve([(1, False, 3.0), (2, True, 1.0), (3, False, 2.0)])
    thrice = SurvivalCurve([*[(1, False, 1.0)] * 3, (2, True, 1.0), *[(3, False, 1.0)] * 2])
    assert once.waiting(1) == thrice.waiting(1)
    assert once.weight == thrice.weight == 6


def test_mean_is_restricted_and_counts_censored_samples() -> None:
    assert SurvivalCurve((ns, False, 1.0) for ns in range(1, 101)).mean(1000) == pytest.approx(50.5)
    curve = SurvivalCurve([(10, False, 1.0)] * 9 + [(100, False, 1.0)])
    assert (curve.mean(1000), curve.mean(50), curve.mean(5)) == pytest.approx((19, 14, 5))
    assert SurvivalCurve([(10, True, 1.0), (20, False, 1.0)]).mean(1000) == pytest.approx(20)


@given(SAMPLES, st.floats(0.01, 1))
def test_censoring_never_lowers_a_quantile(
    samples: list[tuple[float, bool, float]], share: float
) -> None:
    taken_for_ended = [(value, False, weight) for value, _, weight in samples]
    assert SurvivalCurve(samples).quantile(share) >= SurvivalCurve(taken_for_ended).quantile(share)


@given(SAMPLES, st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_quantiles_ascend_and_are_among_the_samples(
    samples: list[tuple[float, bool, float]], one: float, other: float
) -> None:
    curve = SurvivalCurve(samples)
    low, high = curve.quantile(min(one, other)), curve.quantile(max(one, other))
    assert low <= high
    assert {low, high} <= {value for value, _, _ in samples}
