"""`hedge`: the delay is learned, the budget is kept, and failures are raised."""

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from random import Random
from statistics import quantiles

import msgspec
import pytest
from benchmarks.choosing import late, waits
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.policies.branches import (
    SILENT,
    a_call,
    ask,
    fails,
    play,
    refused,
    reset,
    scripted,
    silent,
    status,
)
from tests.policies.traffic import traffic
from tests.power import repeated

from splitsecond.core.errors import AllFailed, CallerFault, TimedOut
from splitsecond.core.service import Service
from splitsecond.core.timing.survival import SurvivalCurve
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.machinery.budget import MAX_SAVED, ExtraRequestBudget
from splitsecond.routing.policies.hedge import REMEMBERED, LatencyWindow, hedge, hedge_plan
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.fake_service import FakeService, Script

USUAL = Script(ttft=0.2, tokens=1)
LATE = Script(ttft=5, tokens=1)


async def send_calls(service: Service, calls: int = 40) -> None:
    for number in range(calls):
        await ask(service, a_call(number))


def test_no_hedge_before_enough_samples() -> None:
    first, second = scripted(*[USUAL] * 18, LATE, USUAL), scripted(USUAL)

    async def main() -> None:
        service = hedge(first, second, extra_load=0.05)
        await send_calls(service, 20)
        assert len(second.calls) == 0

    play(main, [first, second])


def test_hedge_is_sent_when_the_first_is_later_than_usual() -> None:
    first, second = scripted(*[USUAL] * 40, LATE), scripted(Script(ttft=0.1))

    async def main() -> None:
        service = hedge(first, second, extra_load=0.05)
        await send_calls(service)
        seen = await ask(service)
        assert (seen.fault, seen.ms) == (None, 301)
        assert len(second.calls) == 1
        lost = first.calls[-1].observation
        assert lost is not None
        assert lost.outcome == "cancelled"

    play(main, [first, second])


def test_first_attempt_may_win_after_the_hedge() -> None:
    first, second = scripted(*[USUAL] * 40, Script(ttft=0.25)), scripted(Script(ttft=0.1))

    async def main() -> None:
        service = hedge(first, second)
        await send_calls(service)
        assert (await ask(service)).ms == 250
        assert len(second.calls) == 1

    play(main, [first, second])


def test_a_failure_before_the_hedge_is_raised_and_not_hedged() -> None:
    fault = refused()
    first, second = scripted(*[USUAL] * 40, fails(fault, 0.1)), scripted(USUAL)

    async def main() -> None:
        service = hedge(first, second)
        await send_calls(service)
        assert (await ask(service)).fault is fault
        assert len(second.calls) == 0

    play(main, [first, second])


def test_failure_after_the_hedge_leaves_the_second_running() -> None:
    first = scripted(*[USUAL] * 60, fails(reset(), 0.25), fails(reset(), 0.25))
    second = scripted(Script(ttft=0.3), fails(refused()))

    async def main() -> None:
        service = hedge(first, second)
        await send_calls(service, 60)
        assert (await ask(service)).ms == 501
        both = (await ask(service)).fault
        assert isinstance(both, AllFailed)
        assert [cause.kind for cause in both.causes] == ["reset", "refused"]

    play(main, [first, second])


@given(
    st.sampled_from([0.01, 0.05, 0.07, 0.2, 1.0]),
    st.lists(st.sampled_from([10, 200, 1000, 9000]), max_size=150),
)
def test_hedges_never_exceed_extra_load(extra_load: float, first_ms: list[int]) -> None:
    first = scripted(*[Script(ttft=ms / 1000, tokens=1) for ms in first_ms], USUAL)
    second = scripted(Script(ttft=0.05, tokens=1))

    async def main() -> None:
        service = hedge(first, second, extra_load=extra_load)
        for number in range(len(first_ms)):
            await ask(service, a_call(number))
            assert len(second.calls) <= extra_load * len(first.calls)

    play(main, [first, second])


def test_hedges_stay_within_extra_load_if_the_first_stays_slow() -> None:
    first, second = scripted(*[USUAL] * 100, LATE), scripted(USUAL)

    async def main() -> None:
        service = hedge(first, second, extra_load=0.05)
        await send_calls(service, 100)
        # many at once: none of them has taught anything yet
        async with asyncio.TaskGroup() as group:
            for number in range(500):
                group.create_task(ask(service, a_call(number)))
        assert 0 < len(second.calls) <= 0.05 * 600
        await send_calls(service, 600)
        assert len(second.calls) <= 0.05 * 1200

    play(main, [first, second])


def test_hedges_stay_within_extra_load_if_the_first_hangs() -> None:
    first, second = scripted(*[USUAL] * 100, SILENT), scripted(USUAL)

    async def main() -> None:
        service = hedge(first, second, extra_load=0.05)
        await send_calls(service, 100)
        for number in range(400):
            seen = await ask(service, a_call(number, within_ms=2000))
            assert seen.fault is None or isinstance(seen.fault, TimedOut)
        assert 0 < len(second.calls) <= 0.05 * 500

    play(main, [first, second])


