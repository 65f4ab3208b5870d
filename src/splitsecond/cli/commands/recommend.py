from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from msgspec import to_builtins
from msgspec.structs import replace
from rich.console import Console

from splitsecond.benchmark.findings.evidence import Evidence, evidence_of_log, evidence_of_run
from splitsecond.benchmark.findings.quality import (
    CAPABILITIES,
    Quality,
    Requirements,
    parse_quality,
)
from splitsecond.benchmark.findings.recommendation import SCHEMA
from splitsecond.benchmark.findings.recommendation import recommend as recommended
from splitsecond.benchmark.report.plots.quality_plot import quality_png
from splitsecond.benchmark.report.recommendation import recommendation_table
from splitsecond.benchmark.runs.concluding import recompute
from splitsecond.cli.files import check_picture, write_file
from splitsecond.cli.log_source import DAYS, LoggedTraffic, speeds
from splitsecond.cli.option_values import judged_load, tokens
from splitsecond.cli.options import Config, Csv, Days, Json, Log, Markdown
from splitsecond.cli.replaying import GOALS, goal_of, propose_policy
from splitsecond.cli.results import Output
from splitsecond.core.catalog.prices import listing
from splitsecond.core.catalog.provider import provider, split_target
from splitsecond.core.errors import CallerFault, file_faults
from splitsecond.core.timing.uses import USE_NAMES, USES
from splitsecond.core.validation import nearest, one_of, wrong


def recommend(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]... [USE]",
            help=f"Folders of runs (default: the gateway's log), and {USE_NAMES} (default: all).",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Only targets whose name contains this. Repeatable.",
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        str,
        typer.Option(
            metavar="LOAD",
            help="Judge at this load, such as c=16 or rate=5. [default: that of the use]",
        ),
    ] = "",
    needs: Annotated[
        str,
        typer.Option(metavar="tools,images", help="What the model must take, by the catalogue."),
    ] = "",
    context: Annotated[
        str, typer.Option(metavar="TOKENS", help="Least context window, such as 128k.")
    ] = "",
    quality: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Your scores of models, such as quality.toml.", show_default=False
        ),
    ] = None,
    least_quality: Annotated[
        float | None,
        typer.Option(metavar="SCORE", help="Least score of --quality.", show_default=False),
    ] = None,
    png: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="With --quality: write speed against quality as a PNG file."
        ),
    ] = "",
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            metavar="FIGURE",
            help=f"Instead, propose a policy for a route that improves {', '.join(GOALS)}.",
        ),
    ] = "",
    route: Annotated[
        str,
        typer.Option(metavar="NAME", help="With --policy: its route. Default: the most frequent."),
    ] = "",
    today: Annotated[
        str,
        typer.Option(
            metavar="POLICY",
            help="With --policy: the policy of that time. Default: that of the configuration.",
        ),
    ] = "",
    any_load: Annotated[
        bool,
        typer.Option(
            "--any-load",
            help="With --policy: no target is slower with more of these calls.",
        ),
    ] = False,
    log: Log = "",
    config: Config = None,
    days: Days = DAYS,
    json: Json = "",
    csv: Csv = "",
    markdown: Markdown = "",
) -> None:
    """Recommend targets for a use, such as voice, chat or batch.

    \b
    splitsecond recommend voice
    splitsecond recommend runs/20261120-190746-3fa agent batch
    splitsecond recommend agent --needs tools --quality quality.toml --least-quality 60
    splitsecond recommend chat batch --only gpt-oss-120b --only llama-3.3-70b

    Of the targets that meet the limit of a use: the best by its figure, and the cheapest. They are
    judged by speed and price, from runs or from the gateway's log: at the heaviest load of a run
    where many users wait at once, at the lightest for completion. The quality of responses is not
    measured: name the models that are good enough with --only, or give them scores with --quality.

    With --policy the calls of a route are replayed through a small family of other policies, as
    what-if does: orders, deadlines, hedges and weights over the targets in the log. The one that
    surely improves the figure most is proposed, with its evidence; or none.
    """
    if policy:
        propose_policy(
            LoggedTraffic(log, config, days),
            goal_of(policy),
            names or [],
            (route, today),
            Output(json=json, csv=csv, markdown=markdown),
            any_load=any_load,
        )
        return
    runs, uses = _runs_and_uses(names or [])
    output = Output(json=json, csv=csv, markdown=markdown)
    output.check()
    check_picture(png)
    judged_at = judged_load(at) if at else None
    required = requirements(needs, context, quality, least_quality)
    if runs:
        evidence = evidence_of_folders(runs, only or ())
        source: dict[str, object] = {"runs": [str(run) for run in runs]}
        source_words = f"By {', '.join(map(str, runs))}"
    else:
        logged = LoggedTraffic(log, config, days)
        evidence = logged_evidence(logged, only or ())
        source = {"since": logged.since, "until": logged.until}
        source_words = f"By real requests, {logged.words}"
    recommendations = recommended(with_requirements(evidence, required), uses, judged_at)

    def show(console: Console) -> None:
        console.print(source_words, highlight=False)
        for each in recommendations:
            console.print()
            recommendation_table(each, console)

    ratings = [
        {"use": each.use, **to_builtins(one)} for each in recommendations for one in each.candidates
    ]
    output.show({"schema": SCHEMA, **source, "uses": recommendations}, lambda: ratings, show)
    if png:
        write_file(quality_png(recommendations), png, "--png")


