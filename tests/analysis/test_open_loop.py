"""Runs at a rate, against a queue whose truth is known: a few cells of the table in docs."""

from benchmarks.open_loop import SERVICE_S, SLOTS, Plan, cell, measured, true_p95_s
from tests.power import repeated

from splitsecond.benchmark.load.plan import PlannedLoad, PlanSettings, make_plan
from splitsecond.benchmark.rows.stationary import NOT_STATIONARY

DEFAULT = Plan(200)


def test_a_queue_that_still_grows_is_not_stationary() -> None:
    row = measured(0.95, DEFAULT, seed=0)
    assert any(reason.startswith(NOT_STATIONARY) for reason in row.invalid)
    assert (row.ttft_due_ms.p95 or 0.0) < 900 * true_p95_s(0.95), "why it is"


@repeated(3, 24)
def test_a_slow_queue_is_not_stationary(repeats: int) -> None:
    found = cell(0.85, DEFAULT, repeats)
    assert found.flagged > 0.6
    assert found.coverage > 0.8


@repeated(3, 24)
def test_p95_of_a_steady_queue_is_trusted(repeats: int) -> None:
    found = cell(0.7, DEFAULT, repeats)
    assert found.flagged < 0.34
    assert found.coverage > 0.5


def test_a_row_says_which_warmup_its_queue_needs() -> None:
    row = measured(0.85, DEFAULT, seed=1)
    (said,) = row.invalid
    assert said.startswith("not stationary: requests wait in a queue that changes over about ")
    assert "Use a lower rate, or --warmup " in said
    assert measured(0.85, Plan(200, 80), seed=1).invalid == []


def test_a_row_says_how_much_of_a_round_it_measures() -> None:
    row = measured(0.5, Plan(50), seed=0)
    (said,) = [note for note in row.notes if "empty server" in note]
    assert said.startswith("the percentiles describe ")
    (lane,) = make_plan(
        {"t": "http://t"},
        [PlannedLoad(rate=0.5 * SLOTS / SERVICE_S)],
        PlanSettings(response_s=SERVICE_S),
    ).lanes
    assert {(block.warmups, block.requests) for block in lane} == {(80, 80)}
