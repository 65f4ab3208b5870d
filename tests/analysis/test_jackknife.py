import numpy as np
import pytest

from splitsecond.log.statistics.jackknife import MAX_GROUPS, Flags, jackknife_intervals
from splitsecond.log.statistics.student import t_quantile
from splitsecond.log.statistics.summary import Floats


def test_jackknife_of_a_mean_is_students_interval() -> None:
    values = np.random.default_rng(1).normal(size=12)

    def mean(kept: Flags) -> Floats:
        return np.array([values[kept].mean()])

    half = t_quantile(0.05, 11) * values.std(ddof=1) / np.sqrt(12)
    ((low, high),) = jackknife_intervals(mean, np.array([values.mean()]), [np.arange(12)])
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half))


def test_the_grouping_that_scatters_more_decides() -> None:
    rounds = np.repeat(np.arange(6), 10)
    values = rounds + np.random.default_rng(1).normal(size=60)

    def mean(kept: Flags) -> Floats:
        return np.array([values[kept].mean()])

    middle = np.array([values.mean()])
    by_round, both = (
        jackknife_intervals(mean, middle, by)[0] for by in ([rounds], [rounds, np.arange(60)])
    )
    assert both == by_round


def test_no_groups_and_failed_estimates_have_no_interval() -> None:
    assert jackknife_intervals(lambda kept: np.zeros(1), np.zeros(1), []) == [(None, None)]
    assert jackknife_intervals(lambda kept: None, np.zeros(2), [np.arange(6)]) == [(None, None)] * 2


def test_many_sessions_are_left_out_several_at_a_time() -> None:
    values = np.random.default_rng(1).normal(size=1000)
    made = []

    def mean(kept: Flags) -> Floats:
        made.append(kept)
        return np.array([values[kept].mean()])

    ((low, high),) = jackknife_intervals(mean, np.array([values.mean()]), [np.arange(1000)])
    assert len(made) == MAX_GROUPS
    assert low is not None
    assert high is not None
    assert (high - low) / 2 == pytest.approx(
        t_quantile(0.05, MAX_GROUPS - 1) / np.sqrt(1000), rel=0.25
    )
