"""How targets stand: what is counted, and told."""

import asyncio

import msgspec
import pytest
from tests.policy.attempts import answered, failed
from tests.policy.branches import SILENT, a_call, ask, play, refused, scripted
from tests.policy.world import DOWN, GOOD, World, until

from splitsecond.clock import NS_PER_S
from splitsecond.errors import CallerFault
from splitsecond.policy.targets.facts import Facts
from splitsecond.policy.targets.standing import MOST_STANDS, Standing
from splitsecond.service import Call, Reply


def test_what_is_in_flight_is_counted_down_however_it_ends() -> None:
    ends = {"a/x": GOOD, "b/x": DOWN, "c/x": SILENT}

    async def main() -> None:
        standing = Standing()
        for name, script in ends.items():
            fake = scripted(script, target=name, observer=standing.observe)
            service = standing.guard(name, fake, frozenset({name}))
            task = asyncio.create_task(ask(service))
            await asyncio.sleep(0)
            assert standing.in_flight(name) == 1
            await asyncio.sleep(0.21)
            assert standing.in_flight(name) == {"a/x": 1, "b/x": 0, "c/x": 1}[name]
            task.cancel()
            await asyncio.wait([task])
            assert standing.in_flight(name) == 0

    play(main)


def test_a_request_that_never_became_an_attempt_is_not_in_flight() -> None:
    async def refuses(call: Call) -> Reply:
        raise CallerFault("it cannot be written in this dialect")

    async def main() -> None:
        standing = Standing()
        await ask(standing.guard("a/x", refuses, frozenset({"a/x"})))
        assert standing.in_flight("a/x") == 0

    play(main)


def test_the_call_knows_who_was_asked_and_who_was_not() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=DOWN, b=GOOD)
        await world.ask(5)
        call = a_call(99)
        await ask(world.service, call)
        assert (call.notes.asked, call.notes.refused) == (["b/x"], ["a/x"])

    play(main)


def test_how_a_target_stands_in_one_look() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=GOOD, b=DOWN)
        assert world.standing.describe("b/x").state == "up"
        await world.ask(20)
        for _ in range(5):
            world.standing.observe(failed(refused(), target="b/x"))
        up, down = world.standing.describe("a/x"), world.standing.describe("b/x")
        assert (up.state, up.until_ns, up.reason, up.in_flight) == ("up", None, "", 0)
        assert up.samples == pytest.approx(20, rel=0.1)
        assert (up.ttft_p50_ns, up.ttft_p95_ns) == (200_000_000, 200_000_000)
        assert up.tpot_ns == pytest.approx(10_000_000)
        assert down.state == "down"
        assert down.until_ns is not None
        assert 4 * NS_PER_S <= down.until_ns <= 6 * NS_PER_S
        assert down.reason.startswith("down (5 failures in a row")
        assert world.standing.describe("nobody/knows").state == "up"

    play(main)


def test_speed_is_kept_for_streamed_answers_and_for_others() -> None:
    async def main() -> None:
        standing = Standing({"a/x": Facts(provider="a")})
        assert standing.estimate("a/x") is None
        standing.observe(answered(200))
        streamed = standing.estimate("a/x")
        assert standing.estimate("a/x", stream=False) is streamed
        standing.observe(answered(900, streamed=False))
        other = standing.estimate("a/x", stream=False)
        assert streamed is not None
        assert other is not None
        assert (streamed.ttft_ns(), other.ttft_ns()) == (200_000_000, 900_000_000)
        assert standing.facts("a/x").provider == "a"
        assert standing.facts("b/x") == Facts()

    play(main)


@pytest.mark.parametrize("stream", [True, False])
def test_a_target_that_falls_silent_looks_slow_before_anything_fails(stream: bool) -> None:
    async def main() -> None:
        world = World('"a/x"', a=until(30, GOOD, SILENT))
        await world.ask(100)
        estimate = world.standing.estimate("a/x", stream=stream)
        assert estimate is not None
        assert estimate.ttft_ns() == 200_000_000
        await asyncio.sleep(10)
        calls = [msgspec.structs.replace(a_call(number), stream=stream) for number in range(1000, 1010)]
        tasks = [asyncio.create_task(ask(world.service, call)) for call in calls]
        await asyncio.sleep(2)
        assert estimate.ttft_ns() == 2_000_000_000
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    play(main)


def test_seeds_tell_how_fast_and_not_how_well() -> None:
    async def main() -> None:
        standing = Standing()
        await asyncio.sleep(100)
        seeds = [answered(300, target="a/x"), *(failed(refused(), target="a/x") for _ in range(50))]
        standing.seed([*seeds, answered(100, target="b/x")], age_ns=lambda observation: 3600 * NS_PER_S)
        standing.seed([answered(400, target="c/x")], age_ns=60 * NS_PER_S)
        known = [standing.estimate(name) for name in ("a/x", "b/x", "c/x")]
        assert [None if each is None else each.ttft_ns() for each in known] == [300e6, 100e6, 400e6]
        assert standing.available("a/x")

    play(main)


def test_what_clients_name_is_forgotten_but_not_what_is_down() -> None:
    async def main() -> None:
        standing = Standing()
        for _ in range(5):
            standing.observe(failed(refused(), target="down/x"))
        for number in range(2 * MOST_STANDS):
            standing.stand(f"any/{number}")
        assert standing.describe("down/x").state == "down"
        assert standing.stand(f"any/{2 * MOST_STANDS - 1}") is standing.stand(f"any/{2 * MOST_STANDS - 1}")
        assert len(standing._stands) == MOST_STANDS

    play(main)
