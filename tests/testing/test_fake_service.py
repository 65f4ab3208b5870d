"""The fake service, controlled step by step or by a script: its observations are those of a real
target."""

import asyncio

import pytest

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.errors import NetworkFault, ProviderFault
from splitsecond.core.events import Broken, Done, Finish, Token, Usage
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call, Reply, Service
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import run_virtual

CALL = Call(id="one", body={})


def test_call_is_controlled_by_hand() -> None:
    async def main() -> None:
        seen: list[Observation] = []
        fake = FakeService(observer=seen.append)
        service: Service = fake
        began = clock.now_ns()
        waiting = asyncio.create_task(service(CALL))
        controlled_call = await fake.expect()
        assert controlled_call.call is CALL
        assert fake.in_flight == 1
        controlled_call.first_token(after=0.2)
        controlled_call.finish(tokens=9, tps=100, input_tokens=5)
        reply: Reply = await waiting
        assert clock.now_ns() - began == 200 * NS_PER_MS
        await reply.finished()
        await reply.aclose()
        assert fake.in_flight == 0
        [observation] = seen
        assert observation is controlled_call.observation
        assert (observation.call, observation.outcome) == ("one", "ok")
        assert observation.ttft_ns == 200 * NS_PER_MS
        assert (observation.input_tokens, observation.output_tokens) == (5, 10)
        assert observation.tps == pytest.approx(100)
        assert controlled_call.closed_at == clock.now_ns() == began + 290 * NS_PER_MS

    run_virtual(main())


def test_events_one_by_one() -> None:
    async def main() -> list[type]:
        fake = FakeService(script=lambda call: Script(tokens=2, input_tokens=3))
        return [type(event) async for event in await fake(CALL)]

    assert run_virtual(main()) == [Token, Token, Finish, Usage, Done]


def test_a_fault_before_the_first_token_is_raised_and_observed() -> None:
    async def main() -> None:
        seen: list[Observation] = []
        fault = ProviderFault("too many", kind="http_429", phase="head", status=429)
        fake = FakeService(script=lambda call: Script(ttft=0.1, fault=fault), observer=seen.append)
        with pytest.raises(ProviderFault, match="too many"):
            await fake(CALL)
        [observation] = seen
        assert observation.outcome == "failed"
        assert observation.fault is not None
        assert (observation.fault.kind, observation.fault.status) == ("http_429", 429)

    run_virtual(main())


def test_a_stream_that_breaks() -> None:
    async def main() -> None:
        fault = NetworkFault("reset", kind="reset", phase="between tokens")
        fake = FakeService(script=lambda call: Script(tokens=10, breaks_after=3, fault=fault))
        events = [event async for event in await fake(CALL)]
        assert [type(event) for event in events] == [Token, Token, Token, Broken]
        assert fake.calls[0].observation is not None
        assert fake.calls[0].observation.outcome == "failed"

    run_virtual(main())


@pytest.mark.parametrize("after_first_token", [False, True])
def test_early_close_is_observed_as_cancelled(after_first_token: bool) -> None:
    async def main() -> None:
        seen: list[Observation] = []
        fake = FakeService(script=lambda call: Script(ttft=0.2), observer=seen.append)
        if after_first_token:
            async with await fake(CALL):
                pass
        else:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(fake(CALL), 0.1)
        assert [observation.outcome for observation in seen] == ["cancelled"]
        assert fake.calls[0].closed_at == clock.now_ns()

    run_virtual(main())


def test_hanging_call_lasts_until_its_timeout() -> None:
    async def main() -> None:
        fake = FakeService(script=lambda call: Script(hangs=True))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(fake(CALL), 3600)

    run_virtual(main())
