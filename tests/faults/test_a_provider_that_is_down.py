"""A provider that is down is left alone: how often it is asked in ten minutes while another can answer."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.test_faults_and_policies import AT_THE_HEAD, DEADLINE_S, FAULTS, GOES_ON, HARMLESS, POLICY
from tests.faults.world import World, play, profile

from splitsecond import clock
from splitsecond.policy.forms import POLICIES

SECONDS = 600
PER_S = 1
MOST_A_MINUTE = 6
MINUTE_NS = 60 * clock.NS_PER_S
FOUND_OUT_S = DEADLINE_S + 10
"""By then it is known to be down, by whatever fault: five calls have failed, the slowest at their deadline."""
TO_FIND_OUT = 9
"""Requests to a provider that fails at once: five until it is down, and four to see whether it still is."""
TOKENS = 4
DOWN = [name for name in FAULTS if name not in (*HARMLESS, "http 400")]
ALTERNATIVES = [name for name, form in POLICIES.items() if form.alternatives]
SEEN_BY_A_RACE = AT_THE_HEAD
"""A race asks all of its targets each time, and closes who loses: of one that is slow, or breaks off later than the
other begins, it learns nothing."""


def pairs() -> Iterator[tuple[str, str]]:
    """Every fault under one policy, and a few of every sort under the others."""
    for policy in ALTERNATIVES:
        for fault in DOWN if policy == "fallback" else ("http", "slow_first_token", "cut"):
            if policy != "race" or fault in SEEN_BY_A_RACE:
                yield policy, fault


@pytest.mark.parametrize(("policy", "fault"), list(pairs()))
def test_it_is_left_alone(policy: str, fault: str, tmp_path: Path) -> None:
    unserved: list[int] = []

    async def visit(world: World) -> None:
        began_ns = clock.now_ns()
        visitor = await world.ask(max_tokens=TOKENS, user=f"user {world.asked}")
        if b"[DONE]" not in visitor.body:
            unserved.append(began_ns)

    async def story(world: World) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(SECONDS * PER_S):
                group.create_task(visit(world))
                await asyncio.sleep(1 / PER_S)

    down, well = profile(FAULTS[fault], tokens=TOKENS), profile(tokens=TOKENS)
    world = play(f'deadline({POLICY[policy]}, total="30s")', tmp_path, story, stall="2s", a=down, b=well)
    asked = [record.arrived_ns for record in world.requests("a")]
    at = sorted(world.simulated["a"].connected_ns if fault == "refused" else asked)
    assert at, "nobody asked it"
    known_ns = at[0] + round(FOUND_OUT_S * clock.NS_PER_S)
    later = [moment for moment in at if moment > known_ns]
    assert all(sum(begin <= each < begin + MINUTE_NS for each in later) <= MOST_A_MINUTE for begin in later)
    assert sum(began_ns > known_ns for began_ns in unserved) <= len(later)
    if fault in AT_THE_HEAD:
        assert len(at) - len(later) <= TO_FIND_OUT
        assert len(unserved) <= (0 if policy in GOES_ON else len(at))
