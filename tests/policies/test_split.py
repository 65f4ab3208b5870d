"""`split`: sessions and keys keep their arm, and a call notes the probability of its arm."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from tests.cases import each_case
from tests.policies.branches import a_call, ask, fails, play, status
from tests.policies.test_preview import choices

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Notes, RoutingChoice, Service
from splitsecond.core.session import CallSession
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.policies.split import in_second, seed_of
from splitsecond.testing.fake_service import FakeService, Script

HALVES = 'split("a/m", "b/m", share=0.5)'
SEED = seed_of("chat", [["a/m"], ["b/m"]])
UNITS = [f"key {number}" for number in range(2000)]


def call(number: int, *, session: str = "", client: str = "") -> Call:
    found = CallSession(id=session, source="test") if session else None
    return replace(a_call(number), client=client, notes=Notes(session=found))


def arms(policy: str, calls: Sequence[Call], *, route: str = "chat", down: str = "") -> str:
    """Return the arm of each call as a letter. Calls to the target `down` fail."""
    answered: list[str] = []

    def target(name: str) -> Service:
        def script(call: Call) -> Script:
            answered.append(name[0])
            return fails(status(500)) if name == down else Script(ttft=0.01)

        return FakeService(script=script, target=name)

    async def main() -> None:
        service = build(parse(policy), target, route=route)
        for each in calls:
            await ask(service, each)

    play(main)
    return "".join(answered)


@each_case(
    "policy, calls",
    [
        (HALVES, [call(number, session="s", client=f"k{number}") for number in range(20)]),
        (HALVES, [call(number, client="k") for number in range(20)]),
        (
            'split("a/m", "b/m", share=0.5, by="key")',
            [call(number, session=f"s{number}", client="k") for number in range(20)],
        ),
    ],
)
def test_a_session_or_key_keeps_its_arm(policy: str, calls: list[Call]) -> None:
    assert len(set(arms(policy, calls))) == 1


def test_without_session_and_key_calls_are_spread() -> None:
    assert set(arms(HALVES, [call(number) for number in range(20)])) == {"a", "b"}


def test_the_arm_of_a_key_is_the_same_in_each_process() -> None:
    keys = [call(number, client=f"k{number}") for number in range(20)]
    assert arms(HALVES, keys) == "".join(
        "ab"[in_second(SEED, f"key k{number}", 0.5)] for number in range(20)
    )
    # fixed: another hash would move the sessions of a running comparison
    found = "".join("ab"[in_second(SEED, each, 0.5)] for each in UNITS[10:30])
    assert found == "bbabbabbabaaabbaabab"


def test_the_second_arm_has_its_share() -> None:
    for share in (0.01, 0.1, 0.5):
        expected = share * len(UNITS)
        members = sum(in_second(SEED, each, share) for each in UNITS)
        assert members == pytest.approx(expected, abs=4 * expected**0.5)
    assert all(in_second(SEED, each, 1.0) for each in UNITS)


def test_a_larger_share_keeps_who_was_in_the_second_arm() -> None:
    small = {each for each in UNITS if in_second(SEED, each, 0.1)}
    assert small < {each for each in UNITS if in_second(SEED, each, 0.3)}


def test_another_route_draws_anew() -> None:
    other = seed_of("code", [["a/m"], ["b/m"]])
    same = sum(in_second(SEED, each, 0.5) == in_second(other, each, 0.5) for each in UNITS)
    assert same == pytest.approx(len(UNITS) / 2, rel=0.1)


def test_a_call_stays_in_its_arm_if_that_is_down() -> None:
    calls = [call(number, client=f"k{number}") for number in range(20)]
    assert arms(HALVES, calls, down="a/m") == arms(HALVES, calls)


@each_case(
    "policy, places",
    [
        ('split("a/m", "b/m", share="10%")', {0: 0.9, 1: 0.1}),
        ('split("a/m", weighted("b/m", "c/m"), share="20%")', {0: 0.8, 1: 0.1}),
        ('weighted(split("a/m", "b/m", share=0.5), "c/m")', {0: 0.25, 1: 0.5}),
    ],
)
def test_a_call_notes_its_arm_with_the_probability(policy: str, places: dict[int, float]) -> None:
    calls = [call(number, client=f"k{number}") for number in range(100)]
    arms(policy, calls)
    found = {each.notes.choice for each in calls}
    assert found == {RoutingChoice(place, 0b11, odds) for place, odds in places.items()}


def test_a_preview_shows_both_arms() -> None:
    first, second = choices('split("a/m", "b/m", share="20%")')
    assert first.targets == ("a/m",)
    assert first.calls > second.calls
    assert second.why == "split: b/m, 20% by session"


def test_settings_that_are_wrong_are_refused() -> None:
    with pytest.raises(CallerFault, match=r'Write a share as "10%"'):
        parse('split("a/m", "b/m", share=10%)')
    with pytest.raises(CallerFault, match=r"from 0\.001 to 1"):
        parse('split("a/m", "b/m", share="101%")')
