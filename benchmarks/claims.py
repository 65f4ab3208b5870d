"""Try the claims about optimisations that the field repeats: `python -m benchmarks.claims` (about seven minutes).

Each experiment sends real requests through the public API to simulated providers with published speeds, measures with
and without the optimisation, and compares the result with the claim. A claim that holds only under a condition is
measured on both sides of it. The program writes docs/reference/claims.md with one plot for each claim.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

import splitsecond as ss
from splitsecond.benchmark.money.break_even import break_even
from splitsecond.core import clock
from splitsecond.core.pages.axis import linear
from splitsecond.core.pages.chart import Chart, LegendEntry, picture
from splitsecond.core.pages.png import standalone

DOCS = Path(__file__).parents[1] / "docs"
PICTURES = "pictures/claims"
TOKENS = 64
SPEED_ARTICLE = "Inference speed article with live API benchmarks, March 2026"
REGIONS_ARTICLE = "Crazyrouter, AI Inference Speed Benchmark 2026, April 2026"
GENERAL_COMPUTE = "General Compute, LLM Token Generation Speed: How Providers Compare in 2025, June 2025"
FASTEST_ARTICLE = "flo2, Fastest LLM Inference: What Makes Models Fast & How to Get It"
PROMPTS = ["Explain AI."] * 60


class Claim(Struct, frozen=True, kw_only=True):
    """A claim: `low` to `high` in `unit`, in the words of `source`."""

    name: str
    title: str
    words: str
    source: str
    unit: str
    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Return whether a measured value is in the claimed range, within 10% of its ends."""
        return 0.9 * self.low <= value <= 1.1 * self.high


class Measured(Struct, frozen=True, kw_only=True):
    """One case of an experiment: the measured value, and what else was seen."""

    case: str
    value: float
    details: str = ""


class Result(Struct, frozen=True, kw_only=True):
    """The cases of one claim, and the condition under which it holds."""

    claim: Claim
    cases: list[Measured]
    conclusion: str


Experiment = Callable[[Path], Awaitable[Result]]


def profile(
    folder: Path, name: str, *, ttft_ms: float, tps: float, natural_tokens: int = TOKENS, more: str = ""
) -> str:
    """Write a profile of a provider with a steady speed and return its target."""
    path = folder / f"{name}.toml"
    path.write_text(
        f'title = "{name}"\nmodel = "{name}"\nsource = "benchmarks/claims.py"\nmeasured = "2026-11"\n'
        f"natural_tokens = {natural_tokens}\noutput_tokens = {2 * natural_tokens}\n{more}\n[[table]]\nconcurrency = 1\n"
        f"ttft_ms = {{ p50 = {ttft_ms}, p95 = {ttft_ms * 1.4} }}\ntps = {{ p50 = {tps}, p95 = {tps / 1.1} }}\n"
    )
    return f"sim/{path}"


class Timed(Struct, frozen=True, kw_only=True):
    """Times of several calls in seconds, and the tokens of all their attempts."""

    elapsed_s: float
    e2e_s: list[float]
    ttft_s: list[float]
    tokens: int
    prompts: int
    wasted_tokens: int

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.elapsed_s

    def e2e(self, percentile: float) -> float:
        return float(np.percentile(self.e2e_s, percentile))

    def ttft(self, percentile: float) -> float:
        return float(np.percentile(self.ttft_s, percentile))


async def calls(
    policy: str, prompts: Sequence[str], *, parallel: int = 1, max_tokens: int | None = TOKENS, unmeasured: int = 1
) -> Timed:
    """Send each prompt through `policy`, `parallel` at a time, after some unmeasured ones that open the connections."""
    limit = {} if max_tokens is None else {"max_tokens": max_tokens}
    async with ss.connect(policy) as connection:
        await asyncio.gather(*(connection.chat("Hello", **limit) for _ in range(max(parallel, unmeasured))))
        slots = asyncio.Semaphore(parallel)

        async def one(prompt: str) -> ss.ChatReply:
            async with slots:
                return await connection.chat(prompt, **limit)

        start_ns = clock.now_ns()
        replies = await asyncio.gather(*map(one, prompts))
        elapsed_s = (clock.now_ns() - start_ns) / clock.NS_PER_S
    attempts = [attempt for reply in replies for attempt in reply.attempts or [reply.observation]]
    tokens = sum(reply.observation.output_tokens or 0 for reply in replies)
    received = sum(len(attempt.token_at) for attempt in attempts)
    return Timed(
        elapsed_s=elapsed_s,
        e2e_s=[(reply.observation.e2e_ms or 0) / 1000 for reply in replies],
        ttft_s=[(reply.observation.ttft_ms or 0) / 1000 for reply in replies],
        tokens=tokens,
        prompts=len(attempts),
        wasted_tokens=max(0, received - tokens),
    )


