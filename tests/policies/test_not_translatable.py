"""A request that the API format of one target cannot express goes to another one, under every
policy that chooses."""

import pytest
from msgspec import structs
from tests.cases import each_case
from tests.policies.branches import a_call, ask, play, scripted

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Reply, Service
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.machinery.fault_handling import NOT_TRANSLATABLE
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.fake_service import Script


class CannotExpress:
    """A target that cannot be sent the request."""

    async def __call__(self, call: Call) -> Reply:
        raise CallerFault(
            "frequency_penalty cannot be translated", kind=NOT_TRANSLATABLE, target="a/x"
        )


POLICIES = ["weighted", "sticky", "hedge", "fastest", "cheapest", "fallback", "race"]


@each_case("policy", POLICIES)
@each_case("branches", ['"a/x", "b/x"', '"b/x", "a/x"'])
def test_untranslatable_request_goes_to_another_target(policy: str, branches: str) -> None:
    able = scripted(Script())

    async def main() -> None:
        targets: dict[str, Service] = {"a/x": CannotExpress(), "b/x": able}
        service = build(parse(f"{policy}({branches})"), targets.__getitem__, TargetStates())
        for number in range(6):
            assert (await ask(service, a_call(number))).fault is None
        assert len(able.calls) == 6

    play(main, [able])


@pytest.mark.parametrize(
    ("policy", "level"),
    [
        ('by_complexity(simple="a/x", complex="b/x")', "simple"),
        ('by_complexity(simple="b/x", complex="a/x")', "complex"),
    ],
)
def test_the_branch_for_another_complexity_answers(policy: str, level: str) -> None:
    able = scripted(Script())

    async def main() -> None:
        targets: dict[str, Service] = {"a/x": CannotExpress(), "b/x": able}
        service = build(parse(policy), targets.__getitem__, TargetStates())
        call = structs.replace(a_call(), hints={"complexity": level})
        assert (await ask(service, call)).fault is None
        assert len(able.calls) == 1

    play(main, [able])


def test_by_complexity_raises_not_translatable_if_no_branch_can() -> None:
    async def main() -> None:
        policy = parse('by_complexity(simple="a/x", complex="b/x")')
        fault = (await ask(build(policy, lambda name: CannotExpress(), TargetStates()))).fault
        assert fault is not None
        assert fault.kind == NOT_TRANSLATABLE

    play(main)


@each_case("policy", POLICIES)
def test_every_policy_raises_not_translatable_if_no_branch_can(policy: str) -> None:
    async def main() -> None:
        service = build(
            parse(f'{policy}("a/x", "b/x")'), lambda name: CannotExpress(), TargetStates()
        )
        fault = (await ask(service)).fault
        assert fault is not None
        assert "cannot be translated" in str(fault)

    play(main)
