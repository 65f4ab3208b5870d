from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from splitsecond.benchmark.runs.planning import bench_job
from splitsecond.benchmark.runs.settings import INPUT_TOKENS, BenchSettings, too_short_to_cache
from splitsecond.cli import option_values
from splitsecond.cli.gates import absolute_gates
from splitsecond.cli.measuring import measure
from splitsecond.cli.options import USES, Concurrency, of_load, of_requests, of_results
from splitsecond.cli.pilot import needs_pilot, piloted
from splitsecond.cli.plan_file import plan_text, planned
from splitsecond.cli.run_options import (
    RunOutputOptions,
    SessionOptions,
    TargetOptions,
    with_options,
)
from splitsecond.core.timing import uses
from splitsecond.core.validation import one_of
from splitsecond.log.statistics.summary import PERCENTILES, advised


@dataclass(frozen=True, kw_only=True)
class BenchOptions(SessionOptions, RunOutputOptions, TargetOptions):
    concurrency: Concurrency = ""
    requests: Annotated[
        int | None,
        of_load(
            "-n",
            "--requests",
            metavar="N",
            help="Measured requests per row.",
            default="50, or the whole trace",
        ),
    ] = None
    rate: Annotated[str, of_load(metavar="R,R", help="Requests per second (open loop).")] = ""
    arrivals: Annotated[
        str, of_load(metavar="KIND", help="With --rate: constant, poisson or gamma; or trace.")
    ] = "poisson"
    burstiness: Annotated[
        float,
        of_load(metavar="X", help="Shape of gamma arrivals: below 1 in bursts, 1 is Poisson."),
    ] = 1.0
    trace: Annotated[
        Path | None,
        of_load(
            metavar="FILE",
            help="Arrival times from a file, with its lengths of prompts and answers: Mooncake, "
            "Azure, BurstGPT, or "
            "seconds, one per line.",
        ),
    ] = None
    time_scale: Annotated[
        float,
        of_load(metavar="X", help="Factor of the times of --trace: 0.5 sends it in half the time."),
    ] = 1.0
    rounds: Annotated[
        int | None,
        of_load(
            metavar="N",
            help="Rounds per row; each round has requests of all rows.",
            default="6 to 8",
        ),
    ] = None
    precision: Annotated[
        str,
        of_load(
            metavar="SHARE",
            help="Instead of -n: more rounds until the intervals of TTFT p50 and TPS p50 are "
            "±SHARE, such as 5%; for "
            "other figures as in ttft_ms.p95=5%.",
        ),
    ] = ""
    duration: Annotated[
        str,
        of_load(
            metavar="TIME",
            help="Instead of -n, or as limit of --precision: rounds for 60s, 10m or 2h; of a "
            "trace its beginning.",
        ),
    ] = ""
    over: Annotated[
        str,
        of_load(
            metavar="TIME",
            help="Spread the rounds evenly over 15m or 2h, with pauses: what holds then, holds "
            "for other minutes too.",
            default="12m30s with several targets",
        ),
    ] = ""
    quick: Annotated[
        bool,
        of_load(
            "--quick",
            help="No pauses between the rounds: a first look that holds for the seconds of the "
            "run only.",
        ),
    ] = False
    side_by_side: Annotated[
        bool, of_load("--side-by-side", help="Measure different hosts at the same time.")
    ] = False
    input_tokens: Annotated[
        str,
        of_requests(
            metavar="N,N",
            help="Length of the prompts in tokens, by the server's count; several, such as "
            "512,8k,50k, are compared.",
            default="512; 4608 with --cache reuse",
        ),
    ] = ""  # type: ignore[assignment]  # text, because several lengths are a sweep
    workload: Annotated[
        list[str] | None,
        of_requests(
            metavar="NAME",
            help="A workload with its own lengths and rate: autocomplete, chat, summary, rag, "
            "long-form, or one of "
            "--workloads. Repeatable.",
        ),
    ] = None
    operation: Annotated[
        str,
        of_requests(
            metavar="NAME",
            help="What requests ask for: chat, embeddings or rerank. The last two have --batch "
            "inputs of --input-tokens each.",
        ),
    ] = "chat"
    batch: Annotated[
        str,
        of_requests(
            metavar="N,N",
            help="With --operation: texts to embed, or documents to rank, in a request; several "
            "are compared.",
            default="1",
        ),
    ] = ""
    schema: Annotated[
        Path | None,
        of_requests(
            metavar="FILE",
            help="Ask for structured output of this JSON schema, and report the share of answers "
            "that fit it.",
        ),
    ] = None
    tools: Annotated[
        Path | None,
        of_requests(
            metavar="FILE",
            help="Require a call of one of these tools (a list in OpenAI's form), and report the "
            "share of right calls.",
        ),
    ] = None
    check_file: Annotated[
        Path | None,
        of_requests(
            "--check",
            metavar="FILE",
            help='Ask these questions, JSON lines with "question" and "answer", and report the '
            "share of answers that have the expected words.",
        ),
    ] = None
    reasoning_effort: Annotated[
        str,
        of_requests(
            metavar="LEVEL,LEVEL",
            help="How long the model may reason: none, minimal, low, medium, high, xhigh or max; "
            "several are compared.",
        ),
    ] = ""
    session_rate: Annotated[
        str, of_load(metavar="R,R", help="With --sessions: new sessions per second.")
    ] = ""
    workloads: Annotated[
        Path | None,
        of_requests(
            metavar="FILE", help="Workloads of your own: a TOML file with a table for each."
        ),
    ] = None
    output_tokens: Annotated[
        int | None,
        of_requests(
            metavar="N",
            help="Length of the responses in tokens.",
            default="512; a single URL: what a pilot finds",
        ),
    ] = None
    cache: Annotated[
        str,
        of_requests(
            metavar="fresh|reuse",
            help="fresh: every prompt begins differently. reuse: also measure rows whose prompts "
            "begin alike, and what "
            "the provider's prompt cache saves.",
        ),
    ] = "fresh"
    use: Annotated[
        str,
        of_results(
            "--for",
            metavar="USE",
            help=f"Plan the run for a verdict on this use: its limits, and "
            f"enough requests. {USES}.",
        ),
    ] = ""
    slo: Annotated[
        str,
        of_results(
            metavar="LIMITS", help=f"Limits for goodput: ttft=300ms,tpot=20ms, or one of {USES}."
        ),
    ] = ""
    fail_if: Annotated[
        list[str] | None,
        of_results(
            metavar="EXPRESSION",
            help="Exit 1 if it holds for a row, as in 'tps.p50 < 100'. Repeatable.",
        ),
    ] = None


