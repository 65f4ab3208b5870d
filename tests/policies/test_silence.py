"""A target that has fallen silent in races is left out of them; one that only loses is not."""

import asyncio
from random import Random

import msgspec
import pytest
from tests.cases import each_case
from tests.policies.attempts import answered, closed
from tests.policies.branches import SILENT, a_call, ask, play
from tests.policies.world import ScriptAt, World

from splitsecond.core.clock import NS_PER_MS
from splitsecond.routing.targets.estimate import SpeedEstimate
from splitsecond.routing.targets.silence_detector import MIN_RACES, SilenceDetector
from splitsecond.testing.fake_service import Script


def about(ttft: float, seed: int, by: float = 0.3) -> ScriptAt:
    """Each time longer or shorter by chance."""
    chance = Random(seed)
    return lambda now_s: Script(ttft=ttft * chance.lognormvariate(0.0, by), tokens=3)


def between(begin_s: float, end_s: float, other: Script, usual: ScriptAt) -> ScriptAt:
    """`usual`, and `other` in that time."""
    return lambda now_s: other if begin_s <= now_s < end_s else usual(now_s)


class Traffic(World):
    """A policy that is asked so many times a second."""

    async def run(
        self, seconds: float, *, rate: float = 3.0, tokens_in: int = 10
    ) -> dict[str, int]:
        """How many requests each target got in that time, and how many calls there were as ""."""
        before = {name: len(fake.calls) for name, fake in self.fakes.items()}
        async with asyncio.TaskGroup() as group:
            for _ in range(round(seconds * rate)):
                self.number += 1
                call = msgspec.structs.replace(
                    a_call(self.number), body={"prompt": "one " * tokens_in}
                )
                group.create_task(ask(self.service, call))
                await asyncio.sleep(1 / rate)
        asked = {name: len(fake.calls) - before[name] for name, fake in self.fakes.items()}
        return asked | {"": round(seconds * rate)}


def test_silent_target_leaves_races_until_it_answers() -> None:
    async def main() -> None:
        a = between(60, 360, SILENT, about(0.2, 1))
        world = Traffic('race("a/x", "b/x")', a=a, b=about(0.2, 2))
        asked = await world.run(60)
        assert asked["a/x"] == asked[""]
        asked = await world.run(300)
        assert asked["b/x"] == asked[""]
        assert asked["a/x"] < 60
        assert "races that others have won" in world.states.unavailable_reason("a/x")
        await world.run(300)
        asked = await world.run(60)
        assert asked["a/x"] == asked["b/x"] == asked[""]
        assert world.states.status("a/x").state == "up"

    play(main)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("ttft", [0.2, 0.3, 0.5, 1.0])
def test_target_that_always_loses_stays_in_races(ttft: float) -> None:
    """Also the one that is always slower: it answers when the others do not."""

    async def main() -> None:
        # so that there is something to be known of the other
        b = between(20, 25, SILENT, about(0.2, 2))
        world = Traffic(
            'race("a/x", "b/x", "c/x")',
            a=about(ttft, 1),
            b=b,
            c=between(20, 25, SILENT, about(0.25, 3)),
        )
        asked = await world.run(200)
        assert asked["a/x"] == asked[""]
        assert world.states.available("a/x")

    play(main)


def test_unknown_target_may_be_slow() -> None:
    async def main() -> None:
        world = Traffic('race("a/x", "b/x")', a=lambda now_s: SILENT, b=about(0.2, 2))
        asked = await world.run(60)
        assert asked["a/x"] == asked[""]

    play(main)


def test_target_slow_because_of_long_prompts_stays_in_races() -> None:
    """Where prompts become long the slower one loses each race later than ever, and is as well as
    before."""

    async def main() -> None:
        world = Traffic(
            'race("a/x", "b/x")', a=lambda now_s: Script(ttft=5.0), b=lambda now_s: Script(ttft=4.0)
        )
        for number in range(64):
            tokens = 100 + 100 * (number % 10)
            world.states.observe(answered(100 + tokens, input_tokens=tokens, target="a/x"))
        asked = await world.run(60, tokens_in=4500)
        assert asked["a/x"] == asked[""]

    play(main)


def test_disconnecting_clients_are_no_evidence_of_silence() -> None:
    async def main() -> None:
        world = Traffic('race("a/x", "b/x")', a=about(0.2, 1), b=about(0.2, 2))
        await world.run(20)
        for fake in world.fakes.values():
            fake._script = lambda call: SILENT
        for number in range(50):
            task = asyncio.create_task(ask(world.service, a_call(1000 + number)))
            await asyncio.sleep(1)
            task.cancel()
            await asyncio.wait([task])
        assert all(map(world.states.available, world.fakes))

    play(main)


def test_silent_first_branch_of_a_hedge_is_found() -> None:
    async def main() -> None:
        a = between(60, 1000, SILENT, about(0.2, 1))
        world = Traffic(
            'fallback(hedge("a/x", "b/x", extra_load=1.0), "c/x")',
            a=a,
            b=about(0.2, 2),
            c=about(0.2, 3),
        )
        await world.run(60)
        asked = await world.run(60)
        assert asked["a/x"] < 60
        assert asked["b/x"] == asked[""]

    play(main)


def test_policy_in_a_race_is_judged_by_its_attempted_target() -> None:
    async def main() -> None:
        a = between(60, 1000, SILENT, about(0.2, 1))
        world = Traffic(
            'race(fallback("a/x", "c/x", ttft="5s"), "b/x")', a=a, b=about(0.2, 2), c=about(0.2, 3)
        )
        await world.run(60)
        asked = await world.run(60)
        assert asked["a/x"] < 60
        assert asked["c/x"] > 100

    play(main)


# What one lost race tells.


def estimate(*ttft_ms: float) -> SpeedEstimate:
    found = SpeedEstimate()
    for each in ttft_ms:
        found.observe(answered(each))
    return found


def races(found: SpeedEstimate, waited_ms: float) -> int:
    """After how many such races in a row it is suspect; 1000: never."""
    silence = SilenceDetector(found)
    for number in range(1, 1000):
        found.observe(closed(waited_ms))
        if silence.record_loss(round(waited_ms * NS_PER_MS), 10):
            return number
    return 1000


@each_case(
    ("waited_ms", "expected"),
    [(99, 1000), (120, 1000), (150, 20), (175, 10), (198, MIN_RACES), (5000, MIN_RACES)],
)
def test_later_closed_losers_need_fewer_races(waited_ms: float, expected: int) -> None:
    async def main() -> None:
        assert races(estimate(*range(100, 200)), waited_ms) == expected

    play(main)


def test_target_without_past_responses_is_never_silent() -> None:
    async def main() -> None:
        assert races(SpeedEstimate(), 10_000) == 1000
        never = SpeedEstimate()
        for _ in range(50):
            never.observe(closed(300))
        assert races(never, 10_000) == 1000

    play(main)
