"""Targets that were down come back, when they are well and not before."""

import asyncio

from tests.policies.branches import SILENT, play, silent
from tests.policies.world import DOWN, GOOD, World, until

from splitsecond.testing.fake_service import Script


def test_traffic_comes_back_step_by_step() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=until(60, DOWN), b=GOOD)
        await world.ask(150, every_s=0.2)
        assert not world.standing.available("a/x")
        await asyncio.sleep(120)
        assert world.standing.available("a/x")
        assert world.standing.status("a/x").state == "down"
        before = world.asked("a/x")
        await world.ask()
        assert world.asked("a/x") == before + 1
        assert world.standing.status("a/x").state == "returning"
        await world.ask(4)
        assert world.asked("a/x") < before + 5
        await world.ask(60)
        assert world.standing.status("a/x").state == "up"
        before = world.asked("a/x")
        await world.ask(20)
        assert world.asked("a/x") == before + 20

    play(main)


def test_all_traffic_is_back_within_minutes_of_an_outage_of_an_hour() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=until(3600, DOWN), b=GOOD)
        while world.now_s < 3600 + 400:
            await world.ask(every_s=1.8)
        before = world.asked("a/x")
        await world.ask(20)
        assert world.asked("a/x") == before + 20

    play(main)


def test_a_first_token_does_not_bring_it_back() -> None:
    async def main() -> None:
        stalls = Script(ttft=0.1, fault=silent(), breaks_after=1, tps=0.05)
        world = World('fallback("a/x", "b/x")', a=until(5, DOWN, stalls), b=GOOD)
        await world.ask(5)
        await asyncio.sleep(10)
        async with asyncio.TaskGroup() as group:
            probe = group.create_task(world.ask())
            await asyncio.sleep(10)
            assert world.standing.status("a/x").state == "probing"
            await world.ask(5)
            assert not probe.done()
            assert world.asked("a/x") == 6
        assert world.standing.status("a/x").state == "down"

    play(main)


def test_a_long_answer_brings_it_back_before_its_end() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=until(5, DOWN, Script(ttft=0.1, tokens=1000, tps=10)), b=GOOD)
        await world.ask(5)
        await asyncio.sleep(10)
        async with asyncio.TaskGroup() as group:
            group.create_task(world.ask())
            await asyncio.sleep(3)
            assert not world.standing.available("a/x")
            await asyncio.sleep(0.3)
            assert world.standing.available("a/x")
            assert world.standing.status("a/x").state == "returning"
        await asyncio.sleep(10)
        assert world.standing.status("a/x").state == "up"

    play(main)


def test_a_probe_that_was_given_up_leaves_room_for_the_next() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=until(5, DOWN, SILENT), b=GOOD)
        await world.ask(5)
        await asyncio.sleep(10)
        task = asyncio.create_task(world.ask())
        await asyncio.sleep(0.1)
        assert world.asked("a/x") == 6
        assert world.standing.status("a/x").state == "probing"
        assert not world.standing.available("a/x")
        assert (await world.ask()).fault is None
        assert world.asked("a/x") == 6
        task.cancel()
        await asyncio.wait([task])
        assert world.standing.available("a/x")

    play(main)
