"""Policies as definitions: what is read from a signature, and policies beside those of the
catalogue."""

from typing import Any, Literal

import pytest
from tests.cases import each_case
from tests.policies.branches import a_call, play, scripted

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Reply, Service
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.catalogue_of_policies import POLICIES
from splitsecond.routing.construction.expression import parse, targets
from splitsecond.routing.machinery.definition import Policy, PolicyContext
from splitsecond.routing.machinery.settings import Count, Duration, Share
from splitsecond.routing.policies.fallback import fallback
from splitsecond.testing.fake_service import FakeService, Script

DEFAULT = Share.parse("part", 0.5)


def mine(
    context: PolicyContext,
    first: Service,
    *others: Service,
    judge: Service | None = None,
    wait: Duration,
    times: Count,
    by: Literal["name", "size"] = "name",
    part: Share = DEFAULT,
    loud: bool | None = None,
) -> Service:
    """Ask the last branch."""

    async def service(call: Call) -> Reply:
        call.notes.chosen = (
            f"{context.text} {context.names} {wait.ns} {times.value} {by} {part.value} {loud}"
        )
        return await (first, *others)[-1](call)

    return service


def pair(first: Service, second: Service) -> Service:
    """A policy without settings that needs no context."""
    return second if first is second else first


MINE = Policy(mine, example='mine("a/x", wait="1s", times=2)')
ALL = {**POLICIES, "mine": MINE, "pair": Policy(pair, example='pair("a/x", "b/x")')}


def test_a_signature_says_how_a_policy_is_written() -> None:
    assert (MINE.name, MINE.least, MINE.most, MINE.named) == ("mine", 1, None, ("judge",))
    assert MINE.required == ("wait", "times")
    assert MINE.settings == {
        "wait": Duration,
        "times": Count,
        "by": Literal["name", "size"],
        "part": Share,
        "loud": bool,
    }
    assert (ALL["pair"].least, ALL["pair"].most, dict(ALL["pair"].settings)) == (2, 2, {})


def test_policy_can_be_added_to_those_of_the_catalogue() -> None:
    text = (
        'fallback(mine("a/x", "b/x", judge="c/x", times=3, wait="2s", '
        'loud=True), pair("c/x", "d/x"))'
    )
    expression = parse(text, ALL)
    assert repr(expression) == text
    fakes = {name: scripted(Script(), target=name) for name in targets(expression)}
    service = build(expression, fakes.__getitem__)

    async def main() -> None:
        call = a_call()
        async with await service(call) as reply:
            assert reply.target == "b/x"
        written = (
            'mine("a/x", "b/x", judge="c/x", wait="2s", times=3, by="name", part=0.5, loud=True)'
        )
        assert (
            call.notes.chosen == f"{written} (['a/x'], ['b/x'], ['c/x']) 2000000000 3 name 0.5 True"
        )

    play(main, list(fakes.values()))
    with pytest.raises(CallerFault, match="unknown policy mine"):
        parse(text)


@each_case(
    ("text", "message"),
    [
        ('mine("a/x", wait="2s")', "at character 1: mine needs times"),
        ('mine("a/x")', "mine needs wait and times"),
        ('mine(judge="a/x", wait="2s", times=1)', "mine has 0 branches, expected 1 or more"),
        ('mine("a/x", wait="2s", times=1, by="age")', "at character 33: by is"),
        ('mine("a/x", wait="2s", times=1, loud=1)', "loud is 1, expected True or False"),
        ('mine("a/x", wait="2s", times=1, quiet=1)', "mine has no setting quiet"),
    ],
)
def test_mistakes_are_found_by_the_signature(text: str, message: str) -> None:
    with pytest.raises(CallerFault) as raised:
        parse(text, ALL)
    assert message in raised.value.message
    assert raised.value.kind == "bad_policy"


def test_settings_in_python_are_literals_or_their_values() -> None:
    one, two = FakeService(target="a/x"), FakeService(target="b/x")
    parsed = Duration.parse("ttft", "1.5s")
    assert repr(fallback(one, two, ttft="1.5s")) == repr(fallback(one, two, ttft=parsed))
    assert 'ttft="1.5s"' in repr(fallback(one, two, ttft=parsed, stall=None))
    for wrong in ({"ttft": 2}, {"tfft": "2s"}):
        with pytest.raises(CallerFault):
            fallback(one, two, **wrong)
    with pytest.raises(CallerFault, match="fallback has 1 branch, expected 2 or more"):
        fallback(one)


def test_parameter_that_is_no_branch_or_setting_is_refused() -> None:
    def wrong(first: Service, *, size: int = 1) -> Service:
        return first

    with pytest.raises(TypeError, match="size is no setting"):
        Policy(wrong, example='wrong("a/x")')


def test_extra_requests_follow_the_setting_or_the_default() -> None:
    given: Any = {"extra_load": 0.2}
    assert POLICIES["hedge"].extra_requests({}) == (0.05, 0)
    assert POLICIES["hedge"].extra_requests(given) == (0.2, 0)
    assert POLICIES["retry"].extra_requests(given) == (0.2, 10)
    assert POLICIES["fallback"].extra_requests({}) == (0.1, 10)
    assert POLICIES["race"].extra_requests({}) is None


def test_a_branch_may_have_the_name_of_any_parameter() -> None:
    text = 'by_task(context="a/x", self="b/x", named="c/x", policies="d/x")'
    assert repr(build(parse(text), lambda name: FakeService(target=name))) == text
