"""What a run is said to show."""

import random

from tests.analysis.made import MS, asked, failure, renamed, request, row

from splitsecond.analysis.findings import Goodput
from splitsecond.analysis.run import summarise
from splitsecond.analysis.statements import statements
from splitsecond.timing.observation import Observation


def scattered(condition: str, target: str, ttft_ms: float, gap_ms: float, seed: int, n: int = 30) -> list[Observation]:
    """Requests one after another whose times scatter by a few percent."""
    chance, at, made = random.Random(seed), 1000.0, []
    for _ in range(n):
        one = request(at, ttft_ms=ttft_ms * chance.gauss(1, 0.03), gap_ms=gap_ms * chance.gauss(1, 0.03))
        made.append(one)
        at = one.end_ns / MS
    return renamed(made, condition, target)


def said_of(*targets: tuple[str, float, float]) -> list[str]:
    observations = [
        o for seed, (name, ttft_ms, gap_ms) in enumerate(targets) for o in scattered(name, name, ttft_ms, gap_ms, seed)
    ]
    conditions = [asked(condition=name, target=name) for name, _, _ in targets]
    return statements(summarise(conditions, observations, []), observations)


def test_who_is_first_on_what() -> None:
    said = said_of(("slow", 200, 20), ("fast", 100, 10), ("middle", 150, 12))
    assert len(said) == 3
    assert said[0].startswith("At concurrency 1, fast is first on TTFT: p50 101 ms, middle 148 (1.47 times as fast, ")
    assert said[0].endswith("p < 0.001).")
    assert said[1].startswith("At concurrency 1, fast is first on TPS: p50 100 tokens/s, middle 83.9 (1.19")
    assert said[2].startswith("At concurrency 1, fast gave the most tokens in all: ")


def test_what_cannot_be_told_apart() -> None:
    said = said_of(("a", 100, 10), ("b", 100, 10))
    assert "cannot be told apart on TTFT" in said[0]
    assert "cannot be told apart on TPS" in said[1]


def test_the_same_observations_give_the_same_sentences() -> None:
    assert said_of(("a", 100, 10), ("b", 104, 10)) == said_of(("a", 100, 10), ("b", 104, 10))


def test_one_target_is_first_on_nothing() -> None:
    assert said_of(("a", 100, 10)) == []


def test_an_open_loop_is_ranked_from_due() -> None:
    observations = []
    for name, late_ms in (("a", 1), ("b", 9)):
        due = [request(1000.0 + 300 * i, due_ns=round((1000 + 300 * i - late_ms) * MS)) for i in range(10)]
        observations += renamed(due, name, name)
    conditions = [asked(None, rate=3.0, condition=name, target=name) for name in ("a", "b")]
    said = statements(summarise(conditions, observations, []), observations)
    assert said[0].startswith("At 3 requests/s, a is first on TTFT from due: p50 101 ms, b 109")


def test_few_and_zero_values_bring_what_evidence_there_is() -> None:
    two = [asked(condition=name, target=name) for name in ("a", "b")]
    rows = [row(condition=a.condition, target=a.target) for a in two]
    one_each = renamed([request(ttft_ms=0, tokens=1)], "a", "a") + renamed([request(ttft_ms=5, tokens=1)], "b", "b")
    assert statements(rows, one_each) == [
        "At concurrency 1, a and b cannot be told apart on TTFT: p50 0 and 5 ms.",
    ]


def test_batching_is_told_at_the_highest_level() -> None:
    rows = [
        row(concurrency=8, batching_efficiency=6.0),
        row(concurrency=32, batching_efficiency=11.5),
        row(concurrency=1, batching_efficiency=1.0),
        row(target="b/x", concurrency=1, batching_efficiency=1.0),
        row(target="b/x", concurrency=32, batching_efficiency=14.0),
    ]
    assert statements(rows, []) == [
        "From concurrency 1 to 32, system tokens/s grow 14 times for b/x, 11.5 times for a/x."
    ]


def test_batching_is_not_told_against_an_invalid_row() -> None:
    rows = [row(batching_efficiency=1.0, invalid=["late."]), row(concurrency=8, batching_efficiency=6.0)]
    assert statements(rows, []) == ["Left out of these comparisons, as INVALID: a/x at concurrency 1."]


def test_the_built_in_engine_is_ranked_only_against_itself() -> None:
    assert len(said_of(("a", 200, 20), ("engine/small", 100, 10))) == 0
    said = said_of(("a", 200, 20), ("engine/small", 100, 10), ("b", 300, 30), ("engine/tiny", 50, 5))
    assert [sentence.split(":")[0] for sentence in said] == [
        "At concurrency 1, a is first on TTFT",
        "At concurrency 1, a is first on TPS",
        "At concurrency 1, a gave the most tokens in all",
        "At concurrency 1, engine/tiny is first on TTFT",
        "At concurrency 1, engine/tiny is first on TPS",
        "At concurrency 1, engine/tiny gave the most tokens in all",
    ]


def test_goodput_is_told_best_first() -> None:
    def judged(target: str, met: int) -> Goodput:
        return Goodput(limits={"ttft": 300.0, "tps": 50.0}, met=met, sent=50, fraction=met / 50, per_s=None)

    rows = [row(target=t, goodput=judged(t, met)) for t, met in (("a", 20), ("b", 50))]
    assert statements(rows, []) == ["At concurrency 1, requests with TTFT ≤ 300 ms, TPS ≥ 50: b 100 %, a 40 %."]


def test_errors_and_invalid_rows_are_told_and_take_no_part() -> None:
    observations = [*scattered("a", "a", 100, 10, 1), failure(9000.0, condition="a", target="a")]
    rows = summarise([asked(condition="a", target="a"), asked(condition="b", target="b")], observations, [])
    assert statements(rows, observations) == [
        "Requests failed: 1 of 31 to a at concurrency 1 (1 http_500).",
        "Left out of these comparisons, as INVALID: b at concurrency 1.",
    ]
