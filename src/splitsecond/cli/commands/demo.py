import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from splitsecond.benchmark.load.plan import PlannedLoad
from splitsecond.benchmark.runs.planning import Recorded, bench_job
from splitsecond.benchmark.runs.settings import BenchSettings
from splitsecond.cli.measuring import measure
from splitsecond.cli.options import Json, option
from splitsecond.cli.results import Output
from splitsecond.core.wording import ENGINE, SIMULATED
from splitsecond.simulator.llama_cpp.process import unavailable_reason

PROVIDERS = ("generalcompute", "groq", "fireworks", "together", "replicate")
REQUESTS = 10
OUTPUT_TOKENS = 32


def demo(
    out: Annotated[Path | None, option(metavar="FOLDER", help="The run's folder.", default="runs/ID")] = None,
    json: Json = "",
) -> None:
    """Benchmark five simulated providers and a real engine.

    \b
    splitsecond demo
    splitsecond demo --out runs/demo

    Needs no key. The providers behave as measured in General Compute's "LLM Token Generation Speed" (June 2025;
    Llama 3.1 70B); the engine is llama.cpp's own server on a small model with random weights. Takes about a
    minute.
    """
    names = [SIMULATED + provider for provider in PROVIDERS]
    if reason := unavailable_reason():
        typer.echo(f"{reason} (continuing with the simulated providers)", err=True)
    else:
        names.append(ENGINE + "small")
    settings = BenchSettings(
        targets=names,
        loads=[PlannedLoad(concurrency=1), PlannedLoad(concurrency=4)],
        requests=REQUESTS,
        output_tokens=OUTPUT_TOKENS,
        quick=True,
        side_by_side=True,
    )
    recorded = Recorded(
        command=["splitsecond", *sys.argv[1:]],
        settings={"requests": REQUESTS, "output_tokens": OUTPUT_TOKENS, "quick": True, "side_by_side": True},
    )
    with ExitStack() as started:
        code = measure(bench_job(settings, started, recorded), Output(folder=out, json=json))
    raise typer.Exit(code)
