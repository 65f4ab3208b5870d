"""Gates as people write them, and when they hold a run back."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.analysis.made import asked, renamed, request, row
from tests.cases import each_case
from tests.power import repeated

from splitsecond.benchmark.findings.compare import Comparison, RunData, compare
from splitsecond.benchmark.findings.gate import (
    Unchecked,
    check_changes,
    parse_equivalence,
    parse_gate,
)
from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.records import ConditionFindings as Row
from splitsecond.benchmark.rows.records import Run
from splitsecond.core.errors import CallerFault
from splitsecond.log.statistics.summary import Interval, Summary


@each_case(
    ("text", "parts"),
    [
        ("ttft_ms.p95 > +10%", ("ttft_ms", "p95", ">", 0.1, True)),
        ("tps.p50 < -5%", ("tps", "p50", "<", -0.05, True)),
        ("tps.p50<−5%", ("tps", "p50", "<", -0.05, True)),
        ("ttft_ms.p95 >= 300", ("ttft_ms", "p95", ">=", 300.0, False)),
        ("itl_ms.max > 0.5", ("itl_ms", "max", ">", 0.5, False)),
        ("errors > 0", ("errors", "", ">", 0.0, False)),
        ("output_tokens_per_s <= .5", ("output_tokens_per_s", "", "<=", 0.5, False)),
    ],
)
def test_gates_are_read(text: str, parts: tuple[str, str, str, float, bool]) -> None:
    made = parse_gate(text)
    assert (made.figure, made.statistic, made.compare, made.limit, made.relative) == parts


@each_case(
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
        ("tps.p50 < -100%", "nothing falls by 100% or more"),
        (f"ttft_ms.p95 > {'9' * 400}", "too large"),
    ],
)
def test_unreadable_gate_is_refused_with_an_example(text: str, says: str) -> None:
    with pytest.raises(CallerFault, match=says) as caught:
        parse_gate(text)
    assert caught.value.kind == "bad_gate"
    assert "'tps.p50 < -5%'" in caught.value.hint


@given(st.text(max_size=30))
def test_any_text_is_a_gate_or_a_fault(text: str) -> None:
    try:
        made = parse_gate(text)
    except CallerFault:
        return
    assert parse_gate(made.text) == made


def with_p95(
    p95: float | None, low: float | None = None, high: float | None = None, **changes: Any
) -> list[Row]:
    """A row with that p95, and its interval (by default of no width)."""
    interval = (p95 if low is None else low, p95 if high is None else high)
    return [row(ttft_ms=Summary(n=100, p95=p95, ci95={"p95": interval}), **changes)]


def test_an_absolute_gate_names_the_row_and_the_figure() -> None:
    gate = parse_gate("ttft_ms.p95 > 300")
    assert gate.check(with_p95(300.0)) == []
    assert gate.check(with_p95(310.0, 301.0, 330.0)) == [
        "a/x at concurrency 1: ttft_ms.p95 is 310 (95% interval 301 to 330), which is > 300."
    ]


def test_a_gate_judges_the_nearer_bound_of_the_interval() -> None:
    above, below = parse_gate("ttft_ms.p95 > 300"), parse_gate("ttft_ms.p95 < 300")
    assert above.check(with_p95(310.0, 299.0, 330.0)) == []
    assert below.check(with_p95(290.0, 280.0, 301.0)) == []
    assert len(below.check(with_p95(290.0, 280.0, 299.0))) == 1
    failing = [row(ttft_ms=Summary(n=100, failed=20, p95=None, ci95={"p95": (700.0, None)}))]
    assert above.check(failing) == [
        "a/x at concurrency 1: ttft_ms.p95 is beyond what was answered (95% interval 700 to ?), "
        "which is > 300."
    ]


@pytest.mark.parametrize(
    ("text", "interval", "which"),
    [
        ("ttft_ms.p95 > 300", (None, 950.0), "lower"),
        ("ttft_ms.p95 < 300", (250.0, None), "upper"),
        ("ttft_ms.p95 > 300", (None, None), "lower"),
    ],
)
def test_gate_with_an_unknown_deciding_bound_is_not_checked(
    text: str, interval: Interval, which: str
) -> None:
    """Few rounds that differ much have so small an effective n that a percentile lacks a bound."""
    rows = [row(ttft_ms=Summary(n=100, p95=280.0, ci95={"p95": interval}))]
    (breach,) = parse_gate(text).check(rows)
    assert breach == (
        f"a/x at concurrency 1: the interval of ttft_ms.p95 has no {which} bound, so {text!r} "
        f"cannot be checked."
    )


def test_a_bound_that_does_not_decide_may_be_unknown() -> None:
    rows = [row(ttft_ms=Summary(n=100, p95=280.0, ci95={"p95": (250.0, None)}))]
    assert parse_gate("ttft_ms.p95 > 300").check(rows) == []
    assert len(parse_gate("ttft_ms.p95 > 200").check(rows)) == 1


def test_relative_gate_with_an_unknown_bound_is_not_checked() -> None:
    now = [row(ttft_ms=Summary(n=100, p95=280.0, ci95={"p95": (None, 400.0)}))]
    assert parse_gate("ttft_ms.p95 > +10%").check(now, with_p95(300.0)) == [
        "a/x at concurrency 1: the interval of ttft_ms.p95 has no lower bound, so 'ttft_ms.p95 > "
        "+10%' cannot be "
        "checked."
    ]


def test_a_figure_without_an_interval_is_judged_as_it_is() -> None:
    rows = [row(itl_ms=Summary(n=100, p95=20.0, max=90.0), output_tokens_per_s=50.0)]
    assert parse_gate("itl_ms.p95 > 20").check(rows) == []
    assert len(parse_gate("itl_ms.max > 20").check(rows)) == 1
    assert parse_gate("output_tokens_per_s < 50").check(rows) == []
    assert len(parse_gate("output_tokens_per_s < 51").check(rows)) == 1


def test_a_percentile_with_too_few_requests_is_refused() -> None:
    few = [row(ttft_ms=Summary(n=50, p95=100.0, ci95={"p95": (90.0, None)}, needs={"p95": 72}))]
    assert parse_gate("ttft_ms.p95 > 300").check(few) == [
        "a/x at concurrency 1: ttft_ms.p95 needs more requests, so 'ttft_ms.p95 > 300' cannot be "
        "checked. Use -n 150."
    ]


def test_a_count_needs_no_baseline() -> None:
    assert parse_gate("errors > 0").check(
        [row(errors=0), row(errors=2, rate=3.0, concurrency=None)]
    ) == ["a/x at 3 requests/s: errors is 2, which is > 0."]


def test_missing_figure_breaches_the_gate() -> None:
    assert parse_gate("ttft_ms.p95 > 300").check(with_p95(None)) == [
        "a/x at concurrency 1: ttft_ms.p95 is missing, so 'ttft_ms.p95 > 300' cannot be checked."
    ]


def test_relative_gate_compares_with_the_usual_value() -> None:
    gate = parse_gate("ttft_ms.p95 > +10%")
    assert gate.check(with_p95(330.0), with_p95(300.0)) == []
    assert gate.check(with_p95(336.0, 329.0, 340.0), with_p95(300.0)) == []
    assert gate.check(with_p95(336.0, 331.0, 340.0), with_p95(300.0)) == [
        "a/x at concurrency 1: ttft_ms.p95 went from 300 to 336 (95% interval 331 to 340) (+12%), "
        "which is > +10%."
    ]
    assert gate.check(with_p95(100.0), with_p95(300.0)) == []


def test_relative_gate_needs_a_baseline() -> None:
    with pytest.raises(CallerFault, match="needs a run to compare with"):
        parse_gate("ttft_ms.p95 > +10%").check(with_p95(1.0))


@pytest.mark.parametrize(
    ("now", "before", "says"),
    [
        (with_p95(None), with_p95(1.0), "ttft_ms.p95 of this run is missing or 0"),
        (with_p95(1.0), with_p95(None), "ttft_ms.p95 of the baseline is missing or 0"),
        (with_p95(1.0), with_p95(0.0), "ttft_ms.p95 of the baseline is missing or 0"),
        (with_p95(1.0, target="b"), with_p95(1.0), "this run lacks a row of the baseline"),
    ],
)
def test_relative_gate_without_a_comparison_is_a_breach(
    now: list[Row], before: list[Row], says: str
) -> None:
    (breach,) = parse_gate("ttft_ms.p95 > +10%").check(now, before)
    assert says in breach


def test_new_row_is_not_compared_with_the_baseline() -> None:
    now = with_p95(300.0) + with_p95(900.0, target="b")
    assert parse_gate("ttft_ms.p95 > +10%").check(now, with_p95(300.0)) == []


# Gates and equivalences on a comparison of two runs.


def compared(
    factor: float,
    *,
    n: int = 80,
    scatter: float = 0.05,
    seed: int = 0,
    rows: int = 1,
    pause_s: float = 170,
) -> Comparison:
    """Runs of eight rounds with pauses, the second with TTFT `factor` times as long."""

    def side(of: float, seed: int) -> RunData:
        chance, observations = np.random.default_rng(seed), []
        for at in range(rows):
            for number in range(n):
                ttft = 100 * of * chance.lognormal(sigma=scatter)
                at_round = number * 8 // n
                start_ms = 1000 + 500 * number + 1000 * pause_s * at_round
                made = request(start_ms, ttft_ms=ttft, round=at_round + 1, name=str(number))
                observations += renamed([made], f"c{at}", f"t{at}")
        conditions = [asked(condition=f"c{at}", target=f"t{at}") for at in range(rows)]
        run = Run(
            id="r",
            began="2025-06-01",
            began_ns=0,
            conditions=condition_rows(conditions, observations, []),
        )
        return RunData(run, observations)

    return compare([side(1.0, 2 * seed)], [side(factor, 2 * seed + 1)])


def gates(comparison: Comparison, *texts: str) -> list[str]:
    return check_changes([parse_gate(text) for text in texts], comparison)


def test_gate_on_a_comparison_fails_if_the_change_is_certain() -> None:
    comparison = compared(1.2)
    (breach,) = gates(comparison, "ttft_ms.p50 > +10%")
    assert breach.startswith("t0 at concurrency 1: ttft_ms.p50 went from 100 to ")
    assert breach.endswith(", which is > +10% (p < 0.001).")
    interval = re.compile(r"\(([^(]* 95% interval .*?)[,)]")
    (finding,) = [each for each in comparison.statements if "TTFT p50" in each]
    assert interval.findall(breach) == interval.findall(finding), "one change has one interval"
    assert gates(compared(1.11), "ttft_ms.p50 > +10%") == []
    assert gates(compared(0.8), "ttft_ms.p50 > +10%") == []
    assert len(gates(compared(0.8), "ttft_ms.p50 < -10%")) == 1


def test_gate_on_runs_with_close_rounds_judges_their_minutes() -> None:
    (breach,) = gates(compared(1.2, pause_s=0), "ttft_ms.p50 > +10%")
    assert breach.endswith(", which is > +10% (in these minutes).")


@repeated(2, 30)
def test_gates_rarely_fail_without_a_change(repeats: int) -> None:
    """Twelve of twelve comparisons of equal runs failed such a gate when it judged the percentiles
    themselves."""
    failed = [
        gates(compared(1.0, scatter=0.4, seed=seed, rows=5), "ttft_ms.p95 > +2%")
        for seed in range(repeats)
    ]
    assert sum(map(bool, failed)) <= 2


def test_uncheckable_gate_on_a_comparison_is_neither() -> None:
    (few,) = gates(compared(1.0, n=48), "ttft_ms.p95 > +10%")
    assert few.endswith(
        "needs more requests, so 'ttft_ms.p95 > +10%' cannot be checked. Use -n 150."
    )
    assert isinstance(few, Unchecked)
    (short,) = gates(compared(1.0, n=4), "tps.p50 > +10%")
    assert short.endswith("needs more requests, so 'tps.p50 > +10%' cannot be checked. Use -n 50.")
    (unknown,) = gates(compared(1.0), "ttft_due_ms.p50 > +10%")
    assert "missing or 0 on one side" in unknown
    gone = compare([RunData(Run(id="r", began="", began_ns=0, conditions=[row()]), [])], [])
    assert gates(gone, "ttft_ms.p50 > +10%") == [
        "a/x at concurrency 1: this run lacks a row of the baseline, so 'ttft_ms.p50 > +10%' "
        "cannot be checked."
    ]
    with pytest.raises(CallerFault, match="which has no interval"):
        gates(compared(1.0), "ttft_ms.mean > +10%")


def days_compared(*factors: float) -> Comparison:
    """Two runs a side on two days, the TTFT of each that many times as long; the days are the
    rounds."""
    runs = []
    for day, factor in enumerate(factors):
        made = [
            request(1000 + 500 * at, ttft_ms=100 * factor, round=at * 8 // 80 + 1, name=str(at))
            for at in range(80)
        ]
        run = Run(
            id=f"r{day}",
            began=f"2025-06-0{day + 1}",
            began_ns=0,
            conditions=condition_rows([asked()], made, []),
        )
        runs.append(RunData(run, made))
    return compare(runs[:2], runs[2:])


@pytest.mark.parametrize("text", ["ttft_ms.p50 > +10%", "ttft_ms.p50 < -10%"])
def test_a_gate_on_a_change_without_bounds_is_not_checked(text: str) -> None:
    (breach,) = gates(days_compared(1, 1.2, 1, 5), text)
    assert breach.startswith("a/x at concurrency 1: the interval of ttft_ms.p50 has no ")
    assert breach.endswith(f"er bound, so {text!r} cannot be checked.")
    assert gates(days_compared(1, 1.0001, 1, 1.0001), text) == []


def test_an_equivalence_is_not_shown_by_a_change_without_bounds() -> None:
    (open_,) = parse_equivalence("ttft_ms.p50 ±5%").check(days_compared(1, 1.2, 1, 5))
    assert open_.endswith(
        ": ttft_ms.p50 changed by an unknown amount: its interval has no bounds, so 'ttft_ms.p50 "
        "±5%' is not shown."
    )


def test_numbers_without_an_interval_are_judged_as_they_are() -> None:
    (breach,) = gates(compared(3.0), "requests_per_s < -1%")
    assert breach.endswith("which is < −1%.")


def test_equivalence_is_shown_refuted_or_open() -> None:
    wanted = parse_equivalence("ttft_ms.p50 ±5%")
    assert wanted.check(compared(1.0)) == []
    (differs,) = wanted.check(compared(1.2))
    assert "ttft_ms.p50 differs by more than 5%: +" in differs
    (open_,) = wanted.check(compared(1.0, scatter=0.5))
    assert "is not shown to be equivalent within ±5%" in open_
    (few,) = parse_equivalence("ttft_ms.p95 ±5%").check(compared(1.0, n=48))
    assert few.endswith("Use -n 150.")
    assert [isinstance(each, Unchecked) for each in (few, differs)] == [True, False]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ttft_ms.p50 5%", "it is not a figure and ± a percentage"),
        ("ttft_ms ±5%", "ttft_ms needs one of .p50, .p95, .p99"),
        ("ttft_ms.mean ±5%", "ttft_ms needs one of"),
        ("errors ±5%", "no figure 'errors' with an interval"),
        ("ttft_ms.p50 ±100%", "above 0 and below 100"),
    ],
)
def test_unreadable_equivalence_is_refused_with_an_example(text: str, says: str) -> None:
    with pytest.raises(CallerFault, match=says) as caught:
        parse_equivalence(text)
    assert "'ttft_ms.p50 ±5%'" in caught.value.hint


def test_equivalences_are_read() -> None:
    for text in ("output_tokens_per_s ±10%", "tps.p50 +-2.5%", "tps.p95 +/- 2.5 %"):
        made = parse_equivalence(text)
        assert (made.figure, made.share) in (("output_tokens_per_s", 0.1), ("tps", 0.025))
