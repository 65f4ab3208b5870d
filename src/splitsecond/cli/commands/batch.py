import os
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from splitsecond.benchmark.report.live import BatchProgress
from splitsecond.benchmark.report.terminal import throughput_lines
from splitsecond.benchmark.rows.throughput import BatchThroughput
from splitsecond.benchmark.runs.batch import BatchSession
from splitsecond.cli.console import Console
from splitsecond.cli.files import check_json, write_json
from splitsecond.cli.interruption import Interruption
from splitsecond.cli.options import Config, Json, config_file
from splitsecond.core.errors import say
from splitsecond.gateway.process.reload import ConfigSource
from splitsecond.gateway.process.simulation import bind_simulator, simulator, simulator_url


def batch(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="One request per line, in OpenAI's or Anthropic's batch format."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The responses; default: FILE with .answers.jsonl.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="Send all requests to this route or PROVIDER/MODEL.")
    ] = "",
    config: Config = None,
    concurrency: Annotated[
        int,
        typer.Option(
            "-c", "--concurrency", min=1, max=4096, metavar="N", help="The most requests in flight."
        ),
    ] = 64,
    max_cost: Annotated[
        float | None, typer.Option(metavar="USD", help="Stop at this cost.", show_default=False)
    ] = None,
    json: Json = "",
) -> None:
    """Send a file of requests through the gateway's routes.

    \b
    splitsecond batch requests.jsonl --model groq/openai/gpt-oss-120b
    splitsecond batch requests.jsonl --config splitsecond.yaml --model cheap --max-cost 5

    No gateway needs to run. The concurrency is the highest that the targets accept. Each response
    is written at once: if the batch stops (Ctrl-C, --max-cost), the same command continues it.
    Requests that fail for good are written to FILE.answers.refused.jsonl. Exit code 1: some
    requests failed or were not sent; 130 or 143: ended by Ctrl-C or SIGTERM.
    """
    check_json(json)
    with bind_simulator() as simulated:
        settings = ConfigSource(
            config_file(config), os.environ, simulator=simulator_url(simulated)
        ).load()
        progress = BatchProgress(Console(stderr=True))
        session = BatchSession(
            file,
            settings,
            path=out,
            model=model,
            most=concurrency,
            max_cost=max_cost,
            on_note=say,
            on_progress=progress.update,
        )
        console = Console(stderr=json == "-")

        async def run() -> BatchThroughput:
            async with simulator(simulated, settings):
                return await session.run()

        with Interruption() as stop:
            with progress.display(len(session.items)):
                throughput = stop.run(
                    run(), first=session.interrupt, loop_factory=uvloop.new_event_loop
                )
            write_json(throughput, json)
            for line, look in throughput_lines(throughput):
                console.print(line, style=look, markup=False, highlight=False, soft_wrap=True)
            for path in [session.path, *([session.refused_path] if throughput.refused else [])]:
                console.print(
                    str(path), style="cyan", markup=False, highlight=False, soft_wrap=True
                )
    if stop.code:
        raise typer.Exit(stop.code)
    if throughput.refused or throughput.left:
        raise typer.Exit(1)
