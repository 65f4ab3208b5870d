"""Claims about throughput and its cost: parallel requests, batching, cascading, pipelines, and
a machine that the user owns."""

import asyncio
from pathlib import Path

import numpy as np

from benchmarks.claims.calls import TOKENS, calls, profile, published
from benchmarks.claims.judged import UNCHANGED, Claim, Experiment, Measured, Part
from benchmarks.claims.sources import OPUS, SPEED_ARTICLE
from splitsecond.benchmark.money.break_even import break_even

H100_USD_PER_HOUR = 2.69


async def parallel(folder: Path) -> list[Measured]:
    """Measure the same requests one after another and in parallel."""
    gain, latency = PARALLEL.claim.parts
    cases = []
    for name, label in ((OPUS, "Claude Opus 4.6"), ("groq-llama-3.1-70b", "Groq, Llama 3.1 70B")):
        target = published(folder, name)
        alone = await calls(target, ["Explain AI."] * 8)
        for slots, words in (
            (8, "8 at a time"),
            (16, "16 at a time"),
            (100, "100 at once, as in the article's program"),
        ):
            many = await calls(
                target, ["Explain AI."] * (100 if slots == 100 else 4 * slots), parallel=slots
            )
            times = many.tokens_per_s / alone.tokens_per_s
            slower = many.e2e(50) / alone.e2e(50)
            cases += [
                Measured(case=f"{label}, {words}", value=times, part=gain),
                Measured(
                    case=f"{label}, {words}",
                    value=slower,
                    part=latency,
                    details="E2E p50 {:.2f} s alone, {:.2f} s in parallel",
                    seen=(alone.e2e(50), many.e2e(50)),
                ),
            ]
    return cases


PARALLEL = Experiment(
    claim=Claim(
        name="parallel",
        title="Parallel requests",
        words="Parallel requests increase throughput 6-8x despite per-request latency remaining "
        "unchanged.",
        source=SPEED_ARTICLE,
        parts=(
            Part(words="throughput", unit="times the throughput of one at a time", low=6, high=8),
            Part(words="latency unchanged", unit="times the E2E of one at a time", **UNCHANGED),
        ),
    ),
    measure=parallel,
    conclusion="The gain is the number of parallel requests, less what each of them becomes "
    "slower. 6 to 8 times "
    "is what 8 parallel requests give at a provider that load does not slow down. More in "
    "parallel gives more, and "
    "latency stays unchanged only as long as the provider has capacity to spare.",
)


async def batching(folder: Path) -> list[Measured]:
    """Measure the system throughput of one engine by the number of requests at a time."""
    gain, sweet, returns, speed = BATCHING.claim.parts
    engine = published(folder, "runpod-h100-mistral-7b")
    levels = (1, 8, 16, 32, 64, 128, 256)
    timed = {
        level: await calls(engine, ["Explain AI."] * max(4, 2 * level), parallel=level)
        for level in levels
    }
    grown = {level: each.tokens_per_s / timed[1].tokens_per_s for level, each in timed.items()}
    power = {level: each.tokens_per_s / each.e2e(50) for level, each in timed.items()}
    cases = [
        Measured(
            case=f"{level} at a time",
            value=grown[level],
            part=gain if sweet.low <= level <= sweet.high else None,
            unit=gain.unit,
            details="{:,.0f} tokens/s, E2E p50 {:.2f} s",
            seen=(each.tokens_per_s, each.e2e(50)),
        )
        for level, each in timed.items()
    ]
    doubling = {level: grown[2 * level] / grown[level] for level in (16, 64, 128)}
    return [
        *cases,
        Measured(
            case="highest tokens/s per second of E2E",
            value=max(power, key=lambda at: power[at]),
            part=sweet,
        ),
        *(
            Measured(
                case=f"from {level} to {2 * level} at a time, against from 16 to 32",
                value=(doubling[level] - 1) / (doubling[16] - 1),
                part=returns,
                details="{:+.0%} throughput, against {:+.0%}",
                seen=(doubling[level] - 1, doubling[16] - 1),
            )
            for level in (64, 128)
        ),
        Measured(
            case="TPS of a request, 256 at a time against 32",
            value=float(np.median(timed[256].tps) / np.median(timed[32].tps)),
            part=speed,
            details="p50 {:.1f}, against {:.1f}",
            seen=(float(np.median(timed[256].tps)), float(np.median(timed[32].tps))),
        ),
    ]


