"""A provider that is down is left alone: how often it is asked while another can answer, and that it comes back."""

import asyncio
from pathlib import Path

import pytest
from tests.faults.test_faults_and_policies import FAULTS, POLICY
from tests.faults.world import World, play, profile

from splitsecond import clock
from splitsecond.policy.expression import POLICIES

MOST_A_MINUTE = 6
MINUTES = 10
PER_S = 5
DOWN = (
    "http",
    "http 401",
    "http 404",
    "http 429",
    "http 429 told",
    "refused",
    "reset",
    "slow_head",
    "slow_first_token",
    "stall",
    "cut",
    "malformed",
    "error_event",
    "error_event at once",
)
"""Faults by which a provider is of no use at all."""


@pytest.mark.parametrize("fault", DOWN)
@pytest.mark.parametrize("policy", [name for name, form in POLICIES.items() if form.alternatives])
def test_it_is_left_alone(policy: str, fault: str, tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(MINUTES * 60 * PER_S):
                group.create_task(world.ask(max_tokens=4))
                await asyncio.sleep(1 / PER_S)
        await world.settled()

    world = play(
        f'deadline({POLICY[policy]}, total="30s")',
        tmp_path,
        story,
        a=profile(FAULTS[fault], tokens=4),
        b=profile(tokens=4),
    )
    minutes = [0] * (MINUTES + 2)
    for record in world.requests("a"):
        minutes[(record.arrived_ns - 1000 * clock.NS_PER_S) // (60 * clock.NS_PER_S)] += 1
    print(policy, fault, minutes, world.simulated["a"].connected)
