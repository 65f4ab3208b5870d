"""Previews: the targets that calls would go to, without sending one."""

import pytest
from tests.cases import each_case
from tests.policies.world import priced

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.observation import FaultRecord, Observation
from splitsecond.core.session import CallSession
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.construction.preview import (
    PreviewedChoice,
    preview,
    preview_sessions,
    sample,
)
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.virtual_time import run_virtual


def answered(target: str, ttft_ms: int) -> Observation:
    return Observation(
        id="x",
        call="c",
        target=target,
        sent_ns=1,
        first_token_ns=1 + ttft_ms * NS_PER_MS,
        end_ns=2 * NS_PER_S,
    )


def failed(target: str) -> Observation:
    fault = FaultRecord(type="NetworkFault", kind="refused", phase="connect", message="refused")
    return Observation(id="x", call="c", target=target, outcome="failed", fault=fault, end_ns=1)


def choices(
    policy: str, states: TargetStates | None = None, prompt: str = "Hello.", calls: int = 20
) -> list[PreviewedChoice]:
    found: list[PreviewedChoice] = []

    async def act() -> None:
        found.extend(
            await preview(parse(policy), states or TargetStates(), sample(prompt), calls=calls)
        )

    run_virtual(act())
    return found


def test_preview_of_a_fallback_shows_all_branches_of_its_race() -> None:
    assert choices('fallback(race("a/x", "b/x"), "c/x")') == [
        PreviewedChoice(calls=20, targets=("a/x", "b/x"))
    ]


def test_a_target_that_is_down_is_skipped() -> None:
    states = TargetStates()

    async def break_it() -> None:
        for _ in range(5):
            states.observe(failed("a/x"))
        assert not states.available("a/x")
        (choice,) = await preview(
            parse('fallback("a/x", "b/x")'), states, sample("Hello."), calls=3
        )
        assert choice == PreviewedChoice(calls=3, targets=("b/x",))
        (choice,) = await preview(parse('retry("a/x")'), states, sample(""), calls=3)
        assert choice.targets == ("a/x",)  # the last remaining target is always tried
        assert states.in_flight("a/x") == 0

    run_virtual(break_it())


def test_preview_of_fastest_names_the_fastest_and_why() -> None:
    states = TargetStates()

    async def act() -> None:
        for _ in range(50):
            states.observe(answered("a/x", 900))
            states.observe(answered("b/x", 100))
        first, *others = await preview(
            parse('fastest("a/x", "b/x", by="ttft")'), states, sample("Hello."), calls=50
        )
        assert first.targets == ("b/x",)
        assert first.calls > 40
        assert "b/x" in first.why
        assert sum(choice.calls for choice in [first, *others]) == 50

    run_virtual(act())


def test_preview_after_a_warm_start_explores_2_of_100_calls() -> None:
    """Before, the first calls went to the slow target, one after another, because its estimate was
    older than 5 s."""
    states = TargetStates()
    attempts = [
        answered(target, ttft_ms)
        for target, ttft_ms in (("a/x", 900), ("b/x", 150))
        for _ in range(40)
    ]

    async def act() -> None:
        states.seed(attempts, 600 * NS_PER_S)
        found = await preview(
            parse('fastest("a/x", "b/x", by="ttft")'), states, sample("Hello."), calls=100
        )
        assert {choice.targets: choice.calls for choice in found} == {("b/x",): 98, ("a/x",): 2}
        assert "explored" in found[1].why

    run_virtual(act())


def test_preview_follows_the_prompt_and_the_prices() -> None:
    by_complexity = 'by_complexity(simple="a/x", complex="b/x")'
    assert choices(by_complexity)[0].targets == ("a/x",)
    facts = {"a/x": priced(2, 4), "b/x": priced(1, 2)}
    assert choices('cheapest("a/x", "b/x")', TargetStates(facts))[0].targets == ("b/x",)


def test_a_refused_call_has_a_reason() -> None:
    (choice,) = choices('by_task(code="a/x")')
    assert choice.targets == ()
    assert "task" in choice.refused


def test_the_next_turn_of_a_session_is_explained() -> None:
    states = TargetStates()
    states.conversations.remember(CallSession(id="s", source="x"), "b/x", 190_000, clock.now_ns())

    async def act() -> None:
        (choice,) = await preview_sessions(parse('fastest("a/x", "b/x")'), states, sample("Hello."))
        assert choice.targets == ("b/x",)
        assert choice.why.startswith("stays at b/x: ")
        (choice,) = await preview_sessions(
            parse('fallback("a/x", "b/x")'), states, sample("Hello.")
        )
        assert choice.targets == ("b/x",)
        assert (
            await preview_sessions(parse('fastest("a/x", "c/x")'), states, sample("Hello.")) == []
        )

    run_virtual(act())


@each_case(
    ("policy", "odds"),
    [
        ('split("a/x", "b/x", share=0.3)', {"a/x": 0.7, "b/x": 0.3}),
        ('split(weighted("a/x", "b/x"), "a/x", share=0.5)', {"a/x": 0.75, "b/x": 0.25}),
        ('weighted("a/x", "b/x", weights="2,1")', {"a/x": 2 / 3, "b/x": 1 / 3}),
        ('fallback("a/x", "b/x")', {"a/x": None}),
    ],
)
def test_shares_are_those_of_the_policy_and_not_of_the_sample(
    policy: str, odds: dict[str, float | None]
) -> None:
    found = {each.targets[0]: each.odds for each in choices(policy, calls=100)}
    assert found == pytest.approx(odds)
