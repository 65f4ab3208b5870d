"""The cells of the table of savings, with and without known values."""

from typing import Any

import pytest
from tests.analysis.made import row

from splitsecond.benchmark.report.savings import ChangeCell, saving_rows
from splitsecond.benchmark.rows.records import CacheSaving, FigureChange, Run


def wait(**changes: Any) -> FigureChange:
    made = {
        "figure": "ttft_ms", "percentile": "p50", "before": 412.0, "after": 243.0, "change": -0.41,
        "ci95": (-0.4721, -0.3512), "p_value": 0.001, "real": True, "better": True,
    }  # fmt: skip
    return FigureChange(**{**made, **changes})


def cells(*waits: FigureChange, **saving: Any) -> list[ChangeCell]:
    run = Run(id="r", began="", began_ns=0, conditions=[row(concurrency=8)])
    run.cache_savings = [
        CacheSaving(target="a/x", fresh="c", reuse="c-reuse", ttft=list(waits), **saving)
    ]
    (line,) = saving_rows(run)
    assert (line.target, line.load) == ("a/x", "c=8")
    return line.cells


def test_ttft_without_and_with_reuse_and_its_change() -> None:
    p50, p95, *_ = cells(
        wait(), wait(percentile="p95", ci95=None, real=False, better=False, change=0.03)
    )
    assert p50 == ChangeCell(figure="412 → 243", remark="−41%", interval="−47 to −35%", better=True)
    assert p95 == ChangeCell(figure="412 → 243", remark="+3%", better=False, weak=True)


@pytest.mark.parametrize(
    ("ci95", "said"),
    [
        ((-0.7902, -0.7886), "−79 to −78.9%"),
        ((-0.021, 0.0234), "−2.1 to +2.3%"),
        ((-0.4093, 0.3791), "−41 to +38%"),
    ],
)
def test_a_narrow_interval_has_tenths_of_a_percent(ci95: tuple[float, float], said: str) -> None:
    assert cells(wait(ci95=ci95))[0].interval == said


def test_an_unknown_value_is_a_dash() -> None:
    assert [cell.figure for cell in cells()] == ["–"] * 4
    assert cells()[2].remark == "unreported"


@pytest.mark.parametrize(
    ("fresh", "reuse", "said"),
    [
        (0.00102, 0.00071, ("1.02 → 0.710", "−0.310")),
        (0.001, 0.00125, ("1.00 → 1.25", "+0.250")),
        (0.0, 0.0, ("0.00 → 0.00", "")),
    ],
)
def test_cost_is_per_thousand_requests(fresh: float, reuse: float, said: tuple[str, str]) -> None:
    cell = cells(
        wait(), usd_per_request_fresh=fresh, usd_per_request_reuse=reuse, cached_share=0.5
    )[3]
    assert (cell.figure, cell.remark) == said
