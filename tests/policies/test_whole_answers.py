"""When the answer to a call that is not streamed is requested whole."""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec
import pytest
from tests.cases import each_case
from tests.policies.branches import a_call, play
from tests.policies.world import GOOD

from splitsecond.core import clock
from splitsecond.core.service import Call
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse, targets
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.routing.targets.whole_answers import MIN_SAMPLES, SAMPLED
from splitsecond.testing.fake_service import FakeService, Script

FEW = {"max_tokens": 100}


class Whole:
    """A policy over fake targets, asked for answers that are not streamed."""

    def __init__(self, policy: str, script: Script = GOOD) -> None:
        self.states = TargetStates(chance=Random(1))
        self.script = script
        names = targets(parse(policy))
        self.fakes = {
            name: FakeService(
                script=lambda _: self.script, target=name, observer=self.states.observe
            )
            for name in names
        }
        self.service = build(parse(policy), self.fakes.__getitem__, self.states)
        self.number = 0

    async def ask(
        self, times: int, *, every_s: float = 0.5, body: Mapping[str, object] = FEW, **fields: Any
    ) -> int:
        """Send calls; return how many of them were requested whole."""
        before = self.whole
        for _ in range(times):
            self.number += 1
            call = msgspec.structs.replace(
                a_call(self.number),
                **{"body": body, "stream": False, "allow_whole": True, **fields},
            )
            async with await self.service(call) as reply:
                await reply.finished()
            await asyncio.sleep(every_s)
        return self.whole - before

    @property
    def whole(self) -> int:
        """The number of answers that were requested whole so far."""
        return sum(
            fake.call.whole_ns is not None
            for service in self.fakes.values()
            for fake in service.calls
        )


def share(policy: str, times: int = 200, *, script: Script = GOOD, **fields: Any) -> float:
    """Return the share of answers that are requested whole once the speed is known."""

    shares: list[float] = []

    async def main() -> None:
        world = Whole(policy, script)
        assert await world.ask(int(MIN_SAMPLES)) == 0
        shares.append(await world.ask(times, **fields) / times)

    play(main)
    return shares[0]


@pytest.mark.parametrize(
    "policy",
    [
        "a/x",
        'fallback("a/x", "b/x", resume="replay")',
        'cap("a/x", max_tokens=50)',
        'retry(limit("a/x", concurrency=9))',
    ],
)
def test_short_responses_are_requested_whole_except_a_sample(policy: str) -> None:
    assert 1 - 3 * SAMPLED < share(policy) < 1


@each_case(
    "policy",
    [
        'race("a/x", "b/x")',
        'fallback("a/x", "b/x", ttft="2s")',
        'fallback("a/x", "b/x", stall="9s")',
        'hedge(fallback("a/x", "b/x"), "c/x")',
        'fastest("a/x", "b/x")',
        'deadline("a/x", ttft="9s")',
    ],
)
def test_a_policy_that_waits_for_first_tokens_gets_streams(policy: str) -> None:
    assert share(policy) == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"stream": True},
        {"allow_whole": False},
        {"watched": True},
        {"body": {}},
        {"body": {"max_tokens": 100_000}},
    ],
)
def test_other_calls_are_never_requested_whole(fields: dict[str, Any]) -> None:
    assert share("a/x", **fields) == 0


def test_an_answer_that_takes_long_at_this_speed_is_streamed() -> None:
    assert share("a/x", script=Script(ttft=0.2, tokens=3, tps=1 / 0.3), times=40) == 0
    assert share("a/x", script=Script(ttft=0.2, tokens=3, tps=10.0), times=40) > 0.5


def test_response_slower_than_the_ttft_limit_is_streamed() -> None:
    script = Script(ttft=0.2, tokens=3, tps=20.0)
    assert share("a/x", script=script, times=40) > 0.5  # 5 s for 100 tokens
    assert share('fallback("a/x", "b/x")', script=script, times=40) == 0
    assert share('fallback("a/x", "b/x")', script=script, times=40, body={"max_tokens": 40}) > 0.5


def test_target_with_few_requests_gets_streamed_requests() -> None:
    async def main() -> None:
        world = Whole("a/x")
        assert await world.ask(40) > 20
        await asyncio.sleep(70.0)
        assert await world.ask(20, every_s=70.0) == 0

    play(main)


def test_change_of_speed_does_not_stream_all_responses() -> None:
    async def main() -> None:
        world = Whole("a/x")
        await world.ask(600, every_s=0.0)
        for ttft in (0.05, 0.01, 0.05):
            world.script = Script(ttft=ttft, tokens=3, tps=100.0)
            assert await world.ask(400, every_s=0.0) > 400 * (1 - 2 * SAMPLED)

    play(main)


def test_a_busy_target_streams_at_most_four_samples_a_second() -> None:
    async def main() -> None:
        world = Whole("a/x", Script(ttft=0.001, tokens=3, tps=1000.0))
        await world.ask(600, every_s=0.0)
        began_ns = clock.now_ns()
        streamed = 2000 - await world.ask(2000, every_s=0.0)
        seconds = (clock.now_ns() - began_ns) / clock.NS_PER_S
        assert 2 * seconds < streamed <= 4 * seconds + 1

    play(main)


def test_whole_responses_do_not_change_live_speed() -> None:
    async def main() -> None:
        world = Whole("a/x")
        await world.ask(200)
        state = world.states.state("a/x")
        assert set(state.estimates) == {True}
        assert not state.in_flight
        assert state.waiting == {True: {}, False: {}}
        assert world.whole > 150

    play(main)


def test_whole_response_in_flight_is_not_a_late_first_token() -> None:
    async def main() -> None:
        world = Whole("a/x")
        await world.ask(20)
        usual = world.states.state("a/x").status(0).ttft_p50_ns
        world.script = Script(ttft=60.0, tokens=3)
        flying: list[asyncio.Future[Any]] = []
        for _ in range(20):
            call = Call(id=f"late{len(flying)}", body=FEW, stream=False, allow_whole=True)
            flying.append(asyncio.ensure_future(world.service(call)))
        await asyncio.sleep(5.0)
        waiting = world.states.state("a/x").waiting[True]
        assert len(waiting) < 6  # those that are streamed, as a sample
        assert usual is not None
        for task in flying:
            task.cancel()
        await asyncio.wait(flying)
        assert not world.states.state("a/x").in_flight

    play(main)
