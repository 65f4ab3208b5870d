"""A call that is a probe of a target gets a response from another target if the probe fails."""

import asyncio

import pytest
from tests.policies.attempts import answered, failed
from tests.policies.branches import (
    SILENT,
    a_call,
    ask,
    bad_request,
    fails,
    play,
    refused,
    reset,
    silent,
    status,
)
from tests.policies.world import GOOD, World

from splitsecond.core.catalog.price import Price
from splitsecond.core.errors import AllFailed, CallerFault, Fault, TimedOut
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_state import MIN_PROBE_TIMEOUT_NS
from splitsecond.testing.fake_service import Script

POLICIES = [
    'fastest("a/x", "b/x")',
    'fastest("a/x", "b/x", by="ttft", at=0.9)',
    'cheapest("a/x", "b/x")',
    'weighted("a/x", "b/x", weights="3,1")',
    'sticky("a/x", "b/x")',
    'near("a/x", "b/x", region="eu")',
    'hedge("a/x", "b/x")',
    'fallback("a/x", "b/x")',
    'race("a/x", "b/x")',
    'limit(fastest("a/x", "b/x"), concurrency=4)',
    'weighted(fallback("a/x", "c/x"), "b/x")',
    'fastest(hedge("a/x", "c/x"), "b/x")',
    'weighted(deadline("a/x", ttft="2s"), "b/x")',
    'weighted(deadline(retry("a/x"), ttft="2s", total="4s"), deadline("b/x", ttft="2s"))',
]
FACTS = {
    "a/x": TargetInfo(provider="a", region="eu", price=Price(input_usd=1.0, output_usd=1.0)),
    "b/x": TargetInfo(provider="b", region="eu", price=Price(input_usd=2.0, output_usd=2.0)),
}
PATIENCE_MS = MIN_PROBE_TIMEOUT_NS / 1e6


def ill(policy: str, *names: str, known: bool = False, **scripts: Script) -> World:
    """Targets with these names are down. `known`: all have answered before, in 200 ms."""
    world = World(policy, facts=FACTS, **scripts)
    for name in world.fakes if known else ():
        for _ in range(20):
            world.states.observe(answered(200, target=name))
    for name in names:
        for _ in range(20):
            world.states.observe(failed(refused(), target=name))
    return world


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "fault", [refused(), reset(), silent(), status(500), status(429)], ids=lambda fault: fault.kind
)
@pytest.mark.parametrize("policy", POLICIES)
def test_failed_probe_is_answered_by_another_target(policy: str, fault: Fault) -> None:
    async def main() -> None:
        world = ill(policy, "a/x", "c/x", a=fails(fault, 0.05), b=GOOD, c=fails(fault, 0.05))
        for _ in range(150):
            seen = await world.ask(every_s=2)
            assert seen.fault is None
        assert 3 <= world.asked("a/x") <= 40

    play(main)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("policy", [policy for policy in POLICIES if "c/x" not in policy])
def test_hanging_probe_delays_few_calls_and_briefly(policy: str) -> None:
    async def main() -> None:
        world = ill(policy, "a/x", known=True, a=SILENT, b=GOOD)
        waits = [(await world.ask(every_s=5)).ms for _ in range(100)]
        assert max(waits) <= PATIENCE_MS + 200
        assert sum(wait > 200 for wait in waits) <= 8  # each time it is left alone for longer
        assert world.asked("a/x") >= 3

    play(main)


def test_failed_probe_of_an_account_is_answered_elsewhere() -> None:
    async def main() -> None:
        world = World('weighted("a/x", "b/x")', a=fails(status(402)), b=GOOD)
        assert (await world.ask()).fault is not None
        for _ in range(100):
            assert (await world.ask(every_s=20)).fault is None
        assert 4 <= world.asked("a/x") <= 8

    play(main)


def test_recovered_target_gets_calls_again() -> None:
    async def main() -> None:
        world = ill('weighted("a/x", "b/x")', "a/x", known=True, a=Script(ttft=8.0), b=GOOD)
        await asyncio.sleep(60)
        while not world.asked("a/x"):
            assert (await world.ask()).fault is None
        assert world.states.status("a/x").state == "returning"

    play(main)


def test_probe_without_another_target_may_take_any_time() -> None:
    async def main() -> None:
        for policy, names in [('"a/x"', ["a/x"]), ('weighted("a/x", "b/x")', ["a/x", "b/x"])]:
            world = ill(policy, *names, known=True, a=Script(ttft=100.0), b=Script(ttft=100.0))
            await asyncio.sleep(60)
            seen = await world.ask()
            assert (seen.fault, seen.ms) == (None, 100_000)

    play(main)


def test_failure_of_a_healthy_target_is_raised_to_outer_policies() -> None:
    async def main() -> None:
        world = World('weighted("a/x", "b/x")', a=fails(status(500)), b=GOOD)
        seen = await world.ask()
        assert seen.fault is not None
        assert (world.asked("a/x"), world.asked("b/x")) == (1, 0)
        mixed = ill(
            'weighted(fallback("a/x", "c/x"), "b/x")',
            "a/x",
            a=fails(refused()),
            b=GOOD,
            c=fails(silent()),
        )
        await asyncio.sleep(60)
        assert isinstance((await mixed.ask()).fault, AllFailed)
        assert (mixed.asked("a/x"), mixed.asked("c/x"), mixed.asked("b/x")) == (1, 1, 0)

    play(main)


def test_caller_fault_of_a_probe_is_raised() -> None:
    async def main() -> None:
        world = ill('weighted("a/x", "b/x")', "a/x", a=fails(bad_request()), b=GOOD)
        await asyncio.sleep(60)
        assert isinstance((await world.ask()).fault, CallerFault)
        assert world.asked("b/x") == 0

    play(main)


def test_all_failed_names_every_probed_target() -> None:
    async def main() -> None:
        world = ill(
            'weighted("a/x", "b/x")', "a/x", "b/x", a=fails(status(500)), b=fails(status(503))
        )
        await asyncio.sleep(60)
        fault = (await world.ask()).fault
        assert isinstance(fault, AllFailed)
        assert [cause.kind for cause in fault.causes] == ["http_500", "http_503"]

    play(main)


def test_no_target_is_called_after_the_deadline() -> None:
    async def main() -> None:
        world = ill('weighted("a/x", "b/x")', "a/x", known=True, a=SILENT, b=GOOD)
        await asyncio.sleep(60)
        seen = await ask(world.service, a_call(within_ms=1000))
        assert isinstance(seen.fault, TimedOut)
        assert seen.ms == 1000
        assert world.asked("b/x") == 0

    play(main)
