"""Alarms ring at their moment, near or far, and not when they were silenced: in virtual time."""

import asyncio
import gc
import sys
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitsecond import clock
from splitsecond.alarms import Alarm, Alarms
from splitsecond.testing.virtual_time import run_virtual

MS = clock.NS_PER_MS


class Bell(Alarm):
    """Notes when it rang."""

    def __init__(self) -> None:
        super().__init__()
        self.rang: list[int] = []

    def ring(self) -> None:
        self.rang.append(clock.now_ns())


@pytest.mark.parametrize("after_ms", [0, 1, 100, 268, 269, 500, 1000, 60_000, 3_600_000])
def test_it_rings_once_at_its_moment(after_ms: int) -> None:
    async def main() -> None:
        bell, now_ns = Bell(), clock.now_ns()
        Alarms(asyncio.get_running_loop()).set(bell, now_ns + after_ms * MS, now_ns)
        await asyncio.sleep(2 * after_ms / 1000 + 1)
        assert [(rang_ns - now_ns) // MS for rang_ns in bell.rang] == [after_ms]

    run_virtual(main())


@pytest.mark.parametrize("after_ms", [1, 300, 60_000])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_a_silenced_one_does_not_ring_and_can_be_set_again(after_ms: int, share: float) -> None:
    async def main() -> None:
        bell, alarms = Bell(), Alarms(asyncio.get_running_loop())
        now_ns = clock.now_ns()
        alarms.set(bell, now_ns + after_ms * MS, now_ns)
        await asyncio.sleep(share * after_ms / 1000)
        bell.silence()
        bell.silence()
        await asyncio.sleep(2 * after_ms / 1000)
        assert bell.rang == []
        now_ns = clock.now_ns()
        alarms.set(bell, now_ns + after_ms * MS, now_ns)
        await asyncio.sleep(2 * after_ms / 1000)
        assert [(rang_ns - now_ns) // MS for rang_ns in bell.rang] == [after_ms]

    run_virtual(main())


def test_many_share_a_timer_and_each_rings_at_its_own_moment() -> None:
    async def main() -> None:
        alarms, now_ns = Alarms(asyncio.get_running_loop()), clock.now_ns()
        bells = [Bell() for _ in range(100)]
        for number, bell in enumerate(bells):
            alarms.set(bell, now_ns + (5000 + number) * MS, now_ns)
        for bell in bells[::2]:
            bell.silence()
        await asyncio.sleep(6)
        assert not any(bell.rang for bell in bells[::2])
        assert [(bell.rang[0] - now_ns) // MS for bell in bells[1::2]] == list(range(5001, 5100, 2))

    run_virtual(main())


def test_they_ring_in_order_in_whatever_order_they_were_set() -> None:
    async def main() -> None:
        alarms, now_ns = Alarms(asyncio.get_running_loop()), clock.now_ns()
        bells = {after_ms: Bell() for after_ms in range(0, 60_000, 150)}
        for after_ms in Random(1).sample(list(bells), len(bells)):
            alarms.set(bells[after_ms], now_ns + after_ms * MS, now_ns)
        await asyncio.sleep(61)
        assert {after_ms: [(ns - now_ns) // MS for ns in bell.rang] for after_ms, bell in bells.items()} == {
            after_ms: [after_ms] for after_ms in bells
        }

    run_virtual(main())


def test_what_is_far_away_takes_one_timer_for_all() -> None:
    async def main() -> None:
        alarms, now_ns = Alarms(asyncio.get_running_loop()), clock.now_ns()
        before = len(_timers())
        for second in reversed(range(1, 120)):
            alarms.set(Bell(), now_ns + second * clock.NS_PER_S, now_ns)
        assert len(_timers()) == before + 1

    run_virtual(main())


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 3000), st.none() | st.integers(0, 3000)), max_size=12))
def test_each_rings_at_its_moment_unless_it_was_silenced(plans: list[tuple[int, int, int | None]]) -> None:
    """Each is set after so many ms, for so many ms later, and silenced after so many."""

    async def play(alarms: Alarms, bell: Bell, plan: tuple[int, int, int | None]) -> int:
        after_ms, due_ms, silenced_ms = plan
        await asyncio.sleep(after_ms / 1000)
        now_ns = clock.now_ns()
        alarms.set(bell, now_ns + due_ms * MS, now_ns)
        if silenced_ms is not None:
            await asyncio.sleep(silenced_ms / 1000)
            bell.silence()
        return now_ns + due_ms * MS

    async def main() -> None:
        alarms = Alarms(asyncio.get_running_loop())
        bells = [Bell() for _ in plans]
        due_ns = await asyncio.gather(*map(play, [alarms] * len(plans), bells, plans))
        await asyncio.sleep(4)
        for bell, due, (_, due_ms, silenced_ms) in zip(bells, due_ns, plans, strict=True):
            if silenced_ms is None or silenced_ms > due_ms:
                (rang,) = bell.rang
                assert abs(rang - due) < MS / 100  # the loop counts in floating seconds
            elif silenced_ms < due_ms:
                assert bell.rang == []

    run_virtual(main())


def test_one_that_rang_or_was_silenced_may_be_set_again() -> None:
    async def main() -> None:
        alarms, bell = Alarms(asyncio.get_running_loop()), Bell()
        for due_ms in (10, 700, 10, 700):
            now_ns = clock.now_ns()
            alarms.set(bell, now_ns + due_ms * MS, now_ns)
            bell.silence()
            bell.silence()
            alarms.set(bell, now_ns + due_ms * MS, now_ns)
            await asyncio.sleep(1)
        assert len(bell.rang) == 4

    run_virtual(main())


def test_those_that_were_silenced_take_no_room() -> None:
    async def main() -> None:
        alarms = Alarms(asyncio.get_running_loop())
        bells = [Bell() for _ in range(1000)]
        now_ns = clock.now_ns()
        for bell in bells:
            alarms.set(bell, now_ns + 60_000 * MS, now_ns)
        (listed,) = alarms._lists.values()
        for bell in bells:
            bell.silence()
        assert sys.getsizeof(listed) == sys.getsizeof({})

    run_virtual(main())


def _timers() -> list[asyncio.TimerHandle]:
    """Those that wait in any loop."""
    return [each for each in gc.get_objects() if isinstance(each, asyncio.TimerHandle) and not each.cancelled()]
