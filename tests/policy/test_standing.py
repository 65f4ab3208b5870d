"""Targets that are down: they are left alone, nobody is left without an answer for it, and they come back."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.policy.attempts import answered, failed
from tests.policy.branches import (
    SILENT,
    Seen,
    a_call,
    ask,
    bad_request,
    fails,
    play,
    refused,
    reset,
    scripted,
    silent,
    status,
)

from splitsecond import clock
from splitsecond.clock import NS_PER_S
from splitsecond.errors import AllFailed, CallerFault, Fault, Overloaded, ProviderFault
from splitsecond.events import RateLimits
from splitsecond.policy.building import build
from splitsecond.policy.expression import parse, targets
from splitsecond.policy.remedy import ejected, retry_after_ns
from splitsecond.policy.targets.facts import Facts
from splitsecond.policy.targets.stand import KEY_AGAIN_NS
from splitsecond.policy.targets.standing import MOST_STANDS, Standing
from splitsecond.service import Call, Reply, Service
from splitsecond.testing.fake_service import FakeService, Script

GOOD = Script(ttft=0.2, tokens=3)
DOWN = fails(refused(), 0.01)
Told = Callable[[float], Script]


class World:
    """A policy over fake targets, each of which does what `scripts` says for the second of its world."""

    def __init__(self, policy: str, *, facts: dict[str, Facts] | None = None, **scripts: Script | Told) -> None:
        self.standing = Standing(facts, chance=Random(5))
        self.began_ns = clock.now_ns()
        self.fakes = {
            name: FakeService(script=self._script(scripts[name[0]]), target=name, observer=self.standing.observe)
            for name in targets(parse(policy))
        }
        self.service = build(parse(policy), self.fakes.__getitem__, self.standing)
        self.number = 0

    def _script(self, said: Script | Told) -> Callable[[Call], Script]:
        return lambda call: said if isinstance(said, Script) else said(self.now_s)

    @property
    def now_s(self) -> float:
        return (clock.now_ns() - self.began_ns) / NS_PER_S

    def asked(self, name: str) -> int:
        """How many requests the target got."""
        return len(self.fakes[name].calls)

    async def ask(self, times: int = 1, *, every_s: float = 0.0) -> Seen:
        """The same again; what became of the last."""
        seen = Seen()
        for _ in range(times):
            self.number += 1
            seen = await ask(self.service, a_call(self.number))
            await asyncio.sleep(every_s)
        return seen


def until(moment_s: float, before: Script, after: Script = GOOD) -> Told:
    """`before` until that second, then `after`."""
    return lambda now_s: before if now_s < moment_s else after


# Left alone.


def test_a_target_that_is_well_is_asked_as_if_nobody_watched() -> None:
    async def main() -> None:
        world = World('"a/x"', a=GOOD)
        assert repr(world.service) == repr(world.fakes["a/x"])
        assert (await world.ask()).ms == 200
        assert world.standing.available("a/x")
        assert world.standing.why_not("a/x") == ""

    play(main)


def test_a_target_that_is_down_for_an_hour_costs_a_handful_of_requests_a_minute() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=DOWN, b=GOOD)
        await world.ask(5)
        assert world.asked("a/x") == 5
        assert not world.standing.available("a/x")
        times: list[float] = []
        for _ in range(1800):
            before = world.asked("a/x")
            seen = await world.ask(every_s=1.8)
            assert seen.fault is None
            times += [world.now_s] * (world.asked("a/x") - before)
        assert max(sum(begin <= at < begin + 60 for at in times) for begin in times) <= 4
        assert len(times) <= 20

    play(main)


def test_nobody_waits_for_a_target_that_hangs_once_it_is_known() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x", ttft="2s")', a=SILENT, b=GOOD)
        first = await world.ask(5)
        assert first.ms == 2200
        assert (await world.ask()).ms == 200
        assert "no token in the time" in world.standing.why_not("a/x")

    play(main)


@pytest.mark.parametrize("fault", [silent(), reset(), status(500), status(529)], ids=str)
def test_what_puts_a_target_down(fault: Fault) -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=fails(fault), b=GOOD)
        await world.ask(5)
        assert not world.standing.available("a/x")

    play(main)


def test_answers_that_break_put_it_down_too() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=Script(fault=reset(), breaks_after=3), b=GOOD)
        await world.ask(5)
        assert not world.standing.available("a/x")

    play(main)


def test_requests_that_are_wrong_do_not() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=fails(bad_request()), b=GOOD)
        await world.ask(100)
        assert world.standing.available("a/x")

    play(main)


def test_losers_and_clients_who_leave_do_not() -> None:
    async def main() -> None:
        world = World('race("a/x", "b/x")', a=SILENT, b=GOOD)
        await world.ask(30)
        assert world.asked("a/x") == 30
        assert world.standing.available("a/x")
        alone = World('"a/x"', a=SILENT)
        for number in range(30):
            task = asyncio.create_task(ask(alone.service, a_call(number)))
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.wait([task])
        assert alone.standing.available("a/x")

    play(main)


def test_a_refusal_says_why_and_until_when() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=DOWN, b=lambda now_s: GOOD if world.asked("b/x") <= 5 else DOWN)
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


def test_a_hedge_goes_to_the_second_at_once_and_for_nothing() -> None:
    async def main() -> None:
        world = World('fallback(hedge("a/x", "b/x"), "c/x")', a=DOWN, b=GOOD, c=GOOD)
        await world.ask(5)
        assert world.asked("b/x") == 0
        assert (await world.ask(10)).ms == 200
        assert (world.asked("a/x"), world.asked("b/x"), world.asked("c/x")) == (5, 10, 5)

    play(main)


def test_a_race_goes_on_without_it() -> None:
    async def main() -> None:
        world = World('race("a/x", "b/x", "c/x")', a=DOWN, b=GOOD, c=GOOD)
        seen = await world.ask(10)
        assert seen.fault is None
        assert (world.asked("a/x"), world.asked("b/x"), world.asked("c/x")) == (5, 10, 10)

    play(main)


def test_no_second_try_where_the_first_has_put_it_down() -> None:
    async def main() -> None:
        world = World('retry("a/x", times=2)', a=fails(status(503)))
        await world.ask(1)
        assert world.asked("a/x") == 3
        seen = await world.ask(1)
        assert world.asked("a/x") == 5
        assert isinstance(seen.fault, AllFailed)
        assert [cause.kind for cause in seen.fault.causes] == ["http_503", "http_503", "ejected"]

    play(main)


# Nobody is left without an answer for it.


def test_the_only_target_is_always_asked() -> None:
    async def main() -> None:
        world = World('"a/x"', a=DOWN)
        await world.ask(50)
        assert world.asked("a/x") == 50

    play(main)


def test_when_none_stands_the_least_bad_is_asked() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x", "c/x")', a=DOWN, b=DOWN, c=DOWN)
        await world.ask(5)
        before = sum(map(world.asked, world.fakes))
        await world.ask(20)
        assert sum(map(world.asked, world.fakes)) == before + 20  # one for each call, and not three

    play(main)


def test_a_target_that_is_down_is_the_last_resort_three_times_a_minute() -> None:
    async def main() -> None:
        flaky = [GOOD] * 5 + [fails(status(503)), GOOD, GOOD] * 1000
        world = World('fallback("b/x", "a/x")', a=fails(silent(), 0.01), b=lambda now_s: flaky[world.asked("b/x") - 1])
        for _ in range(5):
            world.standing.observe(failed(refused()))
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


def over(periods: Sequence[tuple[float, Script]]) -> Told:
    """One script after another, over and over."""

    def told(now_s: float) -> Script:
        left_s = now_s % sum(lasts_s for lasts_s, _ in periods)
        for lasts_s, script in periods:
            left_s -= lasts_s
            if left_s < 0:
                return script
        return periods[-1][1]

    return told


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(POLICIES), PERIODS, PERIODS, PERIODS, st.floats(0.05, 3))
def test_whatever_happens_somebody_is_asked(
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
        assert [world.standing.in_flight(name) for name in world.fakes] == [0, 0, 0]

    play(main)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(POLICIES), PERIODS, st.integers(2, 12))
def test_one_probe_at_a_time_however_many_ask(policy: str, a: list[tuple[float, Script]], at_once: int) -> None:
    async def main() -> None:
        world = World(policy, a=over([*a, (20, fails(reset(), 0.5))]), b=GOOD, c=GOOD)
        for _ in range(20):
            async with asyncio.TaskGroup() as group:
                for _ in range(at_once):
                    group.create_task(world.ask())
                await asyncio.sleep(0)
                half_open = world.standing.describe("a/x").state in ("down", "probing")
                assert not half_open or world.fakes["a/x"].in_flight <= 1
            await asyncio.sleep(2)

    play(main)


# Coming back.


def test_traffic_comes_back_step_by_step() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=until(60, DOWN), b=GOOD)
        await world.ask(150, every_s=0.2)
        assert not world.standing.available("a/x")
        await asyncio.sleep(120)
        assert world.standing.available("a/x")
        assert world.standing.describe("a/x").state == "down"
        before = world.asked("a/x")
        await world.ask()
        assert world.asked("a/x") == before + 1
        assert world.standing.describe("a/x").state == "returning"
        await world.ask(4)
        assert world.asked("a/x") < before + 5
        await world.ask(60)
        assert world.standing.describe("a/x").state == "up"
        before = world.asked("a/x")
        await world.ask(20)
        assert world.asked("a/x") == before + 20

    play(main)


def test_all_traffic_is_back_within_minutes_of_an_outage_of_an_hour() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=until(3600, DOWN), b=GOOD)
        while world.now_s < 3600 + 400:
            await world.ask(every_s=1.8)
        before = world.asked("a/x")
        await world.ask(20)
        assert world.asked("a/x") == before + 20

    play(main)


def test_a_first_token_does_not_bring_it_back() -> None:
    async def main() -> None:
        stalls = Script(ttft=0.1, fault=silent(), breaks_after=1, tps=0.05)
        world = World('fallback("a/x", "b/x")', a=until(5, DOWN, stalls), b=GOOD)
        await world.ask(5)
        await asyncio.sleep(10)
        async with asyncio.TaskGroup() as group:
            probe = group.create_task(world.ask())
            await asyncio.sleep(10)
            assert world.standing.describe("a/x").state == "probing"
            await world.ask(5)
            assert not probe.done()
            assert world.asked("a/x") == 6
        assert world.standing.describe("a/x").state == "down"

    play(main)


def test_a_long_answer_brings_it_back_before_its_end() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=until(5, DOWN, Script(ttft=0.1, tokens=1000, tps=10)), b=GOOD)
        await world.ask(5)
        await asyncio.sleep(10)
        async with asyncio.TaskGroup() as group:
            group.create_task(world.ask())
            await asyncio.sleep(3)
            assert not world.standing.available("a/x")
            await asyncio.sleep(0.3)
            assert world.standing.available("a/x")
            assert world.standing.describe("a/x").state == "returning"
        await asyncio.sleep(10)
        assert world.standing.describe("a/x").state == "up"

    play(main)


def test_a_probe_that_was_given_up_leaves_room_for_the_next() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=until(5, DOWN, SILENT), b=GOOD)
        await world.ask(5)
        await asyncio.sleep(10)
        task = asyncio.create_task(world.ask())
        await asyncio.sleep(0.1)
        assert world.asked("a/x") == 6
        assert world.standing.describe("a/x").state == "probing"
        assert not world.standing.available("a/x")
        assert (await world.ask()).fault is None
        assert world.asked("a/x") == 6
        task.cancel()
        await asyncio.wait([task])
        assert world.standing.available("a/x")

    play(main)


# What is refused even where nothing else is left.


def test_a_target_that_says_when_is_left_alone_until_then() -> None:
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


def test_retry_comes_back_when_it_was_told_to() -> None:
    async def main() -> None:
        world = World('retry("a/x")', a=until(3, fails(status(503, 3), 0)))
        assert (await world.ask()).fault is None
        assert world.asked("a/x") == 2

    play(main)


ACCOUNTS = {
    "a/x": Facts(account="ours"),
    "a/y": Facts(account="ours"),
    "b/x": Facts(account="theirs"),
}


def test_a_key_that_is_refused_stops_all_that_take_it() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "a/y", "b/x")', facts=ACCOUNTS, a=fails(status(401)), b=GOOD)
        for _ in range(100):
            assert (await world.ask(every_s=100)).fault is None
        assert (world.asked("a/x"), world.asked("a/y"), world.asked("b/x")) == (1, 0, 100)
        assert world.standing.describe("a/y").state == "locked"

    play(main)


def test_also_where_nothing_else_is_left() -> None:
    async def main() -> None:
        world = World('"a/x"', facts=ACCOUNTS, a=fails(status(401)))
        await world.ask()
        await asyncio.sleep(7200)
        fault = (await world.ask()).fault
        assert isinstance(fault, Overloaded)
        assert "key was refused (http_401)" in str(fault)
        assert fault.status == 502
        assert fault.hint == "Change the key in the configuration."
        assert fault.retry_after_ns is None
        assert world.asked("a/x") == 1

    play(main)


@pytest.mark.parametrize("fault", [status(401), status(402)], ids=str)
def test_a_key_that_has_worked_is_tried_again(fault: ProviderFault) -> None:
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
        assert world.asked("a/x") <= 1 + 1 + 850 * NS_PER_S // KEY_AGAIN_NS
        await world.ask(70, every_s=10)
        before = world.asked("a/x")
        await world.ask(10)
        assert world.asked("a/x") == before + 10

    play(main)


def test_where_all_are_asked_to_wait_the_first_that_comes_back_counts() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=fails(status(429, 60), 0), b=fails(status(429, 20), 0))
        await world.ask()
        fault = (await world.ask()).fault
        assert fault is not None
        assert (ejected(fault), retry_after_ns(fault)) == (True, 20 * NS_PER_S)

    play(main)


# Rate limits.


class Metered:
    """A target with a rate limit of `each_minute` requests, that says how many are left and refuses beyond."""

    def __init__(self, standing: Standing, name: str, each_minute: int) -> None:
        self._standing, self._name, self._limit = standing, name, each_minute
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
            self._standing.observe(failed(fault, 0, target=self._name, call=call.id))
            raise fault
        self._used += 1
        left = RateLimits(requests_left=self._limit - self._used, requests_reset_ns=60 * NS_PER_S - into_ns)
        reply = await self._fake(call)
        self._standing.observe(answered(200, target=self._name, call=call.id, tokens=2, tpot_ms=0, limits=left))
        return reply


def test_traffic_leaves_before_the_rate_limit_refuses_it() -> None:
    async def main() -> None:
        standing = Standing()
        metered = Metered(standing, "a/x", 50)
        other = FakeService(script=lambda call: GOOD, target="b/x", observer=standing.observe)
        services: dict[str, Service] = {"a/x": metered, "b/x": other}
        service = build(parse('fallback("a/x", "b/x")'), services.__getitem__, standing)
        for number in range(1000):
            assert (await ask(service, a_call(number))).fault is None
        assert metered.refusals == 0
        assert len(other.calls) > 500
        assert len(other.calls) <= 1000 - 50 * 3  # and it is used in each minute

    play(main)


def test_what_is_under_way_counts() -> None:
    async def main() -> None:
        world = World('fallback("a/x", "b/x")', a=GOOD, b=GOOD)
        await world.ask()
        stand = world.standing.stand("a/x")
        stand.begun("c", True, clock.now_ns())
        world.standing.observe(answered(limits=RateLimits(requests_left=3, requests_reset_ns=60 * NS_PER_S)))
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(world.ask())
        assert (world.asked("a/x"), world.asked("b/x")) == (1 + 3, 7)
        assert world.standing.why_not("a/x").startswith("its rate limit is used up, for ")
        assert world.standing.describe("a/x").state == "limited"
        await asyncio.sleep(60)
        await world.ask()
        assert world.asked("a/x") == 5

    play(main)


def test_the_only_target_is_asked_although_its_limit_seems_used_up() -> None:
    async def main() -> None:
        world = World('"a/x"', a=GOOD)
        world.standing.stand("a/x").begun("c", True, clock.now_ns())
        world.standing.observe(answered(limits=RateLimits(requests_left=0, requests_reset_ns=60 * NS_PER_S)))
        assert not world.standing.available("a/x")
        assert (await world.ask()).fault is None

    play(main)


# What is counted, and told.


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
