"""How numbers and rows read."""

import pytest
from tests.analysis.made import row as a_row

from splitsecond.benchmark.rows.usable_rows import by_place, row
from splitsecond.core.wording import (
    chance,
    change,
    counted,
    counted_as,
    level,
    number,
    percent,
    ratio,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.012345, "0.0123"), (4.5678, "4.57"), (99.96, "100"), (1234.5, "1,234")],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_shares_changes_ratios_and_chances() -> None:
    assert (percent(0.25), percent(0.0012)) == ("25%", "0.12%")
    assert (change(0.25), change(-0.031), change(0.0)) == ("+25%", "−3.1%", "0%")
    assert (ratio(1.0), ratio(1.044), ratio(35.31)) == ("1.00", "1.04", "35.3")
    assert (chance(0.0005), chance(0.0331), chance(1.0)) == ("p < 0.001", "p = 0.033", "p = 1")


def test_a_count_has_its_noun_in_the_right_number() -> None:
    assert [counted_as(n, "request") for n in (0, 1, 2, 1234)] == [
        "0 requests",
        "1 request",
        "2 requests",
        "1,234 requests",
    ]
    assert [counted_as(n, "reply is", "replies are") for n in (1, 2)] == [
        "1 reply is",
        "2 replies are",
    ]


def test_rows_and_loads_have_names() -> None:
    assert row(a_row()) == "a/x at concurrency 1"
    assert level(a_row(concurrency=None, rate=2.5)) == "at 2.5 requests/s"
    assert (
        level(a_row(concurrency=None, rate=2.5, cache_reuse=True))
        == "at 2.5 requests/s with cache reuse"
    )
    assert level(a_row(concurrency=None)) == "on its trace"
    assert row(a_row(cache_reuse=True)) == "a/x at concurrency 1 with cache reuse"


def test_counts_come_most_first() -> None:
    assert (
        counted({"refused": 1, "http_500": 1, "http_429": 3}) == "3 http_429, 1 http_500, 1 refused"
    )


def test_two_rows_of_one_place_stay_two() -> None:
    rows = [
        a_row(condition="short"),
        a_row(condition="long"),
        a_row(target="b"),
        a_row(cache_reuse=True),
    ]
    assert [
        (place[0], place[3], place[-1], found.condition) for place, found in by_place(rows).items()
    ] == [
        ("a/x", False, 0, "short"),
        ("a/x", False, 1, "long"),
        ("b", False, 0, "c"),
        ("a/x", True, 0, "c"),
    ]
