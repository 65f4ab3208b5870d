"""Runs at a rate, against a queue whose truth is known: a few cells of the table in docs."""

from benchmarks.open_loop import SERVICE_S, SLOTS, cell, measured, true_p95_s
from tests.power import repeated

from splitsecond.benchmark.findings.validity import NOT_STATIONARY
from splitsecond.benchmark.load.plan import PlannedLoad, make_plan


def test_a_queue_that_still_grows_is_not_stationary() -> None:
    row = measured(0.95, 200, seed=0)
    assert any(reason.startswith(NOT_STATIONARY) for reason in row.invalid)
    assert (row.ttft_due_ms.p95 or 0.0) < 900 * true_p95_s(0.95), "why it is"


@repeated(3, 24)
def test_p95_of_a_steady_queue_is_trusted(repeats: int) -> None:
    found = cell(0.85, 200, repeats)
    assert found.flagged <= 0.34
    assert abs(found.error) < 0.4


def test_a_row_says_how_much_of_a_round_it_measures() -> None:
    row = measured(0.5, 50, seed=0)
    (said,) = [note for note in row.notes if "empty server" in note]
    assert said.startswith("the percentiles describe ")
    (lane,) = make_plan({"t": "http://t"}, [PlannedLoad(rate=0.5 * SLOTS / SERVICE_S)], response_s=SERVICE_S).lanes
    assert {(block.warmups, block.requests) for block in lane} == {(80, 80)}