def test_hedges_use_most_of_extra_load_if_latency_varies() -> None:
    first = scripted(
        *[Script(ttft=0.1 + 0.001 * (number * 389 % 997), tokens=1) for number in range(2000)]
    )
    second = scripted(Script(ttft=0.05, tokens=1))

    async def main() -> None:
        await send_calls(hedge(first, second, extra_load=0.05), 2000)
        assert 60 <= len(second.calls) <= 100

    play(main, [first, second])


@pytest.mark.system
def test_a_fifth_of_slow_calls_needs_a_share_like_it() -> None:
    p95 = {}
    for extra in (0.05, 0.25):
        sent = traffic(
            f'hedge("a/x", "b/x", extra_load={extra})',
            late(0.2)(1),
            seconds=120,
            arrivals=Random(1),
        )
        p95[extra] = quantiles(waits(sent), n=100)[94]
    assert p95[0.25] < 2 < p95[0.05]


@repeated(120, 220)
def test_hedges_help_if_more_calls_are_slow_than_may_be_hedged(repeats: int) -> None:
    """7% of the calls take 3 s: hedged or not, with 5% of extra requests the 95th percentile would
    be a slow one."""
    sent = traffic('hedge("a/x", "b/x")', late(0.07)(1), seconds=repeats, arrivals=Random(1))
    assert quantiles(waits(sent), n=20)[-1] < 1
    assert 0.03 < sum(each.attempts > 1 for each in sent) / len(sent) <= 0.05


def test_timeout_of_the_first_counts_as_a_slow_sample() -> None:
    first, second = scripted(*[USUAL] * 30, *[fails(silent(), 3)] * 10, USUAL), scripted(USUAL)

    async def main() -> None:
        service = hedge(first, second, extra_load=0.2)
        await send_calls(service, 30)
        late = [await ask(service, a_call(number)) for number in range(10)]
        assert all(seen.fault is None or seen.ms == 3000 for seen in late)

    play(main, [first, second])


def test_the_delay_has_a_floor() -> None:
    first, second = (
        scripted(*[Script(ttft=0.001, tokens=1)] * 40, Script(ttft=0.009, tokens=1)),
        scripted(USUAL),
    )

    async def main() -> None:
        await send_calls(hedge(first, second), 41)
        assert len(second.calls) == 0

    play(main, [first, second])


def test_empty_response_is_a_fault() -> None:
    first, second = scripted(Script(tokens=0)), scripted(USUAL)

    async def main() -> None:
        seen = await ask(hedge(first, second))
        assert seen.fault is not None
        assert seen.fault.kind == "empty_answer"

    play(main, [first, second])


@contextmanager
def refusal(words: str) -> Iterator[None]:
    with pytest.raises(CallerFault, match=words):
        yield


@pytest.mark.parametrize("extra_load", [0, -1, 1.1, 0.0001, float("nan")])
def test_invalid_extra_load_is_refused(extra_load: float) -> None:
    with refusal("extra_load"):
        hedge(FakeService(), FakeService(), extra_load=extra_load)


def learned(
    facts: Mapping[str, TargetInfo], states: TargetStates | None = None
) -> tuple[Service, FakeService, FakeService]:
    """A hedge of a/x by b/x that is to be taught by 40 calls, and its targets; the 41st call is
    late."""
    known = states or TargetStates(facts)
    first = scripted(*[USUAL] * 40, LATE, target="a/x", observer=known.observe)
    second = scripted(USUAL, target="b/x", observer=known.observe)
    fakes = {"a/x": first, "b/x": second}
    return build(parse('hedge("a/x", "b/x")'), fakes.__getitem__, known), first, second


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, ""),
        (
            {
                "a/x": TargetInfo(provider="p", region="eu"),
                "b/x": TargetInfo(provider="p", region="eu"),
            },
            "p in eu",
        ),
        (
            {
                "a/x": TargetInfo(provider="p", region="eu"),
                "b/x": TargetInfo(provider="p", region="us"),
            },
            "",
        ),
        ({"a/x": TargetInfo(provider="p"), "b/x": TargetInfo(provider="p")}, ""),
        (
            {
                "a/x": TargetInfo(provider="p", region="eu"),
                "b/x": TargetInfo(provider="q", region="eu"),
            },
            "",
        ),
    ],
)
def test_branches_at_one_provider_and_region_are_refused(
    facts: Mapping[str, TargetInfo], words: str
) -> None:
    with refusal(words) if words else nullcontext():
        learned(facts)


@pytest.mark.parametrize("policy", ['hedge("a/x", "a/x")', 'hedge(retry("a/x"), "a/x")'])
def test_same_target_in_both_branches_is_refused(policy: str) -> None:
    with refusal("the same target, a/x"):
        build(parse(policy), lambda name: FakeService(target=name))


