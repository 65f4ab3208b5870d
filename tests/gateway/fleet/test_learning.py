"""What the workers of a fleet learn from each other, in virtual time."""

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import structs
from tests.cases import each_case
from tests.gateway.fleet.learners import Database, Gateway, now_s
from tests.policies.attempts import answered
from tests.policies.branches import play
from tests.policies.world import DOWN, GOOD, ScriptAt, World, until

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.core.events import RateLimits
from splitsecond.gateway.fleet.learned import (
    MAX_BYTES,
    InvalidReport,
    Limits,
    Opening,
    Speed,
    TargetReport,
    decode_targets,
    encode_targets,
    histogram,
    merged,
    samples_of,
)
from splitsecond.gateway.fleet.turns import HOLD_S, LEASE_S, PAUSE_S, TURN_S, Turns
from splitsecond.gateway.fleet.view import FleetView
from splitsecond.routing.targets.circuit_breaker import RECEIVED_OPEN_NS
from splitsecond.testing.fake_service import Script

POLICY = 'fallback("a/x", "b/x")'
HANGS = Script(ttft=4.0, fault=DOWN.fault)
"""An outage in which a request fails after four seconds."""


@asynccontextmanager
async def fleet(
    number: int = 3,
    workers: int = 2,
    *,
    first: dict[str, Script | ScriptAt] | None = None,
    **scripts: Any,
) -> Any:
    """Run gateways with these scripts of targets. `first`: those of the first gateway, if they
    differ."""
    database = Database()
    made = [
        Gateway(
            database, f"g{each}", POLICY, workers, scripts | ((first or {}) if not each else {})
        )
        for each in range(number)
    ]
    tasks = [asyncio.create_task(each.run()) for each in made]
    try:
        yield database, made
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.wait(tasks)


def in_flight(made: list[Gateway]) -> int:
    """Return how many probes of a/x are in flight in the whole fleet."""
    breakers = [
        worker.states.state("a/x").breaker for gateway in made for worker in gateway.workers
    ]
    return sum(each.state == "open" and bool(each.probe_attempt) for each in breakers)


def asked(made: list[Gateway]) -> int:
    return sum(worker.asked("a/x") for gateway in made for worker in gateway.workers)


async def load(
    made: list[Gateway],
    seconds: float,
    *,
    every_s: float = 0.5,
    look: Callable[[], None] = lambda: None,
) -> None:
    """Send calls to every worker, one every `every_s`, and `look` ten times a second."""
    end_s = now_s() + seconds

    async def calls(world: World) -> None:
        while now_s() < end_s:
            await world.ask(every_s=every_s)

    async with asyncio.TaskGroup() as group:
        for gateway in made:
            for world in gateway.workers:
                group.create_task(calls(world))
        while now_s() < end_s:
            look()
            await asyncio.sleep(0.1)


def test_one_probe_of_the_fleet_is_in_flight_at_a_time() -> None:
    seen: list[int] = []

    async def main() -> None:
        async with fleet(a=until(200, HANGS), b=GOOD) as (_, made):
            await load(made, 30)
            before = asked(made)
            await load(made, 90, look=lambda: seen.append(in_flight(made)))
            assert before < asked(made) <= before + 12

    play(main)
    assert max(seen) == 1


@pytest.mark.system
def test_without_the_exchange_every_worker_probes() -> None:
    seen: list[int] = []

    async def main() -> None:
        async with fleet(a=HANGS, b=GOOD) as (database, made):
            database.away = True
            for gateway in made:
                gateway.exchanges.clear()
            await load(made, 30)
            await load(made, 150, look=lambda: seen.append(in_flight(made)))

    play(main)
    assert max(seen) > 1


@pytest.mark.system
def test_one_worker_per_gateway_probes_without_the_database() -> None:
    seen: list[int] = []

    async def main() -> None:
        async with fleet(a=HANGS, b=GOOD) as (database, made):
            await load(made, 30)
            database.away = True
            await load(made, 40)
            before = asked(made)
            await load(made, 150, look=lambda: seen.append(in_flight(made)))
            assert asked(made) > before
            for gateway in made:
                assert gateway.learning.turns <= 1

    play(main)
    assert max(seen) <= 3


def test_idle_gateway_learns_that_a_target_is_down_or_back() -> None:
    async def main() -> None:
        async with fleet(a=until(60, DOWN), b=GOOD) as (_, made):
            busy, idle = made[0], made[1].workers[0]
            await load([busy], 20)
            assert not idle.states.available("a/x")
            assert "another worker reports" in idle.states.unavailable_reason("a/x")
            await idle.ask()
            assert idle.asked("a/x") == 0
            await load([busy], 70)
            assert idle.states.available("a/x")
            await idle.ask(30, every_s=0.2)
            assert idle.asked("a/x") > 0

    play(main)


