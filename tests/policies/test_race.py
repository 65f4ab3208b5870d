"""`race`: the first token wins, whatever the others do, and nothing is left open."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies.branches import (
    SILENT,
    a_call,
    ask,
    bad_request,
    fails,
    play,
    refused,
    reset,
    scripted,
    status,
)

from splitsecond.core import clock
from splitsecond.core.catalog.price import Price
from splitsecond.core.errors import AllFailed
from splitsecond.core.events import Event
from splitsecond.core.service import Call, Reply
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.policies.race import SAVED_S, SpendingAccount, race
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.fake_service import FakeService, Script


def test_first_token_wins_and_closes_the_losers_at_once() -> None:
    slow, fast, mute = (
        scripted(Script(ttft=0.3)),
        scripted(Script(ttft=0.2, tokens=3)),
        scripted(SILENT),
    )

    async def main() -> None:
        began_ns = clock.now_ns()
        reply = await race(slow, fast, mute)(a_call())
        won_ns = clock.now_ns()
        assert won_ns - began_ns == 200 * clock.NS_PER_MS
        assert [fake.calls[0].closed_at for fake in (slow, fast, mute)] == [won_ns, None, won_ns]
        await reply.finished()
        await reply.aclose()
        outcomes = [fake.calls[0].observation for fake in (slow, fast, mute)]
        assert [seen and seen.outcome for seen in outcomes] == ["cancelled", "ok", "cancelled"]

    play(main, [slow, fast, mute])


@pytest.mark.parametrize(
    "loses", [fails(reset(), 0.1), fails(bad_request(), 0.1), Script(ttft=0.1, tokens=0)]
)
def test_a_failure_or_an_answer_without_a_token_does_not_win(loses: Script) -> None:
    fakes = scripted(loses), scripted(Script(ttft=0.2))

    async def main() -> None:
        seen = await ask(race(*fakes))
        assert (seen.fault, seen.ms) == (None, 200)

    play(main, fakes)


def test_causes_have_the_order_of_the_branches() -> None:
    first, second = status(503), refused()
    fakes = scripted(fails(first, 0.3)), scripted(fails(second, 0.1)), scripted(Script(tokens=0))

    async def main() -> None:
        seen = await ask(race(*fakes))
        assert isinstance(seen.fault, AllFailed)
        assert seen.fault.causes[:2] == (first, second)
        assert seen.fault.causes[2].kind == "empty_answer"
        assert seen.fault.phase == "head"
        assert seen.ms == 300

    play(main, fakes)


def test_simultaneous_first_tokens_give_one_reply() -> None:
    fakes = scripted(Script(ttft=0.2)), scripted(Script(ttft=0.2)), scripted(Script(ttft=0.2))

    async def main() -> None:
        reply = await race(*fakes)(a_call())
        assert sum(fake.left_open for fake in fakes) == 1
        await reply.aclose()

    play(main, fakes)


def test_reply_of_a_branch_that_delays_cancellation_is_closed() -> None:
    fake = scripted(Script(ttft=0.3))

    async def stubborn(call: Call) -> Reply:
        inner = asyncio.create_task(fake(call))
        try:
            return await asyncio.shield(inner)
        except asyncio.CancelledError:
            return await inner

    async def main() -> None:
        reply = await race(scripted(Script(ttft=0.2)), stubborn)(a_call())
        assert fake.left_open == 0
        await reply.aclose()

    play(main, [fake])


def test_cancellation_during_the_win_leaves_nothing_open() -> None:
    fakes = scripted(Script(ttft=0.2)), scripted(SILENT)
    # after the first token it takes a few turns of the loop until the race returns
    for turns in range(8):

        async def main(turns: int = turns) -> None:
            began = asyncio.get_running_loop().time()
            waiting = asyncio.create_task(ask(race(*fakes)))
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_at(began + 0.2, _later, turns, waiting)
            await asyncio.wait([waiting])
            assert waiting.cancelled()

        play(main, fakes)


def _later(turns: int, task: "asyncio.Task[Any]") -> None:
    if turns:
        asyncio.get_running_loop().call_soon(_later, turns - 1, task)
    else:
        task.cancel()


def test_bug_in_a_branch_is_raised_unwrapped() -> None:
    fake = scripted(SILENT)

    async def broken(call: Call) -> Reply:
        raise ZeroDivisionError("a bug")

    async def main() -> None:
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await race(fake, broken)(a_call())

    play(main, [fake])


def test_a_bug_that_shows_after_the_win_closes_the_winner() -> None:
    fake = scripted(Script(ttft=0.2))

    async def broken(call: Call) -> Reply:
        try:
            await asyncio.sleep(1)
        finally:
            raise ZeroDivisionError("a bug")

    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await race(fake, broken)(a_call())

    play(main, [fake])


OUTCOMES = st.tuples(st.integers(1, 1000), st.sampled_from(["token", "fails", "empty", "hangs"]))


@given(st.lists(OUTCOMES, min_size=2, max_size=5))
def test_race_is_never_slower_than_its_best_branch(branches: list[tuple[int, str]]) -> None:
    made = {"token": Script(), "fails": fails(reset()), "empty": Script(tokens=0), "hangs": SILENT}
    fakes: list[FakeService] = []
    for ms, what in branches:
        script = made[what]
        fakes.append(
            scripted(
                Script(ttft=ms / 1000, tokens=script.tokens, fault=script.fault, hangs=script.hangs)
            )
        )
    brought = [ms for ms, what in branches if what == "token"]
    hangs = any(what == "hangs" for _, what in branches)

    async def main() -> None:
        seen = await ask(race(*fakes), a_call(within_ms=5000))
        if brought:
            assert (seen.fault, seen.ms) == (None, min(brought))
        else:
            assert isinstance(seen.fault, AllFailed)
            assert seen.ms == (5000 if hangs else max(ms for ms, _ in branches))

    play(main, fakes)


def test_stream_has_only_the_winners_events() -> None:
    fakes = scripted(SILENT), scripted(Script(ttft=0.2, tokens=2, input_tokens=7))

    async def main() -> None:
        reply = await race(*fakes)(a_call())
        events: list[Event] = [event async for event in reply]
        await reply.aclose()
        assert [type(event).__name__ for event in events] == [
            "Token",
            "Token",
            "Finish",
            "Usage",
            "Done",
        ]

    play(main, fakes)


# What losers may cost.

ASKS = {"messages": [{"role": "user", "content": "x" * 3_950}]}
"""About a thousand tokens."""


def at(input_usd: float, output_usd: float = 0.0, *, stops: bool | None = True) -> TargetInfo:
    return TargetInfo(
        closing_stops_billing=stops, price=Price(input_usd=input_usd, output_usd=output_usd)
    )


def raced(
    spend: str,
    facts: Mapping[str, TargetInfo],
    *,
    calls: int = 10,
    every_s: float = 0.0,
    down: str = "",
) -> list[list[str]]:
    """Return the targets of each call: b is the faster one."""

    class Some(TargetStates):
        def available(self, target: str, client: str | None = None) -> bool:
            return target != down

    states = Some(facts)
    fakes = {
        name: scripted(Script(ttft=ttft, tokens=100, tps=1e4), target=name)
        for name, ttft in [("a", 0.2), ("b", 0.1)]
    }
    asked: list[list[str]] = []

    async def main() -> None:
        service = build(parse(f'race("a", "b", spend="{spend}")'), fakes.__getitem__, states)
        for number in range(calls):
            call = msgspec.structs.replace(a_call(number), body={**ASKS, "max_tokens": 100})
            await ask(service, call)
            asked.append(call.notes.attempted)
            await asyncio.sleep(every_s)

    play(main, list(fakes.values()))
    return asked


def test_a_race_keeps_to_its_budget() -> None:
    """A thousand tokens at a dollar a million is a tenth of a cent; ten minutes of 3 cents an hour
    pay for five."""
    asked = raced("0.03/h", {"a": at(1.0), "b": at(1.0)})
    assert asked == [["a", "b"]] * 5 + [["a"]] * 5


def test_races_resume_when_the_budget_has_grown() -> None:
    asked = raced("0.03/h", {"a": at(1.0), "b": at(1.0)}, calls=40, every_s=60)
    both = sum(len(each) == 2 for each in asked)
    assert 5 + 40 * 0.5 - 2 <= both <= 5 + 40 * 0.5 + 1


def test_budget_pays_for_all_branches_but_the_cheapest() -> None:
    assert raced("0.03/h", {"a": at(1.0), "b": at(5.0)})[:3] == [["a", "b"], ["a"], ["a"]]


def test_losers_billed_in_full_cost_a_whole_response() -> None:
    """A hundred tokens at 50 dollars a million are half a cent more."""
    for stops, races in [(False, 2), (None, 2), (True, 10)]:
        facts = {"a": at(0.0), "b": at(0.0, 50.0, stops=stops)}
        assert sum(len(each) == 2 for each in raced("0.06/h", facts)) == races


def test_a_target_without_a_price_counts_as_the_most_expensive() -> None:
    assert raced("0.03/h", {"a": at(1.0)}) == [["a", "b"]] * 5 + [["a"]] * 5
    assert raced("0.03/h", {}) == [["a"]] * 10


def test_targets_without_cost_are_always_raced() -> None:
    assert raced("0.01/h", {"a": at(0.0), "b": at(0.0)}) == [["a", "b"]] * 10


def test_target_that_is_down_costs_nothing_and_is_skipped() -> None:
    facts = {"a": at(1.0), "b": at(1.0)}
    assert raced("0.03/h", facts, down="a") == [["b"]] * 10
    assert raced("0.03/h", facts, down="b") == [["a"]] * 10


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 1)), max_size=60), st.floats(1e-6, 1e-2))
def test_withdrawals_never_exceed_the_deposits(
    steps: list[tuple[float, float]], usd_per_s: float
) -> None:
    account, now_s, spent = SpendingAccount(usd_per_s), 0.0, 0.0
    for wait_s, usd in steps:
        now_s += wait_s
        if account.withdraw(usd, round(now_s * clock.NS_PER_S)):
            spent += usd
        assert spent <= (now_s + SAVED_S) * usd_per_s * (1 + 1e-6)