@pytest.mark.parametrize(
    ("down", "facts", "hedged"),
    [
        ("", {}, 1),
        ("b/x", {}, 0),
        ("a/x", {}, 1),
        ("a/x", {"a/x": TargetInfo(provider="p"), "b/x": TargetInfo(provider="p")}, 0),
        ("", {"a/x": TargetInfo(provider="p"), "b/x": TargetInfo(provider="p")}, 1),
    ],
)
def test_no_hedge_to_a_target_that_is_down_or_at_one_provider(
    down: str, facts: Mapping[str, TargetInfo], hedged: int
) -> None:
    class Some(TargetStates):
        def available(self, target: str, client: str | None = None) -> bool:
            return target != down

    service, first, second = learned(facts, Some(facts))

    async def main() -> None:
        await send_calls(service)
        await ask(service)
        assert len(second.calls) == hedged

    play(main, [first, second])


def test_slow_response_to_a_long_prompt_is_not_hedged() -> None:
    service, first, second = learned({})
    long = msgspec.structs.replace(
        a_call(41), body={"messages": [{"role": "user", "content": "word " * 20_000}]}
    )

    async def main() -> None:
        await send_calls(service)
        assert (await ask(service, long)).ms == 5000
        assert len(second.calls) == 0

    play(main, [first, second])


EXPRESSIONS = [
    'hedge("a/x", "b/x", extra_load=0.2)',
    'hedge(retry("a/x", extra_load=0.2), "b/x", extra_load=0.2)',
    'retry(hedge("a/x", "b/x", extra_load=0.3), times=3, extra_load=0.05)',
    'fallback(hedge(retry("a/x", times=3), "b/x"), retry("c/x", times=2))',
    'fallback("a/x", retry("b/x"), retry("c/x"), retry(hedge("d/x", "a/x")))',
]
NAMES = ["a/x", "b/x", "c/x", "d/x"]
MANY = [
    USUAL,
    LATE,
    fails(reset(), 0.1),
    fails(status(500)),
    fails(status(503)),
    fails(silent(), 1),
    fails(refused()),
]


@examples(150)
@given(
    st.sampled_from(EXPRESSIONS),
    st.lists(st.lists(st.sampled_from(MANY), min_size=1), min_size=4, max_size=4),
)
def test_policies_of_a_route_share_one_budget_of_extra_requests(
    policy: str, scripts: list[list[Script]]
) -> None:
    """Whatever the targets do: what is sent beyond the first request of each step is paid from one
    budget."""
    fakes = {name: scripted(*each, target=name) for name, each in zip(NAMES, scripts, strict=True)}
    share = max([float(found) for found in re.findall(r"extra_load=([\d.]+)", policy)], default=0.1)
    reserve = MAX_SAVED if "fallback" in policy or "retry" in policy else 0

    async def main() -> None:
        service = build(parse(policy), fakes.__getitem__)
        await send_calls(service, 60)
        sent = [fake.call.id for each in fakes.values() for fake in each.calls]
        steps = len({(fake.call.id, name) for name, each in fakes.items() for fake in each.calls})
        hedges = 0 if "fallback" in policy else len({fake.call.id for fake in fakes["b/x"].calls})
        assert len(sent) - steps + hedges <= share * 60 + reserve

    play(main, list(fakes.values()))


# What it stands on.


def test_savings_of_a_budget_are_bounded() -> None:
    budget = ExtraRequestBudget(0.5)
    for _ in range(1000):
        budget.deposit()
    assert sum(budget.withdraw() for _ in range(1000)) == MAX_SAVED
    assert repr(budget) == "<ExtraRequestBudget 0.00 of 10, 50.0% of calls>"


def test_reserve_of_a_budget_can_be_spent_at_once() -> None:
    budget = ExtraRequestBudget(0.1, reserve=2)
    assert [budget.withdraw() for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    ("slow_ms", "plan"),
    [
        ([], (200, 1.0)),
        ([3000] * 4, (200, 1.0)),  # fewer than may be hedged: a hedge of all of them
        ([3000] * 10, (200, 0.5)),
        ([300] * 10, (300, 1.0)),  # a hedge would save less than it takes
    ],
)
def test_plan_hedges_where_it_saves_most(slow_ms: list[int], plan: tuple[int, float]) -> None:
    usual = [200.0] * (100 - len(slow_ms))
    found = hedge_plan(SurvivalCurve([(ms, False, 1.0) for ms in [*usual, *slow_ms]]), 0.05)
    assert found.delay == plan[0]
    assert found.probability == pytest.approx(plan[1])


def test_latency_window_drops_old_samples() -> None:
    latencies = LatencyWindow(0.05)
    assert latencies.plan() is None
    for ns in [1000] * REMEMBERED + [10] * REMEMBERED:
        latencies.add(ns)
    assert len(latencies) == REMEMBERED
    assert latencies.plan() == (10, 1.0)
    latencies.add(5000)
    assert latencies.plan() == (10, 1.0)  # not worked out anew for each
