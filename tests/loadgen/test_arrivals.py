"""Schedules: exact where they are regular, of the right distribution where they are random."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitsecond.benchmark.load.arrivals import PATTERNS, Pattern, schedule
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault


def gaps(offsets: list[int]) -> list[float]:
    return [(b - a) / NS_PER_S for a, b in pairwise([0, *offsets])]


def test_constant_is_exact_and_does_not_drift() -> None:
    offsets = schedule("constant", rate=3, requests=30_001, seed=0)
    assert offsets[:4] == [0, 333_333_333, 666_666_667, NS_PER_S]
    assert offsets[-1] == 10_000 * NS_PER_S


def test_poisson_gaps_are_exponential() -> None:
    """Kolmogorov and Smirnov: at n = 5000 the largest distance stays below 1.63 / sqrt(n) in 99 of
    100 samples."""
    rate, n = 20.0, 5000
    values = sorted(gaps(schedule("poisson", rate=rate, requests=n, seed=7)))
    expected = [1 - math.exp(-rate * value) for value in values]
    distance = max(max(abs(e - i / n), abs(e - (i + 1) / n)) for i, e in enumerate(expected))
    assert distance < 1.63 / math.sqrt(n)


def test_poisson_is_not_rescaled_to_end_on_time() -> None:
    ends = {schedule("poisson", rate=10, requests=100, seed=seed)[-1] for seed in range(20)}
    assert len(ends) == 20
    assert max(ends) > 10.5 * NS_PER_S
    assert min(ends) < 9.5 * NS_PER_S


@pytest.mark.parametrize(("burstiness", "variation"), [(0.25, 2.0), (1.0, 1.0), (4.0, 0.5)])
def test_gamma_arrivals_have_the_rate_and_the_burstiness(
    burstiness: float, variation: float
) -> None:
    """The coefficient of variation of a gamma distribution of shape k is 1 / sqrt(k)."""
    values = gaps(schedule("gamma", rate=50, requests=20_000, seed=3, burstiness=burstiness))
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
    assert mean == pytest.approx(1 / 50, rel=0.04)
    assert deviation / mean == pytest.approx(variation, rel=0.04)


@given(
    st.sampled_from(PATTERNS),
    st.floats(0.01, 10_000),
    st.integers(0, 200),
    st.integers(0, 2**32),
    st.floats(0.1, 10),
)
def test_every_schedule_is_ordered_complete_and_repeatable(
    pattern: Pattern, rate: float, requests: int, seed: int, burstiness: float
) -> None:
    offsets = schedule(pattern, rate=rate, requests=requests, seed=seed, burstiness=burstiness)
    assert len(offsets) == requests
    assert offsets == sorted(offsets)
    assert min(offsets, default=0) >= 0
    assert offsets == schedule(
        pattern, rate=rate, requests=requests, seed=seed, burstiness=burstiness
    )


@pytest.mark.parametrize("rate", [0, -1, math.inf, math.nan])
def test_rate_must_be_above_0(rate: float) -> None:
    with pytest.raises(CallerFault, match="rate is"):
        schedule("constant", rate=rate, requests=1, seed=0)
