"""Control charts of rounds: what begins and ends a drift, and in simulations how often they are
right."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from benchmarks.watching import NOISES, Noise, false_drifts, rounds_until_found
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case
from tests.power import repeated

from splitsecond.benchmark.statistics.control_chart import (
    NIGHT_HOURS,
    SETTLES,
    ControlChart,
    JudgedRound,
)
from splitsecond.benchmark.statistics.error_share import RARE, ErrorCount, ErrorShareModel
from splitsecond.benchmark.statistics.expectation import MIN
from splitsecond.benchmark.statistics.times_model import HOURS_KNOWN_AFTER, TimesModel

NORMAL = np.random.default_rng(0).standard_normal(2000)
STEADY = list(100 * np.exp(0.03 * NORMAL[:72]))
"""Three days of hourly rounds around 100 whose scatter is 3%."""
SLOW, FAST, USUAL = 150.0, 60.0, 100.0


def judged(
    values: Sequence[float], hours: Sequence[float] | None = None
) -> tuple[ControlChart[float], list[JudgedRound]]:
    chart: ControlChart[float] = ControlChart(TimesModel())
    at = range(len(values)) if hours is None else hours
    return chart, [chart.add(hour, value) for hour, value in zip(at, values, strict=True)]


MONDAY = 4 * 24
"""Hours from the start of 1970, a Thursday, to its first Monday. A watch from Monday on has four
days until its first weekend, whose small changes do not count."""


def from_monday(values: Sequence[float]) -> ControlChart[float]:
    return judged(values, range(MONDAY, MONDAY + len(values)))[0]


def states(values: Sequence[float]) -> list[str]:
    """The states of the rounds after the steady ones."""
    return [each.state for each in judged([*STEADY, *values])[1][len(STEADY) :]]


def test_usual_level_needs_rounds_and_hours_need_two_days() -> None:
    _, found = judged([100.0] * 80)
    assert [each.state for each in found] == ["learning"] * MIN + ["usual"] * (80 - MIN)
    assert found[MIN - 1].usual is None
    early = [each.usual.early for each in found[MIN:] if each.usual]
    assert HOURS_KNOWN_AFTER <= MIN + early.index(False) <= HOURS_KNOWN_AFTER + 3
    assert not any(early[early.index(False) :])


@each_case(
    ("values", "expected"),
    [
        ([USUAL, 101], ["usual", "usual"]),
        ([SLOW], ["unusual"]),
        ([FAST], ["unusual"]),
        ([SLOW, USUAL, USUAL, USUAL, SLOW], ["unusual", "usual", "usual", "usual", "unusual"]),
        ([SLOW, FAST], ["unusual", "unusual"]),
        ([SLOW, SLOW, SLOW], ["unusual", "unusual", "drifted"]),
        ([FAST, FAST, FAST], ["unusual", "unusual", "drifted"]),
        ([*[SLOW] * 3, USUAL, SLOW], ["unusual", "unusual", "drifted", "usual", "drifted"]),
        (
            [*[SLOW] * 3, *[USUAL] * 3, SLOW],
            ["unusual", "unusual", "drifted", *["usual"] * 3, "unusual"],
        ),
    ],
)
def test_one_round_outside_is_unusual_and_three_are_a_drift(
    values: list[float], expected: list[str]
) -> None:
    assert states(values) == expected


def test_a_drift_that_returns_ends() -> None:
    chart, found = judged([*STEADY, SLOW, 140.0, 160.0, SLOW, USUAL, USUAL, USUAL, USUAL])
    (drift,) = chart.drifts
    assert (drift.side, drift.since, drift.until, drift.settled) == (1, 72, 76, False)
    assert drift.before == pytest.approx(100, rel=0.01)
    assert drift.after == pytest.approx(SLOW, rel=0.02)
    assert [each.began for each in found].index(True) == 74
    assert [each.ended for each in found].index(True) == 78
    assert chart.drift is None


def test_a_drift_that_lasts_becomes_the_usual_level() -> None:
    days = 0.15 * np.sin(2 * np.pi * np.arange(200) / 24)
    values = 100 * np.exp(days + 0.02 * NORMAL[:200])
    values[100:] *= 1.5
    chart, found = judged(list(values))
    (drift,) = chart.drifts
    assert (drift.since, drift.until, drift.settled) == (100, 102 + SETTLES + 1, True)
    assert {each.state for each in found[102 + SETTLES + 1 :]} <= {"usual", "unusual"}
    assert sum(each.state == "unusual" for each in found[102 + SETTLES + 1 :]) <= 2
    usual = found[-1].usual
    assert usual
    assert usual.level == pytest.approx(150, rel=0.03)


def test_rounds_of_a_drift_are_not_usual() -> None:
    _, found = judged([*STEADY, *[SLOW] * (SETTLES - 1)])
    assert len({each.usual.level for each in found[75:] if each.usual}) == 1


def test_small_changes_are_neither_unusual_nor_a_drift() -> None:
    steady = [100.0] * 72
    assert [each.state for each in judged([*steady, 104.9, 100, 95.5])[1][72:]] == ["usual"] * 3
    assert judged([*steady, 105.1])[1][-1].state == "unusual"
    assert not from_monday([*steady, *[101.9] * 60]).drifts
    assert from_monday([*steady, *[104.5] * 24]).drifts


def test_drift_in_the_first_days_needs_a_change_above_half() -> None:
    steady = STEADY[:20]
    assert not judged([*steady, *[145.0] * 12])[0].drifts
    assert [drift.since for drift in judged([*steady, *[200.0] * 12])[0].drifts] == [20]


@pytest.mark.parametrize(
    ("every_h", "before", "until_found"),
    [
        (10 / 3600, 12, MIN),
        (10 / 3600, 600, MIN),
        (4 / 60, 60, MIN),
        (0.5, 20, 2 * NIGHT_HOURS + 1),
        (1, 20, 19),
    ],
)
def test_level_that_no_night_explains_is_a_drift_in_first_days(
    every_h: float, before: int, until_found: int
) -> None:
    values = 40 * np.exp(0.03 * NORMAL[: before + 60])
    values[before:] *= 1.4
    chart, found = judged(list(values), list(every_h * np.arange(len(values))))
    assert [drift.since for drift in chart.drifts] == [before]
    assert [each.began for each in found].index(True) == before + until_found - 1


@pytest.mark.parametrize("every_h", [2 / 60, 10 / 60, 1])
def test_a_night_of_the_first_days_is_no_drift(every_h: float) -> None:
    hours = np.arange(0, 46, every_h)
    night = 0.18 * np.sin(2 * np.pi * hours / 24)
    values = 100 * np.exp(night + 0.03 * np.random.default_rng(2).standard_normal(len(hours)))
    assert not judged(list(values), list(hours))[0].drifts


def test_the_band_follows_the_hours_of_the_day() -> None:
    hours = np.arange(24 * 7)
    nights = np.where(hours % 24 < 12, 0.8, 1.2)
    _, found = judged(list(100 * nights * np.exp(0.03 * NORMAL[: len(hours)])))
    night, day = found[-20].usual, found[-8].usual
    assert night
    assert day
    assert night.high < 95 < 105 < day.low
    assert found[-1].usual
    assert day.level == pytest.approx(found[-1].usual.level, rel=0.02)


def test_outliers_change_the_band_little() -> None:
    values = list(200 * np.exp(0.05 * NORMAL[:200]))
    spoilt = values[:]
    spoilt[::12] = [5000.0] * len(spoilt[::12])
    clean, dirty = judged(values)[1][-1].usual, judged(spoilt)[1][-1].usual
    assert clean
    assert dirty
    assert dirty.high < clean.high * 1.2


# Performance in simulations. `python -m benchmarks.watching` has more watches and prints the table
# of docs/reference/coverage.md.


@pytest.mark.sampled(13)
@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.name)
def test_false_drifts_of_a_thousand_rounds(noise: Noise) -> None:
    found, late = false_drifts(noise, watches=7, rounds=1000)
    assert found <= 2 + noise.beyond
    assert not noise.weekend or late <= 1 + noise.beyond


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("scatter", "most"), [(0.04, 6), (0.06, 11), (0.08, 17)])
@pytest.mark.parametrize("before", [60, 200])
def test_rounds_until_a_shift_by_a_tenth_is_found(scatter: float, most: int, before: int) -> None:
    assert (
        np.median(
            rounds_until_found(Noise("", scatter), shift=0.1, before=before, watches=40, weekday=0)
        )
        <= most
    )


@pytest.mark.system
@pytest.mark.parametrize("scatter", [0.0, 0.02, 0.04])
def test_rounds_until_a_creep_is_found(scatter: float) -> None:
    """The watches begin on a Sunday, so no weekend is the first one meanwhile."""
    rounds = rounds_until_found(Noise("", scatter), creep=0.001, before=72, watches=30, weekday=6)
    assert np.median(rounds) <= 60


@repeated(15, 30)
def test_a_change_by_half_is_found_in_the_third_round(repeats: int) -> None:
    rounds = rounds_until_found(Noise("", 0.06), shift=0.5, before=72, watches=repeats, weekday=0)
    assert np.quantile(rounds, 0.9) <= 4


@pytest.mark.system
@pytest.mark.parametrize("scatter", [0.06, 0.08])
def test_shift_by_a_tenth_of_correlated_rounds_is_found(scatter: float) -> None:
    noise = Noise("", scatter, alike=0.8, day=0.2)
    rounds = np.array(rounds_until_found(noise, shift=0.1, before=168, watches=30, most=240))
    assert np.median(rounds) <= 40
    assert np.mean(rounds > 240) <= 0.05


@pytest.mark.parametrize(("change", "found_at"), [(-0.15, 4 * 24), (0.3, 2 * 24 + 12)])
def test_small_change_of_the_first_weekend_counts_from_monday_on(
    change: float, found_at: int
) -> None:
    """The watch begins on a Thursday at midnight; the change, on Saturday at noon."""
    hours = np.arange(9 * 24)
    values = 100 * np.exp(0.03 * NORMAL[: len(hours)])
    weekend = values.copy()
    weekend[60:96] *= 1 + change
    found = [drift.since for drift in judged(list(weekend), list(hours))[0].drifts]
    assert found == ([60, 96] if change > 0.2 else [])
    values[60:] *= 1 + change
    _, rounds = judged(list(values), list(hours))
    assert found_at <= [each.began for each in rounds].index(True) <= found_at + 12


def test_day_and_night_of_double_length_are_one_drift_at_most() -> None:
    """A night of the first day looks like a drift; that of the second day is known."""
    hours = np.arange(48)
    for seed in range(6):
        random = np.random.default_rng(seed)
        nights = 0.35 * np.sign(np.sin(2 * np.pi * (hours / 24 + random.random())))
        values = 100 * np.exp(nights + 0.06 * random.standard_normal(48))
        assert len(judged(list(values), list(hours))[0].drifts) <= 1


def test_weekends_become_usual_and_drifts_on_them_are_found() -> None:
    """The watch begins on a Thursday. The fourth weekend is slow."""
    noise = Noise("", 0.03, weekend=-0.2)
    values = 100 * np.exp(noise.drawn(26 * 24, np.random.default_rng(5)))
    slow = slice((2 + 21) * 24, (4 + 21) * 24)
    chart, found = judged(list(values))
    assert not any(drift.since > 9 * 24 for drift in chart.drifts)
    saturday, friday = found[slow.start + 12].usual, found[slow.start - 12].usual
    assert saturday
    assert friday
    assert saturday.high < 95 < friday.low * 1.1
    assert saturday.level == pytest.approx(friday.level, rel=0.02)
    values[slow] *= 1.25
    chart, _ = judged(list(values))
    assert [drift.since for drift in chart.drifts[-2:]] == [slow.start, slow.stop]


# Errors.


def failures(
    *counts: int, requests: int = 20
) -> tuple[ControlChart[ErrorCount], list[JudgedRound]]:
    chart: ControlChart[ErrorCount] = ControlChart(ErrorShareModel())
    return chart, [chart.add(at, ErrorCount(failed, requests)) for at, failed in enumerate(counts)]


def test_three_rounds_with_unusual_errors_are_a_drift() -> None:
    chart, found = failures(*[0] * 10, 1, 0, 4, *[0] * 12, 10, 12, 11)
    assert [each.state for each in found[10:13]] == ["usual", "usual", "unusual"]
    assert [each.state for each in found[25:]] == ["unusual", "unusual", "drifted"]
    (drift,) = chart.drifts
    assert drift.since == 25
    assert drift.before == pytest.approx(5 / 500)
    assert drift.after == pytest.approx(11 / 20)


def test_fewer_errors_are_not_unusual() -> None:
    chart, found = failures(*[4] * 20, *[0] * 10)
    assert {each.side for each in found} == {0}
    assert not chart.drifts


def test_error_in_every_round_after_none_is_a_drift() -> None:
    chart, _ = failures(*[0] * 60, *[1] * 14)
    assert [drift.since for drift in chart.drifts] == [60]


@pytest.mark.system
@pytest.mark.parametrize(("varying", "most"), [(0.0, 1.0), (0.5, 3.0)])
def test_false_drifts_of_errors(varying: float, most: float) -> None:
    """`varying`: standard deviation of the logarithm of the share, with correlation 0.8 from round
    to round."""
    random = np.random.default_rng(3)
    drifts = 0
    for _ in range(8):
        share = 0.05 * np.exp(varying * Noise("", alike=0.8, scatter=1).drawn(1000, random))
        drifts += len(failures(*random.binomial(20, np.minimum(share, 1)).tolist())[0].drifts)
    assert drifts / 8 <= most


@given(failed=st.integers(0, 30), past=st.integers(30, 400), requests=st.integers(1, 60))
def test_error_limit_equals_that_of_an_urn_model(failed: int, past: int, requests: int) -> None:
    """Drawn ball by ball: after k failures in i draws the next fails with (a + k) / (a + b + i)."""
    a, b = failed + 0.5, past - failed + 0.5
    chances = np.zeros(requests + 1)
    chances[0] = 1.0
    for i in range(requests):
        fails = (a + np.arange(requests + 1)) / (a + b + i)
        chances = chances * (1 - fails) + np.concatenate(([0.0], (chances * fails)[:-1]))
    more = 1 - np.cumsum(chances)
    model = ErrorShareModel()
    for _ in range(MIN - 1):
        model.learn(0.0, ErrorCount(0, 0))
    model.learn(0.0, ErrorCount(failed, past))
    usual = model.expect(0.0, ErrorCount(0, requests))
    assert usual
    most = round(usual.high * requests)
    assert more[most] < RARE + 1e-9
    assert most == 0 or more[most - 1] >= RARE - 1e-9


# Any rounds.


@given(
    st.lists(
        st.tuples(
            st.floats(1e-6, 1e9) | st.sampled_from([1.0, 1.1]),
            st.sampled_from([0, 0.1, 1, 3, 24, 500]),
        ),
        max_size=80,
    )
)
def test_any_times_at_any_interval_can_be_judged(rounds: list[tuple[float, float]]) -> None:
    values, hours = (
        [value for value, _ in rounds],
        np.cumsum([0.0, *(pause for _, pause in rounds)])[1:],
    )
    chart, found = judged(values, list(hours))
    assert len(found) == len(values)
    for each, value in zip(found, values, strict=True):
        assert (each.state == "unusual") <= (each.side != 0)
        if each.usual is not None:
            usual = each.usual
            assert all(
                map(
                    math.isfinite,
                    (usual.level, usual.low, usual.high, usual.surprise, usual.scatter),
                )
            )
            assert (usual.low <= value <= usual.high) == (each.side == 0)
    for drift in chart.drifts:
        assert 0 <= drift.since < (drift.until or len(values)) <= len(values)
        assert math.isfinite(drift.after)


@pytest.mark.parametrize("seed", range(5))
def test_missing_rounds_neither_make_nor_hide_a_drift(seed: int) -> None:
    random = np.random.default_rng(seed)
    hours = np.sort(random.choice(400, 240, replace=False))
    values = 100 * np.exp(
        0.2 * np.sin(2 * np.pi * hours / 24) + 0.04 * random.standard_normal(len(hours))
    )
    assert not judged(list(values), list(hours))[0].drifts
    values[200:] *= 1.3
    (drift,) = judged(list(values), list(hours))[0].drifts
    assert 198 <= drift.since <= 202
