"""What is refused even where nothing else is left, and rate limits, of which traffic keeps
clear."""

import asyncio

import pytest
from tests.policies.attempts import answered, failed
from tests.policies.branches import a_call, ask, fails, key_refused, play, status
from tests.policies.world import GOOD, World, until

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import Overloaded, ProviderFault
from splitsecond.core.events import RateLimits
from splitsecond.core.service import Call, Reply, Service
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.machinery.fault_handling import ejected, retry_after_ns
from splitsecond.routing.targets.credit import KEY_RETRY_NS
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.fake_service import FakeService


def test_rate_limited_target_is_refused_until_retry_after() -> None:
    async def main() -> None:
        world = World('"a/x"', a=until(20, fails(status(429, 20), 0)))
        await world.ask()
        await asyncio.sleep(5)
        fault = (await world.ask(10)).fault
        assert isinstance(fault, Overloaded)
        assert (fault.status, fault.retry_after_ns) == (429, 15 * NS_PER_S)
        assert world.asked("a/x") == 1
        await asyncio.sleep(15)
        assert (await world.ask()).fault is None

    play(main)


def test_retry_waits_for_the_retry_after_of_the_target() -> None:
    async def main() -> None:
        world = World('retry("a/x")', a=until(3, fails(status(503, 3), 0)))
        assert (await world.ask()).fault is None
        assert world.asked("a/x") == 2

    play(main)


ACCOUNTS = {
    "a/x": TargetInfo(account="ours"),
    "a/y": TargetInfo(account="ours"),
    "b/x": TargetInfo(account="theirs"),
}


def test_rejected_key_locks_all_targets_that_use_it() -> None:
    async def main() -> None:
        world = World(
            'fallback("a/x", "a/y", "b/x")', facts=ACCOUNTS, a=fails(key_refused()), b=GOOD
        )
        for _ in range(100):
            assert (await world.ask(every_s=100)).fault is None
        assert (world.asked("a/x"), world.asked("a/y"), world.asked("b/x")) == (1, 0, 100)
        assert world.states.status("a/y").state == "locked"

    play(main)


def test_rejected_key_locks_the_only_target_too() -> None:
    async def main() -> None:
        world = World('"a/x"', facts=ACCOUNTS, a=fails(key_refused()))
        await world.ask()
        await asyncio.sleep(7200)
        fault = (await world.ask()).fault
        assert isinstance(fault, Overloaded)
        assert "key was refused (key_refused)" in str(fault)
        assert fault.status == 502
        assert fault.hint == "Change the key in the configuration."
        assert fault.retry_after_ns is None
        assert world.asked("a/x") == 1

    play(main)


@pytest.mark.parametrize("fault", [key_refused(), status(401), status(402)], ids=str)
def test_rejected_key_that_had_worked_is_retried_later(fault: ProviderFault) -> None:
    async def main() -> None:
        world = World(
            'fallback("a/x", "b/x")',
            facts=ACCOUNTS,
            a=lambda now_s: fails(fault) if 10 <= now_s < 1000 else GOOD,
            b=GOOD,
        )
        await world.ask()
        await asyncio.sleep(10)
        await world.ask(70, every_s=10)
        assert world.asked("a/x") <= 1 + 1 + 850 * NS_PER_S // KEY_RETRY_NS
        await world.ask(70, every_s=10)
        before = world.asked("a/x")
        await world.ask(10)
        assert world.asked("a/x") == before + 10

    play(main)


def test_retry_after_is_the_shortest_of_all_targets() -> None:
    async def main() -> None:
        world = World(
            'fallback("a/x", "b/x")', a=fails(status(429, 60), 0), b=fails(status(429, 20), 0)
        )
        await world.ask()
        fault = (await world.ask()).fault
        assert fault is not None
        assert (ejected(fault), retry_after_ns(fault)) == (True, 20 * NS_PER_S)

    play(main)


# Rate limits.


class Metered:
    """A target with a rate limit of `each_minute` requests, that says how many are left and refuses
    beyond."""

    def __init__(self, states: TargetStates, name: str, each_minute: int) -> None:
        self._states, self._name, self._limit = states, name, each_minute
        self._fake = FakeService(script=lambda call: GOOD, target=name)
        self._window, self._used = -1, 0
        self.refusals = 0

    async def __call__(self, call: Call) -> Reply:
        now_ns = clock.now_ns()
        minute, into_ns = divmod(now_ns, 60 * NS_PER_S)
        if minute != self._window:
            self._window, self._used = minute, 0
        if self._used >= self._limit:
            self.refusals += 1
            fault = status(429)
            self._states.observe(failed(fault, 0, target=self._name, call=call.id))
            raise fault
        self._used += 1
        left = RateLimits(
            requests_left=self._limit - self._used, requests_reset_ns=60 * NS_PER_S - into_ns
        )
        reply = await self._fake(call)
        self._states.observe(
            answered(200, target=self._name, call=call.id, tokens=2, tpot_ms=0, limits=left)
        )
        return reply


def test_traffic_moves_before_the_rate_limit_is_exceeded() -> None:
    async def main() -> None:
        states = TargetStates()
        metered = Metered(states, "a/x", 50)
        other = FakeService(script=lambda call: GOOD, target="b/x", observer=states.observe)
        services: dict[str, Service] = {"a/x": metered, "b/x": other}
        service = build(parse('fallback("a/x", "b/x")'), services.__getitem__, states)
        for number in range(1000):
            assert (await ask(service, a_call(number))).fault is None
        assert metered.refusals == 0
        assert len(other.calls) > 500
        assert len(other.calls) <= 1000 - 50 * 3  # and it is used in each minute

    play(main)


def test_requests_in_flight_reduce_the_headroom() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=GOOD, b=GOOD)
        await world.ask()
        stand = world.states.state("a/x")
        stand.record_start("c", True, clock.now_ns())
        world.states.observe(
            answered(limits=RateLimits(requests_left=3, requests_reset_ns=60 * NS_PER_S))
        )
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(world.ask())
        assert (world.asked("a/x"), world.asked("b/x")) == (1 + 3, 7)
        assert world.states.unavailable_reason("a/x").startswith(
            "its rate limit is used up, for another "
        )
        assert world.states.status("a/x").state == "limited"
        await asyncio.sleep(60)
        await world.ask()
        assert world.asked("a/x") == 5

    play(main)


def test_only_target_is_called_although_its_limit_is_used_up() -> None:
    async def main() -> None:
        world = World('"a/x"', a=GOOD)
        world.states.state("a/x").record_start("c", True, clock.now_ns())
        world.states.observe(
            answered(limits=RateLimits(requests_left=0, requests_reset_ns=60 * NS_PER_S))
        )
        assert not world.states.available("a/x")
        assert (await world.ask()).fault is None

    play(main)
