"""A call leaves nothing for the garbage collector, however it went: all of it is freed when it is over.

Cycles would be found only when there are many. A worker would then hold megabytes of calls that are long over, and
stop for tens of milliseconds to look for them.
"""

from pathlib import Path

import pytest
from tests.faults.test_failover import Peculiar, end, pieces
from tests.faults.test_faults_and_policies import FOR_EVER_S, POLICY
from tests.faults.world import World, play, profile
from tests.garbage import garbage

from splitsecond.serving.request_cycle import RequestCycle
from splitsecond.simulator.faults import InjectedFault

CALLS = 24
ROOMS = "errors gateway policies router service serving timing transport upstream wire"
OURS = tuple(f"splitsecond.{room}" for room in ROOMS.split())
FAULTS = (
    InjectedFault(kind="http", status=500, every=3),
    InjectedFault(kind="cut", after=3, every=4),
    InjectedFault(kind="error_event", after=3, every=5),
    InjectedFault(kind="slow_first_token", seconds=FOR_EVER_S, every=7),
    InjectedFault(kind="stall", after=3, seconds=FOR_EVER_S, every=11),
    InjectedFault(kind="reset", every=13),
)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("faults", [(), FAULTS], ids=["well", "ill"])
@pytest.mark.parametrize("policy", POLICY)
def test_calls_leave_no_garbage(policy: str, faults: tuple[InjectedFault, ...], tmp_path: Path) -> None:
    found: list[str] = []

    async def story(world: World) -> None:
        await calls(world)  # what is made once is made
        with garbage() as left:
            await calls(world)
        found.extend(name for name in left if name.startswith(OURS))

    play(f'deadline({POLICY[policy]}, total="30s")', tmp_path, story, a=profile(*faults), b=profile(*faults))
    assert found == []


def test_a_stream_that_arrives_at_once_leaves_no_garbage(tmp_path: Path) -> None:
    """Its attempt has ended before the client's side takes the reply."""
    found: list[str] = []

    async def at_once(cycle: RequestCycle) -> None:
        cycle.begin_stream([])
        await cycle.send(pieces() + end(), last=True)

    async def story(world: World) -> None:
        await world.ask(stream=True)
        with garbage() as left:
            await world.ask(stream=True)
            await world.settled()
        found.extend(name for name in left if name.startswith(OURS))

    play('fallback("a/m", "b/m")', tmp_path, story, a=Peculiar(at_once), b=profile())
    assert found == []


async def calls(world: World) -> None:
    """Of every sort; some clients leave."""
    for number in range(CALLS):
        await world.ask(
            stream=number % 3 != 0, leaves_after_s=(0.04, 0.09, 0.4)[number // 4 % 3] if number % 4 == 3 else None
        )
    await world.settled()
