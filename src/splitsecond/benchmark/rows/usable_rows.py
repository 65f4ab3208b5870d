from collections import Counter
from collections.abc import Iterable, Sequence

from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.core.grouping import grouped
from splitsecond.core.wording import ENGINE, Loaded, level

Place = tuple[str, int | None, float | None, bool, str, int]


def load_of(row: Loaded) -> float:
    return row.concurrency or row.rate or 0.0


def load_order(row: ConditionFindings) -> tuple[bool, float]:
    return row.concurrency is None, load_of(row)


def rows_by_target(rows: Sequence[ConditionFindings]) -> list[list[ConditionFindings]]:
    """Return the usable rows of each target, its lightest load first.

    Left out are INVALID rows, rows with cache reuse or of another workload than the run's first,
    requests/s where the target was measured by concurrency, and the built-in engine beside other
    targets.
    """
    workload = rows[0].workload if rows else ""
    usable = [
        row
        for row in rows
        if not row.invalid and not row.cache_reuse and row.requests and row.workload == workload
    ]
    real = [row for row in usable if not row.target.startswith(ENGINE)]
    by_target: dict[str, list[ConditionFindings]] = {}
    for row in sorted(real or usable, key=load_order):
        loads = by_target.setdefault(row.target, [])
        if not loads or (loads[0].concurrency is None) == (row.concurrency is None):
            loads.append(row)
    return list(by_target.values())


def rows_by_workload(rows: Sequence[ConditionFindings]) -> list[list[ConditionFindings]]:
    return list(grouped(rows, lambda row: row.workload).values())


def lightest_rows(rows: Sequence[ConditionFindings]) -> list[ConditionFindings]:
    lightest = [loads[0] for loads in rows_by_target(rows)]
    if not lightest:
        return []
    least = min(map(load_order, lightest))
    return [row for row in lightest if load_order(row) == least]


def row(findings: ConditionFindings, *, short: bool = False) -> str:
    return f"{findings.target} {level(findings, short=short)}"


def by_place(rows: Iterable[ConditionFindings]) -> dict[Place, ConditionFindings]:
    """Return rows by what identifies them across runs: target, load, cache reuse, and a number if
    several are equal."""
    seen: Counter[tuple[str, int | None, float | None, bool, str]] = Counter()
    placed: dict[Place, ConditionFindings] = {}
    for findings in rows:
        place = (
            findings.target,
            findings.concurrency,
            findings.rate,
            findings.cache_reuse,
            findings.workload,
        )
        placed[(*place, seen[place])] = findings
        seen[place] += 1
    return placed