async def parallel(folder: Path) -> Result:
    """Measure the same requests one after another and in parallel."""
    claim = Claim(
        name="parallel",
        title="Parallel requests",
        words="Parallel requests increase throughput 6-8x despite per-request latency remaining unchanged.",
        source=SPEED_ARTICLE,
        unit="times the throughput",
        low=6,
        high=8,
    )
    cases = []
    for target, label in (("sim/anthropic-claude-opus-4.6", "Claude Opus 4.6"), ("sim/groq", "Groq, Llama 3.1 70B")):
        one = await calls(target, ["Explain AI."] * 8)
        for slots in (8, 16):
            many = await calls(target, ["Explain AI."] * 4 * slots, parallel=slots)
            cases.append(
                Measured(
                    case=f"{label}, {slots} at a time",
                    value=many.tokens_per_s / one.tokens_per_s,
                    details=f"E2E p50 {one.e2e(50):.2f} s alone, {many.e2e(50):.2f} s in parallel",
                )
            )
    return Result(
        claim=claim,
        cases=cases,
        conclusion="The gain is the number of parallel requests, less what each of them becomes slower. 6 to 8 times "
        "is what 8 parallel requests give at a provider that load does not slow down. More in parallel gives more, and "
        "latency stays unchanged only as long as the provider has capacity to spare.",
    )


async def batching(folder: Path) -> Result:
    """Measure the system throughput of one engine by the number of requests at a time."""
    claim = Claim(
        name="batching",
        title="Batching",
        words="Optimal batching increases throughput 4-8x. Beyond 32-64 batch size, returns diminish. "
        "Sweet spot: 16-32 requests in parallel.",
        source=SPEED_ARTICLE,
        unit="times the throughput of one request",
        low=4,
        high=8,
    )
    levels = (1, 8, 16, 32, 64, 128, 256)
    cases, alone = [], 1.0
    for level in levels:
        timed = await calls("sim/runpod-h100-mistral-7b", ["Explain AI."] * max(4, 2 * level), parallel=level)
        alone = timed.tokens_per_s if level == 1 else alone
        cases.append(
            Measured(
                case=f"{level} at a time",
                value=timed.tokens_per_s / alone,
                details=f"{timed.tokens_per_s:,.0f} tokens/s, E2E p50 {timed.e2e(50):.2f} s",
            )
        )
    return Result(
        claim=claim,
        cases=cases,
        conclusion="This engine's step takes 10.5 ms and 0.27 ms more for each sequence, so its throughput can grow "
        "39 times at most, and half of that is reached at 39 sequences. 4 to 8 times is the gain of the first 8 "
        "requests. Returns diminish beyond 32 to 64, as claimed: there, each request pays for the growth with its own "
        "speed. An engine with a larger cost for each sequence gains less.",
    )


SIMPLE = "Say hello to Ann."
MEDIUM = "Explain why the design of this cache is not optimal, and compare it with another one."
COMPLEX = (
    "Prove the theorem step by step, derive the optimal algorithm, analyse its complexity, and design and implement a "
    "strategy to evaluate the hypothesis. " * 30
)


async def cascading(folder: Path) -> Result:
    """Measure a route that sends simple requests to a fast model and complex ones to the strongest."""
    claim = Claim(
        name="cascading",
        title="Cascading by complexity",
        words="Simple requests on Groq (500+ TPS). Complex requests on Claude Opus (40 TPS). Overall system throughput "
        "improves 3-5x.",
        source=SPEED_ARTICLE,
        unit="times the throughput of Claude Opus alone",
        low=3,
        high=5,
    )
    opus = "sim/anthropic-claude-opus-4.6"
    route = f'by_complexity(simple="sim/groq-mixtral", medium="sim/google-gemini-2.5-flash", complex="{opus}")'
    alone = await calls(opus, [COMPLEX] * 20, parallel=10)
    cases = []
    for simple, medium, hard in ((50, 25, 25), (60, 30, 10), (80, 15, 5)):
        prompts = [SIMPLE] * simple + [MEDIUM] * medium + [COMPLEX] * hard
        routed = await calls(route, prompts, parallel=10)
        cases.append(
            Measured(
                case=f"{simple}% simple, {medium}% medium, {hard}% complex",
                value=float(np.mean(alone.e2e_s) / np.mean(routed.e2e_s)),
                details=f"mean E2E {np.mean(alone.e2e_s):.2f} s on Opus, {np.mean(routed.e2e_s):.2f} s with the route",
            )
        )
    return Result(
        claim=claim,
        cases=cases,
        conclusion="The slow model limits the gain: with a share s of complex requests it is below 1 / s. 3 to 5 times "
        "needs a share of complex requests of about a tenth to a quarter. Throughput is compared at the same number of "
        "requests at a time, as the ratio of the mean times of a request.",
    )


