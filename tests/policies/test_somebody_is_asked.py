"""Nobody is left without an answer for a target that is down; one probe at a time, whatever
happens."""

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.policies.attempts import failed
from tests.policies.branches import fails, play, refused, reset, silent, status
from tests.policies.world import DOWN, GOOD, ScriptAt, World

from splitsecond.testing.fake_service import Script


def test_only_target_is_always_called() -> None:
    async def main() -> None:
        world = World('"a/x"', a=DOWN)
        await world.ask(50)
        assert world.asked("a/x") == 50

    play(main)


def test_one_target_is_called_if_all_are_down() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x", "c/x")', a=DOWN, b=DOWN, c=DOWN)
        await world.ask(5)
        before = sum(map(world.asked, world.fakes))
        await world.ask(20)
        assert sum(map(world.asked, world.fakes)) == before + 20  # one for each call, and not three

    play(main)


def test_target_that_is_down_is_rarely_a_last_resort() -> None:
    async def main() -> None:
        flaky = [GOOD] * 5 + [fails(status(503)), GOOD, GOOD] * 1000
        world = World(
            'fallback("b/x", "a/x")',
            a=fails(silent(), 0.01),
            b=lambda now_s: flaky[world.asked("b/x") - 1],
        )
        for _ in range(5):
            world.states.observe(failed(refused()))
        await world.ask(5)
        before, began_s = world.asked("a/x"), world.now_s
        await world.ask(100, every_s=0.3)
        minutes = (world.now_s - began_s) / 60
        assert 1 <= world.asked("a/x") - before <= 8 * minutes

    play(main)


FAULTS = [refused(), reset(), silent(), status(500), status(503), status(429), status(404)]
SCRIPTS = st.sampled_from(
    [GOOD, GOOD, *(fails(fault, 0.05) for fault in FAULTS), Script(fault=reset(), breaks_after=2)]
)
PERIODS = st.lists(st.tuples(st.floats(1, 60), SCRIPTS), min_size=1, max_size=4)
POLICIES = [
    'fallback("a/x", "b/x", "c/x")',
    'race("a/x", "b/x", "c/x")',
    'fallback(hedge("a/x", "b/x"), "c/x")',
    'fallback(race("a/x", "b/x"), retry("c/x"), ttft="1s")',
]


def over(periods: Sequence[tuple[float, Script]]) -> ScriptAt:
    """One script after another, over and over."""

    def script_at(now_s: float) -> Script:
        left_s = now_s % sum(lasts_s for lasts_s, _ in periods)
        for lasts_s, script in periods:
            left_s -= lasts_s
            if left_s < 0:
                return script
        return periods[-1][1]

    return script_at


@examples(40)
@given(st.sampled_from(POLICIES), PERIODS, PERIODS, PERIODS, st.floats(0.05, 3))
def test_every_call_reaches_a_target_whatever_fails(
    policy: str,
    a: list[tuple[float, Script]],
    b: list[tuple[float, Script]],
    c: list[tuple[float, Script]],
    every_s: float,
) -> None:
    async def main() -> None:
        world = World(policy, a=over(a), b=over(b), c=over(c))
        for _ in range(60):
            before = sum(map(world.asked, world.fakes))
            await world.ask(every_s=every_s)
            assert sum(map(world.asked, world.fakes)) > before
        assert [world.states.in_flight(name) for name in world.fakes] == [0, 0, 0]

    play(main)


@examples(15)
@given(st.sampled_from(POLICIES), PERIODS, st.integers(2, 12))
def test_one_probe_at_a_time_for_concurrent_calls(
    policy: str, a: list[tuple[float, Script]], at_once: int
) -> None:
    async def main() -> None:
        world = World(policy, a=over([*a, (20, fails(reset(), 0.5))]), b=GOOD, c=GOOD)
        for _ in range(20):
            async with asyncio.TaskGroup() as group:
                for _ in range(at_once):
                    group.create_task(world.ask())
                await asyncio.sleep(0)
                half_open = world.states.status("a/x").state in ("down", "probing")
                assert not half_open or world.fakes["a/x"].in_flight <= 1
            await asyncio.sleep(2)

    play(main)