def test_worker_with_good_responses_ignores_reports_of_others() -> None:
    async def main() -> None:
        async with fleet(2, 1, first={"a": DOWN}, a=GOOD, b=GOOD) as (_, made):
            broken, well = made[0].workers[0], made[1].workers[0]
            await load(made, 60)
            assert well.asked("b/x") == 0
            assert broken.asked("b/x") > 50
            # Good answers to others let a call through to the target now and then, and no more.
            assert broken.asked("a/x") < 25

    play(main)


def test_when_a_target_is_back_all_workers_return_soon() -> None:
    async def main() -> None:
        async with fleet(a=until(40, DOWN), b=GOOD) as (_, made):
            await load(made, 90)
            states = {
                worker.states.status("a/x").state for gateway in made for worker in gateway.workers
            }
            assert states <= {"up", "returning"}

    play(main)


def test_reports_of_others_expire_when_the_exchange_ends() -> None:
    async def main() -> None:
        async with fleet(a=DOWN, b=GOOD) as (_, made):
            busy, idle = made[0], made[1]
            await load([busy], 20)
            assert not idle.workers[0].states.available("a/x")
            busy.connection.away = True
            await asyncio.sleep(RECEIVED_OPEN_NS / clock.NS_PER_S)
            assert idle.workers[0].states.state("a/x").breaker.turn_until_ns == 0
            assert asked([idle]) == 0
            await load([idle], 60)
            assert 0 < asked([idle]) < 15

    play(main)


def no_longer_configured(target: str) -> str:
    raise CallerFault(f"there is no provider for {target}", kind="unknown_provider")


def test_headroom_of_a_rate_limit_is_shared() -> None:
    limits = RateLimits(requests_left=0, requests_reset_ns=40 * clock.NS_PER_S)

    async def main() -> None:
        async with fleet(a=GOOD, b=GOOD) as (_, made):
            made[2].exchanges[0].use(("a/x",), lambda target: "another key")
            made[2].exchanges[1].use(("a/x",), no_longer_configured)
            state = made[0].workers[0].states.state("a/x")
            state.record_start("a call", True, clock.now_ns())
            state.observe(answered(target="a/x", call="a call", limits=limits), clock.now_ns())
            await asyncio.sleep(5)
            assert all(each.states.available("a/x") for each in made[2].workers)
            for worker in (made[0].workers[1], made[1].workers[0]):
                assert worker.states.status("a/x").state == "limited"
                await worker.ask()
                assert worker.asked("a/x") == 0
            await asyncio.sleep(40)
            assert made[1].workers[0].states.available("a/x")

    play(main)


def test_speeds_are_shared_and_count_for_less_than_own_samples() -> None:
    async def main() -> None:
        async with fleet(first={"a": Script(ttft=0.8, tokens=5)}, a=GOOD, b=GOOD) as (_, made):
            busy, other = made[0].workers[0], made[1].workers[0]
            await busy.ask(40, every_s=0.1)
            await asyncio.sleep(10)
            estimate = other.states.estimate("a/x")
            assert estimate is not None
            assert estimate.ttft_ns() == pytest.approx(0.8e9, rel=0.06)
            assert 0 < estimate.samples <= 6.01
            await other.ask(12)
            assert estimate.ttft_ns() == pytest.approx(0.2e9, rel=0.06)

    play(main)


HOSTILE = (
    "",
    "[]",
    "{",
    "null",
    "[" * MAX_BYTES,
    '{"a/x": {"good_s": -1}}',
    '{"a/x": {"good_s": NaN}}',
    '{"a/x": {"good_s": 1e999}}',
    '{"a/x": {"opening": {"age_s": 1, "left_s": 1, "reason": "%s"}}}' % ("x" * 301),
    '{"a/x": {"speed": {"ttft": {"ended": {"256": 1}}}}}',
    '{"a/x": {"speed": {"ttft": {"ended": {"-1": 1}}}}}',
    '{"a/x": {"limits": {"none": {"age_s": 0, "requests_left": -5}}}}',
    '{"": {}}',
    '{"a/x": {}}' + " " * MAX_BYTES,
    "\ud800",
)


@each_case("text", HOSTILE, ids=map(str, range(len(HOSTILE))))
def test_invalid_report_is_refused(text: str) -> None:
    with pytest.raises(InvalidReport):
        decode_targets(text)


