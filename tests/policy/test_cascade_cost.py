"""A cascade that is dearer than its large model alone steps aside, and comes back when it saves money again."""

import asyncio
import gc
from collections.abc import Callable, Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policy.branches import SILENT, ask, fails, play, refused, scripted
from tests.policy.test_cascade import LARGE, chat, says

from splitsecond.clock import NS_PER_S
from splitsecond.policy.building import build
from splitsecond.policy.escalations import ENOUGH, HALF_LIFE_NS, REMEMBERED, Escalations
from splitsecond.policy.expression import parse
from splitsecond.policy.preview import Choice, preview, sample
from splitsecond.policy.targets.facts import Facts
from splitsecond.policy.targets.standing import Standing
from splitsecond.testing.fake_service import FakeService, Script

GOOD, BAD = says("yes"), says("cut", finish="length")
CHEAP, DEAR = Facts(input_usd=1.0, output_usd=4.0), Facts(input_usd=2.0, output_usd=8.0)
HALF = {"s/x": CHEAP, "l/x": DEAR}
"""Where the small model costs half of the large one, the cascade saves money while it escalates less than half."""
ALONE = "cascade: the large model alone is cheaper"
Answers = Callable[[int], Script]
"""What the small model says, by the number of the call."""


def share(escalates: float) -> Answers:
    """So many of its answers will not do, evenly."""
    return lambda number: BAD if int((number + 1) * escalates) > int(number * escalates) else GOOD


class World:
    """A cascade of a small model `s/x` and a large one `l/x`, with what else its expression names."""

    def __init__(
        self, answers: Answers, facts: Mapping[str, Facts], text: str = 'cascade("s/x", "l/x")', large: Script = LARGE
    ) -> None:
        self.standing = Standing(facts)
        self.text = text
        self.number = 0
        small = FakeService(script=lambda call: answers(self.number), target="s/x", observer=self.standing.observe)
        fakes = {"s/x": small, "l/x": scripted(large, target="l/x", observer=self.standing.observe)}
        self.small, self.large = small, fakes["l/x"]
        self.service = build(parse(text), lambda name: fakes.get(name) or scripted(says("yes")), self.standing)
        self.chosen = ""

    async def asks(self, times: int, *, every_s: float = 0.0, tokens: int = 100) -> int:
        """So many calls; how many of them went to the small model first."""
        before = len(self.small.calls)
        for _ in range(times):
            call = chat("x" * 400, max_tokens=tokens)
            await ask(self.service, call)
            self.number += 1
            self.chosen = call.notes.chosen
            await asyncio.sleep(every_s)
        return len(self.small.calls) - before


@pytest.mark.parametrize(("escalates", "steps_aside"), [(0.0, False), (0.3, False), (0.7, True), (1.0, True)])
def test_it_steps_aside_where_too_many_answers_will_not_do(escalates: float, steps_aside: bool) -> None:
    async def main() -> None:
        world = World(share(escalates), HALF)
        assert await world.asks(ENOUGH) == ENOUGH
        asked = await world.asks(500)
        assert 10 <= asked <= 15 if steps_aside else asked == 500  # one in fifty goes on measuring
        assert world.chosen.startswith(ALONE) == steps_aside

    play(main)


@pytest.mark.parametrize(
    "facts",
    [{}, {"s/x": CHEAP}, {"l/x": DEAR}, {"s/x": Facts(input_usd=1.0), "l/x": DEAR}, {"s/x": Facts(), "l/x": Facts()}],
)
def test_without_a_price_it_never_does(facts: Mapping[str, Facts]) -> None:
    async def main() -> None:
        assert await World(share(1.0), facts).asks(100) == 100

    play(main)


@pytest.mark.parametrize(("usd", "asked"), [(0.0, 200), (0.001, 200), (0.9, ENOUGH + 5)])
def test_what_it_may_escalate_follows_from_the_prices(usd: float, asked: int) -> None:
    """Half of its answers will not do: that pays where the small model costs less than half, as one of our own does."""

    async def main() -> None:
        facts = {"s/x": Facts(input_usd=usd, output_usd=usd), "l/x": Facts(input_usd=1.0, output_usd=1.0)}
        assert await World(share(0.5), facts).asks(200) == asked

    play(main)


def test_two_that_cost_nothing_are_not_compared() -> None:
    async def main() -> None:
        assert await World(share(1.0), dict.fromkeys(HALF, Facts(input_usd=0.0, output_usd=0.0))).asks(100) == 100

    play(main)


def test_it_comes_back_when_the_answers_do() -> None:
    async def main() -> None:
        world = World(lambda number: BAD if number < 300 else GOOD, HALF, large=Script(ttft=0.1, tokens=1))
        assert await world.asks(300) < 40
        asked = await world.asks(2500)
        assert asked >= 40  # as it goes on measuring
        assert await world.asks(100) == 100

    play(main)


def test_what_is_not_measured_any_more_is_forgotten() -> None:
    async def main() -> None:
        world = World(share(1.0), HALF)
        await world.asks(100)
        assert world.chosen.startswith(ALONE)
        await asyncio.sleep(2 * HALF_LIFE_NS / NS_PER_S)
        assert await world.asks(1) == 1

    play(main)


