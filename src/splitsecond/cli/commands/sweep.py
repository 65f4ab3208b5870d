from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from splitsecond.benchmark.report.live import LiveProgress
from splitsecond.benchmark.runs.server_sweep import Sweep, read_plan
from splitsecond.cli.console import Console
from splitsecond.cli.interruption import Interrupted, Interruption
from splitsecond.cli.options import Csv, Json, Markdown
from splitsecond.cli.results import Output
from splitsecond.cli.run_results import show
from splitsecond.core.errors import file_faults
from splitsecond.log.store.folder import RunFolder


def sweep(
    plan: Annotated[
        Path, typer.Argument(metavar="FILE", help="A TOML file with the command and its settings.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FOLDER", help="Default: named after FILE."),
    ] = None,
    json: Json = "",
    csv: Csv = "",
    markdown: Markdown = "",
) -> None:
    """Measure a server under different settings.

    Each setting is started several times, in random order.

    \b
    splitsecond sweep engines.toml --out engines

    engines.toml has the command that starts the server, and the values of its flags. The same
    command continues a sweep that was interrupted. docs/sweeps.md has an example and all fields.
    """
    output = Output(json=json, csv=csv, markdown=markdown, html=True)
    output.check()
    screen = Console(stderr=True)
    folder = out or Path("runs") / plan.stem
    with file_faults(f"cannot write to {folder}", kind="unwritable_folder"):
        folder.mkdir(parents=True, exist_ok=True)
    measurement = Sweep(
        read_plan(plan),
        folder,
        lambda text: screen.print(Text(text), soft_wrap=True),
        lambda: LiveProgress(screen, lambda: 0.0),
    )
    with Interruption() as stop:
        with suppress(Interrupted):
            stop.run(measurement.measure())
        run, observations = measurement.concluded()
        with RunFolder.open(folder) as own:
            written = show(run, observations, own, output)
    raise typer.Exit(stop.code or (0 if written and run.finished else 1))
