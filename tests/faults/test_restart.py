"""Answers that are not streamed are asked for again when they break, whatever breaks them; streams
are resumed."""

from pathlib import Path

import pytest
from tests.faults.test_faults_and_policies import FAULTS, FOR_EVER_S, IN_THE_MIDDLE
from tests.faults.world import TEXT, World, play, profile
from tests.gateway.visitor import Visitor

from splitsecond.simulator.content.faults import InjectedFault
from splitsecond.simulator.profile import Profile

SLOW = InjectedFault(kind="stall", after=3, seconds=FOR_EVER_S)


def answer(policy: str, folder: Path, *, stream: bool, a: Profile, b: Profile) -> Visitor:
    found: list[Visitor] = []

    async def story(world: World) -> None:
        found.append(await world.ask(stream=stream))
        await world.settled()

    play(policy, folder, story, a=a, b=b)
    return found[0]


@pytest.mark.parametrize("fault", IN_THE_MIDDLE)
def test_broken_whole_response_is_requested_from_the_next_target(
    fault: str, tmp_path: Path
) -> None:
    found = answer(
        'fallback("a/m", "b/m")', tmp_path, stream=False, a=profile(FAULTS[fault]), b=profile()
    )
    assert found.status == 200
    assert found.json["choices"][0]["message"]["content"] == TEXT
    assert found.headers["x-splitsecond-target"] == "b/m"
    assert found.headers["x-splitsecond-attempts"] == "2"


def test_client_gets_the_first_failure_if_all_targets_break(tmp_path: Path) -> None:
    broken = profile(FAULTS["cut"])
    found = answer('fallback("a/m", "b/m")', tmp_path, stream=False, a=broken, b=broken)
    assert found.status == 502
    assert found.json["error"]["code"] == "truncated"
    assert "a/m" in found.json["error"]["message"]
    assert "b/m" in found.json["error"]["message"]


@pytest.mark.parametrize("stream", [True, False])
def test_total_limit_of_a_branch_leads_to_the_next_branch(stream: bool, tmp_path: Path) -> None:
    """Before, the client got 504 once a token had come."""
    policy = 'fallback(deadline("a/m", total="600ms"), "b/m", resume="replay")'
    found = answer(policy, tmp_path, stream=stream, a=profile(SLOW), b=profile())
    assert found.status == 200
    assert b'"error"' not in found.body
    if not stream:
        assert found.json["choices"][0]["message"]["content"] == TEXT


@pytest.mark.parametrize("stream", [True, False])
def test_total_limit_of_the_call_ends_it(stream: bool, tmp_path: Path) -> None:
    policy = 'deadline(fallback("a/m", "b/m", resume="replay"), total="600ms")'
    found = answer(policy, tmp_path, stream=stream, a=profile(SLOW), b=profile())
    assert (found.status, b'"error"' in found.body) == (200 if stream else 504, True)
