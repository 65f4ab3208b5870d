from collections.abc import Sequence
from pathlib import Path

import msgspec

from splitsecond.benchmark.findings.evidence import Evidence, evidence_of_log, evidence_of_run
from splitsecond.benchmark.findings.quality import (
    CAPABILITIES,
    Quality,
    Requirements,
    parse_quality,
)
from splitsecond.benchmark.runs.concluding import recompute
from splitsecond.cli.log_source import LoggedTraffic, speeds
from splitsecond.cli.option_values import tokens
from splitsecond.core.catalog.prices import listing
from splitsecond.core.catalog.provider import provider, split_target
from splitsecond.core.errors import CallerFault, file_faults
from splitsecond.core.validation import one_of, wrong


def evidence_of_folders(runs: Sequence[Path], only: Sequence[str]) -> list[list[Evidence]]:
    """Return the evidence of each target whose name contains one of `only`, on each workload; of
    several runs, the last that has it.

    Raises `CallerFault` if the runs have no such target with a valid row.
    """
    found: dict[tuple[str, str], list[Evidence]] = {}
    for path in runs:
        run, _ = recompute(path)
        for loads in evidence_of_run(run.conditions):
            name = loads[0].target
            if not only or any(text in name for text in only):
                found[name, loads[0].workload] = loads
    if not found:
        like = f" like {' or '.join(map(repr, only))}" if only else ""
        raise CallerFault(
            f"{', '.join(map(str, runs))}: no target{like} has a valid row", kind="nothing_measured"
        )
    return list(found.values())


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


def _required(found: Evidence, required: Requirements) -> Evidence:
    owner = None
    try:
        owner = provider(split_target(found.target)[0])
    except CallerFault as fault:
        if fault.kind not in ("unknown_provider", "bad_target"):
            raise
    context = listing(found.target).context_tokens if owner and required.context_tokens else None
    return msgspec.structs.replace(
        found,
        refused=required.refusal(found.target, context),
        unknown=required.unknown(found.target, context),
        quality=required.quality.score(found.target),
        billions=required.quality.size(found.target),
    )