def test_hostile_report_stops_neither_exchange_nor_calls() -> None:
    lie = TargetReport(
        opening=Opening(age_s=0.0, left_s=1e6, reason="a lie"),
        limits={"none": Limits(age_s=0.0, requests_left=0, requests_reset_s=1e6, per_s=1e6)},
        speed=Speed(histogram([(1.0, False, 1e6)]), histogram([(1.0, True, 1e6)]), 1e6, 1e6),
    )

    async def main() -> None:
        async with fleet(1, 1, a=GOOD, b=DOWN) as (database, (gateway,)):

            async def lies() -> None:
                while True:
                    database.rows |= {
                        "liar": (now_s(), encode_targets({"a/x": lie, "b/x": lie, "new/y": lie}))
                    }
                    database.rows |= {"broken": (now_s(), '{"a/x": 5}')}
                    await asyncio.sleep(0.5)

            lying = asyncio.create_task(lies())
            await asyncio.sleep(5)
            world = gateway.workers[0]
            # the last target that is left is asked
            assert (await world.ask(every_s=0.5)).fault is None
            await world.ask(100, every_s=0.5)
            assert world.asked("a/x") == 101
            assert "new/y" not in world.states.by_name()
            assert gateway.learning.invalid > 50
            assert len(gateway.said) == 1
            lying.cancel()
            await asyncio.wait([lying])

    play(main)


def test_extreme_values_of_providers_give_a_valid_report() -> None:
    async def main() -> None:
        gateway = Gateway(Database(), "g", POLICY, 1, {"a": GOOD, "b": GOOD})
        states = gateway.workers[0].states
        extreme = RateLimits(
            requests_left=10**30, requests_reset_ns=10**40, tokens_left=-5, tokens_reset_ns=-1
        )
        for name in ("a/x", "a/" + "y" * 400, "a/\0", "a/\ud800"):
            states.state(name).record_start("call", True, clock.now_ns())
            found = answered(target=name, call="call", limits=extreme)
            states.observe(
                structs.replace(
                    found, output_tokens=10**15, token_at=[found.first_token_ns or 0] * 5
                )
            )
        state = states.state("b/x")
        for _ in range(5):
            state.breaker.record_failure(clock.now_ns(), clock.now_ns(), "x" * 1000)
        await asyncio.sleep(2e6)
        gateway.exchanges[0].step()
        gateway.learning.collect(clock.now_ns())
        await gateway.learning.exchange(gateway.connection)  # type: ignore[arg-type]
        ((_, text),) = gateway.connection.database.rows.values()
        assert set(decode_targets(text)) == {"a/x", "b/x"}

    play(main)


def test_stale_view_is_not_used() -> None:
    async def main() -> None:
        gateway = Gateway(Database(), "g", POLICY, 1, {"a": GOOD, "b": GOOD})
        opening = TargetReport(opening=Opening(age_s=1.0, left_s=20.0))
        gateway.exchanges[0].received(
            FleetView(at_ns=clock.now_ns(), name="g", targets={"a/x": opening})
        )
        gateway.exchanges[0].step()
        assert not gateway.workers[0].states.available("a/x")
        assert gateway.workers[0].states.state("a/x").breaker.turn_until_ns == 0
        await asyncio.sleep(21)
        gateway.exchanges[0].step()
        assert gateway.exchanges[0].view is None
        assert gateway.workers[0].states.available("a/x")
        assert gateway.workers[0].states.state("a/x").breaker.turn_until_ns is None

    play(main)


def test_histograms_keep_times_within_five_percent() -> None:
    for ns in (1e3, 37e6, 1e9, 600e9):
        ((value, censored, weight),) = samples_of(histogram([(ns, True, 2.0)]))
        assert value == pytest.approx(ns, rel=0.051)
        assert (censored, weight) == (True, 2.0)


def test_reports_of_several_workers_become_one() -> None:
    first = TargetReport(
        good_s=3.0,
        opening=Opening(5.0, 4.0, "first"),
        limits={"k": Limits(9.0, requests_left=5, per_s=1.0)},
        speed=Speed(histogram([(1e9, False, 1.0)]), tokens=10.0, answers=1.0),
    )
    second = TargetReport(
        good_s=1.0,
        opening=Opening(1.0, 4.0, "second"),
        limits={"k": Limits(2.0, requests_left=3, per_s=2.0)},
        speed=Speed(histogram([(1e9, False, 3.0)]), tokens=20.0, answers=3.0),
    )
    both = merged([(0.0, first), (1.5, second)])
    assert both.good_s == 2.5
    assert both.opening == Opening(2.5, 2.5, "second")
    assert both.limits == {"k": Limits(3.5, requests_left=3, per_s=3.0)}
    assert both.speed is not None
    assert (both.speed.tokens, both.speed.answers) == (17.5, 4.0)
    assert list(both.speed.ttft.ended.values()) == [4.0]


