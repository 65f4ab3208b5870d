"""The worst-case checks themselves: each must fail for a reader that breaks its rule."""

import math
import time
from collections.abc import Callable
from random import Random

import pytest
from tests.cases import each_case
from tests.worst_case import (
    KINDS,
    ORDERS,
    check_bounded,
    check_cheap,
    check_linear,
    in_pieces,
    numbered,
    repeated,
)

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault


def test_a_linear_reader_passes() -> None:
    check_linear(lambda text: text.count(b"a"), repeated(b"ab"))
    check_bounded(lambda text: text * 3, repeated(b"ab"))


def test_a_quadratic_reader_fails() -> None:
    def scan(text: bytes) -> None:
        for end in range(0, len(text), 300):
            text[:end].upper()

    with pytest.raises(AssertionError, match="times as long"):
        check_linear(scan, repeated(b"a"), size=1 << 18)


def test_a_reader_that_sorts_passes() -> None:
    check_linear(
        lambda text: sorted(text[:-1].decode().split(",")),
        numbered(lambda index: b"%d," % index, "random"),
    )


def check(cost: Callable[[float], float], monkeypatch: pytest.MonkeyPatch, *, noise: float) -> None:
    """Check a reader that takes `cost` of its part of the size in seconds, on a machine that slows
    each of its readings down by a random factor up to `noise`."""
    chance, size = Random(0), 8_000
    seconds = 0.0

    def feed(text: bytes) -> None:
        nonlocal seconds
        seconds += cost(len(text) / size) * chance.uniform(1, noise)

    monkeypatch.setattr(time, "process_time_ns", lambda: round(seconds * clock.NS_PER_S))
    check_linear(feed, repeated(b"a"), size=size)


@pytest.mark.parametrize(
    "cost",
    [
        lambda part: part,
        lambda part: part * math.log(1e5 * part),
        lambda part: part + 0.5,
        lambda part: part**1.25,
    ],
    ids=["linear", "n log n", "fixed cost", "caches that are too small"],
)
def test_linear_cost_passes_on_a_busy_machine(
    cost: Callable[[float], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(cost, monkeypatch, noise=3)


@pytest.mark.parametrize(
    ("cost", "noise"),
    [(lambda part: part**2, 3), (lambda part: part**1.5, 1), (lambda part: part + 3 * part**2, 1)],
    ids=["quadratic", "power of 1.5", "linear and quadratic"],
)
def test_more_than_linear_cost_fails(
    cost: Callable[[float], float], noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AssertionError, match="times as long"):
        check(cost, monkeypatch, noise=noise)


def test_work_is_compared_with_other_work() -> None:
    text = b"a" * (1 << 16)
    check_cheap(lambda: text.upper(), lambda: [text.upper() for _ in range(20)], times=1)
    with pytest.raises(AssertionError, match="more than 2 times"):
        check_cheap(lambda: [text.upper() for _ in range(20)], lambda: text.upper(), times=2)


def test_only_faults_may_be_raised() -> None:
    def refuse(text: bytes) -> None:
        raise CallerFault("too long")

    def crash(text: bytes) -> None:
        raise RecursionError

    check_linear(refuse, repeated(b"a"))
    with pytest.raises(AssertionError, match="RecursionError"):
        check_linear(crash, repeated(b"a"))
    check_linear(crash, repeated(b"a"), allowed=(RecursionError,))


def test_memory_out_of_proportion_fails() -> None:
    with pytest.raises(AssertionError, match="bytes of memory"):
        check_bounded(lambda text: bytes(200 * len(text)), repeated(b"a"))


@each_case("kind", KINDS)
def test_every_kind_of_text_has_about_the_requested_size(kind: str) -> None:
    for size in (1_000, 100_000):
        assert 0.5 * size < len(KINDS[kind](size)) < 1.5 * size + 200


@each_case("order", ORDERS)
def test_indexes_are_distinct_in_every_order(order: str) -> None:
    text = numbered(lambda index: b"%d\n" % index, order)(10_000)
    assert len(set(text.split())) == text.count(b"\n") > 100


def test_pieces_make_the_text() -> None:
    pieces = list(in_pieces(b"abcdefg", 3))
    assert pieces == [b"abc", b"def", b"g"]