BATCHING = Experiment(
    claim=Claim(
        name="batching",
        title="Batching",
        words="Optimal batching increases throughput 4-8x. Beyond 32-64 batch size, returns "
        "diminish. Extreme batching "
        "(256+) may degrade per-token latency. Sweet spot: 16-32 requests in parallel.",
        source=SPEED_ARTICLE,
        parts=(
            Part(
                words="gain at the sweet spot",
                unit="times the throughput of one request",
                low=4,
                high=8,
            ),
            Part(words="sweet spot", unit="at a time", low=16, high=32),
            Part(words="returns diminish", unit="times the gain of that doubling", high=1),
            Part(words="slower tokens", unit="times the TPS", high=1),
        ),
    ),
    measure=batching,
    conclusion="This engine's step takes 10.5 ms and 0.27 ms more for each sequence, so its "
    "throughput can grow "
    "39 times at most, and half of that is reached at 39 sequences. 4 to 8 times is the gain of "
    "the first 8 "
    "requests; at the sweet spot it is more. Returns diminish beyond 32 to 64, as claimed: there, "
    "each request "
    "pays for the growth with its own speed. An engine with a larger "
    "cost for each sequence gains less.",
)


SIMPLE = "Say hello to Ann."
MEDIUM = "Explain why the design of this cache is not optimal, and compare it with another one."
COMPLEX = (
    "Prove the theorem step by step, derive the optimal algorithm, analyse its complexity, and "
    "design and implement a "
    "strategy to evaluate the hypothesis. " * 30
)


async def cascading(folder: Path) -> list[Measured]:
    """Measure a route that sends simple requests to a fast model and complex ones to the
    strongest."""
    gain, fast, strong = CASCADING.claim.parts
    groq, gemini, opus = (
        published(folder, name) for name in ("groq-mixtral", "google-gemini-2.5-flash", OPUS)
    )
    route = f'by_complexity(simple="{groq}", medium="{gemini}", complex="{opus}")'
    alone, simple_only = (
        await calls(opus, [COMPLEX] * 20, parallel=10),
        await calls(groq, [SIMPLE] * 20),
    )
    cases = [
        Measured(case="Groq", value=float(np.median(simple_only.tps)), part=fast),
        Measured(case="Claude Opus", value=float(np.median(alone.tps)), part=strong),
    ]
    for simple, medium, hard in ((50, 25, 25), (60, 30, 10), (80, 15, 5)):
        prompts = [SIMPLE] * simple + [MEDIUM] * medium + [COMPLEX] * hard
        routed = await calls(route, prompts, parallel=10)
        cases.append(
            Measured(
                case=f"{simple}% simple, {medium}% medium, {hard}% complex",
                value=float(np.mean(alone.e2e_s) / np.mean(routed.e2e_s)),
                part=gain,
                details="mean E2E {:.2f} s on Opus, {:.2f} s with the route",
                seen=(float(np.mean(alone.e2e_s)), float(np.mean(routed.e2e_s))),
            )
        )
    return cases


CASCADING = Experiment(
    claim=Claim(
        name="cascading",
        title="Cascading by complexity",
        words="Simple requests on Groq (500+ TPS). Complex requests on Claude Opus (40 TPS). "
        "Overall system throughput "
        "improves 3-5x.",
        source=SPEED_ARTICLE,
        parts=(
            Part(
                words="throughput", unit="times the throughput of Claude Opus alone", low=3, high=5
            ),
            Part(words="Groq", unit="tokens/s", low=500),
            Part(words="Claude Opus", unit="tokens/s", low=35, high=45),
        ),
    ),
    measure=cascading,
    conclusion="The slow model limits the gain: with a share s of complex requests it is below 1 "
    "/ s. 3 to 5 times "
    "needs a share of complex requests of about a tenth to a quarter. Throughput is compared at "
    "the same number of "
    "requests at a time, as the ratio of the mean times of a request.",
)


