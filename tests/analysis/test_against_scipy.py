"""Our statistics equal those of scipy, which takes longer to import than most tests run."""

import numpy as np
import pytest
import scipy
from tests.analysis.censored import censored_summary
from tests.analysis.test_sample_comparison import logs, of_medians, sample
from tests.analysis.test_summary import in_rounds
from tests.cases import each_case

from splitsecond.log.statistics.sample_comparison import LEFT_OVER
from splitsecond.log.statistics.student import t_doubt, t_doubts, t_quantile
from splitsecond.log.statistics.summary import Floats, share_interval, summary_of

# One worker process imports scipy.stats, when it is first used.
pytestmark = [pytest.mark.system, pytest.mark.xdist_group("scipy")]


@each_case("freedom", [1, 2, 3, 4, 7, 14, 99, 200])
def test_students_t_equals_that_of_scipy(freedom: int) -> None:
    for t in (0.0, 0.3, 1.0, 2.5, 7.0):
        assert t_doubt(t, freedom) == pytest.approx(2 * scipy.stats.t.sf(t, freedom), abs=1e-12)
    for doubt in (0.4, 0.05, 0.001):
        assert t_quantile(doubt, freedom) == pytest.approx(
            scipy.stats.t.isf(doubt / 2, freedom), rel=1e-6
        )


def test_students_t_of_arrays_equals_that_of_scipy() -> None:
    t, freedom = np.array([0.0, 1.0, 2.5, 40.0, np.inf, 2.5]), np.array([1, 4, 7, 200, 8, 500])
    assert t_doubts(t, freedom) == pytest.approx(
        2 * scipy.stats.t.sf(t, np.minimum(freedom, 200)), abs=1e-12
    )


def test_pairs_are_tested_as_by_scipy() -> None:
    a, b = sample(1), sample(2, scale=110.0)
    found, expected = of_medians(a, b), scipy.stats.ttest_rel(logs(b), logs(a))
    assert found.p_value == pytest.approx(
        2 * scipy.stats.t.sf(abs(expected.statistic) / np.sqrt(LEFT_OVER), 7), rel=1e-9
    )
    differences = logs(b) - logs(a)
    spread = np.sqrt(LEFT_OVER) * scipy.stats.sem(differences)
    assert np.log(found.ci95 or ()) == pytest.approx(
        scipy.stats.t.interval(0.95, 7, differences.mean(), spread), rel=1e-6
    )
    assert found.log_ratio == pytest.approx(differences.mean())
    assert found.ratio == pytest.approx(np.median(b.values) / np.median(a.values))


def test_separate_runs_are_tested_like_welchs_t_of_scipy() -> None:
    a, b = sample(1, rounds=5), sample(2, rounds=9, scale=115.0)
    found, expected = (
        of_medians(a, b, paired=False),
        scipy.stats.ttest_ind(logs(b), logs(a), equal_var=False),
    )
    assert found.freedom == int(expected.df)
    statistic = abs(expected.statistic) / np.sqrt(LEFT_OVER)
    assert found.p_value == pytest.approx(
        2 * scipy.stats.t.sf(statistic, int(expected.df)), rel=1e-9
    )


def test_interval_of_the_mean_over_rounds_equals_that_of_scipy() -> None:
    values = np.random.default_rng(3).exponential(size=80) * np.repeat(np.arange(1, 9), 10)
    low, high = summary_of(in_rounds(values, 8)).ci95["mean"]
    means = values.reshape(8, 10).mean(axis=1)
    expected = scipy.stats.t.interval(0.95, 7, means.mean(), scipy.stats.sem(means))
    assert (low, high) == pytest.approx(expected)


def test_the_interval_of_a_share_is_wilsons() -> None:
    low, high = share_interval(np.array([45.0]), np.array([50.0]))
    expected = scipy.stats.binomtest(45, 50).proportion_ci(method="wilson")
    assert (low, high) == pytest.approx((expected.low, expected.high))
    assert share_interval(np.array([]), np.array([])) == (None, None)


def test_kaplan_meier_curve_and_interval_equal_those_of_scipy() -> None:
    random = np.random.default_rng(9)
    times, closed_at = random.exponential(100, 60), random.exponential(150, 60)
    seen, closed = np.minimum(times, closed_at), closed_at < times
    curve = scipy.stats.ecdf(scipy.stats.CensoredData.right_censored(seen, closed)).sf
    # where all have ended
    with pytest.warns(RuntimeWarning, match="undefined at some observations"):
        bounds = curve.confidence_interval(method="log-log")
    found = censored_summary(seen, closed)

    def reached(share: Floats) -> float | None:
        at = np.flatnonzero(share <= 0.5)
        return float(curve.quantiles[at[0]]) if len(at) else None

    assert found.p50 == reached(curve.probabilities)
    assert found.ci95["p50"] == (
        reached(bounds.low.probabilities),
        reached(bounds.high.probabilities),
    )
