"""The front of throughput against TTFT over the settings of a sweep."""

from collections.abc import Mapping, Sequence

from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.core.wording import Statement, listed, number


def front(rows: Sequence[ConditionFindings]) -> list[ConditionFindings]:
    """Return the rows that no other beats in both throughput and TTFT p95, the fastest first."""
    usable = [
        row for row in rows if not row.invalid and row.ttft_ms.p95 and row.output_tokens_per_s
    ]
    usable.sort(key=lambda row: (row.ttft_ms.p95, -(row.output_tokens_per_s or 0)))
    best: list[ConditionFindings] = []
    for row in usable:
        if not best or (row.output_tokens_per_s or 0) > (best[-1].output_tokens_per_s or 0):
            best.append(row)
    return best


def front_statements(
    rows: Sequence[ConditionFindings], failures: Mapping[str, str]
) -> list[Statement]:
    """Return the front in words, what is never on it, and the settings that did not run, with their
    reasons."""
    statements = []
    best, names = front(rows), dict.fromkeys(row.target for row in rows)
    if best and len(names) > 1:
        places = [
            f"{row.target} at c={row.concurrency} ({number(row.output_tokens_per_s or 0)} "
            f"tokens/s, {number(row.ttft_ms.p95 or 0)} ms)"
            for row in best
        ]
        statements.append(
            Statement(
                f"Best throughput for each TTFT p95: {listed(places)}.",
                "\n".join(["Front:", *places]),
            )
        )
        if beaten := [name for name in names if name not in {row.target for row in best}]:
            statements.append(Statement(f"At no load on this front: {listed(beaten)}."))
    return statements + [
        Statement(f"{name} did not run: {why.removesuffix('.')}.") for name, why in failures.items()
    ]
