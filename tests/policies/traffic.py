"""Steady traffic through a policy in virtual time, over targets whose speed changes."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random

import msgspec
from tests.policies.branches import a_call, play

from splitsecond.core import clock
from splitsecond.core.errors import Fault
from splitsecond.core.service import Call, Service
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.fake_service import FakeService, Script

Speed = Callable[[float], Script]
"""What a target does at so many seconds from the start."""


class Sent(msgspec.Struct, frozen=True):
    """One call: when it was sent, in seconds from the start, which target answered it, its wait in
    seconds, why it was sent there, and how many attempts it took."""

    at: float
    target: str
    ttft: float
    why: str
    attempts: int


def steady(ttft: float, tps: float = 100.0, tokens: int = 3) -> Speed:
    return lambda at: Script(ttft=ttft, tps=tps, tokens=tokens)


def changing(*steps: tuple[float, Speed]) -> Speed:
    """Each speed from its time on."""
    return lambda at: [speed for begins, speed in steps if begins <= at][-1](at)


def scattered(speed: Speed, seed: int = 1, by: float = 0.2) -> Speed:
    """`speed`, each time longer or shorter by chance."""
    chance = Random(seed)

    def script(at: float) -> Script:
        script_now = speed(at)
        return msgspec.structs.replace(
            script_now, ttft=script_now.ttft * chance.lognormvariate(0.0, by)
        )

    return script


def traffic(
    policy: str,
    targets: Mapping[str, Speed],
    *,
    seconds: float,
    rate: float = 10.0,
    facts: Mapping[str, TargetInfo] | None = None,
    call: Callable[[int], Call] = a_call,
    arrivals: Random | None = None,
) -> list[Sent]:
    """`rate` calls a second to `policy` for so many `seconds`, evenly or, with `arrivals`, by
    chance."""
    sent: list[Sent] = []
    fakes: dict[str, FakeService] = {}

    async def main() -> None:
        began_ns = clock.now_ns()
        states = TargetStates(facts, chance=Random(3))

        def seconds_now() -> float:
            return (clock.now_ns() - began_ns) / clock.NS_PER_S

        def target(name: str) -> Service:
            def script(call: Call) -> Script:
                return targets[name](seconds_now())

            fakes[name] = FakeService(script=script, target=name, observer=states.observe)
            return fakes[name]

        service = build(parse(policy), target, states)

        async def one(number: int) -> None:
            at, asked = seconds_now(), call(number)
            try:
                reply = await service(asked)
            except Fault as fault:
                sent.append(
                    Sent(
                        at,
                        f"{fault.kind}",
                        seconds_now() - at,
                        asked.notes.chosen,
                        asked.notes.attempts,
                    )
                )
                return
            sent.append(
                Sent(at, reply.target, seconds_now() - at, asked.notes.chosen, asked.notes.attempts)
            )
            async with reply:
                await reply.finished()

        async with asyncio.TaskGroup() as group:
            for number in range(round(rate * seconds)):
                group.create_task(one(number))
                await asyncio.sleep(arrivals.expovariate(rate) if arrivals else 1 / rate)

    play(main)
    return sorted(sent, key=lambda each: each.at)


def shares(sent: list[Sent], since: float = 0.0, until: float = float("inf")) -> dict[str, float]:
    """Which part of the calls of a time went to each target."""
    counted = Counter(each.target for each in sent if since <= each.at < until)
    return {target: number / counted.total() for target, number in counted.items()}
