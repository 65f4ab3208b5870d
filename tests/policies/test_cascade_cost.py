"""A cascade that costs more than its large model asks that one alone, until it saves money
again."""

import asyncio
import gc
from collections.abc import Callable, Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies.branches import SILENT, ask, fails, play, refused, scripted
from tests.policies.test_cascade import LARGE, chat, says
from tests.policies.world import priced

from splitsecond.core.clock import NS_PER_S
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.construction.preview import PreviewedChoice, preview, sample
from splitsecond.routing.targets.escalations import ENOUGH, HALF_LIFE_NS, REMEMBERED, EscalationRate
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.fake_service import FakeService, Script

GOOD, BAD = says("yes"), says("cut", finish="length")
CHEAP, DEAR = priced(1.0, 4.0), priced(2.0, 8.0)
HALF = {"s/x": CHEAP, "l/x": DEAR}
"""The small model costs half of the large one, so the cascade saves money while it escalates less
than half."""
ALONE = "cascade: the large model alone is cheaper"
Answers = Callable[[int], Script]
"""The script of the small model, by the number of the call."""


def share(escalates: float) -> Answers:
    """Reject this share of its answers, evenly."""
    return lambda number: BAD if int((number + 1) * escalates) > int(number * escalates) else GOOD


class World:
    """A cascade of a small model `s/x` and a large one `l/x`, and the other targets of its
    expression."""

    def __init__(
        self,
        answers: Answers,
        facts: Mapping[str, TargetInfo],
        text: str = 'cascade("s/x", "l/x")',
        large: Script = LARGE,
    ) -> None:
        self.states = TargetStates(facts)
        self.text = text
        self.number = 0
        small = FakeService(
            script=lambda call: answers(self.number), target="s/x", observer=self.states.observe
        )
        fakes = {"s/x": small, "l/x": scripted(large, target="l/x", observer=self.states.observe)}
        self.small, self.large = small, fakes["l/x"]
        self.service = build(
            parse(text), lambda name: fakes.get(name) or scripted(says("yes")), self.states
        )
        self.chosen = ""

    async def asks(self, times: int, *, every_s: float = 0.0, tokens: int = 100) -> int:
        """Send so many calls; return how many went to the small model first."""
        before = len(self.small.calls)
        for _ in range(times):
            call = chat("x" * 400, max_tokens=tokens)
            await ask(self.service, call)
            self.number += 1
            self.chosen = call.notes.chosen
            await asyncio.sleep(every_s)
        return len(self.small.calls) - before


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("escalates", "steps_aside"), [(0.0, False), (0.3, False), (0.7, True), (1.0, True)]
)
def test_small_model_is_skipped_if_too_many_are_rejected(
    escalates: float, steps_aside: bool
) -> None:
    async def main() -> None:
        world = World(share(escalates), HALF)
        assert await world.asks(ENOUGH) == ENOUGH
        asked = await world.asks(500)
        # one in fifty still goes to the small model
        assert 10 <= asked <= 15 if steps_aside else asked == 500
        assert world.chosen.startswith(ALONE) == steps_aside

    play(main)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"s/x": CHEAP},
        {"l/x": DEAR},
        {"s/x": TargetInfo(), "l/x": TargetInfo()},
    ],
)
def test_without_prices_the_small_model_is_always_asked(facts: Mapping[str, TargetInfo]) -> None:
    async def main() -> None:
        assert await World(share(1.0), facts).asks(100) == 100

    play(main)


@pytest.mark.parametrize(("usd", "asked"), [(0.0, 200), (0.001, 200), (0.9, ENOUGH + 5)])
def test_the_prices_determine_the_escalation_limit(usd: float, asked: int) -> None:
    """Half of its answers are rejected: that pays if the small model costs less than half, as our
    own hardware does."""

    async def main() -> None:
        facts = {"s/x": priced(usd, usd), "l/x": priced(1.0, 1.0)}
        assert await World(share(0.5), facts).asks(200) == asked

    play(main)


def test_models_without_cost_are_not_compared() -> None:
    async def main() -> None:
        assert await World(share(1.0), dict.fromkeys(HALF, priced(0.0, 0.0))).asks(100) == 100

    play(main)


@pytest.mark.system
def test_small_model_returns_when_accepted_again() -> None:
    async def main() -> None:
        world = World(
            lambda number: BAD if number < 300 else GOOD, HALF, large=Script(ttft=0.1, tokens=1)
        )
        assert await world.asks(300) < 40
        asked = await world.asks(2500)
        assert asked >= 40  # because some calls still go to the small model
        assert await world.asks(100) == 100

    play(main)


def test_old_escalations_are_forgotten() -> None:
    async def main() -> None:
        world = World(share(1.0), HALF)
        await world.asks(100)
        assert world.chosen.startswith(ALONE)
        await asyncio.sleep(2 * HALF_LIFE_NS / NS_PER_S)
        assert await world.asks(1) == 1

    play(main)


