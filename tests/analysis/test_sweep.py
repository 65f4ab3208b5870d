"""What another workload changes."""

import pytest
from tests.analysis.made import row

from splitsecond.benchmark.findings.statements import statements
from splitsecond.benchmark.findings.sweep import workload_changes, workload_statements
from splitsecond.benchmark.report import rows
from splitsecond.benchmark.rows.records import ConditionFindings, Run
from splitsecond.benchmark.rows.usable_rows import lightest_rows
from splitsecond.core.wording import full, level
from splitsecond.log.statistics.summary import Summary


def measured(
    workload: str, ttft: float, tps: float, concurrency: int | None = 1, rate: float | None = None
) -> ConditionFindings:
    return row(
        condition=f"a/x#{workload}@c{concurrency}",
        workload=workload,
        concurrency=concurrency,
        rate=rate,
        requests=50,
        ttft_ms=Summary(n=50, p50=ttft, ci95={"p50": (ttft - 10, ttft + 10)}),
        tps=Summary(n=50, p50=tps),
        output_tokens_per_s=100.0,
    )


SHORT, LONG = measured("512", 200, 100), measured("50k", 1100, 90)


def test_a_long_prompt_adds_to_ttft() -> None:
    (found,) = workload_changes([SHORT, measured("512", 900, 50, 8), LONG])
    assert found.rows == ["a/x#512@c1", "a/x#50k@c1"]
    assert (found.ttft_ms, found.ttft_ci95) == (900, (880, 920))
    assert found.tps == pytest.approx(-0.1)
    assert full(workload_statements([found])) == [
        "With workload 50k instead of 512, a/x: TTFT p50 +900 ms (+880 to +920), TPS p50 −10%."
    ]


def test_single_workload_has_no_changes() -> None:
    assert workload_changes([row(requests=9), row(concurrency=8, requests=9)]) == []
    assert workload_changes([SHORT]) == []


def test_workloads_with_rates_of_their_own() -> None:
    (found,) = workload_changes([SHORT, measured("50k", 1100, 90, None, 0.5)])
    assert found.ttft_ms == 900


def test_rows_of_different_workloads_are_not_ranked_together() -> None:
    assert level(LONG) == "at concurrency 1 on workload 50k"
    assert full(statements([SHORT, LONG], [])) == []
    assert [each.condition for each in lightest_rows([SHORT, LONG])] == ["a/x#512@c1"]


def test_each_workload_has_tables_of_its_own() -> None:
    run = Run(id="r", began="", began_ns=0, conditions=[SHORT, LONG])
    assert [found.title for found in rows.levels(run)] == [
        "Concurrency 1, workload 512",
        "Concurrency 1, workload 50k",
    ]
    assert rows.load_words(LONG) == "c=1 50k"
    assert rows.kinds(run) == [(False, "512"), (False, "50k")]
