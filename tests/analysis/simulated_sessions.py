"""Sessions of a simulated server whose truth is known, as the observations that a bench makes of
them.

TTFT = fixed + new × new tokens + reused × reused tokens, times what a session has of its own, what
a slow minute has for all, and chance, which is alike in successive turns. Sometimes a prompt is not
in the cache, and a session breaks.

As in a bench, each slot of a round begins in the middle of a session, after a request that fills
the prompt cache, and the round ends with the last of its measured turns, in the middle of other
sessions.
"""

import math
import random
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from msgspec import Struct

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.observation import FaultRecord, Observation, Role, SessionTurn

BEGIN_S = 1_000.0
FAILED = FaultRecord(
    type="ProviderFault", kind="http_500", phase="head", message="HTTP 500", status=500
)
TOKEN_S = 0.01
BLOCK = 64
"""Tokens of a block of the prompt cache."""
AGENT_TURNS = 2
LONGER = 6
"""How many times as long a long session is."""


class Server(Struct, frozen=True, kw_only=True):
    """What is true of a server and of the sessions that it gets. Scatters are of logarithms.

    `fixed_s`, `new_s` and `reused_s`: TTFT of no token, and of each. `of_session`, `of_minute`,
    `of_turn`: how much sessions, minutes and turns differ; `alike`: correlation of successive
    turns. `tau_s`: how long slow minutes last. `miss`: share of turns that are not in the cache;
    `breaks`: share of turns that fail. `turns`: least and most of a session; `long`: share of
    sessions that are `LONGER` times as long; `agents`: sub-agents that work at the same time in the
    middle of each session.
    """

    fixed_s: float = 0.25
    new_s: float = 1 / 4_000
    reused_s: float = 1 / 250_000
    of_session: float = 0.2
    of_minute: float = 0.2
    of_turn: float = 0.2
    alike: float = 0.6
    tau_s: float = 60.0
    miss: float = 0.07
    breaks: float = 0.0
    reports: bool = True
    primes_well: bool = True
    turns: tuple[int, int] = (4, 16)
    long: float = 0.0
    tokens: int = 60
    prompt: int = 15_000
    new: int = 900
    tools_s: float = 3.0
    agents: int = 0


@dataclass
class Talk:
    """A conversation: the main one of a session, or that of a sub-agent of `parent`."""

    session: str
    own: float
    count: int
    context: int
    next: int = 1
    branch: str = ""
    parent: "Talk | None" = None
    wait_s: float = 0.0
    working: int = 0
    last: float = 0.0
    agents_over_s: float = field(default=0.0)


def simulated(
    server: Server,
    seed: int = 1,
    *,
    turns: int = 400,
    slots: int = 4,
    rounds: int = 5,
    apart_s: float = 180.0,
    target: str = "a/x",
    condition: str = "c",
    tokens_listed: bool = True,
) -> list[Observation]:
    """Return the requests of so many measured turns in rounds, `apart_s` from the end of one to the
    next."""
    made: list[Observation] = []
    run = _Run(server, random.Random(seed), target, condition, tokens_listed)
    for number in range(1, rounds + 1):
        run.pause(apart_s)
        made += run.round(number, len(range(number - 1, turns, rounds)), slots)
    return made


def _kept(chance: random.Random, value: float, share: float) -> float:
    return share * value + math.sqrt(1 - share * share) * chance.gauss(0, 1)


