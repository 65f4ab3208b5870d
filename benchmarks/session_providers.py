"""Simulated providers whose speeds, prompt caches and prices are known, and the scenarios of
`session_routing`."""

import math
from itertools import pairwise
from random import Random
from statistics import mean
from typing import NamedTuple

from msgspec import Struct, field

from splitsecond.benchmark.workload.sessions import Turn
from splitsecond.core.catalog.price import Price
from splitsecond.core.clock import NS_PER_S

BLOCK = 128
"""Tokens: caches keep whole blocks."""
LONGEST_WAIT_S = 2 * 3600.0
PRICE = Price(input_usd=3.0, output_usd=15.0, cached_usd=0.3)


class Provider(Struct, frozen=True, kw_only=True):
    """A simulated provider. Its TTFT is `level` × (a + b × new + c × cached). `drift`: the
    amplitude of the logarithm of its speed over minutes and an hour. `load`: by how much each
    request in flight slows it. `down`: from when to when it answers `fails`, a status and the kind
    of the fault. `reports`: its usage has the cached tokens."""

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

    def expected_level(self, at_s: float, measured_s: float) -> float:
        """Return the level that one expects who has measured it once: it moves back to its mean as
        such waves do."""
        apart_s = at_s - measured_s
        kept = (math.cos(apart_s / 200) + math.cos(apart_s / 613)) / 2
        return float(self.level(measured_s) ** kept)

    def is_down(self, at_s: float) -> bool:
        return self.down[0] <= at_s < self.down[1]

    def ttft_s(self, at_s: float, new: int, cached: int) -> float:
        return self.level(at_s) * self.usual_ttft_s(new, cached)

    def answer_s(self, at_s: float, tokens: int) -> float:
        return self.level(at_s) * self.usual_answer_s(tokens)

    def usual_ttft_s(self, new: int, cached: int) -> float:
        return self.a + self.b * new + self.c * cached

    def usual_answer_s(self, tokens: int) -> float:
        return tokens / self.tps

    def usd(self, new: int, cached: int, output: int) -> float:
        return self.price.cost_usd(
            input_tokens=new + cached, cached_tokens=cached, output_tokens=output
        )


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


def wait_s(turn: Turn) -> float:
    return min(turn.wait_ns / NS_PER_S, LONGEST_WAIT_S)
