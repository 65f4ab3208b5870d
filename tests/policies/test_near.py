"""`near`: no call leaves the region."""

import pytest
from tests.policies.branches import a_call, play
from tests.policies.traffic import shares, steady, traffic

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.fake_service import FakeService, Script

WHERE = {
    "paris": "eu-west",
    "rome": "eu-south",
    "bern": "eu",
    "texas": "us-south",
    "odd": "europe",
    "lost": "",
}
FACTS = {f"{name}/x": TargetInfo(region=region) for name, region in WHERE.items()}
ALL = ", ".join(f'"{name}"' for name in FACTS)


def hinted(region: str) -> Call:
    return Call(id="c", body={}, hints={"region": region})


def asked(policy: str, region: str = "") -> set[str]:
    """Return the targets that some calls went to. `region` is the client's hint."""
    fakes: dict[str, FakeService] = {}

    def target(name: str) -> FakeService:
        fakes[name] = FakeService(script=lambda call: Script(ttft=0.01), target=name)
        return fakes[name]

    async def main() -> None:
        service = build(parse(policy), target, TargetStates(FACTS))
        for number in range(60):
            async with await service(hinted(region) if region else a_call(number)) as reply:
                await reply.finished()

    play(main)
    return {name for name, fake in fakes.items() if fake.calls}


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        ("eu", {"paris/x", "rome/x", "bern/x"}),
        ("eu-west", {"paris/x"}),
        ("us", {"texas/x"}),
        ("europe", {"odd/x"}),
    ],
)
def test_only_targets_in_the_region_are_called(region: str, expected: set[str]) -> None:
    assert asked(f'near({ALL}, region="{region}")') == expected


def test_policy_is_in_the_region_if_all_its_targets_are() -> None:
    assert asked('near(race("paris/x", "texas/x"), race("paris/x", "rome/x"), region="eu")') == {
        "paris/x",
        "rome/x",
    }
    assert asked('near(fallback("bern/x", "lost/x"), "rome/x", region="eu")') == {"rome/x"}


def test_client_may_narrow_but_not_widen_the_region() -> None:
    assert asked(f'near({ALL}, region="eu")', "eu-south") == {"rome/x"}
    for elsewhere in ("us", "us-south", "europe", "e", "eu-"):
        with pytest.raises(CallerFault, match="no branch is in the region") as refused:
            asked(f'near({ALL}, region="eu")', elsewhere)
        assert refused.value.hint == "There are: eu, eu-south, eu-west."


def test_client_region_outside_the_configured_one_is_refused() -> None:
    assert asked(f'near({ALL}, region="eu-west")', "eu-west") == {"paris/x"}
    with pytest.raises(CallerFault):
        asked(f'near({ALL}, region="eu-west")', "us")


@pytest.mark.parametrize(
    ("policy", "hint"),
    [
        ('near("paris/x", "texas/x", region="asia")', "There are: eu-west, us-south."),
        ('near("lost/x", region="eu")', "No region is known of any of its targets."),
        ('near("unheard/x", region="eu")', "No region is known of any of its targets."),
    ],
)
def test_an_empty_region_is_refused_when_the_policy_is_built(policy: str, hint: str) -> None:
    with pytest.raises(CallerFault, match="no branch is in the region") as raised:
        build(parse(policy), lambda name: FakeService(target=name), TargetStates(FACTS))
    assert (raised.value.kind, raised.value.hint) == ("bad_policy", hint)


def test_fastest_target_in_the_region_gets_most_calls() -> None:
    targets = {"paris/x": steady(0.3), "rome/x": steady(0.1), "texas/x": steady(0.01)}
    sent = traffic(
        'near("paris/x", "rome/x", "texas/x", region="eu")', targets, seconds=60, facts=FACTS
    )
    assert shares(sent, since=20)["rome/x"] > 0.9
    assert "texas/x" not in shares(sent)
    assert sent[-1].why.startswith("near: ")


def test_targets_outside_do_not_replace_those_inside() -> None:
    """A target that is down is skipped only if another one can replace it."""
    given: dict[str, frozenset[str]] = {}

    class Noting(TargetStates):
        def guard(
            self,
            target: str,
            service: object,
            among: frozenset[str],
            *,
            needs_stream: bool = True,
            compares_caches: bool = True,
        ) -> FakeService:
            given[target] = among
            assert isinstance(service, FakeService)
            return service

    policy = 'fallback(near("paris/x", "rome/x", "texas/x", region="eu"), "bern/x")'
    build(parse(policy), lambda name: FakeService(target=name), Noting(FACTS))
    assert given["paris/x"] >= {"paris/x", "rome/x"}
    assert "texas/x" not in given["paris/x"]
