"""Precision: the requested one, the reached one, and the rounds that would have been needed."""

import math

import pytest
from msgspec.structs import replace
from tests.analysis.made import row
from tests.cases import each_case

from splitsecond.benchmark.findings.precision import (
    Precision,
    Unmet,
    in_words,
    parse_precision,
    unmet,
)
from splitsecond.core.errors import CallerFault
from splitsecond.log.statistics.summary import summary_of


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("5%", {"ttft_ms.p50": 0.05, "tps.p50": 0.05}),
        ("0.1", {"ttft_ms.p50": 0.1, "tps.p50": 0.1}),
        ("ttft_ms.p95=5%, tps.p50=3%", {"ttft_ms.p95": 0.05, "tps.p50": 0.03}),
        ("e2e_ms.mean=2%", {"e2e_ms.mean": 0.02}),
    ],
)
def test_a_precision_names_figures_or_means_the_main_ones(
    text: str, wanted: dict[str, float]
) -> None:
    assert parse_precision(text).wanted == wanted


@each_case("text", ["", "five", "0%", "100%", "-1%", "ttft=5%", "ttft_ms.p42=5%", "ttft_ms.p50="])
def test_unreadable_precision_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(CallerFault, match=r"expected a share such as 5%"):
        parse_precision(text)


def test_a_figure_is_judged_by_half_of_its_interval() -> None:
    known = replace(summary_of([100.0]), p50=100.0, ci95={"p50": (94.0, 106.0)})
    made = row(ttft_ms=known, tps=replace(known, ci95={"p50": (99.0, 101.0)}))
    (found,) = unmet(made, parse_precision("5%"))
    assert (found.label, found.reached, found.wanted) == ("TTFT p50", 0.06, 0.05)
    assert unmet(made, parse_precision("7%")) == []
    (open_ended,) = unmet(
        replace(made, ttft_ms=replace(known, ci95={"p50": (94.0, None)})), parse_precision("5%")
    )
    assert math.isinf(open_ended.reached)


def test_row_without_values_needs_no_more_rounds() -> None:
    assert unmet(row(), Precision({"ttft_ms.p50": 0.05})) == []


def test_twice_the_precision_takes_four_times_the_rounds() -> None:
    half = Unmet(label="TTFT p50", reached=0.1, wanted=0.05)
    assert half.rounds_needed(10) == 40
    assert in_words(half, 10, 100) == (
        "TTFT p50 is known to ±10% after 10 rounds, the goal was ±5%: "
        "that takes about 40 rounds, 400 measured requests."
    )
    assert "without an interval" in in_words(replace(half, reached=math.inf), 5, 50)
