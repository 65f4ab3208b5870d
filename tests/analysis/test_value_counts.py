"""Counted values: the same figures as from the values themselves, in bounded memory, with intervals
by batches."""

from collections import Counter

import numpy as np
import pytest
from tests.analysis.censored import censored_summary

from splitsecond.core.timing.survival import SurvivalCurve
from splitsecond.log.statistics import value_counts
from splitsecond.log.statistics.summary import summary_of
from splitsecond.log.statistics.value_counts import (
    Counted,
    ValueCounts,
    _Curve,
    period_medians,
    summarise,
)


def filled(values: np.ndarray, cells: np.ndarray, closed: np.ndarray | None = None) -> ValueCounts:
    counts = ValueCounts()
    for part in np.array_split(np.arange(len(values)), 5):
        counts.add(cells[part], values[part], None if closed is None else closed[part])
    return counts


def counted(values: np.ndarray, cells: np.ndarray, closed: np.ndarray | None = None) -> Counted:
    return filled(values, cells, closed).of(np.unique(cells).tolist())


def some(n: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(4, 0.5, n)


def test_a_few_values_are_summarised_as_before() -> None:
    values, cells = some(300), np.zeros(300, np.int64)
    found, expected = (
        summarise(counted(values, cells), cells[:300], higher_is_better=True),
        summary_of(values.astype(np.float32), higher_is_better=True),
    )
    assert (found.p50, found.p95) == pytest.approx((expected.p50, expected.p95))
    assert found.ci95["p50"] == pytest.approx(expected.ci95["p50"])
    assert (found.min, found.max, found.needs) == (expected.min, expected.max, expected.needs)


def test_closed_values_are_summarised_as_before() -> None:
    values, closed = some(300), np.random.default_rng(2).random(300) < 0.3
    found = summarise(counted(values, np.zeros(300, np.int64), closed), np.zeros(300, np.int64))
    expected = censored_summary(values.astype(np.float32), closed)
    assert (found.n, found.p50, found.p95) == pytest.approx(
        (expected.n, expected.p50, expected.p95)
    )
    assert found.ci95["p95"] == pytest.approx(expected.ci95["p95"])


@pytest.mark.parametrize("share_closed", [0.0, 0.2])
def test_percentiles_with_batches_equal_those_of_the_values(share_closed: float) -> None:
    values, closed = some(5000), np.random.default_rng(2).random(5000) < share_closed
    batches = np.arange(5000) % 10
    each = counted(values, batches, closed)
    found = summarise(each, each.cells)
    expected = censored_summary(values.astype(np.float32), closed)
    assert (found.p50, found.p95, found.p99) == pytest.approx(
        (expected.p50, expected.p95, expected.p99)
    )
    assert found.mean == (pytest.approx(expected.mean) if expected.mean is not None else None)
    low, high = found.ci95["p50"]
    assert low is not None
    assert high is not None
    assert low < (found.p50 or 0) < high


def test_different_batches_widen_the_interval() -> None:
    values, batches = some(6000), np.arange(6000) % 12
    levels = np.exp(np.random.default_rng(3).normal(0, 0.2, 12))

    def width(scaled: np.ndarray) -> float:
        each = counted(scaled, batches)
        low, high = summarise(each, each.cells).ci95["p50"]
        return (high or 0) - (low or 0)

    low, high = summary_of(values).ci95["p50"]
    plain = (high or 0) - (low or 0)
    assert plain * 0.9 < width(values) < plain * 2
    assert width(values * levels[batches]) > plain * 5


def test_one_large_batch_among_small_ones_is_not_enough() -> None:
    sizes = [1000, *[10] * 9]
    batches = np.repeat(np.arange(10), sizes)
    each = counted(some(len(batches)), batches)
    plain = summary_of(each.values)
    assert summarise(each, each.cells).ci95["p50"] == pytest.approx(plain.ci95["p50"])


def test_millions_of_values_fit_and_move_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_counts, "MAX_VALUES", 2000)
    monkeypatch.setattr(value_counts, "PENDING", 5000)
    values, cells = some(60_000), np.arange(60_000) % 6
    counts = ValueCounts()
    for part in np.array_split(np.arange(60_000), 30):
        counts.add(cells[part], values[part])
    each = counts.of(range(6))
    assert len(each.values) < 60_000 / 2
    assert each.counts.sum() == 60_000
    found, expected = summarise(each, each.cells), summary_of(values)
    assert (found.p50, found.p95, found.p99, found.mean) == pytest.approx(
        (expected.p50, expected.p95, expected.p99, expected.mean), rel=3e-4
    )


def test_values_that_are_not_numbers_are_left_out() -> None:
    each = filled(np.array([1.0, np.nan, 2.0, -1.0]), np.array([0, 0, 3, 3]))
    assert (each.of([3, 0]).values.tolist(), each.of([3, 0]).cells.tolist()) == ([1.0, 2.0], [0, 3])
    assert each.of([3]).values.tolist() == [2.0]
    assert each.of([7]).values.tolist() == []


@pytest.mark.parametrize("pending", [1, 7, 1000])
def test_counts_do_not_depend_on_the_parts_of_the_input(
    pending: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_counts, "PENDING", pending)
    random = np.random.default_rng(2)
    values, cells, closed = (random.integers(0, most, 300) for most in (9, 4, 2))
    each = filled(values.astype(np.float64), cells, closed.astype(bool)).of(range(4))
    expected = Counter(zip(cells.tolist(), values.tolist(), closed.tolist(), strict=True))
    rows = zip(each.cells.tolist(), each.values.tolist(), each.closed.tolist(), strict=True)
    assert dict(zip(rows, each.counts.tolist(), strict=True)) == expected


def test_medians_of_periods_with_enough_values() -> None:
    every = filled(np.concatenate([np.arange(1.0, 12.0), [5.0]]), np.array([4] * 11 + [9]))
    each, nothing = every.of([4, 9]), every.of([])
    assert period_medians(each, each.cells) == {4: 6.0}
    assert period_medians(nothing, nothing.cells) == {}


def test_no_values() -> None:
    nothing = ValueCounts().of([0])
    assert summarise(nothing, nothing.cells) == summary_of([])


def test_the_curve_is_the_one_that_the_gateway_computes() -> None:
    """There are two because the gateway must not load numpy, and a report of 300,000 values needs
    it."""
    random = np.random.default_rng(3)
    values, weights = (random.integers(1, most, 200).astype(np.float64) for most in (50, 9))
    closed = random.random(200) < 0.3
    curve, expected = (
        _Curve(values, closed, weights),
        SurvivalCurve(zip(values, closed, weights, strict=True)),
    )
    for value in range(52):
        assert curve.share(value) == pytest.approx(1 - expected.waiting(value))
