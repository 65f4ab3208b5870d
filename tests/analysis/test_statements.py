"""The sentences about a run."""

import random
from typing import Any

import msgspec
from tests.analysis.made import MS, asked, failure, in_both_forms, renamed, request, row
from tests.golden import Golden

from splitsecond.benchmark.findings.statements import statements
from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.row_fields import Goodput
from splitsecond.core.observation import Observation
from splitsecond.core.wording import Statement, full


def scattered(
    condition: str,
    target: str,
    ttft_ms: float,
    gap_ms: float,
    seed: int,
    n: int = 30,
    rounds: int = 6,
    scatter: float = 0.03,
    pause_s: float = 170,
    **changes: Any,
) -> list[Observation]:
    """Requests one after another, in rounds with a pause after each, whose times scatter by a few
    percent."""
    chance, at, made = random.Random(seed), 1000.0, []
    for number in range(n):
        one = request(
            at,
            ttft_ms=ttft_ms * chance.gauss(1, scatter),
            gap_ms=gap_ms * chance.gauss(1, scatter),
            round=number * rounds // n + 1 if rounds else 0,
            **changes,
        )
        made.append(one)
        at = one.end_ns / MS + (
            1000 * pause_s if rounds and (number + 1) * rounds % n < rounds else 0
        )
    return renamed(made, condition, target)


def said_of(*targets: tuple[str, float, float], **changes: Any) -> list[Statement]:
    observations = [
        o
        for seed, (name, ttft_ms, gap_ms) in enumerate(targets)
        for o in scattered(name, name, ttft_ms, gap_ms, seed, **changes)
    ]
    conditions = [asked(condition=name, target=name) for name, _, _ in targets]
    return statements(condition_rows(conditions, observations, []), observations)


def test_comparisons_in_sentences(golden: Golden) -> None:
    cases = {
        "first": said_of(("slow", 200, 20), ("fast", 100, 10), ("middle", 150, 12)),
        "alike": said_of(("a", 100, 10), ("b", 100, 10)),
        "alike, scattered": said_of(("a", 100, 10), ("b", 100, 10), scatter=0.3),
        "close rounds": said_of(
            ("slow", 200, 20), ("fast", 100, 10), ("middle", 150, 12), pause_s=3
        ),
        "close rounds, alike": said_of(("a", 100, 10), ("b", 100, 10), pause_s=3),
        "without rounds": said_of(("a", 100, 10), ("b", 150, 15), rounds=0),
        "few requests": said_of(("a", 100, 10), ("b", 150, 15), n=4, rounds=0),
    }
    golden.check("".join(f"{case}:\n{in_both_forms(said)}" for case, said in cases.items()))


def test_a_target_that_loses_its_slowest_requests_is_not_first() -> None:
    """Dropping the slowest 40% would make it 1.4 times as fast."""
    whole, other = (
        scattered(name, name, 100, 10, seed, n=320, rounds=16, scatter=0.3)
        for seed, name in enumerate("ab")
    )
    slowest = sorted(other, key=lambda o: -(o.ttft_ns or 0))[:128]
    lost = [
        failure(
            (o.sent_ns or 0) / MS,
            took_ms=(o.end_ns - (o.sent_ns or 0)) / MS,
            condition="b",
            target="b",
            round=o.round,
            kind="timeout",
        )
        if o in slowest
        else o
        for o in other
    ]
    conditions = [asked(condition=name, target=name) for name in "ab"]
    said = [
        full(statements(condition_rows(conditions, [*whole, *each], []), [*whole, *each]))
        for each in (other, lost)
    ]
    assert all("no clear difference in TTFT" in lines[0] for lines in said)
    dropped = [
        *whole,
        *(msgspec.structs.replace(o, role="warmup") if o in slowest else o for o in other),
    ]
    assert (
        "b is first on TTFT"
        in full(statements(condition_rows(conditions, dropped, []), dropped))[0]
    )


def test_differently_counted_tokens_are_not_ranked() -> None:
    observations = [
        *scattered("a", "a", 100, 10, 1),
        *scattered("b", "b", 100, 20, 2),
        *scattered("c", "c", 100, 5, 3, token_source="events"),
    ]
    conditions = [asked(condition=name, target=name) for name in "abc"]
    said = full(statements(condition_rows(conditions, observations, []), observations))
    assert said[1].startswith("At concurrency 1, a is first on TPS: p50 100 tokens/s, b 50")
    assert said[-1] == (
        "At concurrency 1, tokens per second are not compared between targets whose tokens are "
        "counted differently: "
        "a and b by usage and c by events."
    )


