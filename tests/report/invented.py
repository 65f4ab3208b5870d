"""An invented run that looks like a real one: the published figures of five providers, with random spread by seed.

Medians and tails are those of General Compute's "LLM Token Generation Speed" (June 2025) at concurrency 1, 8 and 32.
One provider answers some requests with 429; so the run has something for every part of a report.
"""

import math
import random
from collections.abc import Sequence

from splitsecond.analysis.figures import FIGURES, answered
from splitsecond.analysis.findings import ConditionFindings, Instrument, Run, Spread
from splitsecond.analysis.spread import spread
from splitsecond.clock import NS_PER_MS
from splitsecond.timing.observation import FaultRecord, Observation

PROVIDERS: dict[str, dict[int, tuple[float, float, float]]] = {
    "generalcompute/llama-3.1-70b-instruct": {1: (180, 220, 310), 8: (210, 310, 285), 32: (280, 450, 245)},
    "groq/llama-3.1-70b-versatile": {1: (230, 290, 215), 8: (290, 820, 180), 32: (610, 2400, 140)},
    "fireworks/llama-v3p1-70b-instruct": {1: (410, 580, 110), 8: (520, 960, 95), 32: (780, 1800, 72)},
    "together/meta-llama-3.1-70b-instruct-turbo": {1: (480, 720, 85), 8: (610, 1350, 70), 32: (950, 2900, 52)},
    "replicate/meta-llama-3-70b": {1: (620, 1100, 65), 8: (890, 2200, 48), 32: (1400, 4100, 30)},
}
"""By concurrency: TTFT p50 and p95 in ms, TPS p50."""

RATE_LIMITED = FaultRecord(
    type="ProviderFault", kind="http_429", phase="head", message="HTTP 429: rate limit reached for model", status=429
)


def invented_run(
    providers: Sequence[str] = tuple(PROVIDERS),
    concurrencies: Sequence[int] = (1, 8, 32),
    requests: int = 50,
    output_tokens: int = 512,
) -> tuple[Run, list[Observation]]:
    """A whole run and its observations; the same every time."""
    chance = random.Random(7)
    observations: list[Observation] = []
    conditions: list[ConditionFindings] = []
    for target in providers:
        for concurrency in concurrencies:
            name = f"{target} c={concurrency}"
            pace = PROVIDERS[target][concurrency]
            made = [_observation(chance, name, target, pace, i, output_tokens) for i in range(requests)]
            if target.startswith("groq") and concurrency == 32:
                made[::17] = [_refused(one) for one in made[::17]]
            observations += made
            conditions.append(_findings(name, target, concurrency, made))
    run = Run(
        id="20250611-140302-7f3a",
        began="2025-06-11T14:03:02Z",
        began_ns=1,
        version="0.1.0",
        asked={
            "command": "splitsecond bench groq/llama-3.1-70b-versatile generalcompute/llama-3.1-70b-instruct -c 1,8,32",
            "concurrency": list(concurrencies),
            "requests": requests,
            "seed": 7,
            "slo": {"ttft": 500, "tpot": 20},
        },
        environment={"python": "3.11.9", "system": "Linux 6.8", "processor": {"name": "EPYC 7R13", "cores": 2}},
        finished=True,
        conditions=conditions,
        statements=[
            "generalcompute/llama-3.1-70b-instruct has the shortest TTFT p50 at concurrency 32: 280 ms, "
            "54 % less than groq/llama-3.1-70b-versatile (p < 0.001).",
            "At concurrency 1 the TTFT p95 of together and fireworks cannot be told apart with 50 requests.",
        ],
    )
    return run, observations


def no_figures() -> dict[str, Spread]:
    """What a row holds when no request succeeded."""
    return {name: spread([]) for name in [*FIGURES, "itl_ms"]}


