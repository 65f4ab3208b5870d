"""`weighted`: shares are exact, evenly mixed, and among the available branches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies.branches import ask, play
from tests.policies.test_fastest import Down, Unwell

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Service
from splitsecond.routing.machinery.definition import PolicyContext
from splitsecond.routing.policies.weighted import weighted
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.fake_service import FakeService, Script

NAMES = "abcdef"


def order(weights: str | None, calls: int, of: int, states: TargetStates | None = None) -> str:
    """Return the branch of each call, as a letter."""
    answered: list[str] = []

    def branch(name: str) -> FakeService:
        def script(call: object) -> Script:
            answered.append(name)
            return Script(ttft=0, tokens=1)

        return FakeService(script=script, target=name)

    async def main() -> None:
        names = NAMES[:of]
        context = PolicyContext(states=states or TargetStates(), names=[[name] for name in names])
        service = weighted(*map(branch, names), weights=weights, context=context)
        for _ in range(calls):
            await ask(service)

    play(main)
    return "".join(answered)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ("3,1", "aabaaaba"),
        ("5,1,1", "aabacaaaabacaa"),  # the example in nginx's own change log
        (None, "abab"),
        ("1, 1, 1", "abcabc"),
        ("1000,1", "aaaa"),
    ],
)
def test_branches_alternate_evenly_by_weight(weights: str | None, expected: str) -> None:
    assert (
        order(weights, len(expected), 2 if weights is None else weights.count(",") + 1) == expected
    )


@given(st.lists(st.integers(1, 9), min_size=2, max_size=5))
def test_each_round_has_exactly_the_shares(weights: list[int]) -> None:
    once = order(",".join(map(str, weights)), sum(weights), len(weights))
    assert [once.count(name) for name in NAMES[: len(weights)]] == weights


def test_branches_that_are_down_are_left_out() -> None:
    assert order("3,1,1", 8, 3, Unwell("a")) == "bcbcbcbc"


def test_the_next_branch_is_asked_if_nothing_was_sent() -> None:
    well = FakeService(script=lambda call: Script())
    services: list[Service] = [Down(), well]

    async def main() -> None:
        service = weighted(*services)
        for _ in range(4):
            assert (await ask(service)).fault is None

    play(main, [well])
    assert len(well.calls) == 4


def test_number_of_weights_must_equal_the_branches() -> None:
    with pytest.raises(CallerFault, match="has 2 branches and 3 weights"):
        weighted(FakeService(), FakeService(), weights="1,2,3")
