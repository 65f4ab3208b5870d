"""The share of valid answers, and rows whose answers are worse than at a lighter load."""

import pytest
from msgspec.structs import replace
from tests.analysis.made import asked, closed_loop

from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.core.observation import Observation


def answers(condition: str, concurrency: int, valid: int) -> list[Observation]:
    """Return the answers of a row. Of each ten, `valid` are valid."""
    made = closed_loop(concurrency, 40)
    return [_checked(o, condition, number % 10 < valid) for number, o in enumerate(made)]


def _checked(o: Observation, condition: str, valid: bool) -> Observation:
    return replace(o, condition=condition, valid=valid)


def rows(light: int, heavy: int) -> list[ConditionFindings]:
    conditions = [asked(1, condition="c1"), asked(4, condition="c4")]
    return condition_rows(conditions, answers("c1", 1, light) + answers("c4", 4, heavy), [])


def test_share_of_valid_answers_has_an_interval() -> None:
    row = rows(9, 9)[0]
    assert row.checked == 40
    assert row.valid_share == pytest.approx(0.9)
    low, high = row.valid_share_ci95
    assert low is not None
    assert high is not None
    assert low < 0.9 < high


def test_row_with_surely_worse_answers_is_invalid() -> None:
    light, heavy = rows(10, 5)
    assert not any("answers are worse" in reason for reason in light.invalid)
    assert any("50% are valid, 100%" in reason for reason in heavy.invalid)


def test_slightly_fewer_valid_answers_may_be_chance() -> None:
    assert not any("answers" in reason for row in rows(10, 9) for reason in row.invalid)


def test_answers_that_were_not_checked_have_no_share() -> None:
    (row,) = condition_rows([asked()], closed_loop(1, 10), [])
    assert (row.checked, row.valid_share) == (0, None)
