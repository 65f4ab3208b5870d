"""`splitsecond compare`: what changed between two runs, and whether chance could have done it."""

from pathlib import Path
from typing import Annotated

import typer


def compare(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="The folder of a run.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="The folder of a later run.")],
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EXPRESSION", help="Exit 1 if it holds for a row, as in 'ttft_ms.p95 > +10%'. Repeatable."
        ),
    ] = None,
    json: Annotated[str, typer.Option(metavar="FILE", help="The comparison as JSON; - for standard output.")] = "",
    seed: Annotated[int, typer.Option(help="Decides the resampling.")] = 0,
) -> None:
    """Compare two runs row by row: the change of each figure, its 95 % interval, and a permutation test.

    \b
    splitsecond compare runs/monday runs/tuesday
    splitsecond compare runs/main runs/branch --fail-if 'ttft_ms.p95 > +10%' --fail-if 'errors > 0'
    """
    from rich.console import Console

    from splitsecond.analysis.compare import RunData
    from splitsecond.analysis.compare import compare as compare_runs
    from splitsecond.analysis.gate import parse_gate
    from splitsecond.cli.measuring import recompute
    from splitsecond.cli.results import check_json, write_json
    from splitsecond.report.terminal import comparison_table

    check_json(json)
    gates = [parse_gate(text) for text in fail_if or ()]
    old, new = (RunData(*recompute(path)) for path in (before, after))
    comparison = compare_runs(old, new, seed=seed)
    write_json(comparison, json)
    console = Console(stderr=json == "-")
    comparison_table(comparison, console)
    breaches = [breach for gate in gates for breach in gate.check(new.run.conditions, old.run.conditions)]
    for breach in breaches:
        console.print(f"FAILED: {breach}", style="bold red", markup=False)
    if gates and not breaches:
        console.print(f"Passed: none of {', '.join(gate.text for gate in gates)}.", style="green", markup=False)
    raise typer.Exit(1 if breaches else 0)