async def pipelined(folder: Path) -> Result:
    """Measure a fast model that is asked first, and a slow one that is asked only if it is needed."""
    claim = Claim(
        name="pipelined",
        title="Pipelined inference",
        words="FastModel (0.5s) -> Router Decision -> SlowModel if needed (2.0s). Average latency: 0.7s vs 2.5s "
        "sequential.",
        source=SPEED_ARTICLE,
        unit="s on average",
        low=0.7,
        high=0.7,
    )
    slow = profile(folder, "slow", ttft_ms=400, tps=40)
    fast_only = profile(folder, "fast", ttft_ms=100, tps=160)
    first, second = await asyncio.gather(
        calls(fast_only, ["Hello"] * 10, parallel=5, max_tokens=None),
        calls(slow, ["Hello"] * 10, parallel=5, max_tokens=None),
    )
    sequential = float(np.mean(first.e2e_s) + np.mean(second.e2e_s))
    cases = [Measured(case="both models, one after the other", value=sequential)]
    for share in (0.1, 0.3):
        failing = f'[[faults]]\nkind = "cut"\nafter = {TOKENS - 2}\nshare = {share}\n'
        fast = profile(folder, f"fast-{share}", ttft_ms=100, tps=160, more=failing)
        timed = await calls(
            f'cascade("{fast}", "{slow}", accept="finished")', ["Hello"] * 60, parallel=10, max_tokens=None
        )
        cases.append(
            Measured(case=f"the slow model for {share:.0%} of the requests", value=float(np.mean(timed.e2e_s)))
        )
    return Result(
        claim=claim,
        cases=cases,
        conclusion="The average is the fast model's time, and the slow model's time by the share of requests that need "
        "it. 0.7 s needs a share of one in ten. Nothing runs in parallel here: the slow model is left out.",
    )


async def racing(folder: Path) -> Result:
    """Measure a race of three providers and each of them alone."""
    claim = Claim(
        name="racing",
        title="Racing three providers",
        words="The minimum of three independent completion times is consistently lower than any single expected value.",
        source=FASTEST_ARTICLE,
        unit="of the best single provider's TTFT",
        low=0,
        high=1,
    )
    published = ["sim/groq", "sim/fireworks-llama-3.1-70b", "sim/together-llama-3.1-70b"]
    alike = [profile(folder, f"alike-{number}", ttft_ms=400, tps=100) for number in range(3)]
    cases, prices = [], []
    for words, names in (("published speeds", published), ("three that are alike", alike)):
        each = await asyncio.gather(*(calls(name, PROMPTS, parallel=2) for name in names))
        expression = ", ".join(f'"{name}"' for name in names)
        race = await calls(f"race({expression})", PROMPTS, parallel=2)
        for percentile in (50, 95):
            single = [timed.ttft(percentile) for timed in each]
            alone = ", ".join(f"{value:.3f}" for value in single)
            cases.append(
                Measured(
                    case=f"{words}, p{percentile}",
                    value=race.ttft(percentile) / min(single),
                    details=f"race {race.ttft(percentile):.3f} s, single providers {alone} s",
                )
            )
        wasted = race.wasted_tokens / race.tokens
        prices.append(f"{race.prompts / len(PROMPTS):.1f} prompts and {wasted:.0%} more tokens")
    return Result(
        claim=claim,
        cases=cases,
        conclusion="A race with a provider that nearly always wins gains little. A race of three that are alike and "
        f"slow at independent moments gains most at p95. The price for each request: {prices[0]} with the published "
        f"speeds, {prices[1]} with three that are alike; the tokens are those that losers sent before they were "
        "closed.",
    )


