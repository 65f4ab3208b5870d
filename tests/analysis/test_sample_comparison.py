"""Comparisons over rounds, against each other and against samples whose truth is known."""

import itertools

import numpy as np
import pytest
from benchmarks.coverage import SCATTERS, unequal_false
from hypothesis import given
from hypothesis import strategies as st
from tests.power import repeated

from splitsecond.log.statistics.sample_comparison import (
    SampleComparison,
    compare_blocks,
    compare_samples,
    holm,
    holm_levels,
    judged,
    log_percentiles,
)
from splitsecond.log.statistics.summary import FigureSample, Floats

MEDIAN = {"p50": 0.5}


def sample(seed: int, rounds: int = 8, size: int = 10, scale: float = 100.0) -> FigureSample:
    values = scale * np.random.default_rng(seed).lognormal(sigma=0.2, size=rounds * size)
    return in_rounds(values, rounds)


def in_rounds(values: Floats, rounds: int) -> FigureSample:
    return FigureSample(values, np.arange(len(values)) * rounds // len(values) + 1, True)


def of_medians(a: FigureSample, b: FigureSample, *, paired: bool = True) -> SampleComparison:
    return compare_samples(a, b, MEDIAN, paired=paired)["p50"]


def logs(of: FigureSample) -> Floats:
    return np.array([np.log(np.median(of.values[of.rounds == r])) for r in np.unique(of.rounds)])


def test_p95_of_unequal_runs_is_that_of_equal_subsamples() -> None:
    values = np.sort(np.random.default_rng(1).lognormal(size=7))
    logs_of = np.array(
        [np.quantile(np.log(part), 0.95) for part in itertools.combinations(values, 4)]
    )
    blocks = log_percentiles(values, np.ones(7, dtype=np.int64), 0.95, 4)
    assert blocks[1] == pytest.approx(logs_of.mean(), rel=1e-12)


@repeated(100, 1000)
def test_p95_of_unequal_identical_runs_is_rarely_different(repeats: int) -> None:
    """The p95 of 10 values is lower than that of 100: one comparison in four found a difference."""
    assert unequal_false(SCATTERS[0], repeats, (80, 800)) <= 0.1


def test_a_difference_that_prints_as_none_is_not_named() -> None:
    a, b = (
        FigureSample(np.full(60, ms), np.repeat(np.arange(6), 10), True) for ms in (200.0, 200.1)
    )
    found = of_medians(a, b)
    assert found.p_value == 0
    assert not found.real
    assert of_medians(a, FigureSample(b.values * 1.02, b.rounds, True)).real


def test_pairing_removes_scatter_common_to_both_sides() -> None:
    slow_minutes = np.repeat(np.random.default_rng(5).lognormal(sigma=0.5, size=8), 10)
    a, b = sample(1), sample(2, scale=112.0)
    a, b = (FigureSample(s.values * slow_minutes, s.rounds, True) for s in (a, b))
    assert of_medians(a, b).real
    assert not of_medians(a, b, paired=False).real


@given(
    st.lists(st.floats(1, 1e6), min_size=1, max_size=40),
    st.lists(st.floats(1, 1e6), min_size=1, max_size=40),
    st.booleans(),
)
def test_interval_and_verdict_never_contradict_each_other(
    a: list[float], b: list[float], paired: bool
) -> None:
    one, other = (in_rounds(np.array(values), 5) for values in (a, b))
    alone = of_medians(one, other, paired=paired)
    together = holm({"a": alone, "b": of_medians(other, one, paired=paired), "c": alone})
    for found in (alone, *together.values()):
        assert (found.p_value is None) == (found.ci95 is None)
        if found.ci95 is not None:
            assert found.ratio is not None
            assert found.ci95[0] <= found.ratio <= found.ci95[1]
            if found.error > 0:
                assert found.real == (not found.ci95[0] <= 1 <= found.ci95[1])


def test_holm_by_hand() -> None:
    levels = holm_levels({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert levels["d"] == pytest.approx((0.02, 0.0125))
    assert levels["a"] == pytest.approx((0.03, 0.05 / 3))
    # 0.03 is not below 0.05 / 2, so all others are held against that level.
    assert levels["c"] == pytest.approx((0.06, 0.025))
    assert levels["b"] == pytest.approx((0.08, 0.025))


def test_untested_comparisons_do_not_count_for_holm() -> None:
    tested, untested = (
        of_medians(sample(1), sample(2, scale=130.0)),
        SampleComparison(first=1.0, second=2.0),
    )
    together = holm({"tested": tested, "untested": untested})
    assert together == {"tested": tested, "untested": untested}


def test_failed_requests_count_as_slowest() -> None:
    """A side that loses its slowest 40% must not look 1.4 times as fast."""
    whole = sample(1, size=20)
    other = sample(2, size=20)
    cut = np.quantile(other.values, 0.6)
    dropped = FigureSample(other.values[other.values < cut], other.rounds[other.values < cut], True)
    failed = FigureSample(np.where(other.values < cut, other.values, np.inf), other.rounds, True)
    assert of_medians(whole, dropped).real
    assert not of_medians(whole, failed).real
    assert of_medians(whole, failed).second == pytest.approx(of_medians(whole, other).second)


def test_median_among_failed_requests_has_a_verdict_but_no_ratio() -> None:
    other = sample(2, size=20)
    failed = FigureSample(
        np.where(np.arange(160) % 20 < 14, np.inf, other.values), other.rounds, True
    )
    found = of_medians(sample(1, size=20), failed)
    assert (found.second, found.ratio, found.ci95) == (None, None, None)
    assert found.real
    assert found.log_ratio > 0


def test_too_few_rounds_or_values_are_not_tested() -> None:
    assert of_medians(sample(1, rounds=4), sample(2, rounds=4)).p_value is None
    few = compare_samples(sample(1, rounds=5), sample(2, rounds=5), {"p95": 0.95}, paired=True)[
        "p95"
    ]
    assert (few.p_value, few.ci95, few.needs) == (None, None, 72)
    assert few.first is not None


def test_zero_has_no_ratio() -> None:
    found = of_medians(in_rounds(np.zeros(20), 5), in_rounds(np.ones(20), 5))
    assert (found.ratio, found.ci95, found.p_value) == (None, None, None)


def test_detectable_difference_is_found_in_80_percent() -> None:
    """The smallest difference that is promised, and the number of rounds for a smaller one."""
    pilot = [of_medians(sample(2 * i), sample(2 * i + 1)) for i in range(200)]
    error = float(np.sqrt(np.mean([found.error**2 for found in pilot])))
    typical = judged(
        SampleComparison(first=1.0, second=1.0, error=error, freedom=7, rounds=8), 1.0, 0.05
    )
    assert typical.detectable is not None
    seen = [
        of_medians(sample(2 * i), sample(2 * i + 1, scale=100 * typical.detectable)).real
        for i in range(300)
    ]
    assert 0.74 < np.mean(seen) < 0.88
    rounds = typical.rounds_for(1.06)
    seen = [
        of_medians(sample(2 * i, rounds), sample(2 * i + 1, rounds, scale=106)).real
        for i in range(300)
    ]
    assert 0.74 < np.mean(seen) < 0.9


def test_blocks_without_a_pair_are_left_out() -> None:
    first = dict(enumerate([0.0, 0.1, 0.2, 0.3, 0.2, 5.0]))
    second = {at: first[at] + 0.1 + at / 100 for at in range(5)}
    found = compare_blocks(first, second, paired=True, percentiles=(1.0, 1.0))
    assert found.rounds == 5
    assert found.log_ratio == pytest.approx(0.12)


def two_runs(first: Floats, second: Floats) -> SampleComparison:
    sides = dict(enumerate(first)), dict(enumerate(second))
    return compare_blocks(
        *sides, paired=False, percentiles=(1.0, float(np.exp(second.mean() - first.mean())))
    )


def test_two_state_server_differs_unless_others_are_like_it() -> None:
    """All rounds of one run are slow and all of the other fast: rare for one row, expected for one
    of many."""
    chance = np.random.default_rng(4)
    own = 0.05 * chance.standard_normal((122, 5))
    apart = two_runs(own[0], own[1] + np.log(2))
    assert apart.p_value is not None
    assert apart.p_value < 1e-4
    steady = [two_runs(*pair) for pair in own[2:].reshape(-1, 2, 5)]
    states = np.log(2) * chance.integers(0, 2, (120, 5))
    in_states = [two_runs(*pair) for pair in (own[2:] + states).reshape(-1, 2, 5)]
    alone, among_steady, among_like = (
        holm(dict(enumerate([apart, *others])))[0] for others in ([], steady, in_states)
    )
    assert alone.real
    assert among_steady.real
    assert not among_like.real
    assert among_like.ci95 is not None
    assert among_like.ci95[0] <= 1 <= among_like.ci95[1]
    assert among_like.error > apart.error  # gates compute with it


def test_comparison_of_constant_rounds_does_not_overflow() -> None:
    found = holm({0: two_runs(np.zeros(5), np.ones(5)), 1: two_runs(np.zeros(5), np.zeros(5))})
    assert [found[0].real, found[1].real] == [True, False]
    wild = two_runs(np.array([0.0, 600.0]), np.array([0.0, -600.0]))
    assert all(np.isfinite(bound) for bound in holm({0: wild})[0].ci95 or (np.nan,))
