"""`splitsecond batch`: a file of requests, answered as fast as their targets take them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from splitsecond.analysis.throughput import Throughput
    from splitsecond.gateway.batch.lines import Item
    from splitsecond.gateway.configuration.settings import Settings


def batch(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A request on each line, as OpenAI's or Anthropic's batches.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The answers; FILE.answers.jsonl, if none is named.", show_default=False),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="Ask this route or PROVIDER/MODEL, whatever the requests name.")
    ] = "",
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The gateway's configuration; splitsecond.yaml where there is one.", show_default=False
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("-c", "--concurrency", min=1, max=4096, help="The most requests under way at once.")
    ] = 64,
    max_cost: Annotated[
        float | None, typer.Option(metavar="USD", help="Stop when it has cost this much.", show_default=False)
    ] = None,
    json: Annotated[str, typer.Option(metavar="FILE", help="What it came to as JSON; - for standard output.")] = "",
) -> None:
    """Answer every request of a file, at a concurrency that finds by itself what the targets take.

    \b
    splitsecond batch requests.jsonl --model groq/openai/gpt-oss-120b
    splitsecond batch requests.jsonl --config splitsecond.yaml --model cheap --max-cost 5

    Requests go through the gateway's routes and policies, without a gateway that runs. What was answered is written at
    once: stopped with Ctrl-C, or by --max-cost, the same command goes on where it was. Requests that fail for good are
    written beside the answers, into FILE.answers.refused.jsonl. Exit code 1: some failed, or were not asked.
    """
    import os

    from splitsecond.cli.asking import wrong
    from splitsecond.cli.results import check_json, write_json
    from splitsecond.cli.serve import DEFAULT
    from splitsecond.gateway.batch import lines
    from splitsecond.gateway.process.reload import Source

    check_json(json)
    if max_cost is not None and not max_cost > 0:
        raise wrong("--max-cost", max_cost, "more than 0 US dollars")
    items = lines.read(file, model)
    path = config or (DEFAULT if DEFAULT.exists() else None)
    settings = Source(path, os.environ, {}).load()
    answers = out or file.with_suffix(".answers.jsonl")
    found = _answered(items, settings, answers, concurrency, max_cost)
    write_json(found, json)
    _show(found, answers, quiet=json == "-")
    if found.refused or found.left:
        raise typer.Exit(1)


def _answered(
    items: "list[Item]", settings: "Settings", answers: Path, most: int, max_cost: float | None
) -> "Throughput":
    import asyncio

    import uvloop

    from splitsecond.cli.batch_session import Session
    from splitsecond.errors import CallerFault
    from splitsecond.gateway.batch import lines

    earlier = lines.answered(answers)
    left = [item for item in items if item.custom_id not in earlier]
    lines.mended(answers)
    refused = answers.with_suffix(".refused.jsonl")
    try:
        with answers.open("ab") as good, refused.open("wb") as bad:
            session = Session(settings, good, bad, most=most, max_cost=max_cost)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                found = runner.run(session.run(left, earlier=len(items) - len(left)))
    except OSError as error:
        raise CallerFault(f"cannot write to {answers}: {error.strerror or error}", kind="unwritable_file") from None
    if not found.refused:
        refused.unlink()
    return found


def _show(found: "Throughput", answers: Path, *, quiet: bool) -> None:
    from rich.console import Console

    from splitsecond.report.throughput import throughput_lines

    console = Console(stderr=quiet)
    for line, look in throughput_lines(found):
        console.print(line, style=look, markup=False, highlight=False, soft_wrap=True)
    console.print(str(answers), style="cyan", markup=False, highlight=False, soft_wrap=True)
    if found.refused:
        console.print(str(answers.with_suffix(".refused.jsonl")), style="cyan", markup=False, soft_wrap=True)