async def regions(folder: Path) -> Result:
    """Measure a route that can choose the nearest endpoint, and a far one."""
    claim = Claim(
        name="regions",
        title="Routing to the nearest region",
        words="Automatically routes your API calls to the lowest-latency provider endpoint for your region, which can "
        "reduce TTFT by 100-300ms for non-US users.",
        source=REGIONS_ARTICLE,
        unit="ms less TTFT at p50",
        low=100,
        high=300,
    )
    near = profile(folder, "near", ttft_ms=190, tps=150)
    cases = []
    for extra_ms, where in ((50, "EU to US East, best case"), (200, "EU to US East, worst"), (300, "Asia to US East")):
        far = profile(folder, f"far-{extra_ms}", ttft_ms=190 + extra_ms, tps=150)
        fixed = await calls(far, ["Hello"] * 40, parallel=4, max_tokens=8)
        routed = await calls(f'fastest("{far}", "{near}")', ["Hello"] * 40, parallel=4, max_tokens=8, unmeasured=20)
        gain_ms = 1000 * (fixed.ttft(50) - routed.ttft(50))
        cases.append(Measured(case=f"{where}: {extra_ms} ms away", value=gain_ms))
    return Result(
        claim=claim,
        cases=cases,
        conclusion="The route finds the near endpoint by itself and gains the distance, no more. The gain is 100 to "
        "300 ms only where the distance adds that much; within a continent it is smaller.",
    )


async def capping(folder: Path) -> Result:
    """Measure several limits of output tokens."""
    claim = Claim(
        name="capping",
        title="Capping the output length",
        words="Set max_tokens to the minimum your use case genuinely requires. Together these changes are often worth "
        "40-60% of total latency reduction.",
        source=FASTEST_ARTICLE,
        unit="% less E2E",
        low=40,
        high=60,
    )
    target = profile(folder, "verbose", ttft_ms=300, tps=200, natural_tokens=400)
    free = await calls(target, ["Hello"] * 20, parallel=10, max_tokens=None)
    cases = []
    for limit in (300, 200, 150, 50):
        capped = await calls(target, ["Hello"] * 20, parallel=10, max_tokens=limit)
        gain = 100 * (1 - capped.e2e(50) / free.e2e(50))
        cases.append(Measured(case=f"{limit} of 400 tokens", value=gain, details=f"E2E p50 {capped.e2e(50):.2f} s"))
    return Result(
        claim=claim,
        cases=cases,
        conclusion=f"Without a limit, E2E is {free.e2e(50):.2f} s at p50. The gain is the saved share of the tokens, "
        "less the share of the TTFT in E2E, which stays. 40 to 60% needs half of the tokens to be unnecessary.",
    )


async def agents(folder: Path) -> Result:
    """Measure the waits of ten sequential calls."""
    claim = Claim(
        name="agents",
        title="Ten tool calls of an agent",
        words="An agent making 10 sequential tool calls at 400ms TTFT each accumulates 4 seconds of dead time before "
        "any generation starts.",
        source=GENERAL_COMPUTE,
        unit="s of waiting",
        low=4,
        high=4,
    )
    cases = []
    for ttft_ms, tps in ((400, 100), (230, 215), (120, 500)):
        target = profile(folder, f"agent-{ttft_ms}", ttft_ms=ttft_ms, tps=tps)
        runs = await asyncio.gather(*(calls(target, ["Next?"] * 10) for _ in range(4)))
        cases.append(
            Measured(
                case=f"TTFT {ttft_ms} ms, {tps} tokens/s",
                value=float(np.mean([sum(run.ttft_s) for run in runs])),
                details=f"{np.mean([run.elapsed_s for run in runs]):.1f} s in all, with {10 * TOKENS} tokens",
            )
        )
    return Result(
        claim=claim,
        cases=cases,
        conclusion="The sum of the waits is as claimed; it is more if some calls are slow, because a sum of ten "
        "includes a slow one in two runs of five at a p95. Speed counts as well: at 100 tokens/s, generation takes "
        "longer than all waits together.",
    )


API_PRICES = {
    "input $2.50, output $10.00 (GPT-4o in the article)": 6.25,
    "input $1.25, output $5.00": 3.125,
    "input $1.25, output $2.50": 1.875,
    "input and output $0.60": 0.6,
}
"""US dollars for a million tokens, half of them input."""
H100_USD_PER_HOUR = 2.69


