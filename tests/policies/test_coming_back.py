"""Targets that were down come back, when they are well and not before."""

import asyncio

import pytest
from tests.policies.branches import SILENT, play, silent
from tests.policies.world import DOWN, GOOD, World, until

from splitsecond.testing.fake_service import Script


def test_traffic_returns_gradually_after_an_outage() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=until(60, DOWN), b=GOOD)
        await world.ask(150, every_s=0.2)
        assert not world.states.available("a/x")
        await asyncio.sleep(120)
        assert world.states.available("a/x")
        assert world.states.status("a/x").state == "down"
        before = world.asked("a/x")
        await world.ask()
        assert world.asked("a/x") == before + 1
        assert world.states.status("a/x").state == "returning"
        await world.ask(4)
        assert world.asked("a/x") < before + 5
        await world.ask(60)
        assert world.states.status("a/x").state == "up"
        before = world.asked("a/x")
        await world.ask(20)
        assert world.asked("a/x") == before + 20

    play(main)


@pytest.mark.system
def test_all_traffic_returns_in_minutes_after_an_hours_outage() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=until(3600, DOWN), b=GOOD)
        while world.now_s < 3600 + 400:
            await world.ask(every_s=1.8)
        before = world.asked("a/x")
        await world.ask(20)
        assert world.asked("a/x") == before + 20

    play(main)


def test_first_token_of_a_probe_does_not_end_the_outage() -> None:
    async def main() -> None:
        stalls = Script(ttft=0.1, fault=silent(), breaks_after=1, tps=0.05)
        world = World('fallback("a/x", "b/x")', a=until(5, DOWN, stalls), b=GOOD)
        await world.ask(5)
        await asyncio.sleep(10)
        async with asyncio.TaskGroup() as group:
            probe = group.create_task(world.ask())
            await asyncio.sleep(10)
            assert world.states.status("a/x").state == "probing"
            await world.ask(5)
            assert not probe.done()
            assert world.asked("a/x") == 6
        assert world.states.status("a/x").state == "down"

    play(main)


def test_long_response_to_a_probe_ends_the_outage_early() -> None:
    async def main() -> None:
        world = World(
            'fallback("a/x", "b/x")',
            a=until(5, DOWN, Script(ttft=0.1, tokens=1000, tps=10)),
            b=GOOD,
        )
        await world.ask(5)
        await asyncio.sleep(10)
        async with asyncio.TaskGroup() as group:
            group.create_task(world.ask())
            await asyncio.sleep(3)
            assert not world.states.available("a/x")
            await asyncio.sleep(0.3)
            assert world.states.available("a/x")
            assert world.states.status("a/x").state == "returning"
        await asyncio.sleep(10)
        assert world.states.status("a/x").state == "up"

    play(main)


def test_cancelled_probe_allows_the_next_probe() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=until(5, DOWN, SILENT), b=GOOD)
        await world.ask(5)
        await asyncio.sleep(10)
        task = asyncio.create_task(world.ask())
        await asyncio.sleep(0.1)
        assert world.asked("a/x") == 6
        assert world.states.status("a/x").state == "probing"
        assert not world.states.available("a/x")
        assert (await world.ask()).fault is None
        assert world.asked("a/x") == 6
        task.cancel()
        await asyncio.wait([task])
        assert world.states.available("a/x")

    play(main)