def test_a_judge_is_paid_too() -> None:
    text = 'cascade("s/x", "l/x", judge="j/x")'

    async def asked(judge: Facts) -> int:
        return await World(share(0.4), {**HALF, "j/x": judge}, text).asks(500)

    async def main() -> None:
        assert await asked(Facts(input_usd=0.01, output_usd=0.01)) == 500
        assert await asked(Facts(input_usd=2.0, output_usd=8.0)) < 50
        assert await asked(Facts()) == 500

    play(main)


def test_of_a_race_all_are_paid() -> None:
    async def asked(small: str) -> int:
        return await World(share(0.3), {**HALF, "t/x": CHEAP}, f'cascade({small}, "l/x")').asks(500)

    async def main() -> None:
        assert await asked('fallback("s/x", "t/x")') == 500
        assert await asked('race("s/x", "t/x")') < 50

    play(main)


@pytest.mark.parametrize(("tokens", "steps_aside"), [(1000, True), (10, False)])
def test_how_long_answers_are_counts(tokens: int, steps_aside: bool) -> None:
    """A small model that says four times as much is dearer, where the client lets it."""

    async def main() -> None:
        talks, says = Script(ttft=0.1, tokens=80, tps=1e4), Script(ttft=0.1, tokens=20, tps=1e4)
        costs = {"s/x": Facts(input_usd=0.0, output_usd=1.0), "l/x": Facts(input_usd=0.0, output_usd=2.0)}
        world = World(lambda number: talks, costs, large=says)
        await ask(world.large, chat())
        assert (await world.asks(100, tokens=tokens) < 30) == steps_aside

    play(main)


def test_a_large_model_that_is_down_leaves_the_small_one() -> None:
    async def main() -> None:
        world = World(share(1.0), HALF, large=fails(refused(), 0.01))
        await world.asks(5)
        assert not world.standing.available("l/x")
        assert await world.asks(100) == 100

    play(main)


@pytest.mark.parametrize("text", ['cascade("s/x", "l/x")', 'pipeline("s/x", "l/x")'])
def test_a_small_model_that_is_down_is_left_out(text: str) -> None:
    async def main() -> None:
        world = World(lambda number: fails(refused(), 0.01) if number < 300 else GOOD, HALF, text)
        assert await world.asks(300, every_s=0.1) < 20
        assert not world.chosen.startswith(ALONE)  # that says nothing of its answers
        await world.asks(600, every_s=0.1)
        assert await world.asks(100) == 100

    play(main)


def test_one_that_takes_too_long_is_paid_for() -> None:
    async def main() -> None:
        world = World(lambda number: SILENT, HALF, 'cascade("s/x", "l/x", hold="1s")')
        assert await world.asks(200) < 30
        assert world.chosen.startswith(ALONE)

    play(main)


def test_whoever_explains_it_knows_and_so_does_who_is_built_anew() -> None:
    async def main() -> None:
        world = World(share(1.0), HALF)
        await world.asks(100)
        first, second = await preview(parse(world.text), world.standing, sample("Hello."), calls=100)
        assert (first.calls, first.targets) == (98, ("l/x",))
        assert first.why.startswith(ALONE)
        assert "100% of the small one's answers were not accepted" in first.why
        assert second == Choice(calls=2, targets=("s/x",))
        ((text, known),) = world.standing.cascades().items()
        assert (text, known.dearer) == (world.text, True)
        assert known.share == pytest.approx(1.0)
        again = build(parse(world.text), lambda name: world.large if name == "l/x" else world.small, world.standing)
        world.service = again
        assert await world.asks(10) == 0
        other = preview(parse('cascade("s/x", "l/x", hold="9s")'), world.standing, sample("Hello."), calls=3)
        assert [choice.targets for choice in await other] == [("s/x",)]
        await asyncio.sleep(10)  # until its timers are forgotten
        gc.collect()
        assert len(world.standing.cascades()) == 1  # nobody holds the other

    play(main)


def test_embeddings_are_no_business_of_it() -> None:
    async def main() -> None:
        world = World(share(1.0), HALF)
        await world.asks(100)
        call = msgspec.structs.replace(chat(), operation="embeddings")
        await ask(world.service, call)
        assert call.notes.chosen == ""

    play(main)


# The share itself.


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 3000)), max_size=300))
def test_a_share_is_a_share(steps: list[tuple[bool, float]]) -> None:
    lately, now_ns = Escalations(), 0
    for escalated, after_s in steps:
        now_ns += round(after_s * NS_PER_S)
        lately.add(now_ns, escalated=escalated)
        assert 0 <= lately.share <= 1
        assert 1 <= lately.weight(now_ns) <= REMEMBERED
    assert {escalated for escalated, _ in steps} - {True} or lately.share == pytest.approx(float(bool(steps)))


def test_the_latest_answers_count_and_old_ones_fade() -> None:
    lately = Escalations()
    assert not lately.known(0)
    for _ in range(ENOUGH):
        lately.add(0, escalated=True)
    assert lately.known(0)
    assert not lately.known(HALF_LIFE_NS // 10)
    for _ in range(3 * REMEMBERED):
        lately.add(HALF_LIFE_NS, escalated=False)
    assert lately.share < 0.05
