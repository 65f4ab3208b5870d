"""Claims about latency: races, streams, regions, short responses, agents."""

import asyncio
from pathlib import Path

import numpy as np

from benchmarks.claims.calls import TOKENS, calls, profile, published
from benchmarks.claims.judged import UNCHANGED, Claim, Experiment, Measured, Part
from benchmarks.claims.sources import FASTEST_ARTICLE, GENERAL_COMPUTE, OPUS, REGIONS_ARTICLE


async def racing(folder: Path) -> list[Measured]:
    """Measure a race of three providers and each of them alone."""
    (lower,) = RACING.claim.parts
    known = [
        published(folder, name)
        for name in ("groq-llama-3.1-70b", "fireworks-llama-3.1-70b", "together-llama-3.1-70b")
    ]
    alike = [profile(folder, f"alike-{number}", ttft_ms=400, tps=100) for number in range(3)]
    prompts = ["Explain AI."] * 40
    cases = []
    for words, names in (("published speeds", known), ("three that are alike", alike)):
        each = await asyncio.gather(*(calls(name, prompts, parallel=4) for name in names))
        branches = ", ".join(f'"{name}"' for name in names)
        race = await calls(f"race({branches})", prompts, parallel=4)
        whole = await calls(f'race({branches}, by="total")', prompts, parallel=4)
        best, best_whole = (
            min(np.mean(one.ttft_s) for one in each),
            min(np.mean(one.e2e_s) for one in each),
        )
        cases += [
            Measured(
                case=f"{words}, mean TTFT",
                value=float(np.mean(race.ttft_s) / best),
                part=lower,
                details="race {:.3f} s, best single {:.3f} s; {:.1f} prompts a request, and "
                "{:.0%} more tokens",
                seen=(
                    float(np.mean(race.ttft_s)),
                    float(best),
                    race.prompts / len(prompts),
                    race.wasted_tokens / race.tokens,
                ),
            ),
            Measured(
                case=f'{words}, mean E2E (by="total")',
                value=float(np.mean(whole.e2e_s) / best_whole),
                part=lower,
                details="race {:.3f} s, best single {:.3f} s; {:.0%} more tokens",
                seen=(
                    float(np.mean(whole.e2e_s)),
                    float(best_whole),
                    whole.wasted_tokens / whole.tokens,
                ),
            ),
        ]
        for percentile in (50, 95):
            single = min(one.ttft(percentile) for one in each)
            cases.append(
                Measured(
                    case=f"{words}, TTFT p{percentile}",
                    value=race.ttft(percentile) / single,
                    unit=lower.unit,
                    details="race {:.3f} s, best single {:.3f} s",
                    seen=(race.ttft(percentile), single),
                )
            )
    return cases


RACING = Experiment(
    claim=Claim(
        name="racing",
        title="Racing three providers",
        words="The minimum of three independent completion times is consistently lower than any "
        "single expected value.",
        source=FASTEST_ARTICLE,
        parts=(Part(words="mean", unit="of the best single provider's", high=1),),
    ),
    measure=racing,
    conclusion="A race with a provider that nearly always wins gains little. A race of three that "
    "are alike and "
    "slow at independent moments gains most at p95. Each request is paid as often as it is raced, "
    "and the tokens "
    "that losers sent before they were closed come on top.",
)


async def streaming(folder: Path) -> list[Measured]:
    """Measure which share of a whole response a reader of a stream waits."""
    (share,) = STREAMING.claim.parts
    cases = []
    providers = (
        ("groq-llama-3.1-70b", "Groq"),
        ("together-llama-3.1-70b", "Together"),
        (OPUS, "Claude Opus 4.6"),
    )
    for name, label in providers:
        for tokens in (64, 256):
            timed = await calls(
                published(folder, name), ["Explain AI."] * 12, parallel=6, max_tokens=tokens
            )
            parts = np.array(timed.ttft_s) / np.array(timed.e2e_s)
            cases.append(
                Measured(
                    case=f"{label}, {tokens} tokens",
                    value=float(np.median(parts)),
                    part=share,
                    details="TTFT p50 {:.2f} s, E2E p50 {:.2f} s",
                    seen=(timed.ttft(50), timed.e2e(50)),
                )
            )
    return cases


STREAMING = Experiment(
    claim=Claim(
        name="streaming",
        title="Perceived latency of a stream",
        words="Perceived latency collapses from total completion time to TTFT, which is often "
        "one-fifth or less of the "
        "full duration.",
        source=FASTEST_ARTICLE,
        parts=(Part(words="TTFT ÷ E2E", unit="of E2E", high=0.2),),
    ),
    measure=streaming,
    conclusion="The share is TTFT ÷ (TTFT + tokens ÷ TPS), so it depends on the length and on the "
    "speed: long or "
    "slow responses are where a stream helps most. A fast provider's short response is half "
    "waiting.",
)


async def regions(folder: Path) -> list[Measured]:
    """Measure a route that can choose the nearest endpoint, and a far one."""
    (gain,) = REGIONS.claim.parts
    near = profile(folder, "near", ttft_ms=190, tps=150)
    cases = []
    for extra_ms, where in (
        (50, "EU to US East, best case"),
        (200, "EU to US East, worst"),
        (300, "Asia to US East"),
    ):
        far = profile(folder, f"far-{extra_ms}", ttft_ms=190 + extra_ms, tps=150)
        fixed = await calls(far, ["Hello"] * 40, parallel=4, max_tokens=8)
        routed = await calls(
            f'fastest("{far}", "{near}")', ["Hello"] * 40, parallel=4, max_tokens=8, unmeasured=20
        )
        gain_ms = 1000 * (fixed.ttft(50) - routed.ttft(50))
        cases.append(Measured(case=f"{where}: {extra_ms} ms away", value=gain_ms, part=gain))
    return cases


