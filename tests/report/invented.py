"""An invented run that looks like a real one: published figures of five providers with seeded
random variation.

Medians and tails are those of General Compute's "LLM Token Generation Speed" (June 2025) at
concurrency 1, 8 and 32. Requests follow each other as in a closed loop. One provider answers some
requests with 429, and the client of one condition read late, so every part of a report has content.
"""

import copy
import functools
import heapq
import math
import random
from collections.abc import Sequence

import msgspec

from splitsecond.benchmark.findings.statements import statements
from splitsecond.benchmark.money.caching import cache_savings
from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.records import AskedCondition, Run
from splitsecond.benchmark.rows.row_cost import with_cost
from splitsecond.benchmark.runs.concluding import add_answers
from splitsecond.core.catalog.price import Price
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.money.cost import bill
from splitsecond.core.observation import FaultRecord, Observation, Role
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.core.wording import Statement

PROVIDERS: dict[str, dict[int, tuple[float, float, float]]] = {
    "generalcompute/llama-3.1-70b-instruct": {
        1: (180, 220, 310),
        8: (210, 310, 285),
        32: (280, 450, 245),
    },
    "groq/llama-3.1-70b-versatile": {1: (230, 290, 215), 8: (290, 820, 180), 32: (610, 2400, 140)},
    "fireworks/llama-v3p1-70b-instruct": {
        1: (410, 580, 110),
        8: (520, 960, 95),
        32: (780, 1800, 72),
    },
    "together/meta-llama-3.1-70b-instruct-turbo": {
        1: (480, 720, 85),
        8: (610, 1350, 70),
        32: (950, 2900, 52),
    },
    "replicate/meta-llama-3-70b": {1: (620, 1100, 65), 8: (890, 2200, 48), 32: (1400, 4100, 30)},
}
"""By concurrency: TTFT p50 and p95 in ms, TPS p50."""

RATE_LIMITED = FaultRecord(
    type="ProviderFault",
    kind="http_429",
    phase="head",
    message="HTTP 429: rate limit reached for model",
    status=429,
)


PRICE = Price(input_usd=0.59, output_usd=0.79, as_of="2026-01-02", source="the test")
CACHED = msgspec.structs.replace(PRICE, cached_usd=0.1)
LATE_CLIENT = "replicate/meta-llama-3-70b c=32"
BEGIN_NS = 1_000 * NS_PER_S
ROUNDS = {1: 8, 8: 6, 32: 5}
"""Rounds by concurrency, as a bench plans them for 50 requests."""
TIMES = {
    *(
        "due_ns",
        "start_ns",
        "sent_ns",
        "head_ns",
        "first_event_ns",
        "first_token_ns",
        "first_answer_ns",
    ),
    *("last_token_ns", "end_ns"),
}
"""Moments of an observation; its other fields in nanoseconds are durations."""
PAUSE_NS = 180 * NS_PER_S
"""Time from the end of a round to the start of the next."""


def invented_run(
    providers: Sequence[str] = tuple(PROVIDERS),
    concurrencies: Sequence[int] = (1, 8, 32),
    requests: int = 80,
    output_tokens: int = 128,
    failing: bool = False,
    reuse: bool = False,
    in_rounds: bool = False,
) -> tuple[Run, list[Observation]]:
    """Return a run and its observations, the same every time. Tests may change the run.

    With `failing`, the response to every request is 429. With `reuse`, each row is measured without
    and with cache reuse, and Groq's prompt cache saves 60% of the TTFT. With `in_rounds`, rows are
    measured as by a bench: in `ROUNDS`, each with warm-ups and cool-downs; without, all requests
    follow each other, and nothing is tested.
    """
    run, observations = _invented_run(
        tuple(providers), tuple(concurrencies), requests, output_tokens, failing, reuse, in_rounds
    )
    return copy.deepcopy(run), list(observations)


