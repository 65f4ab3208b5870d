"""The capacity search against servers of known capacity: it ends, it is right, and it stops at
failures."""

import itertools
import math
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.benchmark.statistics.search import (
    PRECISION,
    RATE_PRECISION,
    Edges,
    Search,
    Verdict,
    edges,
)

Server = Callable[[float, bool], Verdict]
"""What comes of a load; whether it is on the way up."""


def tried(search: Search, server: Server, most: int = 300) -> list[float]:
    """The loads that a search tries, in order. Fails where it does not end."""
    loads: list[float] = []
    while (load := search.next()) is not None:
        loads.append(load)
        assert len(loads) <= most, loads
        search.record(load, server(load, not search.confirms(load)))
    return loads


def up_to(capacity: float, unsure_to: float = 0) -> Server:
    """Return a server that meets its limits up to `capacity`; beyond, up to `unsure_to`, it is
    undecided."""

    def server(load: float, first_try: bool) -> Verdict:
        if load <= capacity:
            return "promising" if first_try else "holds"
        return "undecided" if load <= unsure_to else "fails"

    return server


@each_case(
    ("capacity", "loads", "found"),
    [
        (6, [1, 2, 4, 8, 6, 7, 6], Edges(6, 7, [])),
        (0, [1], Edges(None, 1, [])),
        (1, [1, 2, 1], Edges(1, 2, [])),
        (8, [1, 2, 4, 8, 16, 11, 9, 8], Edges(8, 9, [])),
        (64, [1, 2, 4, 8, 16, 32, 64, 64], Edges(64, None, [])),
        (41, [1, 2, 4, 8, 16, 32, 64, 45, 38, 41, 41], Edges(41, 45, [])),
    ],
)
def test_search_doubles_the_load_and_then_bisects(
    capacity: int, loads: list[float], found: Edges
) -> None:
    search = Search(1, 64, whole=True)
    assert tried(search, up_to(capacity)) == loads
    assert edges(search.verdicts) == found


def test_undecided_loads_are_bisected_from_below() -> None:
    search = Search(1, 256, whole=True)
    assert tried(search, up_to(20, unsure_to=24)) == [1, 2, 4, 8, 16, 32, 23, 19, 21, 20, 20]
    assert edges(search.verdicts) == Edges(20, 32, [21, 23])


def test_first_load_undecided_gives_no_capacity() -> None:
    search = Search(4, 64, whole=True)
    assert tried(search, up_to(2, unsure_to=5)) == [4, 8]
    assert edges(search.verdicts) == Edges(None, 8, [4])


def test_search_ends_when_the_server_breaks() -> None:
    search = Search(1, 64, whole=True)
    assert tried(search, lambda load, first_try: "breaks" if load > 5 else "promising") == [
        1,
        2,
        4,
        8,
    ]
    assert edges(search.verdicts) == Edges(None, 8, [1, 2, 4])


def test_invalid_load_is_tried_twice_and_then_bisected() -> None:
    search = Search(1, 64, whole=True)
    assert tried(search, lambda load, first_try: "invalid" if load > 5 else "holds") == [
        1,
        2,
        4,
        8,
        8,
        6,
        6,
        5,
    ]
    assert edges(search.verdicts) == Edges(5, 6, [])


def test_transient_invalid_step_costs_one_more_step() -> None:
    disturbed = iter([True, *[False] * 20])

    def server(load: float, first_try: bool) -> Verdict:
        return "invalid" if load == 4 and next(disturbed) else up_to(9)(load, first_try)

    search = Search(1, 64, whole=True)
    assert tried(search, server) == [1, 2, 4, 4, 8, 16, 11, 9, 10, 9]
    assert edges(search.verdicts) == Edges(9, 10, [])


def test_search_ends_although_every_load_stays_promising() -> None:
    search = Search(1, 8, whole=True)
    assert tried(search, lambda load, first_try: "promising") == [
        1,
        2,
        4,
        8,
        8,
        6,
        7,
        7,
        6,
        5,
        5,
        4,
        3,
        3,
        2,
        1,
    ]
    assert edges(search.verdicts).holds is None


def test_promising_load_that_fails_later_is_not_the_capacity() -> None:
    """The few requests at 4 and 8 meet the limits by chance; with more requests they do not."""
    search = Search(1, 64, whole=True)
    loads = tried(
        search,
        lambda load, first_try: (
            "promising" if first_try and load <= 8 else up_to(3)(load, first_try)
        ),
    )
    assert loads == [1, 2, 4, 8, 16, 11, 9, 8, 6, 7, 7, 6, 5, 5, 4, 3, 3]
    assert edges(search.verdicts) == Edges(3, 4, [])


@given(
    first=st.integers(1, 40),
    last=st.integers(1, 2000),
    capacity=st.floats(0, 3000),
    unsure=st.floats(1, 4),
    whole=st.booleans(),
    precision=st.floats(0.02, 0.5),
)
def test_search_ends_within_precision_for_any_capacity(
    first: int, last: int, capacity: float, unsure: float, whole: bool, precision: float
) -> None:
    last = max(first, last)
    search = Search(first, last, whole=whole, precision=precision)
    loads = tried(search, up_to(capacity, unsure * capacity))
    found = edges(search.verdicts)

    # halvings of one doubling
    narrow = math.ceil(math.log2(math.log(2) / math.log1p(precision))) + 1
    assert len(set(loads)) <= math.ceil(math.log2(last / first)) + 1 + 2 * max(narrow, 1) + 1
    assert all(first <= load <= last for load in loads)
    heaviest = 0.0
    for load in loads:  # from light to heavy, never more than twice the heaviest load before
        assert load <= 2 * heaviest or load == first
        heaviest = max(heaviest, load)

    assert (found.holds is None) == (capacity < first)
    if found.holds is not None:
        assert found.holds <= capacity
        beyond = found.undecided[0] if found.undecided else found.ceiling
        assert (beyond is None) == (found.holds == last)
        assert beyond is None or beyond > capacity
        assert beyond is None or _narrow(found.holds, beyond, precision, whole)
    if found.ceiling is not None:
        assert found.ceiling > unsure * capacity


def _narrow(low: float, high: float, precision: float, whole: bool) -> bool:
    return high <= low * (1 + precision) * (1 + 1e-9) or (whole and high - low == 1)


@example(["promising", "invalid"])
@given(
    st.lists(
        st.sampled_from(["holds", "promising", "undecided", "fails", "invalid", "breaks"]),
        min_size=1,
    )
)
def test_search_ends_for_any_verdicts(said: list[Verdict]) -> None:
    words = itertools.cycle(said)
    tried(Search(1, 256, whole=True), lambda load, first_try: next(words))
    # At most 130 loads, a step of about 5% apart, and each can be tried four times.
    tried(Search(0.5, 100, whole=False), lambda load, first_try: next(words), most=520)


def test_precision_is_10_percent_and_5_percent_for_rates() -> None:
    assert (PRECISION, RATE_PRECISION) == (0.1, 0.05)


@pytest.mark.parametrize("capacity", [1, 3, 13, 100, 256])
def test_loads_left_is_an_upper_bound_of_remaining_steps(capacity: int) -> None:
    """With a server that decides each load at once. One more load confirms the heaviest."""
    search = Search(1, 256, whole=True)
    left = []
    while (load := search.next()) is not None:
        left.append(search.loads_left())
        search.record(load, "holds" if load <= capacity else "fails")
    assert search.loads_left() <= 1
    assert all(bound + 1 >= len(left) - at for at, bound in enumerate(left))
    assert max(left) == 8 + 3  # doublings from 1 to 256, then a gap of 2 closed to 10%
