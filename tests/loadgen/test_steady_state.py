"""What a plan measures against what the server does in the long run: no ramp, no tail, no slots
that march in step."""

import pytest
from benchmarks.steady_state import Truth, errors, measured, unprepared

from splitsecond.benchmark.load.plan import ROUNDS, PlannedLoad


@pytest.fixture(scope="module")
def truth() -> Truth:
    """The figures of a long closed loop of 32."""
    return Truth(PlannedLoad(concurrency=32))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("requests", [50, 200])
def test_a_closed_loop_shows_the_steady_state_with_few_requests(
    truth: Truth, requests: int
) -> None:
    """Answers of one length and a prompt that takes 26 ms: slots in step would wait for each
    other's prompts."""
    load = PlannedLoad(concurrency=32)
    row = measured(load, requests)
    assert max(map(abs, errors(row, truth))) < 0.02
    assert (row.invalid, row.notes) == ([], [])


def test_unprepared_block_gives_wrong_figures(truth: Truth) -> None:
    """The same requests as one block without random warm-ups and cool-downs."""
    load = PlannedLoad(concurrency=32)
    found = errors(unprepared(load, 50), truth)
    assert max(map(abs, found)) > 0.2


@pytest.mark.system
def test_an_open_loop_shows_the_steady_state() -> None:
    """Constant arrivals beat with the steps of the engine: TTFT repeats itself after 50 requests,
    so a round has 50."""
    load = PlannedLoad(rate=4.0, pattern="constant")
    row, truth = measured(load, 50 * ROUNDS, response_s=3.0), Truth(load)
    assert max(map(abs, errors(row, truth))) < 0.02
    assert row.invalid == []
