"""Sessions of a simulated server whose truth is known, as the observations that a bench makes of them.

TTFT = fixed + new × new tokens + reused × reused tokens, times what a session has of its own, what a slow minute has
for all, and chance, which is alike in successive turns. Sometimes a prompt is not in the cache, and a session breaks.
"""

import math
import random
from typing import Any

from msgspec import Struct

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.observation import FaultRecord, Observation, Role, SessionTurn

BEGIN_S = 1_000.0
FAILED = FaultRecord(type="ProviderFault", kind="http_500", phase="head", message="HTTP 500", status=500)
TOKEN_S = 0.01
BLOCK = 64
"""Tokens of a block of the prompt cache."""


class Server(Struct, frozen=True, kw_only=True):
    """What is true of a server and of the sessions that it gets. Scatters are of logarithms.

    `fixed_s`, `new_s` and `reused_s`: TTFT of no token, and of each. `tau_s`: how long slow minutes last. `agents`:
    how many sub-agents work at the same time in the middle of each session.
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
    tokens: int = 60
    prompt: int = 20_000
    new: int = 900
    tools_s: float = 3.0
    agents: int = 0
    slower: float = 1.0


def simulated(
    server: Server,
    seed: int = 1,
    *,
    sessions: int = 40,
    slots: int = 4,
    rounds: int = 5,
    apart_s: float = 180.0,
    target: str = "a/x",
    condition: str = "c",
    tokens_listed: bool = True,
) -> list[Observation]:
    """Return the requests of so many sessions in rounds, each slot with one session after the other."""
    chance = random.Random(seed)
    minute = chance.gauss(0, 1)
    made: list[Observation] = []
    number = 0
    for at in range(rounds):
        minute = _kept(chance, minute, math.exp(-apart_s / server.tau_s))
        begin_s = BEGIN_S + at * apart_s
        own = len(range(at, sessions, rounds))
        ends = [begin_s + 0.2 * slot for slot in range(slots)]
        for _ in range(own):
            slot = min(range(slots), key=lambda each: ends[each])
            number += 1
            run = _Run(server, chance, f"s{number}", at + 1, minute, target, condition, tokens_listed)
            made += run.session(ends[slot])
            ends[slot] = run.now_s
            minute = run.minute
    return made


def _kept(chance: random.Random, value: float, share: float) -> float:
    return share * value + math.sqrt(1 - share * share) * chance.gauss(0, 1)


class _Run:
    def __init__(
        self,
        server: Server,
        chance: random.Random,
        name: str,
        number: int,
        minute: float,
        target: str,
        condition: str,
        tokens_listed: bool,
    ) -> None:
        self.server, self.chance, self.name, self.number, self.minute = server, chance, name, number, minute
        self.target, self.condition, self.tokens_listed = target, condition, tokens_listed
        self.own = chance.gauss(0, 1)
        self.last = chance.gauss(0, 1)
        self.now_s = 0.0

    def session(self, begin_s: float) -> list[Observation]:
        server, chance = self.server, self.chance
        count = chance.randint(*server.turns)
        begins = round(server.prompt * math.exp(chance.gauss(0, 0.5)))
        made = [self._request(begin_s, begins, 0, primes=True, role="warmup", hits=True)]
        self.now_s = made[-1].end_ns / NS_PER_S
        context, broken_at = begins, chance.randint(1, count) if chance.random() < server.breaks else 0
        planned = count + server.agents * 2
        for turn in range(1, count + 1):
            if server.agents and turn == count // 2 + 1:
                made += self._agents(context, planned)
            wait_s = chance.expovariate(1 / server.tools_s) if turn > 1 else 0.0
            new = max(round(server.new * math.exp(chance.gauss(0, 1))), 20)
            primed = turn > 1 or server.primes_well
            made.append(
                self._request(
                    self.now_s + wait_s,
                    new,
                    context,
                    turn=turn,
                    turns=planned,
                    wait_s=wait_s,
                    hits=primed and chance.random() >= server.miss,
                    fails=turn == broken_at,
                )
            )
            self.now_s = made[-1].end_ns / NS_PER_S
            if turn == broken_at:
                break
            context += new + server.tokens
        return made

    def _agents(self, context: int, planned: int) -> list[Observation]:
        made, begin_s, ends = [], self.now_s, [self.now_s]
        for agent in range(self.server.agents):
            at_s = begin_s
            for turn in (1, 2):
                wait_s = 0.5 * (turn - 1)
                one = self._request(
                    at_s + wait_s, 400, 2_000 * turn, turn=turn, turns=planned, wait_s=wait_s, branch=f"agent {agent}"
                )
                made.append(one)
                at_s = one.end_ns / NS_PER_S
            ends.append(at_s)
        self.now_s = max(ends)
        return made

    def _request(
        self,
        at_s: float,
        new: int,
        reusable: int,
        *,
        turn: int = 1,
        turns: int = 0,
        wait_s: float = 0.0,
        branch: str = "",
        hits: bool = True,
        fails: bool = False,
        primes: bool = False,
        role: Role = "measured",
    ) -> Observation:
        server, chance = self.server, self.chance
        self.last = _kept(chance, self.last, server.alike)
        self.minute = _kept(chance, self.minute, math.exp(-1.0 / server.tau_s))
        scatter = server.of_session * self.own + server.of_minute * self.minute + server.of_turn * self.last
        cached = reusable // BLOCK * BLOCK if hits else 0
        fixed = server.fixed_s + server.new_s * (new + reusable - cached) + server.reused_s * cached
        ttft_s = server.slower * fixed * math.exp(scatter)
        name = f"{self.condition}.{self.name}.{branch or 'main'}.{'p' if primes else turn}"
        sent, first = round(at_s * NS_PER_S), round((at_s + ttft_s) * NS_PER_S)
        gap = round(TOKEN_S * NS_PER_S * math.exp(chance.gauss(0, 0.05)))
        tokens = 1 if primes else server.tokens
        times = [first + gap * i for i in range(tokens)] if self.tokens_listed else [first, first + gap * (tokens - 1)]
        at = SessionTurn(
            session=self.name,
            branch=branch,
            turn=turn,
            new_tokens=new,
            reusable_tokens=reusable,
            wait_ns=round(wait_s * NS_PER_S),
            turns=turns,
            primes=primes,
        )
        both: dict[str, Any] = {
            "id": name,
            "call": name,
            "target": self.target,
            "condition": self.condition,
            "round": self.number,
            "role": role,
            "turn": at,
            "due_ns": sent,
            "start_ns": sent,
            "sent_ns": sent,
            "kernel_time": True,
        }
        if fails:
            return Observation(**both, outcome="failed", fault=FAILED, status=500, end_ns=first)
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
