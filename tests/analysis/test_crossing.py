"""Where two targets cross, with an interval that contains the truth."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from tests.analysis.made import MS, request
from tests.power import repeated

from splitsecond.benchmark.findings.crossing import crossing_statements, crossings
from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.records import AskedCondition, Crossing
from splitsecond.core.observation import Observation
from splitsecond.core.wording import full

TARGETS = {"first/m": (100.0, 20.0), "middle/m": (500.0, 10.0), "last/m": (1500.0, 5.0)}
"""TTFT and time per token in ms: lines cross at 40 and at 200 tokens."""


def sent(
    name: str, *, spread: float, requests: int, seed: int, rounds: int = 0
) -> list[Observation]:
    """Requests to a target of `TARGETS`; with `rounds`, each round has its own delay."""
    random = np.random.default_rng([seed, len(name)])
    ttft, gap = TARGETS[name]
    shared = random.normal(0, 0.05, rounds) if rounds else [0.0]
    made: list[Observation] = []
    begin_ms = 1000.0
    for number in range(requests):
        at = number * rounds // requests
        slow = 1 + random.normal(0, spread) + shared[at]
        made.append(
            msgspec.structs.replace(
                request(begin_ms, ttft_ms=ttft * slow, gap_ms=gap * (1 + random.normal(0, spread))),
                target=name,
                condition=name,
                round=at + 1 if rounds else 0,
            )
        )
        begin_ms = made[-1].end_ns / MS
    return made


def found_in(
    names: Sequence[str],
    *,
    spread: float = 0.02,
    requests: int = 40,
    seed: int = 1,
    rounds: int = 0,
) -> list[Crossing]:
    observations = [
        o
        for name in names
        for o in sent(name, spread=spread, requests=requests, seed=seed, rounds=rounds)
    ]
    asked = [AskedCondition(condition=name, target=name, concurrency=1) for name in names]
    return crossings(condition_rows(asked, observations, []), observations)


def test_fastest_target_depends_on_the_output_length() -> None:
    found = found_in(list(TARGETS))
    assert [(each.first, each.then) for each in found] == [
        ("first/m", "middle/m"),
        ("middle/m", "last/m"),
    ]
    assert [each.tokens for each in found] == pytest.approx([40, 200], rel=0.1)
    sentence = full(crossing_statements(found))[0]
    assert sentence.startswith("At concurrency 1, a response of up to ")
    assert (
        " output tokens ends sooner at first/m, a longer one at middle/m (95% interval " in sentence
    )


def test_two_targets_have_one_crossing() -> None:
    found = found_in(["first/m", "last/m"])
    assert [round(each.tokens) for each in found] == pytest.approx([93], abs=4)


@repeated(2, 40)
@pytest.mark.parametrize("rounds", [0, 8])
def test_the_interval_contains_the_truth(rounds: int, repeats: int) -> None:
    hits = 0
    for seed in range(repeats):
        (found,) = found_in(["first/m", "middle/m"], seed=seed, rounds=rounds)
        assert found.ci95 is not None
        hits += found.ci95[0] <= 40 <= found.ci95[1]
    assert hits >= 0.85 * repeats


def test_a_small_difference_is_not_sure() -> None:
    TARGETS["near/m"] = (100.4, 19.95)
    try:
        found = found_in(["first/m", "near/m"], spread=0.2)
    finally:
        del TARGETS["near/m"]
    assert all(each.ci95 is None for each in found)
    assert full(crossing_statements(found)) == []


def test_target_better_at_ttft_and_tps_has_no_crossing() -> None:
    TARGETS["best/m"] = (50.0, 4.0)
    try:
        assert found_in(["first/m", "best/m"]) == []
    finally:
        del TARGETS["best/m"]


def test_too_few_requests() -> None:
    (found,) = found_in(["first/m", "last/m"], requests=3)
    assert found.ci95 is None


def test_targets_with_different_token_sources_do_not_cross() -> None:
    made = [o for name in TARGETS for o in sent(name, spread=0.02, requests=200, seed=1)]
    made = [
        msgspec.structs.replace(o, token_source="events") if o.target == "middle/m" else o
        for o in made
    ]
    conditions = [AskedCondition(condition=name, target=name, concurrency=1) for name in TARGETS]
    (found,) = crossings(condition_rows(conditions, made, []), made)
    assert (found.first, found.then) == ("first/m", "last/m")