def test_the_judge_is_part_of_the_cost() -> None:
    text = 'cascade("s/x", "l/x", judge="j/x")'

    async def asked(judge: TargetInfo) -> int:
        return await World(share(0.4), {**HALF, "j/x": judge}, text).asks(250)

    async def main() -> None:
        assert await asked(priced(0.01, 0.01)) == 250
        assert await asked(priced(2.0, 8.0)) < 50
        assert await asked(TargetInfo()) == 250

    play(main)


def test_a_race_inside_costs_all_of_its_targets() -> None:
    async def asked(small: str) -> int:
        return await World(share(0.3), {**HALF, "t/x": CHEAP}, f'cascade({small}, "l/x")').asks(250)

    async def main() -> None:
        assert await asked('fallback("s/x", "t/x")') == 250
        assert await asked('race("s/x", "t/x")') < 50

    play(main)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("tokens", "steps_aside"), [(1000, True), (10, False)])
def test_the_length_of_answers_counts(tokens: int, steps_aside: bool) -> None:
    """A small model whose answers are four times as long costs more, if the client allows them."""

    async def main() -> None:
        talks, says = Script(ttft=0.1, tokens=80, tps=1e4), Script(ttft=0.1, tokens=20, tps=1e4)
        costs = {"s/x": priced(0.0, 1.0), "l/x": priced(0.0, 2.0)}
        world = World(lambda number: talks, costs, large=says)
        await ask(world.large, chat())
        assert (await world.asks(100, tokens=tokens) < 30) == steps_aside

    play(main)


def test_the_small_model_is_asked_while_the_large_one_is_down() -> None:
    async def main() -> None:
        world = World(share(1.0), HALF, large=fails(refused(), 0.01))
        await world.asks(5)
        assert not world.states.available("l/x")
        assert await world.asks(100) == 100

    play(main)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", ['cascade("s/x", "l/x")', 'pipeline("s/x", "l/x")'])
def test_a_small_model_that_is_down_is_left_out(text: str) -> None:
    async def main() -> None:
        world = World(lambda number: fails(refused(), 0.01) if number < 300 else GOOD, HALF, text)
        assert await world.asks(300, every_s=0.1) < 35  # a probe every 15 s
        assert not world.chosen.startswith(ALONE)  # a failure does not count as a rejected answer
        await world.asks(600, every_s=0.1)
        assert await world.asks(100) == 100

    play(main)


def test_answers_that_exceed_hold_count_as_rejected() -> None:
    async def main() -> None:
        world = World(lambda number: SILENT, HALF, 'cascade("s/x", "l/x", hold="1s")')
        assert await world.asks(200) < 30
        assert world.chosen.startswith(ALONE)

    play(main)


def test_previews_and_rebuilt_cascades_share_the_escalation_rate() -> None:
    async def main() -> None:
        world = World(share(1.0), HALF)
        await world.asks(100)
        first, second = await preview(parse(world.text), world.states, sample("Hello."), calls=100)
        assert (first.calls, first.targets) == (98, ("l/x",))
        assert first.why.startswith(ALONE)
        assert "100% of the small model's recent answers were not accepted" in first.why
        assert second == PreviewedChoice(calls=2, targets=("s/x",))
        ((text, known),) = world.states.cascades().items()
        assert (text, known.dearer) == (world.text, True)
        assert known.share == pytest.approx(1.0)
        again = build(
            parse(world.text),
            lambda name: world.large if name == "l/x" else world.small,
            world.states,
        )
        world.service = again
        assert await world.asks(10) == 0
        other = preview(
            parse('cascade("s/x", "l/x", hold="9s")'), world.states, sample("Hello."), calls=3
        )
        assert [choice.targets for choice in await other] == [("s/x",)]
        await asyncio.sleep(10)  # until its timers have been dropped
        gc.collect()
        assert len(world.states.cascades()) == 1  # the other one has been collected

    play(main)


def test_embeddings_do_not_count() -> None:
    async def main() -> None:
        world = World(share(1.0), HALF)
        await world.asks(100)
        call = msgspec.structs.replace(chat(), operation="embeddings")
        await ask(world.service, call)
        assert call.notes.chosen == ""

    play(main)


# The share itself.


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 3000)), max_size=300))
def test_escalation_rate_stays_between_0_and_1(steps: list[tuple[bool, float]]) -> None:
    lately, now_ns = EscalationRate(), 0
    for escalated, after_s in steps:
        now_ns += round(after_s * NS_PER_S)
        lately.add(now_ns, escalated=escalated)
        assert 0 <= lately.share <= 1
        assert 1 <= lately.weight(now_ns) <= REMEMBERED
    assert {escalated for escalated, _ in steps} - {True} or lately.share == pytest.approx(
        float(bool(steps))
    )


def test_recent_answers_count_more() -> None:
    lately = EscalationRate()
    assert not lately.is_known(0)
    for _ in range(ENOUGH):
        lately.add(0, escalated=True)
    assert lately.is_known(0)
    assert not lately.is_known(HALF_LIFE_NS // 10)
    for _ in range(3 * REMEMBERED):
        lately.add(HALF_LIFE_NS, escalated=False)
    assert lately.share < 0.05
