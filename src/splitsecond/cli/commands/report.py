from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from splitsecond.benchmark.report.exports import run_records
from splitsecond.benchmark.report.llm_d import llm_d_reports
from splitsecond.benchmark.report.terminal import run_table
from splitsecond.benchmark.rows.records import Run
from splitsecond.benchmark.runs.concluding import is_foreign, recompute, run_folder
from splitsecond.benchmark.runs.forecasting import forecast_policies
from splitsecond.cli.options import Csv, Json, Markdown
from splitsecond.cli.results import Output
from splitsecond.cli.run_results import show
from splitsecond.core.errors import file_faults
from splitsecond.core.observation import Observation
from splitsecond.log.store.folder import RunFolder


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of runs, or result files of other tools."),
    ],
    slo: Annotated[
        str, typer.Option(metavar="LIMITS", help="Limits for goodput, instead of those of the run.")
    ] = "",
    forecast: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POLICY",
            help="What this policy would have given: race, fallback or hedge over targets of the "
            "run. Repeatable.",
            show_default=False,
        ),
    ] = None,
    json: Json = "",
    csv: Csv = "",
    markdown: Markdown = "",
    png: Annotated[bool, typer.Option("--png", help="Also write the plots as PNG files.")] = False,
    html: Annotated[bool, typer.Option(help="Write report.html.")] = True,
    llm_d: Annotated[
        Path | None,
        typer.Option(
            "--llm-d",
            metavar="FOLDER",
            help="Write each row as a Benchmark Report of llm-d, in YAML.",
        ),
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", help="Print all figures and findings, and the error of the instrument."
        ),
    ] = False,
) -> None:
    """Recompute the findings of runs from their observations.

    \b
    splitsecond report runs/monday --slo voice
    splitsecond report runs/monday --forecast 'race("groq/openai/gpt-oss-120b", "cerebras/gpt-oss-120b")'

    Replaces run.json and report.html in each run's folder. With several runs, --json writes a list.
    A result file of vLLM, SGLang, AIPerf, GuideLLM or inference-perf becomes a run in a folder
    beside it: report a.json writes a-report.
    """  # noqa: E501 (an example is one line)
    output = Output(json=json, csv=csv, markdown=markdown, png=png)
    output.check()
    recomputed = [recompute(path, slo=slo) for path in runs]
    for run, observations in recomputed:
        forecast_policies(run, observations, forecast or ())
    written = True
    for path, (run, observations) in zip(runs, recomputed, strict=True):
        with _folder(path, observations) as folder:
            written &= show(
                run,
                observations,
                folder,
                Output(html=html, png=png, verbose=verbose),
                screen=output.screen(),
            )
            if llm_d:
                _write_llm_d(run, llm_d)
    reports = [run for run, _ in recomputed]

    def tables(console: Console) -> None:
        for run in reports:
            run_table(run, console)

    output.write(
        reports[0] if len(reports) == 1 else reports,
        lambda: [record for run in reports for record in run_records(run)],
        tables,
    )
    raise typer.Exit(0 if written else 1)


def _folder(path: Path, observations: Sequence[Observation]) -> RunFolder:
    if not is_foreign(path):
        return RunFolder.open(run_folder(path))
    own = path.with_name(f"{path.stem}-report")
    with file_faults(f"cannot write to {own}", kind="unwritable_folder"):
        own.mkdir(exist_ok=True)
        folder = RunFolder.open(own)
        folder.write_observations(observations)
    return folder


def _write_llm_d(run: Run, folder: Path) -> None:
    with file_faults(f"cannot write to {folder}", kind="unwritable_folder"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in llm_d_reports(run).items():
            (folder / name).write_text(text, encoding="utf-8")
