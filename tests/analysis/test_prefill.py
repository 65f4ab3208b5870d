import numpy as np
import pytest

from splitsecond.log.statistics.prefill import MIN_TURNS, fitted, fitted_parts
from splitsecond.log.statistics.summary import Floats

FIXED, NEW, REUSED = 0.2, 1 / 5_000, 1 / 400_000


def turns(n: int = 400, scatter: float = 0.15, seed: int = 1) -> tuple[Floats, Floats, Floats]:
    """New and reused tokens of turns, and their TTFT in seconds."""
    random = np.random.default_rng(seed)
    new = np.round(np.exp(random.normal(7, 1.2, n)))
    reused = np.round(np.exp(random.normal(10, 0.8, n)))
    typical = FIXED + NEW * new + REUSED * reused
    return (
        new.astype(float),
        reused.astype(float),
        (typical * np.exp(random.normal(0, scatter, n))).astype(float),
    )


def test_fit_without_scatter_is_exact() -> None:
    found = fitted(*turns(40, 0.0))
    assert found is not None
    assert (found.fixed, found.new, found.reused) == pytest.approx((FIXED, NEW, REUSED), rel=1e-4)


def test_fit_with_scatter_is_close() -> None:
    found = fitted(*turns())
    assert found is not None
    assert (found.fixed, found.new, found.reused) == pytest.approx((FIXED, NEW, REUSED), rel=0.15)
    assert found.scale == pytest.approx(0.15, rel=0.15)


def test_turns_that_missed_the_cache_do_not_change_the_fit() -> None:
    new, reused, ttft_s = turns(scatter=0.1)
    ttft_s[::10] = FIXED + NEW * (new + reused)[::10]
    found = fitted(new, reused, ttft_s)
    assert found is not None
    assert (found.fixed, found.new, found.reused) == pytest.approx((FIXED, NEW, REUSED), rel=0.15)


def test_too_few_turns_have_no_fit() -> None:
    new, reused, ttft_s = turns()
    assert fitted(new[: MIN_TURNS - 1], reused[: MIN_TURNS - 1], ttft_s[: MIN_TURNS - 1]) is None


def test_turns_that_are_all_alike_have_no_fit() -> None:
    _, reused, ttft_s = turns()
    assert fitted(np.full(len(reused), 500.0), reused, ttft_s) is None
    assert fitted(reused, np.zeros(len(reused)), ttft_s) is None


def test_parts_have_the_models_of_their_own_turns() -> None:
    new, reused, ttft_s = turns(60)
    numbers = np.arange(60)
    parts = np.array([numbers % 6 != 1, numbers < MIN_TURNS - 1, numbers >= 0, numbers % 2 == 0])
    alike = [fitted(new[part], reused[part], ttft_s[part]) for part in parts]
    together = fitted_parts(new, reused, ttft_s, parts)
    assert [model is None for model in together] == [False, True, False, False]
    for one, other in zip(together, alike, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert (one.fixed, one.new, one.reused, one.scale) == pytest.approx(
                (other.fixed, other.new, other.reused, other.scale), rel=1e-6
            )