def test_too_long_report_drops_its_speeds() -> None:
    speed = Speed(histogram((1.1**each * 1000, False, 1.0) for each in range(150)))
    reports = {f"provider/{each}": TargetReport(good_s=1.0, speed=speed) for each in range(256)}
    found = decode_targets(encode_targets(reports))
    assert found["provider/1"] == TargetReport(good_s=1.0)


def after(seconds: float) -> int:
    return round((1 + seconds) * clock.NS_PER_S)


def test_unused_turn_passes_to_other_workers_then_other_gateways() -> None:
    turns = Turns()
    waiting = {"a/x": TargetReport(wants=True, due=True)}
    had: list[int] = []
    for second in range(24):
        now_ns = after(second)
        claims = turns.claims({0: waiting, 1: waiting}, {0: now_ns, 1: now_ns}, now_ns)
        had += [number for number, _ in turns.granted(set(claims), now_ns).values()] or [
            -1 if claims else -2
        ]
    # Five seconds for each, then until its last turn is over nobody, then others for a while.
    assert had == [0] * 5 + [-1] * 2 + [1] * 5 + [-1] * 2 + [-2] * 2 + [0] * 5 + [-1] * 2 + [1]
    assert (HOLD_S, TURN_S, PAUSE_S) == (5, 3, 2)


def test_a_worker_keeps_the_turn_while_its_probe_is_in_flight() -> None:
    turns = Turns()
    probing, waiting = (
        {"a/x": TargetReport(wants=True, due=True, probing=True)},
        {"a/x": TargetReport(wants=True)},
    )
    for second in range(30):
        assert turns.claims(
            {0: waiting, 1: probing}, {0: after(second), 1: after(second)}, after(second)
        ) == ["a/x"]
        assert turns.granted({"a/x"}, after(second))["a/x"][0] == 1


def test_turn_is_kept_until_a_later_report_shows_it_is_unused() -> None:
    turns = Turns()
    waiting, gone = {"a/x": TargetReport(wants=True)}, {"a/x": TargetReport()}
    turns.claims({0: waiting, 1: waiting}, {0: after(0), 1: after(0)}, after(0))
    assert turns.granted({"a/x"}, after(0)) == {"a/x": (0, after(TURN_S))}
    for second in (1, 2, 3, 9):  # the latest report of worker 0 was made while it had the turn
        assert turns.claims(
            {0: gone, 1: waiting}, {0: after(2), 1: after(second)}, after(second)
        ) == ["a/x"]
        assert turns.granted({"a/x"}, after(second)) == {}
    assert turns.claims({0: gone, 1: waiting}, {0: after(9.5), 1: after(9.5)}, after(10)) == ["a/x"]
    assert turns.granted({"a/x"}, after(10)) == {"a/x": (1, after(10 + TURN_S))}
    # A worker that does not report any more: after the lease, when its probe must be over.
    assert turns.claims({0: waiting}, {0: after(11)}, after(11)) == ["a/x"]
    assert turns.granted({"a/x"}, after(11)) == {}
    assert turns.claims({0: waiting}, {0: after(27)}, after(10 + TURN_S + LEASE_S)) == []
    assert turns.claims({0: waiting}, {0: after(31)}, after(10 + TURN_S + LEASE_S + PAUSE_S)) == [
        "a/x"
    ]


def test_no_turn_is_granted_while_a_worker_probes_without_one() -> None:
    turns = Turns()
    waiting, probing = (
        {"a/x": TargetReport(wants=True)},
        {"a/x": TargetReport(wants=True, probing=True)},
    )
    turns.claims({0: waiting, 1: waiting}, {0: after(0), 1: after(0)}, after(0))
    assert turns.claims({0: waiting, 1: probing}, {0: after(1), 1: after(1)}, after(1)) == ["a/x"]
    assert turns.granted({"a/x"}, after(1)) == {}
    turns.claims({0: waiting, 1: waiting}, {0: after(2), 1: after(2)}, after(2))
    assert turns.granted({"a/x"}, after(2)) == {"a/x": (0, after(2 + TURN_S))}