def _observation(
    chance: random.Random, name: str, target: str, pace: tuple[float, float, float], i: int, tokens: int
) -> Observation:
    p50, p95, tps = pace
    ttft_ms = p50 * math.exp(chance.gauss(0, math.log(p95 / p50) / 1.645))
    speed = tps * math.exp(chance.gauss(0, 0.06))
    cold = i == 0
    due = 1_000_000_000 + i * 700_000_000
    connecting = [chance.randint(4, 30) * NS_PER_MS if cold else 0 for _ in range(3)]
    sent = due + chance.randint(20_000, 400_000) + sum(connecting)
    first = sent + round(ttft_ms * NS_PER_MS)
    last = first + round((tokens - 1) / speed * 1e9)
    times = [first + round((last - first) * k / (tokens - 1)) for k in range(tokens)]
    return Observation(
        id=f"{name}-{i}",
        call=f"{name}-{i}",
        target=target,
        condition=name,
        due_ns=due,
        start_ns=due + 10_000,
        dns_ns=connecting[0],
        tcp_ns=connecting[1],
        tls_ns=connecting[2],
        reused=not cold,
        rtt_ns=14 * NS_PER_MS,
        sent_ns=sent,
        head_ns=sent + round(ttft_ms * NS_PER_MS * 0.3),
        first_event_ns=first,
        first_token_ns=first,
        first_answer_ns=first,
        last_token_ns=last,
        end_ns=last + 2 * NS_PER_MS,
        token_at=times,
        token_lengths=[4] * tokens,
        status=200,
        output_tokens=tokens,
        input_tokens=512,
        token_source="usage",
        kernel_time=True,
    )


def _refused(one: Observation) -> Observation:
    return Observation(
        id=one.id,
        call=one.call,
        target=one.target,
        condition=one.condition,
        outcome="failed",
        fault=RATE_LIMITED,
        due_ns=one.due_ns,
        start_ns=one.start_ns,
        sent_ns=one.sent_ns,
        head_ns=one.head_ns,
        end_ns=one.end_ns,
        status=429,
    )


def _findings(name: str, target: str, concurrency: int, made: list[Observation]) -> ConditionFindings:
    good = answered(made)
    failed = len(made) - len(good)
    spreads = {key: spread(figure.values(good), fast_end=figure.fast_end) for key, figure in FIGURES.items()}
    gaps = [gap / NS_PER_MS for one in good for gap in one.gaps_ns]
    one_request = (spreads["tps"].p50 or 0.0) * 0.9
    return ConditionFindings(
        condition=name,
        target=target,
        concurrency=concurrency,
        requests=len(made),
        errors=failed,
        error_kinds={"http_429": failed} if failed else {},
        error_examples={"http_429": RATE_LIMITED.message} if failed else {},
        warmups=concurrency,
        **spreads,
        itl_ms=spread(gaps, independent=False),
        output_tokens_per_s=one_request * concurrency,
        output_tokens_per_s_whole=one_request * concurrency * 0.85,
        requests_per_s=one_request * concurrency / 512,
        steady_s=31.4,
        batching_efficiency=concurrency * 0.8,
        input_tokens=512.0,
        output_tokens=512.0,
        tokens_per_event=1.0,
        token_source="usage",
        phases_ms={
            "dns": 0.0,
            "tcp": 0.0,
            "tls": 0.0,
            "network": 14.2,
            "provider": (spreads["ttft_ms"].p50 or 14.2) - 14.2,
            "streaming": (spreads["e2e_ms"].p50 or 0.0) - (spreads["ttft_ms"].p50 or 0.0),
        },
        instrument=Instrument(
            kernel_time=True,
            lag_p50_ms=0.041,
            lag_p99_ms=0.38 + concurrency / 40,
            lag_max_ms=1.9 + concurrency / 20,
            late_p50_ms=0.09,
            late_p99_ms=0.4,
            in_flight=concurrency * 0.98,
            runqueue_wait_share=0.012,
            cpu_ms_per_1000_tokens=5.6,
        ),
        invalid=["the stream came in one burst: 49 of 50 answers in fewer than 3 reads"]
        if target.startswith("replicate") and concurrency == 32
        else [],
        notes=["4 % of the input tokens came from the prefix cache"] if target.startswith("fireworks") else [],
    )
