"""Two runs: what changed, what did not, and what cannot be compared."""

import msgspec
import numpy as np
import pytest
from tests.analysis.made import MS, asked, failure, request, row

from splitsecond.analysis.asked import AskedCondition
from splitsecond.analysis.compare import Comparison, RunData, compare
from splitsecond.analysis.findings import Run
from splitsecond.analysis.run import summarise
from splitsecond.timing.observation import Observation


def run(name: str, observations: list[Observation], *conditions: AskedCondition) -> RunData:
    rows = summarise(conditions or [asked()], observations, [])
    return RunData(Run(id=name, began="2025-06-01T00:00:00Z", began_ns=0, conditions=rows), observations)


def scattered(ttft_ms: float, seed: int, n: int = 40) -> list[Observation]:
    chance, at, observations = np.random.default_rng(seed), 1000.0, []
    for _ in range(n):
        one = request(at, ttft_ms=ttft_ms * chance.normal(1, 0.05), gap_ms=10 * chance.normal(1, 0.05))
        observations.append(one)
        at = one.end_ns / MS
    return observations


def changed(of: Comparison, figure: str, percentile: str) -> tuple[float | None, bool, bool | None]:
    (found,) = [f for f in of.conditions[0].figures if (f.figure, f.percentile) == (figure, percentile)]
    return found.change, found.real, found.better


def test_a_slower_ttft_is_seen_and_the_rest_is_not() -> None:
    comparison = compare(run("old", scattered(100, 1)), run("new", scattered(120, 2)))
    assert (comparison.before, comparison.after) == ("old", "new")
    change, real, better = changed(comparison, "ttft_ms", "p50")
    assert change == pytest.approx(0.2, abs=0.04)
    assert (real, better) == (True, False)
    assert not changed(comparison, "tps", "p50")[1]
    assert comparison.statements[0].startswith("a/x at concurrency 1: TTFT p50 went from ")
    assert comparison.statements[0].endswith("p < 0.001), for the worse.")
    assert "95 % interval +" in comparison.statements[0]
    assert comparison.conditions[0].notes == []


def test_the_other_way_round_it_is_better() -> None:
    comparison = compare(run("old", scattered(120, 2)), run("new", scattered(100, 1)))
    change, real, better = changed(comparison, "ttft_ms", "p50")
    assert change == pytest.approx(-0.167, abs=0.04)
    assert (real, better) == (True, True)


def test_a_faster_speed_is_better() -> None:
    fast = [request(1000.0 + 200 * i, gap_ms=5 + i / 100) for i in range(20)]
    slow = [request(1000.0 + 200 * i, gap_ms=10 + i / 100) for i in range(20)]
    comparison = compare(run("old", slow), run("new", fast))
    assert changed(comparison, "tps", "p95")[1:] == (True, True)


def test_a_run_does_not_differ_from_itself() -> None:
    same = run("same", scattered(100, 1))
    comparison = compare(same, same)
    assert changed(comparison, "ttft_ms", "p50") == (0, False, None)
    assert comparison.statements == ["At concurrency 1, no change beyond chance: a/x."]


def test_the_seed_decides() -> None:
    old, new = run("old", scattered(100, 1)), run("new", scattered(102, 2))
    assert compare(old, new, seed=3) == compare(old, new, seed=3)


def test_totals_have_no_test() -> None:
    comparison = compare(
        run("old", [*scattered(100, 1), failure(9500.0)]), run("new", [*scattered(100, 1), failure(9500.0)])
    )
    totals = {t.figure: t for t in comparison.conditions[0].totals}
    assert (totals["errors"].before, totals["errors"].change) == (1, 0)
    assert totals["requests_per_s"].change == 0
    without = compare(run("old", scattered(100, 1)), run("new", scattered(100, 1))).conditions[0].totals
    assert [t.change for t in without if t.figure == "errors"] == [None]


def test_rows_without_a_partner_are_named() -> None:
    both = scattered(100, 1)
    comparison = compare(
        run("old", both, asked(), asked(8, condition="gone")), run("new", both, asked(), asked(None, rate=2.0))
    )
    assert len(comparison.conditions) == 1
    assert comparison.only_before == ["a/x at concurrency 8"]
    assert comparison.only_after == ["a/x at 2 requests/s"]


def test_what_else_differs_is_noted() -> None:
    old = row(input_tokens=500.0, output_tokens=100.0, token_source="usage", invalid=["too late."])
    new = row(input_tokens=500.0, output_tokens=120.0)
    new.instrument.kernel_time = False
    runs = [RunData(Run(id="r", began="", began_ns=0, conditions=[c]), []) for c in (old, new)]
    comparison = compare(*runs)
    assert comparison.conditions[0].figures == []
    assert comparison.conditions[0].notes == [
        "INVALID in the run before: too late.",
        "the source of the token counts differs: usage, then none.",
        "the clock of the arrivals differs: kernel, then client.",
        "the answers differ in length: 100 tokens, then 120.",
    ]


def test_times_of_zero_have_no_relative_change() -> None:
    old = run("old", [request(1000.0 + 200 * i, ttft_ms=0) for i in range(12)])
    new = run("new", [request(1000.0 + 200 * i, ttft_ms=5 + i / 100) for i in range(12)])
    comparison = compare(old, new)
    assert changed(comparison, "ttft_ms", "p50") == (None, True, False)
    assert comparison.statements[0] == (
        "a/x at concurrency 1: TTFT p50 went from 0 to 5.05 ms (p < 0.001), for the worse."
    )


def test_a_comparison_can_be_written() -> None:
    comparison = compare(run("old", scattered(100, 1)), run("new", scattered(120, 2)))
    assert msgspec.json.decode(msgspec.json.encode(comparison), type=Comparison) == comparison