async def break_even_volume(folder: Path) -> Result:
    """Compute the tokens a month from which a rented H100 is cheaper than an API, with a measured throughput."""
    claim = Claim(
        name="break-even",
        title="Break-even of a rented H100",
        words="Breakeven around 500M+ tokens monthly.",
        source=SPEED_ARTICLE,
        unit="million tokens a month",
        low=500,
        high=500,
    )
    timed = await calls("sim/runpod-h100-mistral-7b", ["Explain AI."] * 128, parallel=64)
    cases = []
    for words, price in API_PRICES.items():
        tokens, utilisation = break_even(H100_USD_PER_HOUR, price, 2 * timed.tokens_per_s)
        cases.append(
            Measured(case=f"against {words}", value=tokens / 1e6, details=f"the machine is {utilisation:.0%} busy")
        )
    return Result(
        claim=claim,
        cases=cases,
        conclusion=f"At ${H100_USD_PER_HOUR} an hour, 500 million tokens a month are the break-even against an API at "
        "$3.93 for a million tokens. The volume depends on the API's price alone; the throughput decides whether one "
        f"machine can do it. Measured: {timed.tokens_per_s:,.0f} output tokens/s at 64 requests at a time, with as "
        "many input tokens assumed. Above 100% busy, the machine never pays.",
    )


EXPERIMENTS: list[Experiment] = [
    parallel, batching, cascading, pipelined, racing, regions, capping, agents, break_even_volume,
]  # fmt: skip


def chart(result: Result) -> str:
    """Return an SVG file: bars of the measured values, with the claimed range behind them."""
    claim, height = result.claim, 26
    longest = max(claim.high, *(each.value for each in result.cases))
    axis = linear(claim.unit, 0, 1.15 * longest)
    drawn = Chart(axis, None, height=height * len(result.cases), left=230)
    legend = {label: LegendEntry(label=label, index=index) for index, label in enumerate(("measured", "the claim"))}
    drawn.add(legend["the claim"], drawn.bars([(claim.low, claim.high, 0)], drawn.height), look="dim")
    for at, each in enumerate(result.cases):
        drawn.add(legend["measured"], drawn.bars([(0, each.value, height * at + 5)], height - 10))
        drawn.add(None, drawn.text(drawn.across(each.value) + 5, drawn.top + height * at + 17, f"{each.value:,.3g}"))
        drawn.add(None, drawn.name(each.case, height * (at + 0.5)))
    words = {"section": "", "title": claim.title, "description": claim.words}
    return standalone(picture(drawn, name=claim.name, **words), legend)


def section(result: Result) -> str:
    """Return the part of the page about one claim."""
    claim = result.claim
    lines = "\n".join(
        f"| {each.case} | {each.value:,.4g} | {'yes' if claim.holds(each.value) else 'no'} | {each.details} |"
        for each in result.cases
    )
    return f"""## {claim.title}

> {claim.words} ({claim.source})

| case | {claim.unit} | as claimed | |
|---|---|---|---|
{lines}

{result.conclusion}

![{claim.title}: measured values beside the claim](../{PICTURES}/{claim.name}.svg)
"""


HEAD = """# Claims about optimisation, tried

Articles about fast inference repeat the same claims. Here each one is measured: real requests go through Splitsecond's
policies to simulated providers with published speeds, with and without the optimisation. A simulated provider shows
what follows from its speed. It cannot show how a real one behaves on a given day, so measure your own:
`splitsecond bench --policy '…'`.

`python -m benchmarks.claims` wrote this page. "As claimed" allows 10%.
"""


async def run(names: Sequence[str]) -> list[Result]:
    """Run the experiments one after another, so that they do not disturb each other."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for experiment in EXPERIMENTS:
            if not names or experiment.__name__ in names:
                print(f"{experiment.__name__} …", flush=True)
                found.append(await experiment(Path(folder)))
                print(section(found[-1]), flush=True)
    return found


def main() -> None:
    """Run all experiments and write the page, or run some and print them only."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", choices=[[], *(each.__name__ for each in EXPERIMENTS)])
    names = parser.parse_args().name
    results = asyncio.run(run(names))
    if not names:
        pictures = DOCS / PICTURES
        pictures.mkdir(parents=True, exist_ok=True)
        for result in results:
            (pictures / f"{result.claim.name}.svg").write_text(chart(result), encoding="utf-8")
        (DOCS / "reference/claims.md").write_text("\n".join([HEAD, *map(section, results)]), encoding="utf-8")


if __name__ == "__main__":
    main()
