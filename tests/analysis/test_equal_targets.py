"""Sentences of reports about equal targets: a few runs of the table in docs."""

import pytest
from benchmarks.equal_targets import (
    OPTIONS,
    WORLDS,
    Case,
    concluded,
    found_in,
    interval,
    sentences,
    winners,
)

SLOW_MINUTES, DEFAULT = WORLDS[1], OPTIONS[0]


@pytest.mark.system
@pytest.mark.parametrize("repeats", [60])
def test_a_report_of_equal_targets_rarely_names_a_winner(repeats: int) -> None:
    named = sum(
        bool(winners(sentences(*concluded(DEFAULT, SLOW_MINUTES, seed)))) for seed in range(repeats)
    )
    assert named <= 1 + 0.08 * repeats


def test_cells_of_the_table_have_their_interval() -> None:
    assert interval(9, 200) == pytest.approx((0.0208, 0.0837), abs=1e-4)
    assert interval(0, 10) == pytest.approx((0, 0.3085), abs=1e-4)
    assert interval(10, 10) == pytest.approx((0.6915, 1), abs=1e-4)
    assert found_in(Case(DEFAULT, WORLDS[0], 0)).spread == "6, 150"


def test_a_default_run_says_what_its_intervals_contain() -> None:
    run, _ = concluded(DEFAULT, WORLDS[0], 0)
    assert run.spread is not None
    assert (run.spread.rounds, round(run.spread.apart_s or 0)) == (6, 150)
    assert run.statements[-1].startswith(
        "Rounds began 150 s apart: slow times longer than 50 s are in no interval"
    )


def test_a_quick_run_speaks_of_its_own_time_only() -> None:
    run, observations = concluded(OPTIONS[-1], SLOW_MINUTES, 0)
    headline, *found = sentences(run, observations)
    assert " in these " in headline
    assert run.conclusion[1].startswith("It holds for these ")
    assert " only " in run.conclusion[1]
    assert not any("p = " in each or "p < " in each or "is first" in each for each in found)


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ("No target is clearly the fastest at concurrency 1.", False),
        ("At concurrency 1, near/one is first on TTFT: p50 190 ms, near/two 200.", True),
        ("near/one is the fastest at every load; at concurrency 1 it is 1.2 times as fast.", True),
        ("voice: ★ yes near/one, yes near/two", True),
        (
            "For voice, no target is clearly the best of 2: near/one or near/two may be first.",
            False,
        ),
        ("No target is clearly first in cost-adjusted TPS: near/one 36, near/two 35.", False),
    ],
)
def test_sentences_that_name_a_winner_are_found(said: str, names: bool) -> None:
    assert bool(winners([said])) is names
