"""Intervals, comparisons and reports on requests that share slow minutes: a few cells of the table in docs."""

import numpy as np
import pytest
from benchmarks.coverage import SCATTERS, Scatter, covered, false_reports, found_in_reports, found_real
from tests.analysis.made import request

from splitsecond.analysis.compare import compare_figure
from splitsecond.analysis.figures import FIGURES

INDEPENDENT, SECONDS, MINUTES, SLOW_MINUTES, QUEUE = SCATTERS[:5]


@pytest.mark.parametrize(
    ("scatter", "least"), [(INDEPENDENT, 0.95), (SECONDS, 0.93), (MINUTES, 0.93), (SLOW_MINUTES, 0.93)], ids=str
)
def test_intervals_of_200_requests_in_six_rounds_contain_the_truth(scatter: Scatter, least: float) -> None:
    found = covered(scatter, 600, (200, 6))
    assert min(found.values()) >= least - 0.012  # 600 repeats of .93 scatter by .01


@pytest.mark.parametrize(("rounds", "least"), [(5, 0.9), (6, 0.93), (8, 0.95)])
def test_intervals_of_a_server_in_two_states(rounds: int, least: float) -> None:
    """Of five rounds, all are in one state in one of eleven rows; no interval can show the other."""
    found = covered(QUEUE, 600, (200, rounds))
    assert min(found.values()) >= least - 0.012


@pytest.mark.parametrize("scatter", SCATTERS[:4], ids=str)
@pytest.mark.parametrize("layout", [(50, 6), (50, 8), (200, 6)], ids=str)
def test_equal_targets_are_seldom_told_apart(scatter: Scatter, layout: tuple[int, int]) -> None:
    assert found_real(scatter, 600, layout) <= 0.06 + 0.012


def test_a_difference_of_a_fifth_is_found_where_requests_are_independent() -> None:
    assert found_real(INDEPENDENT, 300, (200, 8), slower=1.2) >= 0.78


@pytest.mark.parametrize("scatter", [INDEPENDENT, SLOW_MINUTES, QUEUE], ids=str)
def test_a_report_of_fifteen_rows_seldom_contains_a_false_difference(scatter: Scatter) -> None:
    assert false_reports(scatter, 60, (50, 8)) <= 0.1  # at most six of sixty; .03 is expected


def test_a_report_of_fifteen_rows_finds_clear_differences() -> None:
    assert found_in_reports(INDEPENDENT, 12, (200, 6)) >= 0.65  # 0.8 is expected


@pytest.mark.parametrize("rounds", [1, 4])
def test_equal_targets_in_few_rounds_are_not_told_apart(rounds: int) -> None:
    """Four rounds show no differences between equal targets, because they show none at all."""
    chance = np.random.default_rng(5)
    for sides in zip(*(SLOW_MINUTES.rounds(chance, 20, rounds, 200 // rounds, 120.0) for _ in "ab"), strict=True):
        samples = [
            FIGURES["ttft_ms"].sample(
                [
                    request(1000.0, ttft_ms=100 * float(time), round=number + 1)
                    for number, times in enumerate(side)
                    for time in times
                ]
            )
            for side in sides
        ]
        found = compare_figure(FIGURES["ttft_ms"], *samples, paired=True)
        assert not any(each.real for each in found.values())
