"""When rounds begin, in virtual time: `wait` moves the clock."""

import asyncio
from collections.abc import Iterator

import pytest

from splitsecond.benchmark.runs.watching import due_rounds, sleep_until
from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.testing.virtual_time import START_NS, run_virtual

HOUR_NS = 3600 * NS_PER_S


class Clock:
    """Time that passes where someone waits, or works."""

    def __init__(self) -> None:
        self.now_ns = 5 * NS_PER_S

    async def wait(self, due_ns: int) -> None:
        self.now_ns = max(self.now_ns, due_ns)


@pytest.fixture
def at() -> Iterator[Clock]:
    found = Clock()
    with clock.using(lambda: found.now_ns):
        yield found


@pytest.mark.parametrize(
    ("took_hours", "begins", "left_out"),
    [
        ([0, 0, 0], [0, 1, 2], [0, 0, 0]),
        ([0.5, 0.99, 0.1], [0, 1, 2], [0, 0, 0]),
        ([1, 1, 1], [0, 1, 2], [0, 0, 0]),
        ([1.2, 0.1, 0.1], [0, 2, 3], [0, 1, 0]),
        ([3.5, 2.1, 0.1], [0, 4, 7], [0, 3, 2]),
    ],
)
def test_rounds_start_on_schedule_and_skip_missed_times(
    at: Clock, took_hours: list[float], begins: list[int], left_out: list[int]
) -> None:
    start_ns = at.now_ns
    began, missed = [], []

    async def measure() -> None:
        hours = iter(took_hours)
        async for lost in due_rounds(HOUR_NS, 3, at.wait):
            began.append((at.now_ns - start_ns) / HOUR_NS)
            missed.append(lost)
            at.now_ns += round(next(hours) * HOUR_NS)

    asyncio.run(measure())
    assert (began, missed) == (begins, left_out)


def test_the_schedule_does_not_drift(at: Clock) -> None:
    start_ns, took_ns = at.now_ns, 0

    async def measure() -> None:
        nonlocal took_ns
        number = 0
        async for _ in due_rounds(HOUR_NS, 1000, at.wait):
            assert at.now_ns == start_ns + number * HOUR_NS
            took_ns = (took_ns + 7 * NS_PER_S) % HOUR_NS
            at.now_ns += took_ns
            number += 1
        assert number == 1000

    asyncio.run(measure())


def test_no_wait_after_the_last_round(at: Clock) -> None:
    start_ns = at.now_ns

    async def measure() -> list[int]:
        return [skipped async for skipped in due_rounds(HOUR_NS, 1, at.wait)]

    assert asyncio.run(measure()) == [0]
    assert at.now_ns == start_ns


def test_rounds_are_endless_without_a_number(at: Clock) -> None:
    async def measure() -> list[int]:
        found = due_rounds(HOUR_NS, None, at.wait)
        return [await anext(found) for _ in range(50)]

    assert asyncio.run(measure()) == [0] * 50


def test_sleeping_ends_when_it_is_due() -> None:
    async def sleeping() -> int:
        await sleep_until(START_NS + 30 * 24 * HOUR_NS)
        return clock.now_ns() - START_NS

    assert run_virtual(sleeping()) == 30 * 24 * HOUR_NS
