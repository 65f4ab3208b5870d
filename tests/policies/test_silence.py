"""A target that has fallen silent in races is left out of them; one that only loses is not."""

import asyncio
from random import Random

import msgspec
import pytest
from tests.policies.attempts import answered, closed
from tests.policies.branches import SILENT, a_call, ask, play
from tests.policies.world import Told, World

from splitsecond.core.clock import NS_PER_MS
from splitsecond.routing.targets.estimate import SpeedEstimate
from splitsecond.routing.targets.silence_detector import MIN_RACES, SilenceDetector
from splitsecond.testing.fake_service import Script


def about(ttft: float, seed: int, by: float = 0.3) -> Told:
    """Each time longer or shorter by chance."""
    chance = Random(seed)
    return lambda now_s: Script(ttft=ttft * chance.lognormvariate(0.0, by), tokens=3)


def between(begin_s: float, end_s: float, other: Script, usual: Told) -> Told:
    """`usual`, and `other` in that time."""
    return lambda now_s: other if begin_s <= now_s < end_s else usual(now_s)


class Traffic(World):
    """A policy that is asked so many times a second."""

    async def run(self, seconds: float, *, rate: float = 3.0, tokens_in: int = 10) -> dict[str, int]:
        """How many requests each target got in that time, and how many calls there were as ""."""
        before = {name: len(fake.calls) for name, fake in self.fakes.items()}
        async with asyncio.TaskGroup() as group:
            for _ in range(round(seconds * rate)):
                self.number += 1
                call = msgspec.structs.replace(a_call(self.number), body={"prompt": "one " * tokens_in})
                group.create_task(ask(self.service, call))
                await asyncio.sleep(1 / rate)
        asked = {name: len(fake.calls) - before[name] for name, fake in self.fakes.items()}
        return asked | {"": round(seconds * rate)}


def test_one_that_falls_silent_is_raced_no_more_and_comes_back_when_it_answers() -> None:
    async def main() -> None:
        a = between(60, 360, SILENT, about(0.2, 1))
        world = Traffic('race("a/x", "b/x")', a=a, b=about(0.2, 2))
        asked = await world.run(60)
        assert asked["a/x"] == asked[""]
        asked = await world.run(300)
        assert asked["b/x"] == asked[""]
        assert asked["a/x"] < 60
        assert "races that others have won" in world.standing.unavailable_reason("a/x")
        await world.run(300)
        asked = await world.run(60)
        assert asked["a/x"] == asked["b/x"] == asked[""]
        assert world.standing.status("a/x").state == "up"

    play(main)


@pytest.mark.parametrize("ttft", [0.2, 0.3, 0.5, 1.0])
def test_whoever_only_loses_is_raced_for_ever(ttft: float) -> None:
    """Also the one that is always slower: it answers when the others do not."""

    async def main() -> None:
        b = between(20, 25, SILENT, about(0.2, 2))  # so that there is something to be known of the other
        world = Traffic('race("a/x", "b/x", "c/x")', a=about(ttft, 1), b=b, c=between(20, 25, SILENT, about(0.25, 3)))
        asked = await world.run(200)
        assert asked["a/x"] == asked[""]
        assert world.standing.available("a/x")

    play(main)


def test_one_of_which_nothing_is_known_may_be_slow() -> None:
    async def main() -> None:
        world = Traffic('race("a/x", "b/x")', a=lambda now_s: SILENT, b=about(0.2, 2))
        asked = await world.run(60)
        assert asked["a/x"] == asked[""]

    play(main)


def test_a_longer_prompt_takes_longer() -> None:
    """Where prompts become long the slower one loses each race later than ever, and is as well as before."""

    async def main() -> None:
        world = Traffic('race("a/x", "b/x")', a=lambda now_s: Script(ttft=5.0), b=lambda now_s: Script(ttft=4.0))
        for number in range(64):
            tokens = 100 + 100 * (number % 10)
            world.standing.observe(answered(100 + tokens, input_tokens=tokens, target="a/x"))
        asked = await world.run(60, tokens_in=4500)
        assert asked["a/x"] == asked[""]

    play(main)


def test_clients_who_leave_say_nothing() -> None:
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
        assert all(map(world.standing.available, world.fakes))

    play(main)


def test_the_first_of_a_hedge_that_falls_silent_is_found_too() -> None:
    async def main() -> None:
        a = between(60, 1000, SILENT, about(0.2, 1))
        world = Traffic('fallback(hedge("a/x", "b/x", extra_load=1.0), "c/x")', a=a, b=about(0.2, 2), c=about(0.2, 3))
        await world.run(60)
        asked = await world.run(60)
        assert asked["a/x"] < 60
        assert asked["b/x"] == asked[""]

    play(main)


def test_a_policy_in_a_race_is_judged_by_whom_it_asked() -> None:
    async def main() -> None:
        a = between(60, 1000, SILENT, about(0.2, 1))
        world = Traffic('race(fallback("a/x", "c/x", ttft="5s"), "b/x")', a=a, b=about(0.2, 2), c=about(0.2, 3))
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


@pytest.mark.parametrize(
    ("waited_ms", "expected"),
    [(99, 1000), (120, 1000), (150, 20), (175, 10), (198, MIN_RACES), (5000, MIN_RACES)],
)
def test_the_later_it_was_closed_the_fewer_races_tell(waited_ms: float, expected: int) -> None:
    async def main() -> None:
        assert races(estimate(*range(100, 200)), waited_ms) == expected

    play(main)


def test_without_an_answer_there_is_nothing_to_compare_with() -> None:
    async def main() -> None:
        assert races(SpeedEstimate(), 10_000) == 1000
        never = SpeedEstimate()
        for _ in range(50):
            never.observe(closed(300))
        assert races(never, 10_000) == 1000

    play(main)
