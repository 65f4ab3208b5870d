"""Two sides: what changed, what did not, and what cannot be compared."""

from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from tests.analysis.made import MS, asked, failure, in_both_forms, request, row
from tests.golden import Golden

from splitsecond.benchmark.findings.compare import (
    Comparison,
    RunData,
    compare,
    figure_change,
    parse_match,
)
from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.figures import FIGURES
from splitsecond.benchmark.rows.records import AskedCondition, Run
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import Observation
from splitsecond.core.wording import paired
from splitsecond.log.statistics.sample_comparison import untested

ROUNDS = 8


def run(
    name: str, observations: list[Observation], *conditions: AskedCondition, day: int = 1
) -> RunData:
    rows = condition_rows(conditions or [asked()], observations, [])
    began = f"2025-06-0{day}T00:00:00Z"
    return RunData(Run(id=name, began=began, began_ns=0, conditions=rows), observations)


def scattered(
    ttft_ms: float,
    seed: int,
    n: int = 40,
    rounds: int = ROUNDS,
    pause_s: float = 170,
    **changes: Any,
) -> list[Observation]:
    """Requests one after another, in rounds with pauses, whose times scatter by a twentieth."""
    chance, at, observations = np.random.default_rng(seed), 1000.0, []
    for number in range(n):
        one = request(
            at,
            ttft_ms=ttft_ms * chance.normal(1, 0.05),
            gap_ms=10 * chance.normal(1, 0.05),
            round=number * rounds // n + 1 if rounds else 0,
            **changes,
        )
        observations.append(one)
        at = one.end_ns / MS + (
            1000 * pause_s if rounds and (number + 1) * rounds % n < rounds else 0
        )
    return observations


def test_close_rounds_are_compared_in_their_own_minutes() -> None:
    sides = [
        [run(name, scattered(ttft_ms, seed, pause_s=5))]
        for name, ttft_ms, seed in (("a", 100, 1), ("b", 120, 2))
    ]
    found = compare(*sides)
    assert found.close_rounds is not None
    assert found.statements[0].startswith("These 43 seconds only: rounds began ")
    words = " ".join(found.statements + found.short_statements)
    assert "worse in these minutes." in words
    assert not any(
        claim in words for claim in ("p <", "p =", "for the worse", "would have been seen")
    )
    apart = compare(sides[0], [run("c", scattered(120, 2))])
    assert apart.close_rounds == found.close_rounds
    days = [run(f"{day}", scattered(100, day, pause_s=5), day=day) for day in (1, 2, 3, 4)]
    assert compare(days[:2], days[2:]).close_rounds is None


def changed(of: Comparison, figure: str, percentile: str) -> tuple[float | None, bool, bool | None]:
    (found,) = [
        f for f in of.conditions[0].figures if (f.figure, f.percentile) == (figure, percentile)
    ]
    return found.change, found.real, found.better


def test_a_slower_ttft_is_seen_and_the_rest_is_not(golden: Golden) -> None:
    comparison = compare([run("old", scattered(100, 1))], [run("new", scattered(120, 2))])
    assert (comparison.before, comparison.after) == ("old", "new")
    change, real, better = changed(comparison, "ttft_ms", "p50")
    assert change == pytest.approx(0.2, abs=0.04)
    assert (real, better) == (True, False)
    assert not changed(comparison, "tps", "p50")[1]
    assert comparison.conditions[0].notes == []
    golden.check(in_both_forms(paired(comparison.statements, comparison.short_statements)))


def test_runs_have_the_names_that_the_user_gave_them() -> None:
    old, new = (
        run("20261120-190746-3fa", scattered(100, 1)),
        run("20261120-190812-0b1", scattered(120, 2)),
    )
    named = compare([replace(old, name="runs/monday")], [replace(new, name="runs/tuesday"), old])
    assert (named.before, named.after) == ("runs/monday", "runs/tuesday, 20261120-190746-3fa")
    with pytest.raises(
        CallerFault, match="the run runs/monday and copy was given twice on one side"
    ):
        compare([replace(old, name="runs/monday"), replace(old, name="copy")], [new])


def test_faster_ttft_is_judged_better() -> None:
    comparison = compare([run("old", scattered(120, 2))], [run("new", scattered(100, 1))])
    change, real, better = changed(comparison, "ttft_ms", "p50")
    assert change == pytest.approx(-0.167, abs=0.04)
    assert (real, better) == (True, True)


