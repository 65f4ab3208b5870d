"""The headline of a run: the fastest target, by how much and under which loads, or why none is
named."""

import re
from collections.abc import Sequence

from tests.report.invented import PROVIDERS, invented_run, moved

from splitsecond.benchmark.findings.conclusion import conclusion
from splitsecond.benchmark.report.headline import run_headline
from splitsecond.benchmark.rows.records import Run
from splitsecond.benchmark.rows.round_spread import round_spread
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.observation import Observation
from splitsecond.core.pages.html import Headline

GENERALCOMPUTE, GROQ = "generalcompute/llama-3.1-70b-instruct", "groq/llama-3.1-70b-versatile"


def headline(run: Run, observations: Sequence[Observation]) -> Headline:
    """Return the headline after the run was concluded again."""
    run.spread = round_spread(observations)
    run.conclusion = conclusion(run, observations)
    return run_headline(run, observations)


def made(*loads: int, requests: int = 80) -> tuple[Run, Sequence[Observation]]:
    return invented_run(
        (GENERALCOMPUTE, GROQ), concurrencies=loads, requests=requests, in_rounds=True
    )


def test_first_target_under_all_loads_is_fastest_at_every_load() -> None:
    assert {GENERALCOMPUTE, GROQ} <= {*PROVIDERS}
    one = headline(*made(1)).sentence
    assert one.startswith(f"{GENERALCOMPUTE} is the fastest at concurrency 1: 1.")
    assert one.endswith(" times as fast in tokens per second as the next target.")
    both = headline(*made(1, 32)).sentence
    assert both.startswith(
        f"{GENERALCOMPUTE} is the fastest at every load; at concurrency 1 it is 1."
    )


def test_target_with_an_unclear_load_is_not_fastest_there() -> None:
    unclear = headline(*made(1, 8)).sentence
    assert unclear.startswith(f"{GENERALCOMPUTE} is the fastest at concurrency 1: 1.")
    run, observations = made(1, 32)
    for row in run.conditions:
        row.invalid = ["made so"] if row.concurrency == 32 and row.target == GROQ else []
    assert headline(run, observations).sentence.startswith(
        f"{GENERALCOMPUTE} is the fastest at concurrency 1: 1."
    )


def test_too_few_rounds_name_no_fastest_target() -> None:
    found = headline(*invented_run((GENERALCOMPUTE, GROQ), concurrencies=(1,)))
    assert (
        found.sentence
        == "Too few requests or rounds to tell which target is the fastest at concurrency 1."
    )
    assert found.further[0].endswith("other minutes need --over 15m.")
    assert [tile.note for tile in found.tiles[:2]] == [
        f"too few requests or rounds to compare with {GROQ}"
    ] * 2


def test_close_rounds_have_a_leader_of_their_own_minutes() -> None:
    run, observations = made(1, 32)
    close = [moved(o, -170 * NS_PER_S * o.round) for o in observations]
    found = headline(run, close)
    assert re.fullmatch(
        rf"{GENERALCOMPUTE} was ahead at every load in these [\d.]+ min; at concurrency 1 it was "
        rf"1\.\d\d times as fast "
        r"to the first token and 1\.\d\d times as fast in tokens per second as the next target\.",
        found.sentence,
    )
    assert re.match(
        r"It holds for these [\d.]+ min only \(80 requests per row in 5 rounds\)", found.further[0]
    )
    assert "fastest" not in found.sentence
    assert "first on" not in found.sentence
    assert all(" in these " in tile.note for tile in found.tiles if tile.note)


def test_a_single_target_is_described() -> None:
    found = headline(*invented_run((GROQ,), concurrencies=(1,), in_rounds=True)).sentence
    assert found.startswith(f"{GROQ} sends the first token after 2")
    assert found.endswith(" tokens per second (p50, at concurrency 1).")


def test_run_without_a_valid_row_is_invalid() -> None:
    run, observations = made(1)
    for row in run.conditions:
        row.invalid = ["made so"]
    found = headline(run, observations)
    assert found.sentence == "Do not rely on the figures of this run."
    assert found.badge is not None
    assert found.badge.text == "INVALID"