def test_close_rounds_name_no_target_first() -> None:
    said = said_of(("a", 100, 10), ("b", 150, 15), pause_s=3)
    words = " ".join(line for each in said for line in (each.long, each.short))
    assert "a was ahead on TTFT in these 24 s: p50 100 ms, b 151" in words
    assert not any(claim in words for claim in ("first", "best", "p <", "p ="))
    assert "a is first on TTFT" in full(said_of(("a", 100, 10), ("b", 150, 15), pause_s=170))[0]


def test_the_same_observations_give_the_same_sentences() -> None:
    assert said_of(("a", 100, 10), ("b", 104, 10)) == said_of(("a", 100, 10), ("b", 104, 10))


def test_single_target_gets_no_ranking() -> None:
    assert said_of(("a", 100, 10)) == []


def test_an_open_loop_is_ranked_from_due() -> None:
    observations = []
    for name, late_ms in (("a", 0.5), ("b", 2)):
        starts = [1000.0 + 300 * i + 180_000 * (i // 10) for i in range(50)]
        due = [
            request(start, due_ns=round((start - late_ms) * MS), round=i // 10 + 1)
            for i, start in enumerate(starts)
        ]
        observations += renamed(due, name, name)
    conditions = [asked(None, rate=3.0, condition=name, target=name) for name in ("a", "b")]
    said = full(statements(condition_rows(conditions, observations, []), observations))
    assert said[0].startswith("At 3 requests/s, a is first on TTFT from due: p50 100 ms, b 102")


def test_batching_is_stated_at_the_highest_concurrency() -> None:
    rows = [
        row(concurrency=8, batching_efficiency=6.0),
        row(concurrency=32, batching_efficiency=11.5),
        row(concurrency=1, batching_efficiency=1.0),
        row(target="b/x", concurrency=1, batching_efficiency=1.0),
        row(target="b/x", concurrency=32, batching_efficiency=14.0),
    ]
    assert full(statements(rows, [])) == [
        "From concurrency 1 to 32, system tokens/s grow 14 times for b/x, 11.5 times for a/x."
    ]


def test_batching_is_not_stated_against_an_invalid_row() -> None:
    rows = [
        row(batching_efficiency=1.0, invalid=["late."]),
        row(concurrency=8, batching_efficiency=6.0),
    ]
    assert full(statements(rows, [])) == ["Not compared, because INVALID: a/x at concurrency 1."]


def test_the_built_in_engine_is_ranked_only_against_itself() -> None:
    assert len(said_of(("a", 200, 20), ("engine/small", 100, 10))) == 0
    said = said_of(
        ("a", 200, 20), ("engine/small", 100, 10), ("b", 300, 30), ("engine/tiny", 50, 5)
    )
    assert [sentence.split(":")[0] for sentence in full(said)] == [
        "At concurrency 1, a is first on TTFT",
        "At concurrency 1, a is first on TPS",
        "At concurrency 1, a is first on system tokens/s",
        "At concurrency 1, engine/tiny is first on TTFT",
        "At concurrency 1, engine/tiny is first on TPS",
        "At concurrency 1, engine/tiny is first on system tokens/s",
    ]


def test_goodput_is_listed_best_first() -> None:
    def judged(target: str, met: int) -> Goodput:
        return Goodput(
            limits={"ttft": 300.0, "tps": 50.0},
            met=met,
            sent=50,
            fraction=met / 50,
            per_s=None,
            ci95=(0.1, 1.0),
        )

    rows = [row(target=t, goodput=judged(t, met)) for t, met in (("a", 20), ("b", 50))]
    assert full(statements(rows, [])) == [
        "At concurrency 1, requests with TTFT ≤ 300 ms, TPS ≥ 50: b 100% (10% to 100%), a 40% "
        "(10% to 100%)."
    ]


def test_errors_and_invalid_rows_are_stated_but_not_compared() -> None:
    observations = scattered("a", "a", 100, 10, 1)
    observations.append(failure(observations[29].end_ns / MS, condition="a", target="a", round=6))
    rows = condition_rows(
        [asked(condition="a", target="a"), asked(condition="b", target="b")], observations, []
    )
    assert full(statements(rows, observations)) == [
        "Requests failed: 1 of 31 to a at concurrency 1 (1 http_500).",
        "Not compared, because INVALID: b at concurrency 1.",
    ]