class _Run:
    def __init__(
        self,
        server: Server,
        chance: random.Random,
        target: str,
        condition: str,
        tokens_listed: bool,
    ) -> None:
        self.server, self.chance, self.target, self.condition = server, chance, target, condition
        self.tokens_listed = tokens_listed
        self.minute, self.now_s, self.number, self.sessions = chance.gauss(0, 1), BEGIN_S, 0, 0

    def pause(self, seconds: float) -> None:
        self._pass(self.now_s + seconds)

    def _pass(self, until_s: float) -> None:
        past_s = max(until_s - self.now_s, 0.0)
        self.minute = _kept(self.chance, self.minute, math.exp(-past_s / self.server.tau_s))
        self.now_s = max(self.now_s, until_s)

    def round(self, number: int, turns: int, slots: int) -> list[Observation]:
        self.number = number
        made: list[Observation] = []
        heap: list[tuple[float, int, Talk]] = []
        order = iter(range(1 << 40))
        primed_s = self.now_s
        for _ in range(slots):
            talk = self._talk(joined=True)
            if talk.next > 1:
                made.append(self._request(talk, self.now_s, role="warmup", primes=True))
                primed_s = max(primed_s, made[-1].end_ns / NS_PER_S)
            heappush(heap, (0.0, next(order), talk))
        heap = [(primed_s + self.chance.random() * talk.wait_s, at, talk) for _, at, talk in heap]
        heap.sort()
        left, end_s = turns, math.inf
        while heap[0][0] <= end_s:
            due_s, _, talk = heappop(heap)
            self._pass(due_s)
            one = self._request(talk, due_s, role="measured" if left else "cooldown")
            made.append(one)
            left -= bool(left)
            after_s = one.end_ns / NS_PER_S
            for at_s, following in self._following(talk, after_s, failed=not one.ok):
                heappush(heap, (at_s, next(order), following))
            if not left and end_s == math.inf:
                end_s = max(o.end_ns for o in made if o.role == "measured") / NS_PER_S
        self.now_s = end_s
        return [self._cut(o, round(end_s * NS_PER_S)) for o in made]

    def _cut(self, o: Observation, end_ns: int) -> Observation:
        if o.role != "cooldown" or o.end_ns <= end_ns:
            return o
        both = {
            name: getattr(o, name)
            for name in ("id", "call", "target", "condition", "round", "role", "turn")
        }
        sent = {name: getattr(o, name) for name in ("due_ns", "start_ns", "sent_ns")}
        return Observation(**both, **sent, outcome="cancelled", end_ns=end_ns, kernel_time=True)

    def _talk(self, *, joined: bool = False) -> Talk:
        server, chance = self.server, self.chance
        self.sessions += 1
        longest = server.turns[1] * (LONGER if server.long else 1)
        count = self._count()
        # a slot is more often in a long session
        while joined and chance.random() * longest > count:
            count = self._count()
        talk = Talk(
            f"{self.condition}-{self.sessions}",
            chance.gauss(0, 1),
            count,
            0,
            last=chance.gauss(0, 1),
        )
        talk.next = chance.randint(1, count) if joined else 1
        if talk.next > 1:
            talk.context = self._prompt() + (talk.next - 2) * (
                round(server.new * math.exp(0.5)) + server.tokens
            )
        talk.wait_s = chance.expovariate(1 / server.tools_s) if talk.next > 1 else 0.0
        return talk

    def _count(self) -> int:
        count = self.chance.randint(*self.server.turns)
        return (
            count * LONGER
            if self.server.long and self.chance.random() < self.server.long
            else count
        )

    def _prompt(self) -> int:
        return round(self.server.prompt * math.exp(self.chance.gauss(0, 0.5)))

    def _following(self, talk: Talk, after_s: float, *, failed: bool) -> list[tuple[float, Talk]]:
        server, chance = self.server, self.chance
        if failed:
            return [(after_s, self._talk())]
        talk.next += 1
        if talk.parent is not None:
            parent = talk.parent
            if talk.next <= AGENT_TURNS:
                talk.wait_s = 0.5
                return [(after_s + talk.wait_s, talk)]
            parent.working -= 1
            parent.agents_over_s = max(parent.agents_over_s, after_s)
            return [] if parent.working else [(parent.agents_over_s + parent.wait_s, parent)]
        if talk.next > talk.count:
            return [(after_s, self._talk())]
        talk.wait_s = chance.expovariate(1 / server.tools_s)
        if server.agents and talk.next == talk.count // 2 + 1:
            talk.working, talk.agents_over_s = server.agents, after_s
            return [
                (
                    after_s,
                    Talk(talk.session, talk.own, AGENT_TURNS, 0, branch=f"agent {at}", parent=talk),
                )
                for at in range(1, server.agents + 1)
            ]
        return [(after_s + talk.wait_s, talk)]

    def _request(self, talk: Talk, at_s: float, *, role: Role, primes: bool = False) -> Observation:
        server, chance = self.server, self.chance
        new, reusable = (talk.context, 0) if primes else (self._new(talk), talk.context)
        talk.last = _kept(chance, talk.last, server.alike)
        first_after_priming = (
            not primes and talk.branch == "" and talk.context > 0 and talk.working == -1
        )
        hits = chance.random() >= server.miss and (server.primes_well or not first_after_priming)
        if primes:
            talk.working = -1
        elif talk.working == -1:
            talk.working = 0
        fails = not primes and not talk.branch and chance.random() < server.breaks
        scatter = (
            server.of_session * talk.own
            + server.of_minute * self.minute
            + server.of_turn * talk.last
        )
        cached = reusable // BLOCK * BLOCK if hits else 0
        fixed = server.fixed_s + server.new_s * (new + reusable - cached) + server.reused_s * cached
        sent, first = round(at_s * NS_PER_S), round((at_s + fixed * math.exp(scatter)) * NS_PER_S)
        gap = round(TOKEN_S * NS_PER_S * math.exp(chance.gauss(0, 0.05)))
        tokens = 1 if primes else server.tokens
        times = (
            [first + gap * i for i in range(tokens)]
            if self.tokens_listed
            else [first, first + gap * (tokens - 1)]
        )
        name = (
            f"{talk.session}.{talk.branch or 'main'}.{talk.next - 1 if primes else talk.next}"
            f"{'p' if primes else ''}"
        )
        both: dict[str, Any] = {
            "id": name,
            "call": name,
            "target": self.target,
            "condition": self.condition,
            "round": self.number,
            "role": role,
            "turn": SessionTurn(
                session=talk.session,
                branch=talk.branch,
                turn=talk.next - 1 if primes else talk.next,
                new_tokens=new,
                reusable_tokens=reusable,
                wait_ns=0 if primes else round(talk.wait_s * NS_PER_S),
                primes=primes,
                last=not primes and not talk.branch and talk.next == talk.count,
            ),
            "due_ns": sent,
            "start_ns": sent,
            "sent_ns": sent,
            "kernel_time": True,
        }
        if fails:
            return Observation(**both, outcome="failed", fault=FAILED, status=500, end_ns=first)
        if not primes:
            talk.context += new + server.tokens
        return Observation(
            **both,
            head_ns=first,
            first_event_ns=first,
            first_token_ns=first,
            first_answer_ns=first,
            last_token_ns=times[-1],
            end_ns=times[-1],
            token_at=times,
            token_lengths=[4] * len(times),
            output_tokens=tokens,
            input_tokens=new + reusable,
            cached_tokens=cached if server.reports else None,
            token_source="usage",
            status=200,
            reads=len(times),
            max_read_tokens=1,
        )

    def _new(self, talk: Talk) -> int:
        if talk.branch:
            return 2_000 if talk.next == 1 else 400
        if talk.next == 1:
            return self._prompt()
        return max(round(self.server.new * math.exp(self.chance.gauss(0, 1))), 20)
