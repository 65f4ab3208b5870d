import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from splitsecond.benchmark.runs.planning import Recorded, bench_job
from splitsecond.benchmark.runs.settings import BenchSettings
from splitsecond.cli.measuring import measure
from splitsecond.cli.options import Json, option
from splitsecond.cli.results import Output
from splitsecond.core.wording import SIMULATED
from splitsecond.log.statistics.summary import advised

PROVIDERS = ("generalcompute", "groq", "together")
CONCURRENCY = 8
REQUESTS = advised(0.95)
OUTPUT_TOKENS = 32
USE = "chat"


def demo(
    out: Annotated[
        Path | None, option(metavar="FOLDER", help="The run's folder.", default="runs/ID")
    ] = None,
    json: Json = "",
) -> None:
    """Benchmark three simulated providers, for the limit of a chat.

    \b
    splitsecond demo
    splitsecond demo --out runs/demo

    Needs no key. The providers behave as measured in General Compute's "LLM Token Generation Speed"
    (June 2025; Llama 3.1 70B). Takes about a minute, and sends enough requests for a verdict on
    each provider.
    """
    settings = BenchSettings(
        targets=[SIMULATED + provider for provider in PROVIDERS],
        concurrency=CONCURRENCY,
        requests=REQUESTS,
        output_tokens=OUTPUT_TOKENS,
        quick=True,
        side_by_side=True,
        slo=USE,
    )
    options = {
        "requests": REQUESTS,
        "output_tokens": OUTPUT_TOKENS,
        "quick": True,
        "side_by_side": True,
        "slo": USE,
    }
    recorded = Recorded(command=["splitsecond", *sys.argv[1:]], settings=options)
    with ExitStack() as started:
        code = measure(bench_job(settings, started, recorded), Output(folder=out, json=json))
    raise typer.Exit(code)
