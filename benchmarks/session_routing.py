"""Session time and money by routing policy, in virtual time: `python -m benchmarks.session_routing` (some minutes).

Sessions of agents, synthetic or of a file (`--sessions FILE`), run over simulated providers whose prompt caches and
speeds differ. Every policy meets the same sessions, the same speeds and the same chance. The oracle knows all of these
beforehand and plans each session alone by a beam search, once for the least time and once for the least money. Where
speed depends on the load, there is no oracle: what is best then depends on what the others do.
"""

import argparse
import asyncio
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import mean
from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from splitsecond.benchmark.load.session_files import read_sessions
from splitsecond.benchmark.load.sessions import Session, Turn
from splitsecond.benchmark.load.synthetic_sessions import synthetic_sessions
from splitsecond.core import clock
from splitsecond.core.catalog.price import Price
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import Fault, ProviderFault
from splitsecond.core.observation import FaultRecord, Observation
from splitsecond.core.pages.axis import linear
from splitsecond.core.pages.chart import Chart, LegendEntry, picture
from splitsecond.core.pages.png import standalone
from splitsecond.core.service import Call, Reply, ReplyBase, Service
from splitsecond.core.session import CallSession
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.virtual_time import run_virtual

BLOCK = 128
"""Tokens: caches keep whole blocks."""
LONGEST_WAIT_S = 2 * 3600.0
STARTS_S = 2400.0
"""Sessions begin within so many seconds."""
PRICE = Price(input_usd=3.0, output_usd=15.0, cached_usd=0.3)
BEAM = 48
MAX_ABOVE = 60.0
"""The edge of the plot, in percent."""
FAILS_AFTER_S = 0.3
CLIENT_RETRY_S = 2.0


class Provider(Struct, frozen=True, kw_only=True):
    """A simulated provider. Its TTFT is `level` × (a + b × new + c × cached). `drift`: the amplitude of the logarithm
    of its speed over minutes and an hour. `load`: by how much each request in flight slows it. `down`: from when to
    when it answers `fails`, a status and the kind of the fault. `reports`: its usage has the cached tokens."""

    a: float = 0.6
    b: float = 0.00008
    c: float = 0.000004
    tps: float = 80.0
    lifetime_s: float = 300.0
    replicas: int = 1
    drift: float = 0.0
    phase: float = 0.0
    load: float = 0.0
    down: tuple[float, float] = (0.0, 0.0)
    fails: tuple[int, str] = (503, "http_503")
    reports: bool = True
    price: Price = PRICE

    def level(self, at_s: float) -> float:
        if not self.drift:
            return 1.0
        waves = math.sin(at_s / 200 + self.phase) + math.sin(at_s / 613 + 2.3 * self.phase)
        return math.exp(self.drift * waves)

    def is_down(self, at_s: float) -> bool:
        return self.down[0] <= at_s < self.down[1]

    def ttft_s(self, at_s: float, new: int, cached: int) -> float:
        return self.level(at_s) * (self.a + self.b * new + self.c * cached)

    def answer_s(self, at_s: float, tokens: int) -> float:
        return self.level(at_s) * tokens / self.tps

    def usd(self, new: int, cached: int, output: int) -> float:
        return self.price.cost_usd(input_tokens=new + cached, cached_tokens=cached, output_tokens=output)


class Scenario(NamedTuple):
    about: str
    providers: dict[str, Provider]


