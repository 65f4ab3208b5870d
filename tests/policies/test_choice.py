"""What a call notes of the choice of a policy, for the log."""

from tests.cases import each_case
from tests.policies.branches import a_call, ask, play
from tests.policies.test_fastest import Unwell

from splitsecond.core.service import Call, RoutingChoice, Service
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.fake_service import FakeService, Script


def noted(policy: str, *down: str, calls: int = 1) -> list[RoutingChoice | None]:
    found: list[Call] = []
    states: TargetStates = Unwell(*down)

    def target(name: str) -> Service:
        return FakeService(script=lambda call: Script(), target=name)

    async def main() -> None:
        service = build(parse(policy), target, states)
        for number in range(calls):
            found.append(a_call(number))
            await ask(service, found[-1])

    play(main)
    return [each.notes.choice for each in found]


@each_case(
    "policy, down, expected",
    [
        ('weighted("a/m", "b/m", weights="3,1")', (), RoutingChoice(0, 0b11, 0.75)),
        ('weighted("a/m", "b/m", "c/m", weights="2,1,1")', ("a/m",), RoutingChoice(1, 0b110, 0.5)),
        ('sticky("a/m", "b/m")', ("a/m",), RoutingChoice(1, 0b10, 1.0)),
        ('fastest("a/m", "b/m")', (), RoutingChoice(1, 0b11, 0.0)),
        ('fastest("a/m", "b/m")', ("a/m",), RoutingChoice(1, 0b10, 1.0)),
        ('weighted("a/m", "b/m")', ("a/m", "b/m"), RoutingChoice(0, 0, 1.0)),
        ('fallback("a/m", "b/m")', (), None),
    ],
)
def test_a_choice_has_its_probability(
    policy: str, down: tuple[str, ...], expected: RoutingChoice | None
) -> None:
    assert noted(policy, *down) == [expected]


def test_choices_within_choices_multiply_their_odds() -> None:
    policy = 'weighted(weighted("a/m", "b/m"), weighted("b/m", "a/m"), weights="3,1")'
    choices = noted(policy, calls=4)
    assert sorted(each.odds for each in choices if each is not None) == [0.125, *[0.375] * 3]
