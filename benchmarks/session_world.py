"""Sessions over simulated providers, routed by the gateway's own policies in virtual time."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from benchmarks.session_providers import (
    Caches,
    Chance,
    Outcome,
    Provider,
    Replica,
    Scenario,
    TruePrefix,
    Turnaround,
    in_cache,
    shortened,
    wait_s,
)
from splitsecond.benchmark.workload.sessions import Session, Turn
from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import Fault, ProviderFault
from splitsecond.core.observation import FaultRecord, Observation
from splitsecond.core.service import Call, Reply, ReplyBase, Service
from splitsecond.core.session import CallSession
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.machinery.choosing.session_choice import NEXT_NEW
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_states import TargetStates

FAILS_AFTER_S = 0.3
CLIENT_RETRY_S = 2.0


POLICIES: dict[str, str] = {
    "fastest": 'fastest("a/m", "b/m")',
    "cheapest": 'cheapest("a/m", "b/m")',
    "fallback": 'fallback("a/m", "b/m")',
    "weighted": 'weighted("a/m", "b/m")',
    "sticky": 'sticky("a/m", "b/m", ttl="1d")',
    "fastest without cache": 'fastest("a/m", "b/m", cache="off")',
    "cheapest without cache": 'cheapest("a/m", "b/m", cache="off")',
    "round robin": 'weighted("a/m", "b/m", cache="off")',
}
INFORMED = ("present speeds", "measured speeds")
"""Policies that know the providers and all caches, but not the future: their speeds at present, or
as the latest answers have shown them, which is about the most that a gateway can know."""
TURNS_AHEAD = 3
"""Later turns for which these expect the same speeds: with more, they take longer where speeds
drift."""
FIXED = ("sticky", "least loaded", "random", "only a", "only b")


class _Turn(NamedTuple):
    session: int
    number: int
    turn: Turn
    caches: Caches


class SimulatedReply(ReplyBase):
    """An answer that takes its time."""

    def __init__(self, target: str, ends_s: float, done: Callable[[], None]) -> None:
        self._target = target
        self._ends_s = ends_s
        self._done = done
        self.token_ns = clock.now_ns()

    @property
    def target(self) -> str:
        return self._target

    @property
    def empty(self) -> bool:
        return False

    async def finished(self) -> None:
        await asyncio.sleep(max(self._ends_s - now_s(), 0.0))
        self._done()

    async def aclose(self) -> None:
        pass


class SimulatedTarget:
    """The service of one simulated provider."""

    def __init__(self, name: str, provider: Provider, world: "World") -> None:
        self.name = name
        self.provider = provider
        self.in_flight = 0
        self.measured_s = 0.0
        """When the latest call began whose answer has ended: its speed is known."""
        self._world = world

    def __repr__(self) -> str:
        return f'"{self.name}"'

    async def __call__(self, call: Call) -> SimulatedReply:
        call.notes.attempts += 1
        begin_ns, begin_s, provider, world = clock.now_ns(), now_s(), self.provider, self._world
        turn = world.turns[call.id]
        identity = f"{call.id}.{call.notes.attempts}"
        if provider.is_down(begin_s):
            await asyncio.sleep(FAILS_AFTER_S)
            status, kind = provider.fails
            fault = ProviderFault("down", kind=kind, phase="head", status=status)
            record = FaultRecord(
                type="ProviderFault", kind=kind, phase="head", message="down", status=status
            )
            world.states.observe(
                Observation(
                    id=identity, call=call.id, target=self.name, outcome="failed", fault=record,
                    start_ns=begin_ns,
                    sent_ns=begin_ns, end_ns=clock.now_ns(), status=status,
                )
            )  # fmt: skip
            raise fault
        replica = Replica(
            self.name, world.chance.replica(turn.session, turn.number, self.name, provider.replicas)
        )
        cached = in_cache(provider, turn.caches.get(replica), begin_s)
        new = turn.turn.input_tokens - cached
        slower = world.chance.factor(turn.session, turn.number) * (
            1 + provider.load * self.in_flight
        )
        ttft_s = slower * provider.ttft_s(begin_s, new, cached)
        answer_s = (1 + provider.load * self.in_flight) * provider.answer_s(
            begin_s, turn.turn.output_tokens
        )
        self.in_flight += 1
        try:
            await asyncio.sleep(ttft_s)
        except BaseException:
            self.in_flight -= 1
            raise
        first_ns = clock.now_ns()
        turn.caches[replica] = TruePrefix(turn.turn.input_tokens, begin_s)
        world.spent[call.id] = cached, provider.usd(new, cached, turn.turn.output_tokens)

        def done() -> None:
            self.in_flight -= 1
            self.measured_s = max(self.measured_s, begin_s)
            world.states.observe(
                Observation(
                    id=identity, call=call.id, target=self.name, start_ns=begin_ns, reused=True,
                    sent_ns=begin_ns,
                    head_ns=first_ns, first_event_ns=first_ns, first_token_ns=first_ns,
                    last_token_ns=clock.now_ns(),
                    end_ns=clock.now_ns(), status=200, input_tokens=turn.turn.input_tokens,
                    cached_tokens=cached if provider.reports else None,
                    output_tokens=turn.turn.output_tokens, token_source="usage",
                )
            )  # fmt: skip

        return SimulatedReply(self.name, now_s() + answer_s, done)


def now_s() -> float:
    return clock.now_ns() / NS_PER_S - 1000.0


class World:
    """The providers of a scenario, and the sessions of one policy over them."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.chance = Chance(seed)
        facts = {
            name: TargetInfo(provider=name, price=each.price)
            for name, each in scenario.providers.items()
        }
        self.states = TargetStates(facts, chance=Random(seed))
        self.targets = {
            name: SimulatedTarget(name, each, self) for name, each in scenario.providers.items()
        }
        self.turns: dict[str, _Turn] = {}
        self.spent: dict[str, tuple[int, float]] = {}
        self._random = Random(seed + 1)

    def service(self, policy: str) -> Service:
        def target(name: str) -> Service:
            return self.targets[name]  # type: ignore[return-value] # its reply has only what policies and `run` use

        if policy in POLICIES:
            return build(parse(POLICIES[policy]), target, self.states)
        if policy in INFORMED:
            return partial(self._informed, measured=policy == "measured speeds")
        if policy.startswith("only "):
            return build(parse(f"{policy[5:]}/m"), target, self.states)
        guarded = {name: build(parse(name), target, self.states) for name in self.targets}

        async def chosen(call: Call) -> Reply:
            up = [name for name in guarded if self.states.available(name)] or list(guarded)
            if policy == "random":
                return await guarded[self._random.choice(up)](call)
            return await guarded[
                min(up, key=lambda name: (self.targets[name].in_flight, self._random.random()))
            ](call)

        return chosen

    async def _informed(self, call: Call, *, measured: bool) -> Reply:
        """Send a turn where it and the next ones would take the least time at the speeds that are
        known."""
        at_s, turn = now_s(), self.turns[call.id]
        tokens, output = turn.turn.input_tokens, turn.turn.output_tokens

        def seconds(target: SimulatedTarget) -> float:
            each, name = target.provider, target.name
            level = each.expected_level(at_s, target.measured_s) if measured else each.level(at_s)
            replica = Replica(
                name, self.chance.replica(turn.session, turn.number, name, each.replicas)
            )
            cached = in_cache(each, turn.caches.get(replica), at_s)
            later = each.usual_ttft_s(NEXT_NEW, tokens) + each.usual_answer_s(output)
            now = each.usual_ttft_s(tokens - cached, cached) + each.usual_answer_s(output)
            return level * (now + TURNS_AHEAD * later)

        up = [each for each in self.targets.values() if not each.provider.is_down(at_s)]
        return await min(up, key=seconds)(call)  # type: ignore[return-value] # as in `service`

    async def run(
        self, policy: str, sessions: Sequence[Session], starts_s: Sequence[float]
    ) -> Outcome:
        service = self.service(policy)
        played = [
            self._play(service, number, each, starts_s[number])
            for number, each in enumerate(sessions)
        ]
        return Outcome(list(await asyncio.gather(*played)))

    async def _play(
        self, service: Service, number: int, session: Session, start_s: float
    ) -> list[Turnaround]:
        await asyncio.sleep(start_s)
        caches: Caches = {}
        went: list[Turnaround] = []
        ended_ns: int | None = None
        for place, turn in enumerate(session.turns, 1):
            await asyncio.sleep(wait_s(turn))
            for key, each in shortened(caches, turn.shared_tokens).items():
                caches[key] = each
            idle_ns = None if ended_ns is None else clock.now_ns() - ended_ns
            began_s, attempt = now_s(), 0
            while True:
                attempt += 1
                call = Call(
                    id=f"{number}-{place}-{attempt}",
                    body={"prompt_cache_key": str(number), "max_tokens": turn.output_tokens},
                    start_ns=clock.now_ns(),
                )
                call.notes.session = CallSession(
                    id=str(number), source="simulated", turn=place, new_tokens=turn.new_tokens,
                    reusable_tokens=turn.shared_tokens, idle_ns=idle_ns,
                )  # fmt: skip
                self.turns[call.id] = _Turn(number, place, turn, caches)
                try:
                    reply = await service(call)
                    break
                except Fault:
                    await asyncio.sleep(CLIENT_RETRY_S)
            async with reply:
                await reply.finished()
            ended_ns = clock.now_ns()
            cached, usd = self.spent[call.id]
            seconds = now_s() - began_s
            went.append(
                Turnaround(seconds, usd, cached, turn.input_tokens, reply.target, call.notes.chosen)
            )
        return went