HALF = Price(input_usd=1.5, output_usd=7.5, cached_usd=0.6)
SCENARIOS: dict[str, Scenario] = {
    "lifetimes": Scenario(
        "a is a little faster and forgets after 2 min, b after an hour",
        {"a/m": Provider(a=0.5, lifetime_s=120), "b/m": Provider(lifetime_s=3600)},
    ),
    "replicas": Scenario(
        "behind a's address are two replicas with a cache each",
        {"a/m": Provider(a=0.5, replicas=2), "b/m": Provider(a=0.7)},
    ),
    "drift": Scenario(
        "both drift by a factor of up to 2 either way",
        {"a/m": Provider(drift=0.35), "b/m": Provider(drift=0.35, phase=2.0, lifetime_s=900)},
    ),
    "outage": Scenario(
        "a is faster, and down for ten minutes",
        {"a/m": Provider(a=0.5, b=0.00006, down=(1500, 2100)), "b/m": Provider(lifetime_s=600)},
    ),
    "prices": Scenario(
        "new tokens at b cost half, cached ones twice as much",
        {"a/m": Provider(lifetime_s=3600), "b/m": Provider(price=HALF, b=0.0001)},
    ),
    "load": Scenario(
        "two servers of your own, slower with each request in flight",
        {"a/m": Provider(load=0.15, lifetime_s=1800), "b/m": Provider(load=0.3, lifetime_s=1800)},
    ),
}

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
FIXED = ("sticky", "least loaded", "random", "only a", "only b")


class TruePrefix(Struct):
    """What the cache of one replica really holds of one session."""

    tokens: int
    at_s: float


class Turnaround(Struct):
    """One turn as it went."""

    seconds: float
    usd: float
    cached: int
    prompt: int
    target: str
    why: str = ""


class Outcome(Struct):
    """The sessions of one policy. Each is the list of its turns."""

    sessions: list[list[Turnaround]] = field(default_factory=list)

    def time_s(self, share: float) -> float:
        times = sorted(sum(turn.seconds for turn in turns) for turns in self.sessions)
        return times[min(int(share * len(times)), len(times) - 1)]

    @property
    def mean_s(self) -> float:
        return mean(sum(turn.seconds for turn in turns) for turns in self.sessions)

    @property
    def usd(self) -> float:
        return mean(sum(turn.usd for turn in turns) for turns in self.sessions)

    @property
    def cached_share(self) -> float:
        turns = [turn for turns in self.sessions for turn in turns]
        return sum(turn.cached for turn in turns) / sum(turn.prompt for turn in turns)

    @property
    def moves(self) -> float:
        return mean(sum(a.target != b.target for a, b in pairwise(each)) for each in self.sessions)


class Chance:
    """The chance of each turn, the same for every policy."""

    def __init__(self, seed: int, noise: float = 0.2) -> None:
        self._seed = seed
        self._noise = noise

    def factor(self, session: int, turn: int) -> float:
        return math.exp(Random(f"{self._seed} {session} {turn}").gauss(0.0, self._noise))

    def replica(self, session: int, turn: int, target: str, of: int) -> int:
        return 0 if of == 1 else Random(f"{self._seed} {session} {turn} {target}").randrange(of)


class Replica(NamedTuple):
    target: str
    number: int


Caches = dict[Replica, TruePrefix]


def in_cache(provider: Provider, found: TruePrefix | None, at_s: float) -> int:
    if found is None or at_s - found.at_s >= provider.lifetime_s:
        return 0
    return found.tokens // BLOCK * BLOCK


