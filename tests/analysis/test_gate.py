"""Gates as people write them, and when they hold a run back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.analysis.made import row

from splitsecond.analysis.findings import Spread
from splitsecond.analysis.gate import parse_gate
from splitsecond.errors import CallerFault


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ttft_ms.p95 > +10%", ("ttft_ms", "p95", ">", 0.1, True)),
        ("tps.p50 < -5%", ("tps", "p50", "<", -0.05, True)),
        ("tps.p50<−5 %", ("tps", "p50", "<", -0.05, True)),
        ("ttft_ms.p95 >= 300", ("ttft_ms", "p95", ">=", 300.0, False)),
        ("itl_ms.max > 0.5", ("itl_ms", "max", ">", 0.5, False)),
        ("errors > 0", ("errors", "", ">", 0.0, False)),
        ("output_tokens_per_s <= .5", ("output_tokens_per_s", "", "<=", 0.5, False)),
    ],
)
def test_gates_are_read(text: str, parts: tuple[str, str, str, float, bool]) -> None:
    made = parse_gate(text)
    assert (made.figure, made.statistic, made.compare, made.limit, made.relative) == parts


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a figure, a comparison and a number"),
        ("ttft_ms.p95 = 3", "not a figure, a comparison and a number"),
        ("ttft_ms.p95 > fast", "not a figure, a comparison and a number"),
        ("ttft.p95 > 3", "no figure 'ttft'"),
        ("ttft_ms > 3", "ttft_ms needs one of"),
        ("ttft_ms.p90 > 3", "ttft_ms needs one of"),
        ("errors.p50 > 3", "errors is one number"),
        ("errors > 10%", "which may be 0"),
        (f"ttft_ms.p95 > {'9' * 400}", "too large"),
    ],
)
def test_what_cannot_be_read_says_what_can(text: str, says: str) -> None:
    with pytest.raises(CallerFault, match=says) as caught:
        parse_gate(text)
    assert caught.value.kind == "bad_gate"
    assert "'ttft_ms.p95 > +10%'" in caught.value.hint


@given(st.text(max_size=30))
def test_any_text_is_a_gate_or_a_fault(text: str) -> None:
    try:
        made = parse_gate(text)
    except CallerFault:
        return
    assert parse_gate(made.text) == made


def with_p95(p95: float | None, **changes: object) -> list:  # type: ignore[type-arg]
    return [row(ttft_ms=Spread(n=100, p95=p95), **changes)]


def test_an_absolute_gate_names_the_row_and_the_figure() -> None:
    gate = parse_gate("ttft_ms.p95 > 300")
    assert gate.check(with_p95(300.0)) == []
    assert gate.check(with_p95(301.0)) == ["a/x at concurrency 1: ttft_ms.p95 is 301, which is > 300."]


def test_a_count_needs_no_baseline() -> None:
    assert parse_gate("errors > 0").check([row(errors=0), row(errors=2, rate=3.0, concurrency=None)]) == [
        "a/x at 3 requests/s: errors is 2, which is > 0."
    ]


def test_a_figure_that_nobody_measured_is_a_breach() -> None:
    assert parse_gate("ttft_ms.p95 > 300").check(with_p95(None)) == [
        "a/x at concurrency 1: ttft_ms.p95 could not be had, so 'ttft_ms.p95 > 300' cannot be checked."
    ]


def test_a_relative_gate_takes_the_change() -> None:
    gate = parse_gate("ttft_ms.p95 > +10%")
    assert gate.check(with_p95(330.0), with_p95(300.0)) == []
    assert gate.check(with_p95(336.0), with_p95(300.0)) == [
        "a/x at concurrency 1: ttft_ms.p95 went from 300 to 336 (+12 %), which is > +10 %."
    ]
    assert gate.check(with_p95(100.0), with_p95(300.0)) == []


def test_a_relative_gate_wants_a_baseline() -> None:
    with pytest.raises(CallerFault, match="needs a run to compare with"):
        parse_gate("ttft_ms.p95 > +10%").check(with_p95(1.0))


@pytest.mark.parametrize(
    ("now", "before", "says"),
    [
        (with_p95(None), with_p95(1.0), "ttft_ms.p95 of this run is missing or 0"),
        (with_p95(1.0), with_p95(None), "ttft_ms.p95 of the baseline is missing or 0"),
        (with_p95(1.0), with_p95(0.0), "ttft_ms.p95 of the baseline is missing or 0"),
        (with_p95(1.0, target="b"), with_p95(1.0), "the baseline has it and this run has not"),
    ],
)
def test_what_cannot_be_compared_is_a_breach(now: list, before: list, says: str) -> None:  # type: ignore[type-arg]
    (breach,) = parse_gate("ttft_ms.p95 > +10%").check(now, before)
    assert says in breach


def test_a_row_that_is_new_is_not_held_against_the_baseline() -> None:
    now = with_p95(300.0) + with_p95(900.0, target="b")
    assert parse_gate("ttft_ms.p95 > +10%").check(now, with_p95(300.0)) == []
