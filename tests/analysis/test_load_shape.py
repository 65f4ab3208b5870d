"""How a target changes with load: drop, queueing, knee and sweet spot; with the published figures
as the first case."""

import pytest
from msgspec.structs import replace
from tests.analysis.made import row

from splitsecond.benchmark.findings.load_shape import load_shape_statements, load_shapes
from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.core.wording import full
from splitsecond.log.statistics.summary import Summary


def level(
    concurrency: int,
    ttft: float,
    p95: float,
    tps: float,
    *,
    near: float | None = 0.02,
    **changes: float,
) -> ConditionFindings:
    """A row with these medians and this TTFT p95; intervals reach `near` (a share) to each side."""

    def around(value: float) -> tuple[float | None, float | None]:
        return (None, None) if near is None else (value * (1 - near), value * (1 + near))

    return row(
        condition=f"c{concurrency}",
        concurrency=concurrency,
        requests=50,
        ttft_ms=Summary(n=50, p50=ttft, p95=p95, ci95={"p50": around(ttft), "p95": around(p95)}),
        tps=Summary(n=50, p50=tps, ci95={"p50": around(tps)}),
        e2e_ms=Summary(n=50, p50=changes.pop("e2e", 1000.0)),
        **changes,
    )


GENERAL_COMPUTE = [level(1, 180, 220, 310), level(8, 210, 310, 285)]
GROQ = [level(1, 230, 290, 215), level(8, 290, 820, 180), level(32, 610, 2400, 140)]
"""General Compute, "LLM Token Generation Speed", June 2025."""


def test_change_with_load_is_the_one_of_the_document() -> None:
    (said,) = full(load_shape_statements(load_shapes(GENERAL_COMPUTE)))
    assert said == (
        "From concurrency 1 to 8, a/x: TTFT p50 +16.7% (+12.1% to +21.4%), TPS p50 −8.1% (−11.7% "
        "to −4.3%); for each doubling of the load TPS −2.8%, where a fixed resource split in two "
        "gives −50%."
    )


def test_each_step_of_load_has_a_sentence() -> None:
    found = load_shape_statements(load_shapes(GROQ))
    said = [each.long for each in found if each.long.startswith("From concurrency")]
    assert [sentence.partition(",")[0] for sentence in said] == [
        "From concurrency 1 to 32",
        "From concurrency 1 to 8",
        "From concurrency 8 to 32",
    ]
    # 180 to 140 tokens/s in two doublings
    assert "TPS p50 −22.2% (" in said[2]
    assert said[2].endswith("; for each doubling of the load TPS −11.8%.")


def test_main_findings_of_several_targets_are_least_and_most() -> None:
    others = [replace(each, target="b/y") for each in GENERAL_COMPUTE]
    third = [replace(each, target="c/z") for each in (level(1, 200, 220, 310), level(8, 201, 1, 9))]
    said = [
        each.short
        for each in load_shape_statements(load_shapes([*GROQ[:2], *others, *third]))
        if not each.detail
    ]
    assert said[:2] == [
        "c=1 to 8, TTFT p50: least b/y +16.7%, most a/x +26.1%; unclear for 1.",
        "c=1 to 8, TPS p50: least b/y −8.1%, most c/z −97.1%.",
    ]


def test_p95_that_grows_faster_than_p50_is_queueing() -> None:
    (found,) = load_shapes(GROQ)
    assert [step.queueing for step in found.steps] == ["yes", "yes"]
    said = full(load_shape_statements([found]))
    assert (
        "Requests to a/x queue from concurrency 8 on: TTFT p95 +183% (+172% to +194%), p50 +26.1%."
        in said
    )


def test_without_intervals_queueing_is_only_possible() -> None:
    found = load_shapes([level(1, 230, 290, 215, near=None), level(8, 290, 820, 180, near=None)])
    assert found[0].steps[0].queueing == "unsure"
    unsure = load_shape_statements(found)[1]
    assert unsure.long.startswith(
        "The run cannot tell yet whether requests to a/x queue at concurrency 8 (TTFT p95 +183%"
    )
    assert unsure.detail


@pytest.mark.parametrize(
    ("throughput", "e2e", "knee", "sweet"),
    [
        ({1: 100, 8: 700, 32: 1000, 128: 1100}, {1: 1.0, 8: 1.2, 32: 4.0, 128: 15.0}, 8, 8),
        ({1: 100, 8: 800, 32: 3200}, {1: 1.0, 8: 1.0, 32: 1.0}, None, None),  # not reached
    ],
)
def test_knee_and_sweet_spot(
    throughput: dict[int, float], e2e: dict[int, float], knee: float | None, sweet: int | None
) -> None:
    levels = [
        level(c, 100, 120, 50, output_tokens_per_s=speed, e2e=1000 * e2e[c])
        for c, speed in throughput.items()
    ]
    (found,) = load_shapes(levels)
    assert (found.knee, found.sweet_spot) == (knee, sweet)
    said = " ".join(full(load_shape_statements([found])))
    assert (
        "The sweet spot of a/x is concurrency 8" in said,
        "The knee of a/x is concurrency 8" in said,
    ) == (
        bool(sweet),
        bool(knee),
    )


def test_change_that_may_be_none_is_left_out() -> None:
    same = load_shapes([level(1, 200, 220, 310), level(8, 201, 230, 310)])
    assert load_shape_statements(same) == []


def test_one_load_has_no_shape() -> None:
    assert load_shapes([level(1, 1, 1, 1)]) == []
    assert load_shapes([row(concurrency=None, rate=rate, requests=9) for rate in (1.0, 5.0)]) == []
