"""Targets that are down are left alone: what puts them down, and what does not."""

import asyncio

import pytest
from tests.policies.branches import (
    SILENT,
    a_call,
    ask,
    bad_request,
    fails,
    play,
    reset,
    silent,
    status,
)
from tests.policies.world import DOWN, GOOD, World

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import AllFailed, Fault, Overloaded
from splitsecond.testing.fake_service import Script


def test_guard_does_not_change_calls_to_a_healthy_target() -> None:
    async def main() -> None:
        world = World('"a/x"', a=GOOD)
        assert repr(world.service) == repr(world.fakes["a/x"])
        assert (await world.ask()).ms == 200
        assert world.states.available("a/x")
        assert world.states.unavailable_reason("a/x") == ""

    play(main)


def test_target_that_is_down_gets_few_requests_a_minute() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=DOWN, b=GOOD)
        await world.ask(5)
        assert world.asked("a/x") == 5
        assert not world.states.available("a/x")
        times: list[float] = []
        for _ in range(1800):
            before = world.asked("a/x")
            seen = await world.ask(every_s=1.8)
            assert seen.fault is None
            times += [world.now_s] * (world.asked("a/x") - before)
        assert max(sum(begin <= at < begin + 60 for at in times) for begin in times) <= 5
        # each probe fails at once, so they are 15 s apart, less a fifth
        assert len(times) <= 3600 / 12

    play(main)


def test_no_call_waits_for_a_target_known_to_hang() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x", ttft="2s")', a=SILENT, b=GOOD)
        first = await world.ask(5)
        assert first.ms == 2200
        assert (await world.ask()).ms == 200
        assert "no token in the time" in world.states.unavailable_reason("a/x")

    play(main)


@pytest.mark.parametrize("fault", [silent(), reset(), status(500), status(529)], ids=str)
def test_5_provider_failures_put_a_target_down(fault: Fault) -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=fails(fault), b=GOOD)
        await world.ask(5)
        assert not world.states.available("a/x")

    play(main)


def test_5_broken_responses_put_a_target_down() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=Script(fault=reset(), breaks_after=3), b=GOOD)
        await world.ask(5)
        assert not world.states.available("a/x")

    play(main)


def test_invalid_requests_do_not_put_a_target_down() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=fails(bad_request()), b=GOOD)
        await world.ask(100)
        assert world.states.available("a/x")

    play(main)


def test_losers_and_disconnects_do_not_put_a_target_down() -> None:
    async def main() -> None:
        world = World('race("a/x", "b/x")', a=SILENT, b=GOOD)
        await world.ask(30)
        assert world.asked("a/x") == 30
        assert world.states.available("a/x")
        alone = World('"a/x"', a=SILENT)
        for number in range(30):
            task = asyncio.create_task(ask(alone.service, a_call(number)))
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.wait([task])
        assert alone.states.available("a/x")

    play(main)


def test_refusal_states_the_reason_and_retry_after() -> None:
    async def main() -> None:
        world = World(
            'fallback("a/x", "b/x")',
            a=DOWN,
            b=lambda now_s: GOOD if world.asked("b/x") <= 5 else DOWN,
        )
        await world.ask(5)
        fault = (await world.ask()).fault
        assert isinstance(fault, AllFailed)
        refusal = fault.causes[0]
        assert isinstance(refusal, Overloaded)
        assert (refusal.kind, refusal.phase, refusal.target) == ("ejected", "queue", "a/x")
        assert refusal.status == 503
        assert "down (5 failures in a row, the last: refused)" in str(refusal)
        assert refusal.retry_after_ns is not None
        assert 0 < refusal.retry_after_ns <= 6 * NS_PER_S

    play(main)


def test_hedge_uses_the_second_at_once_if_the_first_is_down() -> None:
    async def main() -> None:
        world = World('fallback(hedge("a/x", "b/x"), "c/x")', a=DOWN, b=GOOD, c=GOOD)
        await world.ask(5)
        assert world.asked("b/x") == 0
        assert (await world.ask(10)).ms == 200
        assert (world.asked("a/x"), world.asked("b/x"), world.asked("c/x")) == (5, 10, 5)

    play(main)


def test_race_skips_a_target_that_is_down() -> None:
    async def main() -> None:
        world = World('race("a/x", "b/x", "c/x")', a=DOWN, b=GOOD, c=GOOD)
        seen = await world.ask(10)
        assert seen.fault is None
        assert (world.asked("a/x"), world.asked("b/x"), world.asked("c/x")) == (5, 10, 10)

    play(main)


def test_no_retry_once_the_circuit_breaker_has_opened() -> None:
    async def main() -> None:
        world = World('retry("a/x", times=2)', a=fails(status(503)))
        await world.ask(1)
        assert world.asked("a/x") == 3
        seen = await world.ask(1)
        assert world.asked("a/x") == 5
        assert isinstance(seen.fault, AllFailed)
        assert [cause.kind for cause in seen.fault.causes] == ["http_503", "http_503", "ejected"]

    play(main)