def shortened(caches: Caches, shared: int) -> Caches:
    return {key: TruePrefix(min(each.tokens, shared), each.at_s) for key, each in caches.items()}


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
            record = FaultRecord(type="ProviderFault", kind=kind, phase="head", message="down", status=status)
            world.states.observe(
                Observation(
                    id=identity, call=call.id, target=self.name, outcome="failed", fault=record, start_ns=begin_ns,
                    sent_ns=begin_ns, end_ns=clock.now_ns(), status=status,
                )
            )  # fmt: skip
            raise fault
        replica = Replica(self.name, world.chance.replica(turn.session, turn.number, self.name, provider.replicas))
        cached = in_cache(provider, turn.caches.get(replica), begin_s)
        new = turn.turn.input_tokens - cached
        slower = world.chance.factor(turn.session, turn.number) * (1 + provider.load * self.in_flight)
        ttft_s = slower * provider.ttft_s(begin_s, new, cached)
        answer_s = (1 + provider.load * self.in_flight) * provider.answer_s(begin_s, turn.turn.output_tokens)
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
            world.states.observe(
                Observation(
                    id=identity, call=call.id, target=self.name, start_ns=begin_ns, reused=True, sent_ns=begin_ns,
                    head_ns=first_ns, first_event_ns=first_ns, first_token_ns=first_ns, last_token_ns=clock.now_ns(),
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
        facts = {name: TargetInfo(provider=name, price=each.price) for name, each in scenario.providers.items()}
        self.states = TargetStates(facts, chance=Random(seed))
        self.targets = {name: SimulatedTarget(name, each, self) for name, each in scenario.providers.items()}
        self.turns: dict[str, _Turn] = {}
        self.spent: dict[str, tuple[int, float]] = {}
        self._random = Random(seed + 1)

    def service(self, policy: str) -> Service:
        def target(name: str) -> Service:
            return self.targets[name]  # type: ignore[return-value] # its reply has only what policies and `run` use

        if policy in POLICIES:
            return build(parse(POLICIES[policy]), target, self.states)
        if policy.startswith("only "):
            return build(parse(f"{policy[5:]}/m"), target, self.states)
        guarded = {name: build(parse(name), target, self.states) for name in self.targets}

        async def chosen(call: Call) -> Reply:
            up = [name for name in guarded if self.states.available(name)] or list(guarded)
            if policy == "random":
                return await guarded[self._random.choice(up)](call)
            return await guarded[min(up, key=lambda name: (self.targets[name].in_flight, self._random.random()))](call)

        return chosen

    async def run(self, policy: str, sessions: Sequence[Session], starts_s: Sequence[float]) -> Outcome:
        service = self.service(policy)
        played = [self._play(service, number, each, starts_s[number]) for number, each in enumerate(sessions)]
        return Outcome(list(await asyncio.gather(*played)))

    async def _play(self, service: Service, number: int, session: Session, start_s: float) -> list[Turnaround]:
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
            went.append(Turnaround(seconds, usd, cached, turn.input_tokens, reply.target, call.notes.chosen))
        return went


def wait_s(turn: Turn) -> float:
    return min(turn.wait_ns / NS_PER_S, LONGEST_WAIT_S)


class _Plan(NamedTuple):
    cost: float
    at_s: float
    caches: Caches
    went: tuple[int, ...]
    turns: tuple[Turnaround, ...]


def oracle(
    scenario: Scenario, sessions: Sequence[Session], starts_s: Sequence[float], seed: int, *, by: str
) -> Outcome:
    """Return the sessions as somebody would route them who knows everything beforehand."""
    chance = Chance(seed)
    return Outcome([_planned(scenario, chance, n, each, starts_s[n], by=by) for n, each in enumerate(sessions)])


def _planned(
    scenario: Scenario, chance: Chance, number: int, session: Session, start_s: float, *, by: str
) -> list[Turnaround]:
    plans = [_Plan(0.0, start_s, {}, (), ())]
    for place, turn in enumerate(session.turns, 1):
        found: dict[tuple[object, ...], _Plan] = {}
        noise = chance.factor(number, place)
        for plan in plans:
            at_s = plan.at_s + wait_s(turn)
            caches = shortened(plan.caches, turn.shared_tokens)
            for name, provider in scenario.providers.items():
                if provider.is_down(at_s):
                    continue
                replica = Replica(name, chance.replica(number, place, name, provider.replicas))
                cached = in_cache(provider, caches.get(replica), at_s)
                new = turn.input_tokens - cached
                seconds = noise * provider.ttft_s(at_s, new, cached) + provider.answer_s(at_s, turn.output_tokens)
                usd = provider.usd(new, cached, turn.output_tokens)
                after = {**caches, replica: TruePrefix(turn.input_tokens, at_s)}
                went = Turnaround(seconds, usd, cached, turn.input_tokens, name)
                cost = plan.cost + (usd if by == "usd" else seconds)
                key = tuple((each, prefix.tokens) for each, prefix in sorted(after.items()))
                if key not in found or cost < found[key].cost:
                    found[key] = _Plan(cost, at_s + seconds, after, (), (*plan.turns, went))
        plans = sorted(found.values(), key=lambda plan: plan.cost)[:BEAM]
    return list(plans[0].turns)


def outcomes(scenario: Scenario, sessions: Sequence[Session], seed: int, policies: Sequence[str]) -> dict[str, Outcome]:
    random = Random(seed)
    starts_s = [random.uniform(0.0, STARTS_S) for _ in sessions]
    found = {each: run_virtual(World(scenario, seed).run(each, sessions, starts_s)) for each in policies}
    if not any(each.load for each in scenario.providers.values()):
        for by in ("time", "usd"):
            found[f"oracle, {by}"] = oracle(scenario, sessions, starts_s, seed, by=by)
    return found


def tables(found: dict[str, dict[str, Outcome]]) -> str:
    """Return the table of times and that of money, in Markdown."""
    policies = list(dict.fromkeys(policy for each in found.values() for policy in each))

    def table(title: str, cell: Callable[[Outcome], str]) -> str:
        lines = [f"| {title} | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
        for policy in policies:
            cells = [cell(each[policy]) if policy in each else "" for each in found.values()]
            lines.append(f"| {policy} | {' | '.join(cells)} |")
        return "\n".join(lines)

    times = table("mean, p50, p95 in s", lambda o: f"{o.mean_s:,.0f}, {o.time_s(0.5):,.0f}, {o.time_s(0.95):,.0f}")
    money = table("$, cached", lambda o: f"{o.usd:.2f}, {o.cached_share:.0%}")
    return f"{times}\n\n{money}\n"


def chart(found: dict[str, dict[str, Outcome]]) -> str:
    """Return an SVG file: for each policy, how far the mean session is above the oracle in time and in money."""
    entries = {name: LegendEntry(label=name, index=at) for at, name in enumerate(found)}
    rows = [policy for policy in POLICIES | dict.fromkeys(FIXED) if all(policy in each for each in found.values())]
    charts = []
    for title, by in (("session time above the lowest, in %", "time"), ("money above the lowest, in %", "usd")):
        above = {
            (name, policy): 100 * (_amount(each[policy], by) / min(_amount(o, by) for o in each.values()) - 1)
            for name, each in found.items()
            for policy in rows
        }
        drawn = Chart(linear(title, 0, MAX_ABOVE), None, height=22 * len(rows), left=170)
        for at, policy in enumerate(rows):
            drawn.add(None, drawn.name(policy, 22 * at + 11))
            for name, entry in entries.items():
                value, tip = above[name, policy], f"{policy}, {name}: {above[name, policy]:.1f}%"
                drawn.add(entry, drawn.mark(entry, min(value, MAX_ABOVE), 22 * at + 11, tip))
        charts.append(drawn)
    words = "Mean session time and money of each policy above the lowest in the same scenario; at the edge: more."
    return standalone(
        picture(*charts, name="session-routing", section="", title="Where the next turn goes", description=words),
        entries,
    )


def _amount(outcome: Outcome, by: str) -> float:
    return outcome.mean_s if by == "time" else outcome.usd


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=Path, help="a file of recorded sessions (default: synthetic ones)")
    parser.add_argument("-n", type=int, default=60, help="sessions (default 60)")
    parser.add_argument("--turns", type=int, default=None, help="only the first turns of each session")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenario", choices=SCENARIOS, action="append")
    parser.add_argument("--policy", action="append", help="only this policy, and the oracle")
    parser.add_argument("--plot", type=Path, help="write the plot to this SVG file")
    given = parser.parse_args()
    every = read_sessions(given.sessions) if given.sessions else synthetic_sessions("agent", given.seed)
    chosen = Random(given.seed).sample(every.sessions, min(given.n, len(every.sessions)))
    sessions = [msgspec.structs.replace(each, turns=each.turns[: given.turns]) for each in chosen]
    print(f"{len(sessions)} sessions, {sum(len(each.turns) for each in sessions):,} turns, seed {given.seed}\n")
    found = {}
    for name in given.scenario or SCENARIOS:
        print(f"{name}: {SCENARIOS[name].about}", flush=True)
        policies = given.policy or [*POLICIES, *FIXED[1:]]
        found[name] = outcomes(SCENARIOS[name], sessions, given.seed, policies)
    print(f"\n{tables(found)}")
    if given.plot:
        given.plot.write_text(chart(found), encoding="utf-8")


if __name__ == "__main__":
    main()