def _runs_and_uses(names: list[str]) -> tuple[list[Path], list[str]]:
    runs = [Path(name) for name in names if name not in USES]
    for run in runs:
        if not run.exists():
            name = str(run)
            if "/" in name:
                raise CallerFault(f"there is no folder {name}", kind="no_run")
            hint = f"{nearest(name, USES)} Uses: {', '.join(USES)}.".lstrip()
            raise CallerFault(
                f"{name!r} is neither a use nor the folder of a run", kind="unknown_use", hint=hint
            )
    return runs, [name for name in names if name in USES] or list(USES)


def evidence_of_folders(runs: Sequence[Path], only: Sequence[str]) -> list[list[Evidence]]:
    """Return the evidence of each target whose name contains one of `only`, on each workload; of
    several runs, the last that has it.

    Raises `CallerFault` if the runs have no such target with a valid row.
    """
    evidence: dict[tuple[str, str], list[Evidence]] = {}
    for path in runs:
        run, _ = recompute(path)
        for loads in evidence_of_run(run.conditions):
            name = loads[0].target
            if not only or any(text in name for text in only):
                evidence[name, loads[0].workload] = loads
    if not evidence:
        like = f" like {' or '.join(map(repr, only))}" if only else ""
        raise CallerFault(
            f"{', '.join(map(str, runs))}: no target{like} has a valid row", kind="nothing_measured"
        )
    return list(evidence.values())


def logged_evidence(logged: LoggedTraffic, only: Sequence[str]) -> list[list[Evidence]]:
    """As `evidence_of_folders`, from the log. Raises as `speeds` does."""
    return evidence_of_log(speeds(logged, only=only, least=1)[0])


def requirements(
    needs: str, context: str, quality: Path | None, least_quality: float | None
) -> Requirements:
    if least_quality is not None and quality is None:
        raise wrong("--least-quality", least_quality, "--quality FILE with it")
    scores = Quality()
    if quality is not None:
        with file_faults(f"cannot read {quality}", kind="bad_quality"):
            scores = parse_quality(quality.read_text("utf-8"), str(quality))
    return Requirements(
        needs=[
            one_of("--needs", each.strip(), CAPABILITIES)
            for each in needs.split(",")
            if each.strip()
        ],
        context_tokens=tokens(context, "--context") if context else None,
        least_quality=least_quality,
        quality=scores,
    )


def with_requirements(
    evidence: Sequence[Sequence[Evidence]], required: Requirements
) -> list[list[Evidence]]:
    return [[_required(each, required) for each in loads] for loads in evidence]


def _required(evidence: Evidence, required: Requirements) -> Evidence:
    owner = None
    try:
        owner = provider(split_target(evidence.target)[0])
    except CallerFault as fault:
        if fault.kind not in ("unknown_provider", "bad_target"):
            raise
    context = listing(evidence.target).context_tokens if owner and required.context_tokens else None
    return replace(
        evidence,
        refused=required.refusal(evidence.target, context),
        unknown=required.unknown(evidence.target, context),
        quality=required.quality.score(evidence.target),
        billions=required.quality.size(evidence.target),
    )