REGIONS = Experiment(
    claim=Claim(
        name="regions",
        title="Routing to the nearest region",
        words="Automatically routes your API calls to the lowest-latency provider endpoint for "
        "your region, which can "
        "reduce TTFT by 100-300ms for non-US users.",
        source=REGIONS_ARTICLE,
        parts=(Part(words="gain", unit="ms less TTFT at p50", low=100, high=300),),
    ),
    measure=regions,
    conclusion="The route finds the near endpoint by itself and gains the distance, no more. The "
    "gain is 100 to "
    "300 ms only where the distance adds that much; within a continent it is smaller.",
)


async def capping(folder: Path) -> list[Measured]:
    """Measure several limits of output tokens."""
    gain, speed = CAPPING.claim.parts
    target = profile(folder, "verbose", ttft_ms=300, tps=200, natural_tokens=400)
    free = await calls(target, ["Hello"] * 20, parallel=10, max_tokens=None)
    cases = []
    for limit in (300, 200, 150, 50):
        capped = await calls(target, ["Hello"] * 20, parallel=10, max_tokens=limit)
        less = 100 * (1 - capped.e2e(50) / free.e2e(50))
        cases += [
            Measured(
                case=f"{limit} of 400 tokens",
                value=less,
                part=gain,
                details="E2E p50 {:.2f} s, {:.2f} s without a limit",
                seen=(capped.e2e(50), free.e2e(50)),
            ),
            Measured(
                case=f"{limit} of 400 tokens",
                value=float(np.median(capped.tps) / np.median(free.tps)),
                part=speed,
            ),
        ]
    return cases


CAPPING = Experiment(
    claim=Claim(
        name="capping",
        title="Capping the output length",
        words="Set max_tokens to the minimum your use case genuinely requires. Together these "
        "changes are often worth "
        "40-60% of total latency reduction. (The other article: tokens per second remains "
        "constant.)",
        source=FASTEST_ARTICLE,
        parts=(
            Part(words="latency", unit="% less E2E", low=40, high=60),
            Part(words="TPS constant", unit="times the TPS without a limit", **UNCHANGED),
        ),
    ),
    measure=capping,
    conclusion="The gain is the saved share of the tokens, less the share of the TTFT in E2E, "
    "which stays. 40 to "
    "60% needs half of the tokens to be unnecessary.",
)


async def length(folder: Path) -> list[Measured]:
    """Measure responses of 100 and of 500 tokens."""
    (times,) = LENGTH.claim.parts
    cases = []
    for ttft_ms, tps in ((50, 100), (300, 100), (300, 500)):
        target = profile(
            folder, f"length-{ttft_ms}-{tps}", ttft_ms=ttft_ms, tps=tps, natural_tokens=500
        )
        short, long = [
            await calls(target, ["Hello"] * 12, parallel=12, max_tokens=tokens, unmeasured=1)
            for tokens in (100, 500)
        ]
        cases.append(
            Measured(
                case=f"TTFT {ttft_ms} ms, {tps} tokens/s",
                value=long.e2e(50) / short.e2e(50),
                part=times,
                details="E2E p50 {:.2f} s and {:.2f} s",
                seen=(short.e2e(50), long.e2e(50)),
            )
        )
    return cases


LENGTH = Experiment(
    claim=Claim(
        name="length",
        title="Five times as many tokens",
        words="A 500-token response takes roughly five times as long to stream as a 100-token "
        "one, on the same model "
        "and hardware.",
        source=FASTEST_ARTICLE,
        parts=(Part(words="roughly five", unit="times the E2E of 100 tokens", low=4.5, high=5.5),),
    ),
    measure=length,
    conclusion="Five times as many tokens stream for five times as long after the first one, but "
    "the wait for the "
    "first one stays. The ratio is five only where TTFT is short beside the time of the tokens.",
)


async def agents(folder: Path) -> list[Measured]:
    """Measure the waits of ten sequential calls."""
    (waits,) = AGENTS.claim.parts
    cases = []
    for ttft_ms, tps in ((400, 100), (230, 215), (120, 500)):
        target = profile(folder, f"agent-{ttft_ms}", ttft_ms=ttft_ms, tps=tps)
        runs = await asyncio.gather(*(calls(target, ["Next?"] * 10) for _ in range(4)))
        cases.append(
            Measured(
                case=f"TTFT {ttft_ms} ms, {tps} tokens/s",
                value=float(np.mean([sum(run.ttft_s) for run in runs])),
                part=waits if ttft_ms == 400 else None,
                unit=waits.unit,
                details=f"{{:.1f}} s in all, with {10 * TOKENS} tokens",
                seen=(float(np.mean([run.elapsed_s for run in runs])),),
            )
        )
    return cases


AGENTS = Experiment(
    claim=Claim(
        name="agents",
        title="Ten tool calls of an agent",
        words="An agent making 10 sequential tool calls at 400ms TTFT each accumulates 4 seconds "
        "of dead time before "
        "any generation starts.",
        source=GENERAL_COMPUTE,
        parts=(Part(words="dead time", unit="s of waiting", low=3.5, high=4.5),),
    ),
    measure=agents,
    conclusion="The sum of the waits is as claimed; it is more if some calls are slow, because a "
    "sum of ten "
    "includes a slow one in two runs of five at a p95. Speed counts as well: at 100 tokens/s, "
    "generation takes "
    "longer than all waits together.",
)
