"""Percentiles against numpy, intervals against their promise, and the numbers that anyone can look
up."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.analysis.censored import censored_summary
from tests.cases import each_case

from splitsecond.log.statistics.summary import (
    FigureSample,
    Floats,
    lag_one,
    mean_interval,
    needed,
    percentile,
    percentile_interval,
    rank_interval,
    summary_of,
)

VALUES = st.lists(st.floats(-1e12, 1e12, allow_subnormal=False), min_size=1, max_size=80)
QUANTILES = st.floats(0, 1)


@given(VALUES, QUANTILES)
def test_percentiles_equal_numpys_and_stay_in_range(values: list[float], q: float) -> None:
    ordered = np.sort(np.array(values))
    got = percentile(ordered, q)
    assert ordered[0] <= got <= ordered[-1]
    assert got == pytest.approx(float(np.percentile(ordered, 100 * q)), rel=1e-9, abs=1e-3)


@given(VALUES)
def test_percentiles_are_mirrored_if_higher_is_better(values: list[float]) -> None:
    fast, slow = summary_of(values, higher_is_better=True), summary_of([-v for v in values])
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
    [
        (6, 0.5, (1, 6)),
        (10, 0.5, (2, 9)),
        (20, 0.5, (6, 15)),
        (100, 0.5, (40, 61)),
        (50, 0.95, (44, None)),
    ],
)
def test_the_ranks_of_the_tables(n: int, q: float, ranks: tuple[int, int | None]) -> None:
    assert rank_interval(n, q) == ranks


@each_case("n", [10, 50, 300])
@each_case("q", [0.5, 0.95])
def test_intervals_cover_at_least_as_often_as_they_say(n: int, q: float) -> None:
    random = np.random.default_rng(7)
    truth = -math.log(1 - q)
    covered = 0
    for _ in range(1000):
        low, high = percentile_interval(np.sort(random.exponential(size=n)), q)
        covered += (low is None or low <= truth) and (high is None or truth <= high)
    assert covered >= 935


def test_the_interval_of_the_mean() -> None:
    # Student's t with 5 degrees of freedom is 2.5706 at 97.5%; the standard deviation of 1..6 is
    # 1.8708.
    low, high = mean_interval(np.arange(1.0, 7.0))
    half = 2.5706 * 1.8708 / math.sqrt(6)
    assert low == pytest.approx(3.5 - half, abs=0.005)
    assert high == pytest.approx(3.5 + half, abs=0.005)


def test_five_values_give_no_interval_of_the_mean() -> None:
    assert mean_interval(np.arange(5.0)) == (None, None)


def test_a_worked_example() -> None:
    made = summary_of([float(v) for v in range(1, 101)])
    assert (made.n, made.p50, made.mean, made.min, made.max) == (100, 50.5, 50.5, 1.0, 100.0)
    assert made.p95 == pytest.approx(95.05)
    assert made.p99 == pytest.approx(99.01)
    assert made.ci95["p50"] == (40.0, 61.0)
    assert made.ci95["p99"][1] is None
    assert made.needs == {"p99": 368}


def test_the_p95_of_a_speed_is_its_slow_tail() -> None:
    made = summary_of([float(v) for v in range(1, 101)], higher_is_better=True)
    assert made.p95 == pytest.approx(5.95)
    assert made.ci95["p95"][0] is not None
    assert made.max == 100.0


def test_no_values_give_no_figures() -> None:
    made = summary_of([])
    assert (made.n, made.p50, made.mean, made.ci95) == (0, None, None, {})
    assert made.needs == {"p50": 6, "p95": 72, "p99": 368}


def test_dependent_values_get_no_intervals_and_no_needs() -> None:
    made = summary_of([1.0, 2.0, 3.0], independent=False)
    assert (made.p50, made.ci95, made.needs) == (2.0, {}, {})


# Rounds and failures.


def in_rounds(values: list[float] | Floats, rounds: int) -> FigureSample:
    return FigureSample(np.array(values), np.arange(len(values)) * rounds // len(values) + 1, True)


def test_rounds_that_do_not_differ_are_worth_every_request() -> None:
    values = np.tile(np.arange(1.0, 11.0), 8)
    made = summary_of(in_rounds(values, 8))
    assert (made.rounds, made.n_effective, made.autocorrelation) == (8, 80, None)
    low, high = made.ci95["p50"]
    alone = summary_of(values).ci95["p50"]
    # A few rounds know their own scatter only roughly.
    assert (low or 0) <= (alone[0] or 0) < (alone[1] or 0) <= (high or 0)


def test_rounds_that_differ_are_worth_fewer_requests() -> None:
    random = np.random.default_rng(1)
    slow = np.repeat([1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0], 10)
    made = summary_of(in_rounds(slow * random.normal(1, 0.01, 80), 8))
    # as 7 independent values
    assert made.n_effective == pytest.approx(80 * 0.25 / (0.25 * 80 / 7), rel=0.01)
    assert (made.autocorrelation or 0) < -0.8
    low, high = made.ci95["p50"]
    assert low is None or low < 1.03
    assert high is None or high > 1.97


def test_failed_requests_count_as_slowest() -> None:
    made = summary_of(in_rounds([*map(float, range(1, 91)), *[math.inf] * 10], 10))
    assert (made.n, made.failed, made.max, made.mean) == (100, 10, 90.0, 45.5)
    assert (made.p50, made.p95, made.p99) == (50.5, None, None)
    assert made.ci95["p95"][1] is None
    speeds = summary_of(
        in_rounds([*map(float, range(1, 91)), *[-math.inf] * 10], 10), higher_is_better=True
    )
    assert (speeds.p50, speeds.p95, speeds.max) == (40.5, None, 90.0)


def test_a_percentile_needs_more_requests_in_few_rounds() -> None:
    assert [needed(0.95, rounds) for rounds in (0, 5, 8, 100)] == [72, 145, 105, 74]
    in_five = {n: summary_of(in_rounds(list(map(float, range(n))), 5)).needs for n in (144, 145)}
    assert ("p95" in in_five[144], "p95" in in_five[145]) == (True, False)


def test_autocorrelation_by_hand() -> None:
    assert lag_one(np.arange(5.0)) == pytest.approx(0.4)
    assert lag_one(np.ones(5)) is None
    assert lag_one(np.arange(4.0)) is None


# Censored values.


def test_without_censored_values_it_is_the_plain_summary() -> None:
    values = [3.0, 1.0, 2.0, 10.0, 7.0, 4.0]
    assert censored_summary(values, [0] * 6) == summary_of(values)
    assert censored_summary([], []) == summary_of([])


def test_kaplan_meier_median_equals_the_textbook_value() -> None:
    # Freireich's patients with 6-MP (1963), as in every textbook: the median remission is 23 weeks,
    # S(10) = 0.753.
    weeks = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
    going_on = [0, 0, 0, 1, 0, 1, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1]
    found = censored_summary(weeks, going_on)
    assert (found.n, found.p50, found.p95) == (21, 23.0, None)
    assert found.ci95["p50"] == (13.0, None)  # as R's survival has it with conf.type="log-log"
    assert (found.mean, found.max, found.min) == (None, None, 6.0)


def test_censored_values_keep_the_median_unbiased() -> None:
    random = np.random.default_rng(5)
    truth = random.exponential(100.0, 20_000)
    deadline = 120.0
    seen, closed = np.minimum(truth, deadline), truth > deadline
    assert np.median(seen[~closed]) < 45  # what came in time looks twice as fast as it is
    assert censored_summary(seen, closed).p50 == pytest.approx(100 * np.log(2), rel=0.03)


def test_censored_interval_covers_the_truth_in_95_percent() -> None:
    random = np.random.default_rng(6)
    held = 0
    for _ in range(200):
        times, closed_at = random.exponential(100, 150), random.exponential(150, 150)
        low, high = censored_summary(np.minimum(times, closed_at), closed_at < times).ci95["p50"]
        held += (low or 0) <= 100 * np.log(2) <= (high or np.inf)
    assert 182 <= held <= 198


_PAIRS = st.lists(st.tuples(st.floats(0.001, 1e6), st.booleans()), min_size=1, max_size=60)


@given(_PAIRS.filter(lambda pairs: any(closed for _, closed in pairs)))
def test_censored_percentiles_are_ordered_and_within_the_values(
    pairs: list[tuple[float, bool]],
) -> None:
    values, closed = [value for value, _ in pairs], [late for _, late in pairs]
    found = censored_summary(values, closed)
    known = [value for value in (found.p50, found.p95, found.p99) if value is not None]
    assert known == sorted(known)
    assert all(min(values) <= value <= max(values) for value in known)
    for name in ("p50", "p95", "p99"):
        low, high = found.ci95.get(name, (None, None))
        value = getattr(found, name)
        assert low is None or value is None or low <= value
        assert high is None or (value is not None and value <= high)


def interval_by_groups(
    values: list[float], censored: list[bool], q: float
) -> tuple[float | None, float | None]:
    """The interval of a percentile by the textbook's formulas, which take equal times together."""
    times, ended = np.array(values), ~np.array(censored)
    distinct, ends = np.unique(times[ended], return_counts=True)
    waiting = np.array([(times >= time).sum() for time in distinct])
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.cumprod(1 - ends / waiting)
        width = np.exp(
            1.959963984540054
            * np.sqrt(np.cumsum(ends / (waiting * (waiting - ends))))
            / np.abs(np.log(share))
        )
        low, high = share**width, share ** (1 / width)
    last = share <= 0
    low[last] = 0.0
    high[last] = high[~last][-1] if (~last).any() else 1.0
    reached = [np.flatnonzero(bound <= 1 - q + 1e-12) for bound in (low, high)]
    return tuple(float(distinct[at[0]]) if len(at) else None for at in reached)  # type: ignore[return-value]


@given(st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=40))
@example([*[(2, False)] * 10, (1, False)])  # all of the last ones end at once
def test_intervals_with_ties_equal_those_of_the_textbook(pairs: list[tuple[int, bool]]) -> None:
    values, censored = (
        [float(value) for value, _ in pairs],
        [*(late for _, late in pairs[1:]), True],
    )
    found = censored_summary(values, censored)
    for name, q in (("p50", 0.5), ("p95", 0.95)):
        assert found.ci95[name] == interval_by_groups(values, censored, q)
