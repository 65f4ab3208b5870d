"""What another workload changes: longer prompts, for example, which a model has to read before its
first token.

Each workload is compared with the first one, for each target at the lightest load that both have.
Intervals combine the ends of both intervals, so they are wider than 95%.
"""

from collections.abc import Sequence

from splitsecond.benchmark.rows.records import ConditionFindings, WorkloadChange
from splitsecond.benchmark.rows.usable_rows import load_order
from splitsecond.core.wording import Statement, change, number
from splitsecond.log.statistics.summary import Interval, Summary

Row = ConditionFindings


def workload_changes(rows: Sequence[Row]) -> list[WorkloadChange]:
    names = list(dict.fromkeys(row.workload for row in rows))
    if len(names) < 2:
        return []
    changes = []
    for target in dict.fromkeys(row.target for row in rows):
        own = sorted(
            (
                row
                for row in rows
                if row.target == target and not row.invalid and not row.cache_reuse
            ),
            key=load_order,
        )
        lightest = {name: [row for row in own if row.workload == name] for name in names}
        for name in names[1:]:
            pair = _pair(lightest[names[0]], lightest[name])
            if pair is not None:
                changes.append(_change(*pair))
    return changes


def _pair(first: Sequence[Row], other: Sequence[Row]) -> tuple[Row, Row] | None:
    """Return the rows of the lightest load that both have; where workloads have rates of their own,
    the lightest ones.

    None if one of them has no row.
    """
    loads = {(row.concurrency, row.rate): row for row in other}
    common = (
        (row, loads[row.concurrency, row.rate])
        for row in first
        if (row.concurrency, row.rate) in loads
    )
    return next(common, (first[0], other[0]) if first and other else None)


def _change(first: Row, other: Row) -> WorkloadChange:
    ttft = _difference(first.ttft_ms, other.ttft_ms)
    tps = first.tps.p50 and other.tps.p50 and other.tps.p50 / first.tps.p50 - 1
    return WorkloadChange(
        target=first.target,
        before=first.workload,
        after=other.workload,
        rows=[first.condition, other.condition],
        ttft_ms=ttft[0],
        ttft_ci95=ttft[1],
        tps=tps or None,
    )


def _difference(first: Summary, other: Summary) -> tuple[float | None, Interval]:
    if first.p50 is None or other.p50 is None:
        return None, (None, None)
    (low, high), (other_low, other_high) = (each.interval("p50") for each in (first, other))
    return other.p50 - first.p50, (
        other_low - high if other_low is not None and high is not None else None,
        other_high - low if other_high is not None and low is not None else None,
    )


def workload_statements(changes: Sequence[WorkloadChange]) -> list[Statement]:
    return [_sentence(each) for each in changes if each.ttft_ms is not None]


def _sentence(effect: WorkloadChange) -> Statement:
    low, high = effect.ttft_ci95
    between = (
        f" ({_signed(low)} to {_signed(high)})" if low is not None and high is not None else ""
    )
    ttft = f"TTFT p50 {_signed(effect.ttft_ms or 0.0)} ms{between}"
    tps = f", TPS p50 {change(effect.tps)}" if effect.tps is not None else ""
    return Statement(
        f"With workload {effect.after} instead of {effect.before}, {effect.target}: {ttft}{tps}.",
        f"{effect.before} → {effect.after}, {effect.target}: {ttft}{tps}.",
        detail=low is not None and high is not None and low <= 0 <= high,  # it may be none
    )


def _signed(value: float) -> str:
    return f"{'−' if value < 0 else '+'}{number(abs(value))}"
