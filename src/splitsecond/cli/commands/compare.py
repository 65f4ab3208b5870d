from pathlib import Path
from typing import Annotated

import typer

from splitsecond.benchmark.findings.compare import Comparison, RunData, parse_match
from splitsecond.benchmark.findings.compare import compare as compare_runs
from splitsecond.benchmark.findings.gate import Gate, check_changes, parse_equivalence, parse_gate
from splitsecond.benchmark.report.compare_page import render_comparison
from splitsecond.benchmark.report.exports import change_records
from splitsecond.benchmark.report.terminal import comparison_table
from splitsecond.benchmark.runs.concluding import recompute
from splitsecond.cli.files import check_file, write_file
from splitsecond.cli.gates import concluded
from splitsecond.cli.options import Csv, Json, Markdown
from splitsecond.cli.results import Output


def compare(
    before: Annotated[
        Path,
        typer.Argument(
            metavar="BEFORE", help="The folder of a run, or a result file of another tool."
        ),
    ],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="The folder of a later run.")],
    more_before: Annotated[
        list[Path] | None,
        typer.Option("--before", metavar="RUN", help="Another run of the first side. Repeatable."),
    ] = None,
    more_after: Annotated[
        list[Path] | None,
        typer.Option("--after", metavar="RUN", help="Another run of the second side. Repeatable."),
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BEFORE=AFTER",
            help="Compare a target with one of another name. Not needed where each side has one "
            "target. Repeatable.",
        ),
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EXPRESSION",
            help="Exit 1 if it is certain for a row, as in 'ttft_ms.p95 > +10%'. Repeatable.",
        ),
    ] = None,
    equivalent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EXPRESSION",
            help="Exit 1 unless every row is shown to satisfy 'ttft_ms.p50 ±5%'. Repeatable.",
        ),
    ] = None,
    html: Annotated[
        str, typer.Option(metavar="FILE", help="Write a page with the changes as plots and tables.")
    ] = "",
    json: Json = "",
    csv: Csv = "",
    markdown: Markdown = "",
) -> None:
    """Compare two runs: each change with an interval and a test.

    Rows are compared figure by figure. With several runs on a side, on different days, the days are
    compared. Either side may be a result file of vLLM, SGLang, AIPerf, GuideLLM or inference-perf.

    \b
    splitsecond compare runs/monday runs/tuesday --html changes.html
    splitsecond compare runs/main runs/branch --fail-if 'ttft_ms.p50 > +10%' --fail-if 'errors > 0'
    splitsecond compare runs/vllm runs/sglang --equivalent 'ttft_ms.p50 ±5%'
    splitsecond compare before.json after.json
    """
    output = Output(json=json, csv=csv, markdown=markdown)
    output.check()
    check_file(html, "--html")
    gates = [parse_gate(text) for text in fail_if or ()]
    equivalences = [parse_equivalence(text) for text in equivalent or ()]
    old, new = (
        _recomputed([before, *(more_before or ())]),
        _recomputed([after, *(more_after or ())]),
    )
    judged = {gate.figure for gate in gates} | {each.figure for each in equivalences}
    comparison = compare_runs(old, new, match=parse_match(match or (), old, new), figures=judged)
    output.write(
        comparison,
        lambda: change_records(comparison),
        lambda screen: comparison_table(comparison, screen),
    )
    if html:
        write_file(render_comparison(comparison).encode(), html, "--html")
    console = output.screen()
    comparison_table(comparison, console)
    breaches = _breaches(gates, new, comparison)
    breaches += [breach for each in equivalences for breach in each.check(comparison)]
    raise typer.Exit(concluded(breaches, gates, equivalences, console, comparison.close_rounds))


def _recomputed(folders: list[Path]) -> list[RunData]:
    return [RunData(*recompute(folder), name=str(folder)) for folder in folders]


def _breaches(gates: list[Gate], after: list[RunData], comparison: Comparison) -> list[str]:
    absolute = [gate for gate in gates if not gate.relative]
    breaches = [
        breach for gate in absolute for data in after for breach in gate.check(data.run.conditions)
    ]
    return breaches + check_changes([gate for gate in gates if gate.relative], comparison)