def test_a_faster_speed_is_better() -> None:
    fast, slow = (
        [request(1000.0 + 200 * i, gap_ms=gap + i / 100, round=i // 10 + 1) for i in range(80)]
        for gap in (5, 10)
    )
    comparison = compare([run("old", slow)], [run("new", fast)])
    assert changed(comparison, "tps", "p95")[1:] == (True, True)


def test_a_run_does_not_differ_from_itself(golden: Golden) -> None:
    same = run("same", scattered(100, 1))
    comparison = compare([same], [same])
    assert changed(comparison, "ttft_ms", "p50") == (0, False, None)
    golden.check(in_both_forms(paired(comparison.statements, comparison.short_statements)))


def test_only_the_throughput_of_the_totals_is_tested() -> None:
    def with_failure(observations: list[Observation]) -> list[Observation]:
        last = observations[-1]
        return [*observations, failure(last.end_ns / MS, round=last.round)]

    comparison = compare(
        [run("old", with_failure(scattered(100, 1)))], [run("new", with_failure(scattered(300, 2)))]
    )
    totals = {t.figure: t for t in comparison.conditions[0].totals}
    assert (totals["errors"].before, totals["errors"].change, totals["errors"].p_value) == (
        1,
        0,
        None,
    )
    throughput = totals["output_tokens_per_s"]
    assert (throughput.real, throughput.better) == (True, False)
    assert throughput.ci95 is not None
    assert throughput.ci95[0] < (throughput.change or 0) < throughput.ci95[1] < 0
    without = (
        compare([run("old", scattered(100, 1))], [run("new", scattered(100, 1))])
        .conditions[0]
        .totals
    )
    assert [t.change for t in without if t.figure == "errors"] == [None]


def test_runs_with_fewer_than_five_rounds_are_not_tested() -> None:
    for rounds in (0, 1, 4):
        comparison = compare(
            [run("old", scattered(100, 1, rounds=rounds))], [run("new", scattered(200, 2))]
        )
        assert not changed(comparison, "ttft_ms", "p50")[1]
        assert not any(total.real for total in comparison.conditions[0].totals)
        assert comparison.conditions[0].notes == [
            "the run before has fewer than five rounds: its intervals describe its own seconds "
            "only, and differences "
            "are not tested."
        ]


def test_rounds_of_short_runs_of_one_day_are_pooled() -> None:
    before = [run(f"b{i}", scattered(100, i, rounds=3)) for i in range(2)]
    after = [run(f"a{i}", scattered(200, 5 + i, rounds=3)) for i in range(2)]
    assert changed(compare(before, after), "ttft_ms", "p50")[1]


def test_run_given_twice_on_one_side_is_refused() -> None:
    one, other = run("one", scattered(100, 1)), run("other", scattered(100, 2))
    compare([one], [one])
    for sides in (([one, one], [other]), ([other], [one, one])):
        with pytest.raises(CallerFault, match="the run one was given twice on one side"):
            compare(*sides)


def test_several_runs_of_one_day_add_their_rounds() -> None:
    one, two = run("a", scattered(100, 1, n=20)), run("b", scattered(100, 2, n=20))
    after = [run("c", scattered(110, 3, n=20)), run("d", scattered(110, 4, n=20))]
    alone, together = compare([one], after[:1]), compare([one, two], after)
    assert (together.before, together.after) == ("a, b", "c, d")
    p50 = [
        next(f for f in c.conditions[0].figures if f.percentile == "p50") for c in (alone, together)
    ]
    assert p50[1].freedom > p50[0].freedom
    assert p50[1].error < p50[0].error


def test_runs_of_several_days_are_compared_by_their_days() -> None:
    """Days differ by 20%, so a change of 10% between two sets of three days is not certain,
    whatever the rounds say."""
    before = [
        run(f"b{day}", scattered(100 * each, day, n=80), day=day)
        for day, each in enumerate((0.8, 1, 1.2), 1)
    ]
    after = [
        run(f"a{day}", scattered(110 * each, 5 + day, n=80), day=day)
        for day, each in enumerate((0.8, 1, 1.2), 1)
    ]
    assert changed(compare(before[1:2], after[1:2]), "ttft_ms", "p50")[1]
    comparison = compare(before, after)
    assert not changed(comparison, "ttft_ms", "p50")[1]
    (errors,) = [t for t in comparison.conditions[0].totals if t.figure == "errors"]
    assert (errors.before, errors.after) == (0, 0)


@pytest.mark.system
@pytest.mark.parametrize("repeats", [20])
def test_comparison_of_equal_runs_rarely_reports_a_change(repeats: int) -> None:
    """So many evenings, each a comparison of fifteen rows: at most one may report anything."""
    conditions = [asked(condition=f"c{i}", target=f"t{i}") for i in range(15)]

    def evening(seed: int) -> RunData:
        rows = [
            scattered(100, 100 * seed + i, n=20, rounds=5, condition=f"c{i}", target=f"t{i}")
            for i in range(15)
        ]
        return run(f"e{seed}", [o for each in rows for o in each], *conditions)

    evenings = [evening(seed) for seed in range(2 * repeats)]
    reported = [
        any("went from" in sentence for sentence in compare([a], [b]).statements)
        for a, b in zip(evenings[::2], evenings[1::2], strict=True)
    ]
    assert sum(reported) <= 1


def test_targets_of_different_names_are_matched() -> None:
    old, new = (scattered(100, 1, target="vllm"), scattered(120, 2, target="sglang"))
    two = [asked(target="vllm"), asked(target="sglang")]
    comparison = compare([run("old", old, two[0])], [run("new", new, two[1])])
    assert [(c.target, c.before_target, c.name) for c in comparison.conditions] == [
        ("sglang", "vllm", "vllm → sglang")
    ]
    both = [asked(target="vllm"), asked(target="other", concurrency=8, condition="d")]
    assert compare([run("old", old, *both)], [run("new", new, two[1])]).conditions == []
    matched = compare([run("old", old, *both)], [run("new", new, two[1])], match={"vllm": "sglang"})
    assert [c.name for c in matched.conditions] == ["vllm → sglang"]
    assert matched.only_before == ["other at concurrency 8"]


def test_match_with_a_name_on_both_sides_keeps_targets_apart() -> None:
    rows = [asked(target=name, condition=name) for name in ("a", "b")]
    observed = [o for name in ("a", "b") for o in scattered(100, 1, target=name, condition=name)]
    sides = [run("old", observed, *rows)], [run("new", observed, *rows)]
    matched = compare(*sides, match={"a": "b"})
    assert [(c.before_target, c.target) for c in matched.conditions] == [("a", "b")]
    assert (matched.only_before, matched.only_after) == (
        ["b at concurrency 1"],
        ["a at concurrency 1"],
    )


def test_matches_are_parsed() -> None:
    policy = 'race("a", within="voice")'
    old = [run("old", [], asked(target=policy), asked(target="a", condition="d"))]
    new = [run("new", [], asked(target="b"))]
    assert parse_match([], old, new) is None
    assert parse_match([f"{policy}=b"], old, new) == {policy: "b"}
    with pytest.raises(CallerFault, match="expected BEFORE=AFTER") as caught:
        parse_match(["a=c"], old, new)
    assert caught.value.hint.endswith("After: b.")


def test_rows_without_a_partner_are_named() -> None:
    both = scattered(100, 1)
    comparison = compare(
        [run("old", both, asked(), asked(8, condition="gone"))],
        [run("new", both, asked(), asked(None, rate=2.0))],
    )
    assert len(comparison.conditions) == 1
    assert comparison.only_before == ["a/x at concurrency 8"]
    assert comparison.only_after == ["a/x at 2 requests/s"]


def test_other_differences_between_runs_are_noted() -> None:
    old = row(input_tokens=500.0, output_tokens=100.0, token_source="usage", invalid=["too late."])
    new = row(input_tokens=500.0, output_tokens=120.0)
    new.instrument.kernel_time = False
    runs = [RunData(Run(id="r", began="", began_ns=0, conditions=[c]), []) for c in (old, new)]
    comparison = compare(runs[:1], runs[1:])
    assert comparison.conditions[0].figures == []
    assert comparison.conditions[0].notes == [
        "INVALID in the run before: too late.",
        "the source of the token counts differs: usage, then none.",
        "the clock of the arrivals differs: kernel, then client.",
        "the answers differ in length: 100 tokens, then 120.",
    ]


def test_token_counts_of_different_sources_are_not_compared() -> None:
    events = scattered(100, 2, token_source="events")
    faster = [msgspec.structs.replace(o, output_tokens=30) for o in events]
    comparison = compare([run("old", scattered(100, 1))], [run("new", faster)])
    (tps,) = [
        f for f in comparison.conditions[0].figures if (f.figure, f.percentile) == ("tps", "p50")
    ]
    assert (tps.change or 0) > 1
    assert (tps.real, tps.p_value) == (False, None)


def test_a_percentile_among_failed_requests_is_not_better() -> None:
    change = figure_change(FIGURES["ttft_ms"], "p95", untested(100.0, None))
    assert (change.after, change.change, change.better) == (None, None, None)
    assert figure_change(FIGURES["ttft_ms"], "p95", untested(100.0, 90.0)).better is True


def test_times_of_zero_have_no_test() -> None:
    old = run("old", [request(1000.0 + 200 * i, ttft_ms=0) for i in range(12)])
    new = run("new", [request(1000.0 + 200 * i, ttft_ms=5 + i / 100) for i in range(12)])
    assert changed(compare([old], [new]), "ttft_ms", "p50") == (None, False, False)


def test_a_comparison_can_be_written() -> None:
    comparison = compare([run("old", scattered(100, 1))], [run("new", scattered(120, 2))])
    assert msgspec.json.decode(msgspec.json.encode(comparison), type=Comparison) == comparison
