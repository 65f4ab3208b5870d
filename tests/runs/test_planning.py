"""The plan of a benchmark, from its settings."""

from pathlib import Path
from typing import Any

import pytest

from splitsecond.benchmark.load.plan import PlannedLoad
from splitsecond.benchmark.rows.round_spread import CLAIM_APART_S
from splitsecond.benchmark.runs.planning import plan_run
from splitsecond.benchmark.runs.settings import BenchSettings
from splitsecond.core.errors import CallerFault

ONE, TWO = {"a/x": "http://a"}, {"a/x": "http://a", "b/y": "http://b"}


@pytest.mark.parametrize(
    ("settings", "rounds"),
    [
        ({}, 6),
        ({"requests": 200}, 6),
        ({"requests": 5}, 5),
        ({"rounds": 8}, 8),
        ({"precision": "5%"}, 6),
        ({"rate": 2}, 6),
        ({"side_by_side": True}, 6),
    ],
    ids=str,
)
def test_targets_are_compared_in_rounds_far_apart(settings: dict[str, Any], rounds: int) -> None:
    for response_s in (None, 3.0):
        plan = plan_run(BenchSettings(**settings), TWO, response_s)
        assert (plan.rounds, plan.apart_s) == (rounds, CLAIM_APART_S)
        assert {block.apart_s for lane in plan.lanes for block in lane if block.round == 1} == {0}


@pytest.mark.parametrize(
    ("settings", "targets"),
    [
        ({}, ONE),
        ({"quick": True}, TWO),
        ({"requests": 4}, TWO),
        ({"rounds": 4}, TWO),
        ({"duration": 600.0}, TWO),
        ({"precision": "5%", "duration": 600.0}, TWO),
        ({"trace": Path("a-trace")}, TWO),
    ],
    ids=str,
)
def test_other_runs_have_no_pauses(settings: dict[str, Any], targets: dict[str, str]) -> None:
    trace = PlannedLoad(trace=[0, 1]) if "trace" in settings else None
    assert plan_run(BenchSettings(**settings), targets, 3.0, trace=trace).apart_s == 0


def test_a_given_time_comes_before_the_default() -> None:
    assert plan_run(BenchSettings(over=900.0), TWO).apart_s == 180
    assert plan_run(BenchSettings(over=900.0), ONE).apart_s == 180


def test_a_quick_run_is_over_no_time() -> None:
    with pytest.raises(CallerFault, match="either it or quick"):
        BenchSettings(over=900.0, quick=True).check()
