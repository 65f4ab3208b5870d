"""How many requests a provider that is down gets in 90 seconds, and in five minutes."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.cases import each_case
from tests.faults.test_faults_and_policies import (
    AT_THE_HEAD,
    DEADLINE_S,
    FAULTS,
    FOR_EVER_S,
    GOES_ON,
    HARMLESS,
    POLICY,
)
from tests.faults.world import World, play, profile

from splitsecond.core import clock
from splitsecond.routing.construction.catalogue_of_policies import POLICIES
from splitsecond.simulator.content.faults import InjectedFault

PER_S = 1
MAX_A_MINUTE = 6
MAX_SEEN_LATE = 10
"""Where an answer goes wrong only after seconds: until then it looks well, and others are let
through."""
MINUTE_NS = 60 * clock.NS_PER_S
FOUND_OUT_S = DEADLINE_S + 10
"""By then it is known to be down, by whatever fault: five calls have failed, the slowest at their
deadline."""
TO_FIND_OUT = 9
"""Requests to a provider that fails at once: five until it is down, and four to see whether it
still is."""
TOKENS = 4
DOWN = [name for name in FAULTS if name not in (*HARMLESS, "http 400")]
IN_SECONDS: Mapping[str, tuple[int, InjectedFault]] = {
    "stall after seconds": (500, InjectedFault(kind="stall", after=450, seconds=FOR_EVER_S)),
    "cut after seconds": (500, InjectedFault(kind="cut", after=450)),
}
"""How many tokens an answer has, at 100 a second, and what befalls it when it has gone well for
longer than a probe."""
OF_EVERY_SORT = ("http", "slow_first_token", "cut")
ALTERNATIVES = [name for name, form in POLICIES.items() if form.alternatives]
SEEN_BY_A_RACE = AT_THE_HEAD
"""A race asks all of its targets each time, and closes who loses: of one that is slow, or breaks
off later than the other begins, it learns nothing."""


LATE = "20s"
"""Until a silence within an answer is called one; by then a target that gave a first token has long
looked well."""


def pairs() -> Iterator[tuple[str, str, str]]:
    """Every fault under one policy, and a few of every sort under the others; each with its stall
    limit."""
    for policy in ALTERNATIVES:
        for fault in DOWN if policy == "fallback" else OF_EVERY_SORT:
            if policy != "race" or fault in SEEN_BY_A_RACE:
                yield policy, fault, "2s"
        if policy != "race":
            yield policy, "stall", LATE


OF_EVERY_KIND = ("http", "refused", "slow_first_token", "stall")
"""A fault of each kind: by the status, without a connection, late, and within the answer."""


def fast_pairs() -> Iterator[tuple[str, str, str]]:
    """A fault of every kind under one policy, and one fault under each sixth one of the others."""
    for number, policy in enumerate(ALTERNATIVES):
        if policy == "fallback":
            yield from ((policy, fault, "2s") for fault in OF_EVERY_KIND)
        elif number % 6 == 1:
            yield (
                policy,
                "http" if policy == "race" else OF_EVERY_SORT[number % len(OF_EVERY_SORT)],
                "2s",
            )


LONG_ANSWERS = [("fallback", "stall after seconds", LATE), ("fallback", "cut after seconds", "2s")]


@each_case("policy, fault, stall", fast_pairs())
def test_provider_that_is_down_gets_few_requests(
    policy: str, fault: str, stall: str, tmp_path: Path
) -> None:
    check_left_alone(policy, fault, stall, 90, tmp_path)


@pytest.mark.system
@pytest.mark.parametrize(("policy", "fault", "stall"), [*pairs(), *LONG_ANSWERS])
def test_it_is_left_alone_for_five_minutes(
    policy: str, fault: str, stall: str, tmp_path: Path
) -> None:
    check_left_alone(policy, fault, stall, 300, tmp_path)


def check_left_alone(policy: str, fault: str, stall: str, seconds: int, folder: Path) -> None:
    """Send a call a second, for so many seconds."""
    unserved: list[int] = []

    async def send_call(world: World) -> None:
        began_ns = clock.now_ns()
        visitor = await world.ask(max_tokens=tokens, user=f"user {world.asked}")
        if b"[DONE]" not in visitor.body:
            unserved.append(began_ns)

    async def story(world: World) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(seconds * PER_S):
                group.create_task(send_call(world))
                await asyncio.sleep(1 / PER_S)

    tokens, planned = IN_SECONDS.get(fault) or (TOKENS, FAULTS[fault])
    down, well = profile(planned, tokens=tokens), profile(tokens=tokens)
    world = play(
        f'deadline({POLICY[policy]}, total="30s")', folder, story, stall=stall, a=down, b=well
    )
    asked = [record.arrived_ns for record in world.requests("a")]
    at = sorted(world.simulated["a"].connected_ns if fault == "refused" else asked)
    assert at, "nobody asked it"
    known_ns = at[0] + round(FOUND_OUT_S * clock.NS_PER_S)
    later = [moment for moment in at if moment > known_ns]
    most = MAX_SEEN_LATE if fault in IN_SECONDS else MAX_A_MINUTE
    assert all(sum(begin <= each < begin + MINUTE_NS for each in later) <= most for begin in later)
    assert sum(began_ns > known_ns for began_ns in unserved) <= len(later)
    if fault in AT_THE_HEAD:
        assert len(at) - len(later) <= TO_FIND_OUT
        assert len(unserved) <= (0 if policy in GOES_ON else len(at))
