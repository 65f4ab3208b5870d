from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from splitsecond.benchmark.runs.option_forms import WHOLE_NUMBERS
from splitsecond.benchmark.runs.planning import bench_job
from splitsecond.benchmark.runs.settings import INPUT_TOKENS, BenchSettings, too_short_to_cache
from splitsecond.cli import option_values
from splitsecond.cli.gates import absolute_gates
from splitsecond.cli.measuring import measure
from splitsecond.cli.options import of_requests, of_results
from splitsecond.cli.pilot import needs_pilot, piloted
from splitsecond.cli.plan_file import plan_text, planned
from splitsecond.cli.run_options import (
    RunOutputOptions,
    SessionOptions,
    TargetOptions,
    with_options,
)
from splitsecond.core.timing.uses import USE_NAMES, USES
from splitsecond.core.validation import one_of, wrong
from splitsecond.log.statistics.summary import PERCENTILES, advised


class BenchOptions(SessionOptions, RunOutputOptions, TargetOptions):
    of = BenchSettings

    workload: Annotated[
        list[str] | None,
        of_requests(
            metavar="NAME",
            help="A workload with its own lengths and rate: autocomplete, chat, summary, rag, "
            "long-form, or one of --workloads. Repeatable.",
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
    workloads: Annotated[
        Path | None,
        of_requests(
            metavar="FILE", help="Workloads of your own: a TOML file with a table for each."
        ),
    ] = None
    use: Annotated[
        str,
        of_results(
            "--for",
            metavar="USE",
            help="Plan the run for a verdict on this use: its limits, and "
            f"enough requests. {USE_NAMES}.",
        ),
    ] = ""
    fail_if: Annotated[
        list[str] | None,
        of_results(
            metavar="EXPRESSION",
            help="Exit 1 if it holds for a row, as in 'tps.p50 < 100'. Repeatable.",
        ),
    ] = None


FIRST_OPTIONS = (
    "base_url", "concurrency", "requests", "rate", "input_tokens", "output_tokens", "quick",
    "max_cost", "use", "out",
)  # fmt: skip
"""What `--help` shows; `--help-all` shows all."""


def planned_for(options: BenchOptions, use: str) -> BenchOptions:
    """Return the options with what a verdict on `use` needs, where they say nothing themselves."""
    needs = USES[one_of("--for", use, tuple(USES))]
    _only_of_chats(options, "use", use)
    free = not (options.precision or options.duration or options.trace)
    loaded = options.concurrency or options.rate or options.trace
    return options.replaced(
        slo=options.slo or use,
        requests=options.requests or (advised(PERCENTILES[needs.percentile]) if free else None),
        concurrency="1" if needs.alone and not loaded else options.concurrency,
    )


def _only_of_chats(options: BenchOptions, name: str, value: str) -> None:
    if options.operation != "chat":
        raise wrong(name, value, f"no {name} with the operation {options.operation}")


def bench_settings(options: BenchOptions) -> BenchSettings:
    lengths = [
        option_values.tokens(each, "--input-tokens")
        for each in options.input_tokens.split(",")
        if each.strip()
    ]
    batches = WHOLE_NUMBERS.read(options.batch or "1", "--batch")
    efforts = option_values.efforts(options.reasoning_effort)
    if efforts:
        _only_of_chats(options, "reasoning_effort", options.reasoning_effort)
    workloads = option_values.workloads(
        options.input_tokens,
        options.workload or [],
        options.workloads,
        batches,
        efforts if len(efforts) > 1 else [],
        keep_rate=not (options.concurrency or options.rate or options.trace),
    )
    settings = options.settings(
        BenchSettings,
        input_tokens=lengths[0] if len(lengths) == 1 else None,
        workloads=workloads,
        batch=batches[0],
    )
    if len(efforts) == 1:
        body = {"reasoning_effort": efforts[0], **settings.body}
        settings = replace(settings, body=body)
    return settings


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
        options, words = piloted(options, server)
        typer.echo(words, err=True, nl=bool(words))
    plan = plan_text(options, "bench")
    if options.use:
        options = planned_for(options, options.use)
    gates = absolute_gates(options.fail_if or ())
    settings = bench_settings(options)
    with ExitStack() as started:
        recorded = options.recorded(
            input_tokens=settings.input_tokens
            or options.input_tokens
            or INPUT_TOKENS[options.cache],
            plan=plan,
        )
        job = bench_job(settings, started, recorded)
        if settings.cache_reuse and (warning := too_short_to_cache(settings)):
            typer.echo(warning, err=True)
        code = measure(job, options.output, options.max_cost, gates)
    raise typer.Exit(code)