@functools.cache
def _invented_run(
    providers: Sequence[str],
    concurrencies: Sequence[int],
    requests: int,
    output_tokens: int,
    failing: bool,
    reuse: bool,
    in_rounds: bool,
) -> tuple[Run, list[Observation]]:
    chance = random.Random(7)
    asked = [
        AskedCondition(
            condition=f"{target} c={c}{' reuse' if way else ''}",
            target=target,
            concurrency=c,
            output_tokens=output_tokens,
            cache_reuse=way,
        )
        for target in providers
        for c in concurrencies
        for way in ((False, True) if reuse else (False,))
    ]
    sent = _rounds if in_rounds else _one_stretch
    observations = [
        one for condition in asked for one in sent(chance, condition, requests, output_tokens)
    ]
    if failing:
        observations = [_refused(one) for one in observations]
    readings = [
        InstrumentReading(
            condition=condition.condition,
            begin_ns=BEGIN_NS,
            end_ns=BEGIN_NS + 60 * NS_PER_S,
            cpu_ns=round(5.6e-6 * NS_PER_S * requests * output_tokens),
            runqueue_wait_ns=NS_PER_S // 2,
        )
        for condition in asked
    ]
    conditions = condition_rows(asked, observations, readings)
    savings = cache_savings(conditions, observations, {"groq/llama-3.1-70b-versatile": CACHED})
    run = Run(
        id="20250611-140302-7f3a",
        began="2025-06-11T14:03:02Z",
        began_ns=BEGIN_NS,
        version="0.1.0",
        asked={
            "command": f"splitsecond bench {' '.join(providers)} -c "
            f"{','.join(map(str, concurrencies))} -n {requests}",
            "concurrency": list(concurrencies),
            "requests": requests,
            "seed": 7,
            "slo": {"ttft": 500, "tpot": 20},
            "prompts": None,
        },
        environment={
            "python": "3.11.9",
            "system": "Linux 6.8",
            "processor": {"name": "EPYC 7R13", "cores": 2},
        },
        finished=True,
        conditions=conditions,
        cache_savings=savings,
    )
    verdicts = [Statement(saving.verdict, saving.short_verdict) for saving in savings]
    add_answers(run, observations, verdicts + statements(conditions, observations))
    return run, observations


def priced(run: Run, observations: Sequence[Observation]) -> Run:
    """Return the run with the cost of Groq's rows; the other prices are unknown."""
    prices = {"groq/llama-3.1-70b-versatile": PRICE}
    own = {
        c.condition: [o for o in observations if o.condition == c.condition] for c in run.conditions
    }
    conditions = [with_cost(c, own[c.condition], prices, hours=0.01) for c in run.conditions]
    return msgspec.structs.replace(
        run, conditions=conditions, cost_usd=bill(observations, prices).usd
    )


def moved(o: Observation, by_ns: int) -> Observation:
    """Return the observation at another time."""
    names = [name for name in o.__struct_fields__ if name in TIMES and getattr(o, name) is not None]
    times = {name: getattr(o, name) + by_ns for name in names}
    return msgspec.structs.replace(o, **times, token_at=[at + by_ns for at in o.token_at])


def _one_stretch(
    chance: random.Random, asked: AskedCondition, requests: int, tokens: int
) -> list[Observation]:
    return _stretch(chance, asked, [("measured", i) for i in range(requests)], tokens, BEGIN_NS)


