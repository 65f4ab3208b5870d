"""`cheapest`: the cheapest branch that is fast enough."""

import math

import msgspec
import pytest
from tests.cases import each_case
from tests.policies.branches import a_call, ask, play
from tests.policies.traffic import Sent, changing, scattered, shares, steady, traffic
from tests.policies.world import priced

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.policies.cheapest import cheapest
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.fake_service import FakeService, Script

FACTS = {
    "free/x": priced(0.0, 0.0),
    "cheap/x": priced(0.1, 0.2),
    "middle/x": priced(1.0, 2.0),
    "dear/x": priced(10.0, 30.0),
    "reader/x": priced(0.1, 50.0),
    "writer/x": priced(5.0, 0.1),
}


def chosen(policy: str, call: Call | None = None) -> tuple[str, str]:
    """Return the target of the first call, and the reason, while no speed is known."""
    fakes: dict[str, FakeService] = {}
    call = call or a_call()

    def target(name: str) -> FakeService:
        fakes[name] = FakeService(script=lambda call: Script(), target=name)
        return fakes[name]

    async def main() -> None:
        assert (await ask(build(parse(policy), target, TargetStates(FACTS)), call)).fault is None

    play(main, list(fakes.values()))
    return next(name for name, fake in fakes.items() if fake.calls), call.notes.chosen


@each_case(
    ("policy", "expected"),
    [
        ('cheapest("dear/x", "cheap/x", "middle/x")', "cheap/x"),
        ('cheapest("unheard/x", "dear/x")', "dear/x"),
        ('cheapest("dear/x", "unheard/x", "free/x")', "free/x"),
        ('cheapest("dear/x", "cheap/x", within="voice")', "cheap/x"),
        ('cheapest(race("cheap/x", "middle/x"), "dear/x")', "cheap/x"),
        ('cheapest(race("cheap/x", "dear/x"), "middle/x")', "middle/x"),
        ('cheapest(fallback("cheap/x", "dear/x"), "middle/x")', "cheap/x"),
    ],
)
def test_call_goes_to_the_cheapest_branch(policy: str, expected: str) -> None:
    assert chosen(policy)[0] == expected


@pytest.mark.parametrize(
    ("words", "most", "expected"),
    [(4000, 10, "reader/x"), (10, 4000, "writer/x")],
)
def test_input_and_output_have_their_own_prices(words: int, most: int, expected: str) -> None:
    body = {"messages": [{"role": "user", "content": "word " * words}], "max_tokens": most}
    assert chosen('cheapest("reader/x", "writer/x")', Call(id="c", body=body))[0] == expected


def test_an_embedding_has_no_output() -> None:
    call = Call(id="c", operation="embeddings", body={"input": msgspec.Raw(b'"some words"')})
    assert chosen('cheapest("writer/x", "reader/x")', call)[0] == "reader/x"


def test_the_reason_names_the_cost_or_that_it_is_unknown() -> None:
    body = {"prompt": "x" * 4000, "max_tokens": 100}
    assert (
        chosen('cheapest("dear/x", "middle/x")', Call(id="c", body=body))[1]
        == "cheapest: middle/x, 0.0011 USD"
    )
    assert chosen('cheapest("a/x", "b/x")')[1] == "cheapest: a/x, no price"


def run(policy: str, cheap_ttft: float, middle_ttft: float = 0.2) -> list[Sent]:
    targets = {
        "cheap/x": steady(cheap_ttft),
        "middle/x": steady(middle_ttft),
        "dear/x": steady(0.05),
    }
    return traffic(policy, targets, seconds=60, facts=FACTS)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ('within="chat"', "cheap/x"),
        ('within="voice"', "middle/x"),
        ('within="edge"', "dear/x"),
        ('ttft="600ms"', "cheap/x"),
        ('ttft="300ms"', "middle/x"),
        ('within="chat", ttft="100ms"', "dear/x"),
        ('within="edge", ttft="10s"', "dear/x"),
    ],
)
def test_call_goes_to_the_cheapest_branch_within_the_limit(limit: str, expected: str) -> None:
    sent = run(f'cheapest("cheap/x", "middle/x", "dear/x", {limit})', cheap_ttft=0.5)
    assert shares(sent, since=20)[expected] > 0.9


def test_call_goes_to_the_fastest_branch_if_none_is_within_limit() -> None:
    sent = run('cheapest("cheap/x", "middle/x", ttft="50ms")', cheap_ttft=0.5)
    assert shares(sent, since=20)["middle/x"] > 0.9
    assert sent[-1].why.startswith("cheapest, none is fast enough: middle/x, ")


@pytest.mark.system
def test_cheap_target_that_becomes_fast_gets_calls_in_minutes() -> None:
    """Its p95 must fall, so it takes longer than with `fastest`."""
    targets = {"cheap/x": changing((0, steady(1.0)), (60, steady(0.1))), "dear/x": steady(0.1)}
    sent = traffic(
        'cheapest("cheap/x", "dear/x", within="voice")', targets, seconds=300, facts=FACTS
    )
    assert shares(sent, 20, 60)["dear/x"] > 0.9
    assert shares(sent, 20, 60)["cheap/x"] >= 0.01
    assert shares(sent, 180)["cheap/x"] > 0.9


def test_cheap_target_that_becomes_slow_loses_calls_in_seconds() -> None:
    targets = {"cheap/x": changing((0, steady(0.1)), (30, steady(1.0))), "dear/x": steady(0.1)}
    sent = traffic(
        'cheapest("cheap/x", "dear/x", within="voice")', targets, seconds=60, facts=FACTS
    )
    assert shares(sent, 10, 30)["cheap/x"] > 0.9
    assert shares(sent, 35)["dear/x"] > 0.9


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("p95", "least", "most"), [(0.25, 0.9, 1.0), (0.28, 0.6, 1.0), (0.32, 0.0, 0.4)]
)
def test_branch_slightly_below_the_limit_keeps_its_calls(
    p95: float, least: float, most: float
) -> None:
    median = p95 / math.exp(1.645 * 0.3)
    targets = {
        "cheap/x": scattered(steady(median), by=0.3),
        "dear/x": scattered(steady(0.1), seed=2, by=0.3),
    }
    sent = traffic('cheapest("cheap/x", "dear/x", ttft="300ms")', targets, seconds=100, facts=FACTS)
    assert least <= shares(sent, 10)["cheap/x"] <= most


def test_unknown_use_is_refused() -> None:
    with pytest.raises(CallerFault, match='within is "radio"'):
        cheapest(FakeService(), FakeService(), within="radio")