async def pipelined(folder: Path) -> list[Measured]:
    """Measure a fast model that is asked first, and a slow one that is asked only if it is
    needed."""
    average, both = PIPELINED.claim.parts
    slow = profile(folder, "slow", ttft_ms=400, tps=40)
    fast_only = profile(folder, "fast", ttft_ms=100, tps=160)
    first, second = await asyncio.gather(
        calls(fast_only, ["Hello"] * 10, parallel=5, max_tokens=None),
        calls(slow, ["Hello"] * 10, parallel=5, max_tokens=None),
    )
    sequential = float(np.mean(first.e2e_s) + np.mean(second.e2e_s))
    cases = [Measured(case="both models, one after the other", value=sequential, part=both)]
    for share in (0.1, 0.3):
        failing = f'[[faults]]\nkind = "cut"\nafter = {TOKENS - 2}\nshare = {share}\n'
        fast = profile(folder, f"fast-{share}", ttft_ms=100, tps=160, more=failing)
        timed = await calls(
            f'cascade("{fast}", "{slow}", accept="finished")',
            ["Hello"] * 60,
            parallel=10,
            max_tokens=None,
        )
        case = f"the slow model for {share:.0%} of the requests"
        cases.append(Measured(case=case, value=float(np.mean(timed.e2e_s)), part=average))
    return cases


PIPELINED = Experiment(
    claim=Claim(
        name="pipelined",
        title="Pipelined inference",
        words="FastModel (0.5s) -> Router Decision -> SlowModel if needed (2.0s). Average "
        "latency: 0.7s vs 2.5s "
        "sequential.",
        source=SPEED_ARTICLE,
        parts=(
            Part(words="average", unit="s", low=0.65, high=0.75),
            Part(words="sequential", unit="s", low=2.45, high=2.55),
        ),
    ),
    measure=pipelined,
    conclusion="The average is the fast model's time, and the slow model's time by the share of "
    "requests that need "
    "it. 0.7 s needs a share of one in ten. Nothing runs in parallel "
    "here: the slow model is left out.",
)


API_PRICES = {
    "input $2.50, output $10.00 (Cohere Command R+ in the article)": 6.25,
    "input $1.25, output $5.00": 3.125,
    "input $1.25, output $2.50 (Gemini 1.5 Pro in the article)": 1.875,
    "input and output $0.50 (Groq, Mixtral, in the article)": 0.5,
}
"""US dollars for a million tokens, half of them input."""


async def break_even_volume(folder: Path) -> list[Measured]:
    """Compute the tokens a month from which a rented H100 is cheaper than an API, with a measured
    throughput."""
    (volume,) = BREAK_EVEN.claim.parts
    timed = await calls(
        published(folder, "runpod-h100-mistral-7b"), ["Explain AI."] * 128, parallel=64
    )
    cases = []
    for words, price in API_PRICES.items():
        tokens, utilisation = break_even(H100_USD_PER_HOUR, price, 2 * timed.tokens_per_s)
        cases.append(
            Measured(
                case=f"against {words}",
                value=tokens / 1e6,
                part=volume,
                details="the machine is {:.0%} busy, of {:,.0f} output tokens/s "
                "at 64 requests at a time",
                seen=(utilisation, timed.tokens_per_s),
            )
        )
    return cases


BREAK_EVEN = Experiment(
    claim=Claim(
        name="break-even",
        title="Break-even of a rented H100",
        words="Breakeven around 500M+ tokens monthly.",
        source=SPEED_ARTICLE,
        parts=(Part(words="volume", unit="million tokens a month", low=500),),
    ),
    measure=break_even_volume,
    conclusion=f"At ${H100_USD_PER_HOUR} an hour, 500 million tokens a month are the break-even "
    f"against an API at "
    "$3.93 for a million tokens. The volume depends on the API's price alone; the throughput "
    "decides whether one "
    "machine can do it. As many input tokens as output tokens are assumed. Above 100% busy, the "
    "machine never "
    "pays.",
)
