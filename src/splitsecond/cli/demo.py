"""`splitsecond demo`: simulated providers and a real engine, timed in one run. No key, no network."""

from pathlib import Path
from typing import Annotated

import typer

PROVIDERS = ("generalcompute", "groq", "fireworks", "together", "replicate")
REQUESTS = 16
OUTPUT_TOKENS = 64


def demo(
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The run's folder.", show_default="runs/ID")
    ] = None,
    json: Annotated[str, typer.Option(metavar="FILE", help="The findings as JSON; - for standard output.")] = "",
) -> None:
    """Time five simulated providers and a real engine, and write a report.

    The providers behave as measured in General Compute's "LLM Token Generation Speed" (June 2025; Llama 3.1 70B); the
    engine is llama.cpp's own server on a small model with random weights. Takes about 40 seconds.
    """
    from contextlib import ExitStack

    from splitsecond.analysis.wording import ENGINE, SIMULATED
    from splitsecond.cli.measuring import Job, measure, new_run_id
    from splitsecond.cli.results import Output
    from splitsecond.cli.targets import resolve
    from splitsecond.load.plan import Load, make_plan
    from splitsecond.load.workload import Workload
    from splitsecond.testing.engine.process import INSTALL, NOT_INSTALLED, available

    names = [SIMULATED + provider for provider in PROVIDERS]
    if available():
        names.append(ENGINE + "small")
    else:
        typer.echo(f"{NOT_INSTALLED} {INSTALL} (going on with the simulated providers)", err=True)
    run_id = new_run_id()
    with ExitStack() as started:
        specs = resolve(names, None, started)
        job = Job(
            run_id=run_id,
            plan=make_plan(
                {name: spec.base_url for name, spec in specs.items()},
                [Load(concurrency=1), Load(concurrency=8)],
                requests=REQUESTS,
                side_by_side=True,
            ),
            specs=specs,
            workload=Workload(run=run_id, output_tokens=OUTPUT_TOKENS),
            input_tokens=512,
            settings={"requests": REQUESTS, "output_tokens": OUTPUT_TOKENS, "side_by_side": True},
        )
        code = measure(job, Output(folder=out, json=json))
    raise typer.Exit(code)
