"""`splitsecond report`: the findings of a run again, from its observations."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")],
    slo: Annotated[
        str, typer.Option(metavar="LIMITS", help="Goodput under other limits than the run was asked for.")
    ] = "",
    json: Annotated[str, typer.Option(metavar="FILE", help="The findings as JSON; - for standard output.")] = "",
    png: Annotated[bool, typer.Option("--png", help="The plots as pictures too.")] = False,
    html: Annotated[bool, typer.Option(help="Write report.html.")] = True,
) -> None:
    """Recompute the findings of runs from their observations, and show them.

    Writes run.json and report.html in the run's folder anew. With --json and several runs: a list.
    """
    from splitsecond.cli.measuring import recompute, run_folder
    from splitsecond.cli.results import Output, check_json, show, write_json
    from splitsecond.store.folder import RunFolder

    check_json(json)
    found = [recompute(path, slo=slo) for path in runs]
    written = True
    for path, (run, observations) in zip(runs, found, strict=True):
        with RunFolder.open(run_folder(path)) as folder:
            written &= show(run, observations, folder, Output(html=html, png=png), quiet_output=json == "-")
    shown = [run for run, _ in found]
    write_json(shown[0] if len(shown) == 1 else shown, json)
    raise typer.Exit(0 if written else 1)
