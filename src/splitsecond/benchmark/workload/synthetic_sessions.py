"""Synthetic sessions, drawn from the distributions of recorded ones.

"agent" has the distributions of 710 Claude Code sessions of WEKA (callanjfox/kv-cache-tester,
traces/ at 94f6046, Apache-2.0). Its turns are drawn one by one, so those of one session do not
resemble each other as real ones do; only sessions that begin with a long prompt are shorter, as
they are in the traces. "chat" has the means of WildChat-1M (Zhao et al., 2024, arXiv:2405.01470):
2.54 turns, 296 tokens of the user and 441 of the answer. How they scatter, and how long users wait,
is assumed.
"""

from bisect import bisect_right
from collections.abc import Sequence
from math import exp, log, sqrt
from random import Random
from statistics import NormalDist

from splitsecond.benchmark.workload.sessions import Branch, Session, SessionSet, Turn
from splitsecond.core.clock import NS_PER_S

SYNTHETIC = ("agent", "chat")
_NORMAL = NormalDist()
DRAWN = 200
"""Sessions that a run draws from."""
SHARES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""The shares of the quantiles below. Nothing is above the last: the longest hundredth is left
out."""
_Quantiles = Sequence[float]
TURNS: _Quantiles = (2, 4, 18, 45, 94, 156, 232, 330)
FIRST_PROMPT: _Quantiles = (9_700, 13_048, 18_587, 24_522, 104_189, 259_335, 378_386, 716_145)
CORRELATION = -0.38
"""Between the first prompt and the number of turns."""
ADDED: _Quantiles = (1, 2, 48, 276, 947, 2_785, 5_323, 14_636)
"""New tokens of a turn beside the answer before."""
ANSWER: _Quantiles = (58, 89, 137, 216, 429, 899, 1_544, 3_663)
WAIT_S: _Quantiles = (1, 3, 6, 10, 34, 166, 464, 3_029)
CHANGED = 0.0206
"""Share of turns that do not begin with the prompt before: most change what follows the system
prompt and tools."""
KEPT: _Quantiles = (0.001, 0.03, 0.08, 0.13, 0.39, 0.72, 0.97, 1.0)
RESIZED: _Quantiles = (0.1, 0.2, 0.74, 0.97, 1.02, 1.12, 1.6, 4.8)
"""Of a turn that does not begin with the prompt before: how much it keeps of it, and how long it
is, as a share."""
CONTEXT = 1_000_000
"""Longest prompt in tokens; then the conversation ends."""
WITH_AGENTS = 0.0008
"""Share of turns before which sub-agents run: 63 in 17 of the 710 sessions, 1.7 at a time."""
AGENTS = 1.66
AGENT_TURNS: _Quantiles = (2, 4, 7, 11, 13, 17, 22, 24)
AGENT_FIRST: _Quantiles = (8_900, 9_018, 9_838, 10_335, 11_703, 12_277, 13_368, 18_259)
AGENT_ADDED: _Quantiles = (50, 100, 500, 2_200, 5_400, 12_800, 21_000, 60_000)
AGENT_ANSWER: _Quantiles = (90, 111, 176, 235, 307, 529, 2_984, 4_765)
AGENT_WAIT_S: _Quantiles = (1, 2, 3, 4, 6, 29, 47, 75)

CHAT_TURNS, CHAT_PROMPT, CHAT_ANSWER = 2.54, 296, 441
CHAT_SPREAD, CHAT_ANSWER_SPREAD = 1.4, 0.8
"""Assumed standard deviations of the logarithms."""
CHAT_WAIT_S = 30.0
"""Assumed mean time to read an answer and to write the next message."""


def synthetic_sessions(name: str, seed: int) -> SessionSet:
    random = Random(f"{seed}/{name}")
    draw = _agent if name == "agent" else _chat
    origin = (
        "the distributions of 710 Claude Code sessions"
        if name == "agent"
        else "the means of WildChat-1M"
    )
    return SessionSet(
        name=name,
        format=f"drawn from {origin}",
        sessions=[
            Session(id=f"{name}{number}", turns=draw(random)) for number in range(1, DRAWN + 1)
        ],
        note="" if name == "agent" else "How lengths scatter, and how long users wait, is assumed.",
    )


def _agent(random: Random) -> list[Turn]:
    length, other = random.gauss(), random.gauss()
    count = CORRELATION * length + sqrt(1 - CORRELATION**2) * other
    turns = [
        Turn(
            input_tokens=round(_at(_NORMAL.cdf(length), FIRST_PROMPT)),
            output_tokens=_int(random, ANSWER),
        )
    ]
    for _ in range(round(_at(_NORMAL.cdf(count), TURNS)) - 1):
        before = turns[-1]
        shared, total = (
            before.input_tokens,
            before.input_tokens + before.output_tokens + _int(random, ADDED),
        )
        changed = random.random() < CHANGED
        if changed:
            shared = round(shared * min(_drawn(random, KEPT), 0.99))
            total = max(round(before.input_tokens * _drawn(random, RESIZED)), shared + 1)
        if total > CONTEXT:
            break
        turns.append(
            Turn(
                input_tokens=total,
                output_tokens=_int(random, ANSWER),
                shared_tokens=shared,
                cut=changed,
                wait_ns=round(_drawn(random, WAIT_S) * NS_PER_S),
                branches=_agents(random, len(turns)) if random.random() < WITH_AGENTS else [],
            )
        )
    return turns


def _agents(random: Random, after: int) -> list[Branch]:
    count = 1
    while random.random() > 1 / AGENTS:
        count += 1
    branches = []
    for number in range(1, count + 1):
        turns = [
            Turn(input_tokens=_int(random, AGENT_FIRST), output_tokens=_int(random, AGENT_ANSWER))
        ]
        for _ in range(_int(random, AGENT_TURNS) - 1):
            before = turns[-1]
            turns.append(
                Turn(
                    input_tokens=before.input_tokens
                    + before.output_tokens
                    + _int(random, AGENT_ADDED),
                    output_tokens=_int(random, AGENT_ANSWER),
                    shared_tokens=before.input_tokens,
                    wait_ns=round(_drawn(random, AGENT_WAIT_S) * NS_PER_S),
                )
            )
        branches.append(Branch(f"{after}.{number}", turns))
    return branches


def _chat(random: Random) -> list[Turn]:
    turns: list[Turn] = []
    while not turns or random.random() < 1 - 1 / CHAT_TURNS:
        shared = turns[-1].input_tokens if turns else 0
        added = _log_normal(random, CHAT_PROMPT, CHAT_SPREAD) + (
            turns[-1].output_tokens if turns else 0
        )
        turns.append(
            Turn(
                input_tokens=shared + added,
                output_tokens=_log_normal(random, CHAT_ANSWER, CHAT_ANSWER_SPREAD),
                shared_tokens=shared,
                wait_ns=round(random.expovariate(1 / CHAT_WAIT_S) * NS_PER_S) if turns else 0,
            )
        )
    return turns


def _log_normal(random: Random, mean: float, spread: float) -> int:
    return max(round(random.lognormvariate(log(mean) - spread**2 / 2, spread)), 1)


def _int(random: Random, quantiles: _Quantiles) -> int:
    return max(round(_drawn(random, quantiles)), 1)


def _drawn(random: Random, quantiles: _Quantiles) -> float:
    return _at(random.random(), quantiles)


def _at(share: float, quantiles: _Quantiles) -> float:
    """Return a quantile of a distribution that is log-linear between its `quantiles`."""
    share *= SHARES[-1]
    at = min(bisect_right(SHARES, share), len(SHARES) - 1)
    part = (share - SHARES[at - 1]) / (SHARES[at] - SHARES[at - 1])
    return exp(log(quantiles[at - 1]) * (1 - part) + log(quantiles[at]) * part)
