"""How a target changes with load: the drop of each figure, queueing, the knee and the sweet spot.

Consistency is TTFT p95 ÷ p50. If TTFT p95 grows and p50 does not, a few requests wait in a queue
(General Compute, "LLM Token Generation Speed", June 2025). That is stated if the consistency grows
to `QUEUEING` times its value at the lightest load, and the interval of p95 lies above its old
interval; without intervals, it is only possible.

The sweet spot is the load with the highest power, system tokens/s ÷ E2E p50 (Kleinrock, "Power and
deterministic rules of thumb for probabilistic problems in computer communications", 1979), unless
that is the heaviest load. Intervals of a change combine the ends of both intervals, so they are
wider than 95%.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from splitsecond.benchmark.findings.capacity import knee_of
from splitsecond.benchmark.rows.figures import TOTALS
from splitsecond.benchmark.rows.records import (
    ConditionFindings,
    LoadShape,
    LoadStep,
    ShareOfChange,
)
from splitsecond.benchmark.rows.usable_rows import rows_by_target, rows_by_workload
from splitsecond.core.grouping import grouped
from splitsecond.core.wording import LINE, Statement, change, number
from splitsecond.log.statistics.summary import Summary, advised

QUEUEING = 1.5
MIN_LEVELS = 3


def load_shapes(rows: Sequence[ConditionFindings]) -> list[LoadShape]:
    return [
        _shape(levels)
        for of_workload in rows_by_workload(rows)
        for levels in rows_by_target(of_workload)
        if len(levels) > 1 and levels[0].concurrency is not None
    ]


def _shape(levels: Sequence[ConditionFindings]) -> LoadShape:
    first, *heavier = levels
    power = {
        row.concurrency: row.output_tokens_per_s / row.e2e_ms.p50
        for row in levels
        if row.output_tokens_per_s and row.e2e_ms.p50
    }
    best = max(power, key=lambda load: power[load], default=None)
    enough = len(levels) >= MIN_LEVELS
    return LoadShape(
        target=first.target,
        workload=first.workload,
        rows=[row.condition for row in levels],
        lightest=first.concurrency or 0,
        steps=[_step(first, row) for row in heavier],
        between=[_step(*pair) for pair in pairwise(levels)] if enough else [],
        knee=knee_of(levels) if enough else None,
        sweet_spot=best
        if enough and len(power) == len(levels) and best != levels[-1].concurrency
        else None,
    )


def _step(first: ConditionFindings, row: ConditionFindings) -> LoadStep:
    tps, doublings = _change(first.tps, row.tps, "p50"), _doublings(first, row)
    return LoadStep(
        lighter=first.concurrency or 0,
        concurrency=row.concurrency or 0,
        ttft=_change(first.ttft_ms, row.ttft_ms, "p50"),
        ttft_p95=_change(first.ttft_ms, row.ttft_ms, "p95"),
        tps=tps,
        tps_per_doubling=(1 + tps.change) ** (1 / doublings) - 1 if tps and doublings else None,
        queueing=_queueing(first, row),
    )


def _doublings(first: ConditionFindings, row: ConditionFindings) -> float:
    return math.log2((row.concurrency or 1) / (first.concurrency or 1))


def _change(first: Summary, then: Summary, percentile: str) -> ShareOfChange | None:
    before, after = getattr(first, percentile), getattr(then, percentile)
    if not before or after is None:
        return None
    (low_before, high_before), (low, high) = (each.interval(percentile) for each in (first, then))
    return ShareOfChange(
        change=after / before - 1,
        low=low / high_before - 1 if low is not None and high_before else None,
        high=high / low_before - 1 if high is not None and low_before else None,
    )


def _queueing(first: ConditionFindings, row: ConditionFindings) -> str:
    before, after = (TOTALS["consistency"].value(each) for each in (first, row))
    if before is None or after is None or after < QUEUEING * before:
        return "no"
    tail = _change(first.ttft_ms, row.ttft_ms, "p95")
    return "yes" if tail and tail.low is not None and tail.low > 0 else "unsure"


def load_shape_statements(all_shapes: Sequence[LoadShape]) -> list[Statement]:
    """Return what changes from the lightest load to the heaviest, of several targets the least and
    the most, and what each step and each target adds."""
    ends = grouped(all_shapes, _ends)
    several = [shapes for shapes in ends.values() if len(shapes) > 1]
    statements = [each for shapes in several for each in _extremes(shapes)]
    for shape in all_shapes:
        together = len(ends[_ends(shape)]) > 1
        statements += _moved(shape.name, shape.steps[-1], detail=together)
        for step in shape.between:
            statements += _moved(shape.name, step, detail=True, between=True)
        statements += _statements(shape)
    return statements


def _ends(shape: LoadShape) -> tuple[str, int, int]:
    return shape.workload, shape.lightest, shape.steps[-1].concurrency


def _extremes(shapes: Sequence[LoadShape]) -> Iterator[Statement]:
    last = shapes[0].steps[-1]
    changes: dict[str, Callable[[LoadStep], ShareOfChange | None]] = {
        "TTFT p50": lambda step: step.ttft,
        "TPS p50": lambda step: step.tps,
    }
    for label, of in changes.items():
        moved = [
            (each, shape.target)
            for shape in shapes
            if (each := of(shape.steps[-1])) and not _may_be_none(each)
        ]
        if not moved:
            continue
        least, *others = sorted(moved, key=lambda pair: abs(pair[0].change))
        parts = [f"{target} {change(each.change)}" for each, target in (least, *others[-1:])]
        on = f" on workload {shapes[0].workload}" if shapes[0].workload else ""
        to = f"{last.lighter} to {last.concurrency}{on}, {label}"
        which = f"least {parts[0]}, most {parts[1]}" if others else parts[0]
        unclear = len(shapes) - len(moved)
        which += f"; unclear for {unclear:,}" if unclear else ""
        words = f"c={to}: {which}."
        brief = words if len(words) <= LINE else words.replace(", most", ",\nmost")
        yield Statement(f"From concurrency {to}: {which}.", brief)


def _moved(target: str, step: LoadStep, *, detail: bool, between: bool = False) -> list[Statement]:
    changes = (("TTFT p50", step.ttft), ("TPS p50", step.tps))
    moved = [
        f"{label} {_words(each)}" for label, each in changes if each and not _may_be_none(each)
    ]
    if not moved:
        return []
    to = f"{step.lighter} to {step.concurrency}, {target}: {', '.join(moved)}"
    halved = ""
    if step.tps and step.tps.change < 0 and not _may_be_none(step.tps) and step.tps_per_doubling:
        halved = f"; for each doubling of the load TPS {change(step.tps_per_doubling)}"
        halved += "" if between else ", where a fixed resource split in two gives −50%"
    return [Statement(f"From concurrency {to}{halved}.", f"c={to}.", detail=detail)]


def _statements(shape: LoadShape) -> Iterator[Statement]:
    queued = next((step for step in shape.steps if step.queueing != "no"), None)
    if queued is not None and queued.ttft_p95 and queued.ttft:
        where, grown = (
            f"{shape.name} queue",
            f"TTFT p95 {_words(queued.ttft_p95)}, p50 {change(queued.ttft.change)}",
        )
        if queued.queueing == "yes":
            yield Statement(
                f"Requests to {where} from concurrency {queued.concurrency} on: {grown}."
            )
        else:
            yield Statement(
                f"The run cannot tell yet whether requests to {where} at concurrency "
                f"{queued.concurrency} ({grown}): use -n {advised(0.95)}.",
                detail=True,
            )
    if shape.sweet_spot is not None:
        yield Statement(
            f"The sweet spot of {shape.name} is concurrency {shape.sweet_spot}: beyond it, waiting "
            "grows faster than throughput."
        )
    if shape.knee is not None:
        yield Statement(
            f"The knee of {shape.name} is concurrency {number(shape.knee)}: from there on, twice "
            "the load gives less than a quarter more throughput."
        )


def _may_be_none(share: ShareOfChange) -> bool:
    return share.low is not None and share.high is not None and share.low <= 0 <= share.high


def _words(share: ShareOfChange) -> str:
    between = (
        ""
        if share.low is None or share.high is None
        else f" ({change(share.low)} to {change(share.high)})"
    )
    return change(share.change) + between
