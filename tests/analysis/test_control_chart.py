"""Control charts of rounds: by hand what begins and ends a drift, by simulation what the rules are worth."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitsecond.analysis.control_chart import (
    LEAST,
    RARE,
    SETTLES,
    WINDOW,
    Chart,
    Errors,
    ErrorShares,
    Judged,
    Times,
)

Floats = npt.NDArray[np.float64]

STEADY = [100.0, 104.0, 97.0, 101.0, 95.0, 103.0, 99.0, 98.0, 102.0, 96.0]
"""Ten rounds around 99.5, whose scatter is some 4 %."""
SLOW, FAST, USUAL = 150.0, 60.0, 100.0


def judged(values: Sequence[float]) -> tuple[Chart[float], list[Judged]]:
    chart: Chart[float] = Chart(Times())
    return chart, [chart.add(value) for value in values]


def states(values: Sequence[float]) -> list[str]:
    """What the rounds after the ten steady ones are."""
    return [each.state for each in judged([*STEADY, *values])[1][len(STEADY) :]]


def test_what_is_usual_is_unknown_at_first() -> None:
    _, found = judged([100.0] * (LEAST + 1))
    assert [each.state for each in found] == ["learning"] * LEAST + ["usual"]
    assert found[LEAST - 1].band is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([USUAL, 101], ["usual", "usual"]),
        ([SLOW], ["unusual"]),
        ([FAST], ["unusual"]),
        ([SLOW, USUAL, SLOW], ["unusual", "usual", "unusual"]),
        ([SLOW, FAST], ["unusual", "unusual"]),
        ([SLOW, SLOW, SLOW], ["unusual", "drifted", "drifted"]),
        ([FAST, FAST], ["unusual", "drifted"]),
        ([SLOW, SLOW, USUAL, SLOW], ["unusual", "drifted", "usual", "drifted"]),
        ([SLOW, SLOW, USUAL, USUAL, USUAL, SLOW], ["unusual", "drifted", "usual", "usual", "usual", "unusual"]),
    ],
)
def test_one_outside_is_unusual_and_two_on_one_side_a_drift(values: list[float], expected: list[str]) -> None:
    assert states(values) == expected


def test_a_drift_knows_since_when_and_by_how_much() -> None:
    chart, found = judged([*STEADY, SLOW, 140.0, 160.0, USUAL, USUAL, USUAL, USUAL])
    (drift,) = chart.drifts
    assert (drift.side, drift.since, drift.until, drift.settled) == (1, 10, 13, False)
    assert drift.before == pytest.approx(99.5, rel=0.001)
    assert drift.after == SLOW
    assert [each.began for each in found].index(True) == 11
    assert chart.drift is None


def test_rounds_that_lean_to_one_side_long_enough_are_a_drift() -> None:
    chart, found = judged([*STEADY, *[108.0] * 8])
    assert [each.side for each in found] == [0] * 18
    assert [drift.since for drift in chart.drifts] == [10]
    assert not judged([*STEADY, *[108.0] * 7, 99.0, *[108.0] * 7])[0].drifts


def test_a_drift_that_lasts_is_what_is_usual() -> None:
    chart, found = judged([*STEADY, *[SLOW, SLOW * 1.02] * SETTLES])
    (drift,) = chart.drifts
    assert (drift.since, drift.until, drift.settled) == (10, 10 + SETTLES, True)
    assert {each.state for each in found[10 + SETTLES :]} == {"usual"}
    back = chart.add(USUAL)
    assert (back.state, back.side) == ("unusual", -1)


def test_a_drift_is_not_taken_into_what_is_usual() -> None:
    _, found = judged([*STEADY, *[SLOW] * (SETTLES - 1)])
    assert {each.band.level for each in found[10:] if each.band} == {found[10].band.level if found[10].band else None}


def test_old_rounds_are_forgotten() -> None:
    _, found = judged([100.0 * 1.002**turn for turn in range(3 * WINDOW)])
    assert found[-1].band is not None
    assert found[-1].band.level == pytest.approx(100.0 * 1.002 ** (2.5 * WINDOW), rel=0.05)


def test_nothing_under_five_percent_is_unusual() -> None:
    assert states([]) == []
    assert [each.state for each in judged([*[100.0] * 20, 104.9, 104.9, 95.5])[1][20:]] == ["usual"] * 3
    assert judged([*[100.0] * 20, 105.1])[1][-1].state == "unusual"


def test_the_scatter_is_that_of_normal_values() -> None:
    values = 200 * np.exp(0.05 * np.random.default_rng(1).standard_normal(WINDOW))
    band = Times().band(list(values), USUAL)
    assert math.log(band.near[1] / band.level) == pytest.approx(0.05, rel=0.2)
    assert math.log(band.far[1] / band.level) == pytest.approx(0.15, rel=0.2)
    assert band.level**2 == pytest.approx(band.far[0] * band.far[1])


def test_outliers_hardly_move_the_limits() -> None:
    values = list(200 * np.exp(0.05 * np.random.default_rng(1).standard_normal(WINDOW)))
    spoilt = values[:]
    spoilt[::6] = [5000.0] * len(spoilt[::6])
    clean, dirty = Times().band(values, USUAL), Times().band(spoilt, USUAL)
    assert dirty.far[1] < clean.far[1] * 1.2


# What it is worth.


def independent(scatter: float) -> Callable[[int, np.random.Generator], Floats]:
    return lambda n, random: scatter * random.standard_normal(n)


def with_tails(n: int, random: np.random.Generator) -> Floats:
    return 0.06 * random.standard_t(4, n)


def alike(n: int, random: np.random.Generator) -> Floats:
    """Each round resembles the one before: correlation 0.5, scatter 8 %."""
    steps = random.standard_normal(n)
    found = np.zeros(n)
    for turn in range(1, n):
        found[turn] = 0.5 * found[turn - 1] + math.sqrt(0.75) * steps[turn]
    return 0.08 * found


def hourly(n: int, random: np.random.Generator) -> Floats:
    """Days slower than nights, hours that resemble each other, and now and then a very slow one."""
    waves = 0.08 * np.sin(2 * np.pi * (np.arange(n) / 24 + random.random()))
    slow = (random.random(n) < 0.02) * random.uniform(0.3, 1.1, n)
    return waves + alike(n, random) / 2 + 0.05 * random.standard_normal(n) + slow


@pytest.mark.parametrize(
    ("noise", "drifts", "unusual"),
    [
        (independent(0.04), 0.5, 5),
        (independent(0.10), 0.5, 5),
        (with_tails, 1.0, 30),
        (alike, 2.5, 8),
        (hourly, 3.5, 30),
    ],
    ids=["4%", "10%", "tails", "alike", "hourly"],
)
def test_false_alarms_of_a_thousand_rounds(
    noise: Callable[[int, np.random.Generator], Floats], drifts: float, unusual: float
) -> None:
    watches, length = 12, 400
    found = [judged(list(200 * np.exp(noise(length, np.random.default_rng([watch, 1]))))) for watch in range(watches)]
    thousands = watches * length / 1000
    assert sum(len(chart.drifts) for chart, _ in found) / thousands <= drifts
    assert sum(each.side != 0 for _, rounds in found for each in rounds) / thousands <= unusual


@pytest.mark.parametrize(
    ("scatter", "slower", "half", "nine_in_ten"),
    [(0.04, 1.2, 3, 6), (0.06, 1.2, 7, 12), (0.06, 1.5, 2, 3), (0.10, 1.5, 2, 6), (0.06, 1 / 1.2, 7, 12)],
)
def test_rounds_until_a_change_is_found(scatter: float, slower: float, half: int, nine_in_ten: int) -> None:
    before, after = 60, 20
    needed = []
    for watch in range(40):
        values = 200 * np.exp(scatter * np.random.default_rng([watch, 2]).standard_normal(before + after))
        values[before:] *= slower
        rounds = judged(list(values))[1]
        needed.append(next((n for n, each in enumerate(rounds[before:], 1) if each.began), after + 1))
    assert np.quantile(needed, 0.5) <= half
    assert np.quantile(needed, 0.9) <= nine_in_ten


# Errors.


def failures(*counts: int, requests: int = 20) -> tuple[Chart[Errors], list[Judged]]:
    chart: Chart[Errors] = Chart(ErrorShares())
    return chart, [chart.add(Errors(failed, requests)) for failed in counts]


def test_more_errors_than_chance_gives_are_unusual_and_two_such_rounds_a_drift() -> None:
    chart, found = failures(*[0] * 10, 1, 0, 4, 0, 5, 6)
    assert [each.state for each in found[10:]] == ["usual", "usual", "unusual", "usual", "unusual", "drifted"]
    (drift,) = chart.drifts
    assert (drift.after, drift.since) == (11 / 40, 14)
    assert drift.before == pytest.approx(5 / 280)


def test_fewer_errors_are_no_news() -> None:
    chart, found = failures(*[4] * 20, *[0] * 10)
    assert {each.side for each in found} == {0}
    assert not chart.drifts


def test_an_error_in_every_round_is_a_drift_where_there_were_none() -> None:
    chart, _ = failures(*[0] * 12, *[1] * 8)
    assert [drift.since for drift in chart.drifts] == [12]


def test_false_alarms_of_errors_that_come_by_chance() -> None:
    random = np.random.default_rng(3)
    found = [failures(*random.binomial(20, 0.02, 400).tolist()) for _ in range(10)]
    assert sum(len(chart.drifts) for chart, _ in found) <= 1
    assert sum(each.side for _, rounds in found for each in rounds) / 4 <= 5


@given(failed=st.integers(0, 30), past=st.integers(30, 400), requests=st.integers(1, 60))
def test_the_limit_of_errors_is_that_of_an_urn(failed: int, past: int, requests: int) -> None:
    """Drawn ball by ball: after k failures in i draws the next fails with (a + k) / (a + b + i)."""
    a, b = failed + 0.5, past - failed + 0.5
    chances = np.zeros(requests + 1)
    chances[0] = 1.0
    for i in range(requests):
        fails = (a + np.arange(requests + 1)) / (a + b + i)
        chances = chances * (1 - fails) + np.concatenate(([0.0], (chances * fails)[:-1]))
    more = 1 - np.cumsum(chances)
    most = round(ErrorShares().band([Errors(failed, past)], Errors(0, requests)).far[1] * requests)
    assert more[most] < RARE + 1e-9
    assert most == 0 or more[most - 1] >= RARE - 1e-9


@given(st.lists(st.floats(1e-6, 1e9), max_size=40))
def test_any_times_can_be_judged(values: list[float]) -> None:
    chart, found = judged(values)
    assert len(found) == len(values)
    for each, value in zip(found, values, strict=True):
        assert (each.side != 0) <= (each.state in ("unusual", "drifted"))
        if each.band is not None and each.side == 0:
            assert each.band.far[0] <= value <= each.band.far[1]
    for drift in chart.drifts:
        assert 0 <= drift.since < (drift.until or len(values)) <= len(values)