def _rounds(
    chance: random.Random, asked: AskedCondition, requests: int, tokens: int
) -> list[Observation]:
    slots, rounds = asked.concurrency or 1, ROUNDS[asked.concurrency or 1]
    made: list[Observation] = []
    begin_ns = BEGIN_NS
    for number in range(rounds):
        of_round = range(number * requests // rounds, (number + 1) * requests // rounds)
        sent: list[tuple[Role, int]] = [("warmup", number * slots + i) for i in range(slots)]
        sent += [("measured", i) for i in of_round] + [
            ("cooldown", number * slots + i) for i in range(slots)
        ]
        stretch = _stretch(chance, asked, sent, tokens, begin_ns)
        last_ns = max(one.end_ns for one in stretch if one.role == "measured")
        for one in stretch:
            if one.role == "cooldown" and one.end_ns > last_ns:
                one = _without_response(
                    one, outcome="cancelled", end_ns=max(last_ns, one.sent_ns or 0)
                )
            made.append(msgspec.structs.replace(one, round=number + 1))
        begin_ns = last_ns + PAUSE_NS
    return made


def _stretch(
    chance: random.Random,
    asked: AskedCondition,
    sent: Sequence[tuple[Role, int]],
    tokens: int,
    begin_ns: int,
) -> list[Observation]:
    assert asked.concurrency is not None
    places = [begin_ns + i * 40 * NS_PER_MS for i in range(asked.concurrency)]
    heapq.heapify(places)
    made = []
    for i, (role, number) in enumerate(sent):
        due = heapq.heappop(places)
        name = (
            f"{asked.condition} {number}"
            if role == "measured"
            else f"{asked.condition} {role} {number}"
        )
        wanted = chance.randint(2, tokens) if role == "warmup" else tokens
        one = _answer(chance, asked, name, due, wanted, cold=i < asked.concurrency)
        one = msgspec.structs.replace(one, role=role)
        if (
            asked.target.startswith("groq")
            and asked.concurrency == 32
            and number % 27 == 5
            and role == "measured"
        ):
            one = _refused(one)
        heapq.heappush(places, one.end_ns)
        made.append(one)
    return made


def _answer(
    chance: random.Random, asked: AskedCondition, name: str, due: int, tokens: int, *, cold: bool
) -> Observation:
    p50, p95, tps = PROVIDERS[asked.target][asked.concurrency or 1]
    ttft_ns = round(p50 * math.exp(chance.gauss(0, math.log(p95 / p50) / 1.645)) * NS_PER_MS)
    speed = tps * math.exp(chance.gauss(0, 0.06))
    dns, tcp, tls = (chance.randint(2, 30) * NS_PER_MS if cold else 0 for _ in range(3))
    cached = 480 if asked.cache_reuse and asked.target.startswith("groq") else 0
    if cached:
        ttft_ns = ttft_ns * 4 // 10
    sent = due + chance.randint(20_000, 400_000) + dns + tcp + tls
    first = sent + ttft_ns
    last = first + round((tokens - 1) / speed * NS_PER_S)
    late = asked.condition == LATE_CLIENT
    return Observation(
        id=name,
        call=name,
        target=asked.target,
        condition=asked.condition,
        due_ns=due,
        start_ns=due + 10_000,
        dns_ns=dns,
        tcp_ns=tcp,
        tls_ns=tls,
        reused=not cold,
        rtt_ns=14 * NS_PER_MS,
        sent_ns=sent,
        head_ns=sent + round(ttft_ns * 0.3),
        first_event_ns=first,
        first_token_ns=first,
        first_answer_ns=first,
        last_token_ns=last,
        end_ns=last + 2 * NS_PER_MS,
        token_at=[first + round((last - first) * k / (tokens - 1)) for k in range(tokens)],
        token_lengths=[4] * tokens,
        status=200,
        finish_reason="length",
        done_marker=True,
        input_tokens=512,
        cached_tokens=cached if asked.cache_reuse else None,
        output_tokens=tokens,
        token_source="usage",
        events=tokens + 2,
        reads=tokens,
        max_read_tokens=1,
        lag_max_ns=(600 if late else 1) * NS_PER_MS,
        lag_sum_ns=tokens * 40_000,
        kernel_time=not late,
    )


def _refused(one: Observation) -> Observation:
    assert one.head_ns is not None
    return _without_response(
        one, outcome="failed", fault=RATE_LIMITED, status=429, end_ns=one.head_ns
    )


def _without_response(one: Observation, **changed: object) -> Observation:
    return msgspec.structs.replace(
        one,
        first_event_ns=None,
        first_token_ns=None,
        first_answer_ns=None,
        last_token_ns=None,
        token_at=[],
        token_lengths=[],
        output_tokens=None,
        **changed,
    )
