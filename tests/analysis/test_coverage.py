"""Intervals, comparisons and reports on requests that share slow minutes: a few cells of the table
in docs."""

import math

import numpy as np
import pytest
from benchmarks.coverage import (
    PLANNED,
    PLANS,
    SCATTERS,
    Planned,
    Scatter,
    covered,
    false_reports,
    found_in_reports,
    found_real,
    of_plan,
)
from benchmarks.session_coverage import (
    SERVERS,
    TRUTH_OF_SLOW_MINUTES,
    false_session_differences,
    session_truths,
    sessions_covered,
)
from tests.analysis.made import request
from tests.power import repeated

from splitsecond.benchmark.findings.compare import compare_figure
from splitsecond.benchmark.rows.figures import FIGURES

INDEPENDENT, SECONDS, MINUTES, SLOW_MINUTES, QUEUE = SCATTERS[:5]


def scatter_of(repeats: int) -> float:
    """Return the standard error of a share of about .95 over `repeats`: .01 for 600."""
    return 0.012 * math.sqrt(600 / repeats)


@repeated(60, 600)
@pytest.mark.parametrize(
    ("scatter", "least"),
    [(INDEPENDENT, 0.95), (SECONDS, 0.93), (MINUTES, 0.93), (SLOW_MINUTES, 0.93)],
    ids=str,
)
def test_intervals_of_200_requests_in_6_rounds_hold_the_truth(
    scatter: Scatter, least: float, repeats: int
) -> None:
    found = covered(scatter, repeats, (200, 6))
    assert min(found.values()) >= least - scatter_of(repeats)


@repeated(60, 600)
@pytest.mark.parametrize(("rounds", "least"), [(5, 0.9), (6, 0.93), (8, 0.95)])
def test_intervals_of_a_server_in_two_states(rounds: int, least: float, repeats: int) -> None:
    """Of five rounds, all are in one state in one of eleven rows; no interval can show the
    other."""
    found = covered(QUEUE, repeats, (200, rounds))
    assert min(found.values()) >= least - scatter_of(repeats)


@pytest.mark.sampled(3)
@repeated(60, 600)
@pytest.mark.parametrize("scatter", SCATTERS[:4], ids=str)
@pytest.mark.parametrize("layout", [(50, 6), (50, 8), (200, 6)], ids=str)
def test_equal_targets_rarely_differ_significantly(
    scatter: Scatter, layout: tuple[int, int], repeats: int
) -> None:
    assert found_real(scatter, repeats, layout) <= 0.06 + scatter_of(repeats)


@pytest.mark.sampled(3)
@repeated(60, 600)
@pytest.mark.parametrize("plan", [PLANS[0], PLANS[1], PLANS[3]], ids=lambda plan: plan.options)
@pytest.mark.parametrize("scatter", PLANNED, ids=lambda scatter: scatter.name)
def test_a_run_that_makes_claims_keeps_its_promises(
    scatter: Scatter, plan: Planned, repeats: int
) -> None:
    p50, p95, ahead = of_plan(scatter, repeats, plan)
    assert min(p50, p95) >= 0.93 - scatter_of(repeats)
    assert ahead <= 0.06 + 2 * scatter_of(repeats)


def test_only_quick_runs_make_no_claims() -> None:
    assert [plan.layout[1].claims for plan in PLANS] == [not plan.quick for plan in PLANS]
    p50, _, ahead = of_plan(SLOW_MINUTES, 60, PLANS[-1])
    assert p50 < 0.9
    assert ahead > 0.2, "why such a run names no target first"


def test_difference_of_a_fifth_is_found_if_independent() -> None:
    assert found_real(INDEPENDENT, 300, (200, 8), slower=1.2) >= 0.78


@pytest.mark.sampled(3)
@repeated(6, 60)
@pytest.mark.parametrize("scatter", [INDEPENDENT, SLOW_MINUTES, QUEUE], ids=str)
def test_report_of_15_rows_rarely_has_a_false_difference(scatter: Scatter, repeats: int) -> None:
    # .03 is expected
    assert false_reports(scatter, repeats, (50, 8)) * repeats <= max(1, 0.1 * repeats)


@repeated(4, 12)
def test_a_report_of_fifteen_rows_finds_clear_differences(repeats: int) -> None:
    assert found_in_reports(INDEPENDENT, repeats, (200, 6)) >= 0.65  # 0.8 is expected


@pytest.mark.parametrize("rounds", [1, 4])
def test_equal_targets_in_few_rounds_show_no_difference(rounds: int) -> None:
    """Four rounds show no differences between equal targets, because they show none at all."""
    chance = np.random.default_rng(5)
    for sides in zip(
        *(SLOW_MINUTES.rounds(chance, 20, rounds, 200 // rounds, 120.0) for _ in "ab"), strict=True
    ):
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


@pytest.mark.system
@pytest.mark.parametrize("repeats", [300])
@pytest.mark.parametrize("name", ["slow minutes", "no counts of cached tokens"])
def test_intervals_of_sessions_hold_the_truth(name: str, repeats: int) -> None:
    found = sessions_covered(SERVERS[name], repeats, (400, 5), TRUTH_OF_SLOW_MINUTES)
    assert {
        each: share for each, share in found.items() if share < 0.93 - 1.5 * scatter_of(repeats)
    } == {}


@repeated(6, 300)
def test_equal_targets_of_sessions_rarely_differ(repeats: int) -> None:
    found = false_session_differences(SERVERS["slow minutes"], repeats, (400, 5))
    assert max(found.values()) <= 0.06 + 1.5 * scatter_of(repeats)


@pytest.mark.system
def test_the_truth_about_simulated_sessions_is_right() -> None:
    assert session_truths(SERVERS["slow minutes"]) == pytest.approx(
        TRUTH_OF_SLOW_MINUTES, rel=0.001
    )
