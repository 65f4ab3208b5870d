"""How far apart rounds are, and what a report says about it."""

import pytest
from tests.analysis.made import renamed, request

from splitsecond.benchmark.rows.round_spread import (
    CLAIM_APART_S,
    RoundSpread,
    round_spread,
    spread_statement,
)
from splitsecond.core.observation import Observation


def rounds(name: str, *starts_s: float) -> list[Observation]:
    made = [
        request(1000 * start_s + 50 * i, round=number + 1)
        for number, start_s in enumerate(starts_s)
        for i in range(3)
    ]
    return renamed(made, name, name)


def test_the_distance_is_the_median_of_the_rounds() -> None:
    rows = [
        *rounds("a", 10, 190, 320),
        *rounds("b", 20, 160, 330),
        *rounds("c", 20, 180, 360, 520, 1300),
    ]
    found = round_spread([o for o in rows if o.round < 5])
    assert found is not None
    assert (found.apart_s, found.rounds) == (160.0, 3)
    assert found.longest_slow_s == pytest.approx(53.33, abs=0.01)
    assert found.period() == "these 8.5 min"


def test_the_order_of_rows_in_a_round_changes_no_distance() -> None:
    found = round_spread([*rounds("a", 0, 200, 300), *rounds("b", 50, 150, 350)])
    assert found is not None
    assert found.apart_s == 150


def test_run_that_ended_early_makes_claims_from_five_rounds_on() -> None:
    assert [spread(150, count).claims for count in (3, 4, 5, 6)] == [False, False, True, True]


def test_a_target_that_was_given_up_changes_no_claim() -> None:
    starts = [150 * number for number in range(6)]
    found = round_spread([*rounds("a", *starts), *rounds("b", *starts), *rounds("dead", 10)])
    assert found is not None
    assert found.claims


@pytest.mark.parametrize(("count", "most"), [(6, 5), (13, 5), (14, None)])
def test_few_rounds_far_apart_count_as_few_requests(count: int, most: int | None) -> None:
    assert spread(150, count).requests_of_round == most
    assert spread(10, count).requests_of_round is None, "which speaks of its own time only"


def test_requests_of_one_round_have_no_distance() -> None:
    found = round_spread(rounds("a", 10))
    assert found is not None
    assert found.apart_s is None
    assert not found.claims
    assert round_spread([]) is None


def test_rounds_begin_with_warm_ups_that_are_not_measured() -> None:
    warmups = [
        request(1000 * at, round=number, role="warmup") for number, at in ((1, 990), (2, 1140))
    ]
    found = round_spread([*warmups, *rounds("a", 1000, 1180)])
    assert found is not None
    assert found.period_s < 181
    assert found.apart_s == 150


def test_a_planned_round_may_begin_milliseconds_late() -> None:
    assert spread(CLAIM_APART_S - 0.1).claims


def spread(apart_s: float | None, count: int = 6, period_s: float = 42) -> RoundSpread:
    return RoundSpread(apart_s=apart_s, rounds=count, period_s=period_s)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            spread(7),
            "These 42 seconds only: rounds began 7 s apart, so slow times longer than 2.3 s are "
            "in no interval. For a "
            "claim about other minutes: --over 15m.",
        ),
        (
            spread(CLAIM_APART_S - 1, period_s=800),
            "These 13 minutes only: rounds began 149 s apart, so slow times longer than 50 s are "
            "in no interval. For "
            "a claim about other minutes: --over 15m.",
        ),
        (
            spread(None, 1),
            "These 42 seconds only: one round shows no slow times. For a claim about other "
            "minutes: several runs, or "
            "if it is no trace, --over 15m.",
        ),
        (
            spread(180),
            "Rounds began 180 s apart: slow times longer than 60 s are in no interval, and a "
            "state that holds 20% of "
            "the time is in no round of 26% of runs, so p95 has one bound at most.",
        ),
        (
            spread(180, 16),
            "Rounds began 180 s apart: slow times longer than 60 s are in no interval.",
        ),
    ],
)
def test_the_report_says_what_intervals_contain(made: RoundSpread, said: str) -> None:
    found = spread_statement(made)
    assert found.long == said
    assert all(len(line) <= 98 for line in found.lines(98))
