"""The headline of a run: the fastest target, by how much and under which loads, or why none is named."""

import re
from collections.abc import Sequence

import msgspec
from tests.report.invented import PROVIDERS, invented_run, moved

from splitsecond.benchmark.findings.findings import Run
from splitsecond.benchmark.report.headline import run_headline
from splitsecond.core.clock import NS_PER_S
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
    assert found.sentence.endswith(
        " only: too few requests or rounds to compare the targets at concurrency 1. For a claim about other minutes: "
        "several runs, or if it is no trace, --over 15m."
    )
    assert [tile.note for tile in found.tiles[:2]] == [f"too few requests or rounds to compare with {GROQ}"] * 2


def test_close_rounds_have_a_leader_of_their_own_minutes() -> None:
    run, observations = made(1, 32)
    close = [moved(o, -170 * NS_PER_S * o.round) for o in observations]
    found = run_headline(run, close)
    assert re.fullmatch(
        rf"These [\d.]+ minutes only: at concurrency 1, {GENERALCOMPUTE} was ahead, 1\.\d\d times as fast to the first "
        r"token and 1\.\d\d times as fast in tokens per second as the next target\. For a claim about other minutes: "
        r"--over 15m\.",
        found.sentence,
    )
    assert "fastest" not in found.sentence
    assert "first on" not in found.sentence
    assert all(" in these " in tile.note for tile in found.tiles if tile.note)
    (alone,) = {o.target for o in close} - {GROQ}
    rows = [row for row in run.conditions if row.target == alone]
    assert " only: generalcompute" in run_headline(msgspec.structs.replace(run, conditions=rows), close).sentence


def test_a_single_target_is_described() -> None:
    found = run_headline(*invented_run((GROQ,), concurrencies=(1,), in_rounds=True)).sentence
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
