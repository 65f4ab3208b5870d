"""The headline of a run: the fastest target, by how much and under which loads, or why none is named."""

from collections.abc import Sequence

from tests.report.invented import PROVIDERS, invented_run

from splitsecond.benchmark.findings.findings import Run
from splitsecond.benchmark.report.headline import run_headline
from splitsecond.core.observation import Observation

GENERALCOMPUTE, GROQ = "generalcompute/llama-3.1-70b-instruct", "groq/llama-3.1-70b-versatile"


def made(*loads: int, requests: int = 80) -> tuple[Run, Sequence[Observation]]:
    return invented_run((GENERALCOMPUTE, GROQ), concurrencies=loads, requests=requests, in_rounds=True)


def test_first_target_under_all_loads_is_fastest_at_every_load() -> None:
    assert {GENERALCOMPUTE, GROQ} <= {*PROVIDERS}
    one = run_headline(*made(1)).sentence
    assert one.startswith(f"{GENERALCOMPUTE} is the fastest at concurrency 1: 1.")
    assert one.endswith(" times as fast in tokens per second as the next target.")
    both = run_headline(*made(1, 32)).sentence
    assert both.startswith(f"{GENERALCOMPUTE} is the fastest at every load; at concurrency 1 it is 1.")


def test_target_with_an_unclear_load_is_not_fastest_there() -> None:
    unclear = run_headline(*made(1, 8)).sentence
    assert unclear.startswith(f"{GENERALCOMPUTE} is the fastest at concurrency 1: 1.")
    run, observations = made(1, 32)
    for row in run.conditions:
        row.invalid = ["made so"] if row.concurrency == 32 and row.target == GROQ else []
    assert run_headline(run, observations).sentence.startswith(f"{GENERALCOMPUTE} is the fastest at concurrency 1: 1.")


def test_too_few_rounds_name_no_fastest_target() -> None:
    found = run_headline(*invented_run((GENERALCOMPUTE, GROQ), concurrencies=(1,)))
    assert found.sentence == "Too few requests or rounds to tell which target is the fastest at concurrency 1."
    assert [tile.note for tile in found.tiles[:2]] == [f"too few requests or rounds to compare with {GROQ}"] * 2


def test_a_single_target_is_described() -> None:
    found = run_headline(*invented_run((GROQ,), concurrencies=(1,))).sentence
    assert found.startswith(f"{GROQ} sends the first token after 2")
    assert found.endswith(" tokens per second (p50, at concurrency 1).")


def test_run_without_a_valid_row_is_invalid() -> None:
    run, observations = made(1)
    for row in run.conditions:
        row.invalid = ["made so"]
    found = run_headline(run, observations)
    assert found.sentence == "Do not rely on the figures of this run."
    assert found.badge is not None
    assert found.badge.text == "INVALID"
