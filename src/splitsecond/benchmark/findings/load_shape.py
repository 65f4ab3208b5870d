"""How a target changes with load: the drop of each figure, queueing, the knee and the sweet spot.

Consistency is TTFT p95 ÷ p50. If TTFT p95 grows and p50 does not, most requests are served as
before and a few wait in a queue (General Compute, "LLM Token Generation Speed", June 2025). That is
stated if the consistency grows to `QUEUEING` times its value at the lightest load, and the interval
of p95 lies above its old interval; without intervals, it is only possible.

The sweet spot is the load with the highest power, system tokens/s ÷ E2E p50 (Kleinrock, "Power and
deterministic rules of thumb for probabilistic problems in computer communications", 1979): beyond
it, waiting grows faster than throughput. If that is the heaviest load, the run has not reached it.

Intervals of a change combine the ends of both intervals, so they are wider than 95%.
"""

from collections.abc import Iterator, Sequence

from splitsecond.benchmark.findings.capacity import knee_of
from splitsecond.benchmark.findings.figures import TOTALS
from splitsecond.benchmark.findings.findings import (
    ConditionFindings,
    LoadShape,
    LoadStep,
    ShareOfChange,
)
from splitsecond.benchmark.findings.usable_rows import rows_by_target
from splitsecond.core.wording import Statement, change, number
from splitsecond.log.statistics.summary import Summary, advised

QUEUEING = 1.5
MIN_LEVELS = 3


def load_shapes(rows: Sequence[ConditionFindings]) -> list[LoadShape]:
    return [
        _shape(levels)
        for levels in rows_by_target(rows)
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
        rows=[row.condition for row in levels],
        lightest=first.concurrency or 0,
        steps=[_step(first, row) for row in heavier],
        knee=knee_of(levels) if enough else None,
        sweet_spot=best
        if enough and len(power) == len(levels) and best != levels[-1].concurrency
        else None,
    )


def _step(first: ConditionFindings, row: ConditionFindings) -> LoadStep:
    return LoadStep(
        concurrency=row.concurrency or 0,
        ttft=_change(first.ttft_ms, row.ttft_ms, "p50"),
        ttft_p95=_change(first.ttft_ms, row.ttft_ms, "p95"),
        tps=_change(first.tps, row.tps, "p50"),
        queueing=_queueing(first, row),
    )


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


def load_shape_statements(found: Sequence[LoadShape]) -> list[Statement]:
    return [statement for each in found for statement in _statements(each)]


def _statements(shape: LoadShape) -> Iterator[Statement]:
    last = shape.steps[-1]
    changes = (("TTFT p50", last.ttft), ("TPS p50", last.tps))
    moved = [
        f"{label} {_words(each)}" for label, each in changes if each and not _may_be_none(each)
    ]
    if moved:
        to = f"to {last.concurrency}, {shape.target}: {', '.join(moved)}."
        yield Statement(f"From concurrency {shape.lightest} {to}", f"c={shape.lightest} {to}")
    queued = next((step for step in shape.steps if step.queueing != "no"), None)
    if queued is not None and queued.ttft_p95 and queued.ttft:
        where, grown = (
            f"{shape.target} queue",
            f"TTFT p95 {_words(queued.ttft_p95)}, p50 {change(queued.ttft.change)}",
        )
        if queued.queueing == "yes":
            yield Statement(
                f"Requests to {where} from concurrency {queued.concurrency} on: {grown}."
            )
        else:
            yield Statement(
                f"The run cannot tell yet whether requests to {where} at concurrency "
                f"{queued.concurrency} ({grown}): "
                f"use -n {advised(0.95)}.",
                detail=True,
            )
    if shape.sweet_spot is not None:
        yield Statement(
            f"The sweet spot of {shape.target} is concurrency {shape.sweet_spot}: beyond it, "
            f"waiting grows faster than "
            "throughput."
        )
    if shape.knee is not None:
        yield Statement(
            f"The knee of {shape.target} is concurrency {number(shape.knee)}: from there on, "
            f"twice the load gives less "
            "than a quarter more throughput."
        )


def _may_be_none(found: ShareOfChange) -> bool:
    return found.low is not None and found.high is not None and found.low <= 0 <= found.high


def _words(found: ShareOfChange) -> str:
    between = (
        ""
        if found.low is None or found.high is None
        else f" ({change(found.low)} to {change(found.high)})"
    )
    return change(found.change) + between
