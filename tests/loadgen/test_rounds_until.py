"""Rounds that follow until a goal is reached, in virtual time."""

import asyncio
from collections.abc import Callable

from splitsecond.benchmark.load.block import RequestBlock
from splitsecond.benchmark.load.plan import (
    ROUNDS,
    PlannedLoad,
    PlanSettings,
    RunPlan,
    make_plan,
    rounds_until,
)
from splitsecond.core.clock import NS_PER_S
from splitsecond.testing.virtual_time import run_virtual


def plan(*levels: int, requests: int = 50) -> RunPlan:
    return make_plan(
        {"t": "http://t"},
        [PlannedLoad(concurrency=level) for level in levels],
        PlanSettings(
            requests=requests,
            blocks=5,
        ),
    )


def sent(
    made: RunPlan,
    is_precise: Callable[[str], bool] | None,
    duration_s: float | None,
    *,
    block_s: float = 2.0,
) -> list[RequestBlock]:
    """Return the blocks of the first lane, each of which takes `block_s`."""

    async def main() -> list[RequestBlock]:
        blocks = []
        duration_ns = None if duration_s is None else round(duration_s * NS_PER_S)
        for block in rounds_until(made, made.lanes[0], is_precise, duration_ns):
            blocks.append(block)
            await asyncio.sleep(block_s)
        return blocks

    return run_virtual(main())


def test_a_duration_ends_before_a_round_that_would_be_too_long() -> None:
    assert [block.round for block in sent(plan(1), None, 9.0)] == [1, 2, 3, 4]
    assert [block.round for block in sent(plan(1), None, 16.5)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len(sent(plan(1), None, 0.5)) == 1


def test_rounds_follow_until_each_condition_is_precise() -> None:
    asked: list[str] = []

    def is_precise(condition: str) -> bool:
        asked.append(condition)
        return condition != "t@c8" or len(asked) >= 8

    blocks = sent(plan(1, 8), is_precise, None)
    assert [block.round for block in blocks if block.condition == "t@c1"] == list(
        range(1, ROUNDS + 1)
    )
    rounds = [block.round for block in blocks if block.condition == "t@c8"]
    assert rounds == list(range(1, rounds[-1] + 1))
    assert len(rounds) > ROUNDS
    numbered = [block for block in blocks if block.condition == "t@c8"]
    firsts = [block.first for block in numbered]
    assert firsts == sorted(set(firsts))


def test_a_precision_that_is_not_reached_ends_with_the_duration() -> None:
    assert [block.round for block in sent(plan(1), lambda condition: False, 20.0)][-1] == 10