OUTPUT_TOKENS = 512
FIRST_OPTIONS = (
    "base_url", "concurrency", "requests", "rate", "input_tokens", "output_tokens", "quick",
    "max_cost", "use", "out",
)  # fmt: skip
"""What `--help` shows; `--help-all` shows all."""


def planned_for(options: BenchOptions, use: str) -> BenchOptions:
    """Return the options with what a verdict on `use` needs, where they say nothing themselves."""
    needs = uses.USES[one_of("--for", use, tuple(uses.USES))]
    free = not (options.precision or options.duration or options.trace)
    loaded = options.concurrency or options.rate or options.trace
    return replace(
        options,
        slo=options.slo or use,
        requests=options.requests or (advised(PERCENTILES[needs.percentile]) if free else None),
        concurrency="1" if needs.alone and not loaded else options.concurrency,
    )


@with_options(BenchOptions, FIRST_OPTIONS)
def bench(options: BenchOptions) -> None:
    """Measure the speed of LLM endpoints, with intervals.

    \b
    splitsecond bench groq/openai/gpt-oss-120b cerebras/gpt-oss-120b
    splitsecond bench groq/openai/gpt-oss-120b cerebras/gpt-oss-120b --quick
    splitsecond bench groq/openai/gpt-oss-120b cerebras/gpt-oss-120b --for voice
    splitsecond bench runs/monday/plan.toml
    splitsecond bench --base-url http://127.0.0.1:8000/v1 --model mine -c 1,8,32 -n 50 --ignore-eos
    splitsecond bench sim/groq sim/together --rate 5 --slo voice
    splitsecond bench sim/groq -c 1 --input-tokens 512,8k,50k
    splitsecond bench sim/groq sim/together --workload autocomplete --workload summary
    splitsecond bench groq/openai/gpt-oss-120b --over 15m
    splitsecond bench sim/groq -c 8 --precision 5% --duration 10m
    splitsecond bench sim/groq -c 1 --fail-if 'tps.p50 < 100' --fail-if 'errors > 0'
    splitsecond bench sim/groq --policy 'hedge("sim/groq", "sim/together")'
    splitsecond bench anthropic/claude-haiku-4-5 openai/gpt-5-mini --cache reuse --max-cost 5
    splitsecond bench sim/agent-cloud sim/agent-vllm-h100 --sessions agent -c 1,4
    """
    options = planned(options)
    if needs_pilot(options):
        (server,) = options.servers
        options, words = piloted(options, server, option_values.headers(options.header or []))
        typer.echo(words, err=True, nl=bool(words))
    plan = plan_text(options, "bench")
    options = replace(options, output_tokens=options.output_tokens or OUTPUT_TOKENS)
    if options.use:
        options = planned_for(options, options.use)
    gates = absolute_gates(options.fail_if or ())
    prompt_tokens = INPUT_TOKENS[one_of("--cache", options.cache, tuple(INPUT_TOKENS))]
    lengths = [
        option_values.tokens(each, "--input-tokens")
        for each in options.input_tokens.split(",")
        if each.strip()
    ]
    one_length = lengths[0] if len(lengths) == 1 else None
    loaded = bool(options.concurrency or options.rate or options.trace)
    rate = option_values.session_rate(options.sessions, options.rate, options.session_rate)
    batches = [
        int(each) for each in option_values.numbers(options.batch or "1", "--batch", whole=True)
    ]
    efforts = option_values.efforts(options.reasoning_effort)
    body = option_values.json_object(options.body, "--body")
    if len(efforts) == 1:
        body = {"reasoning_effort": efforts[0], **body}
    workloads = option_values.workloads(
        options.input_tokens,
        options.workload or [],
        options.workloads,
        batches,
        efforts if len(efforts) > 1 else [],
        keep_rate=not loaded,
    )
    settings = options.settings(
        BenchSettings,
        loads=option_values.loads(
            options.concurrency, rate, options.arrivals, options.burstiness, options.trace
        ),
        longest_wait=option_values.longest_wait(options.longest_wait, options.no_waits),
        cache_reuse=options.cache == "reuse",
        input_tokens=one_length,
        workloads=workloads,
        batch=batches[0],
        body=body,
        duration=option_values.seconds(options.duration, "--duration"),
        over=option_values.seconds(options.over, "--over"),
    )
    with ExitStack() as started:
        recorded = options.recorded(
            input_tokens=one_length or options.input_tokens or prompt_tokens, plan=plan
        )
        job = bench_job(settings, started, recorded)
        if settings.cache_reuse and (warning := too_short_to_cache(settings)):
            typer.echo(warning, err=True)
        code = measure(job, options.output, options.max_cost, gates)
    raise typer.Exit(code)
