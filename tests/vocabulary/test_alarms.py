"""Alarms in virtual time: each rings at its moment, once, unless it was silenced before."""

import asyncio
import sys

from hypothesis import given
from hypothesis import strategies as st

from splitsecond import clock
from splitsecond.alarms import Alarm, Alarms
from splitsecond.testing.virtual_time import run_virtual

MS = clock.NS_PER_MS


class Bell(Alarm):
    """Notes when it rings."""

    def __init__(self) -> None:
        super().__init__()
        self.rang_ns: list[int] = []

    def ring(self) -> None:
        self.rang_ns.append(clock.now_ns())


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
                (rang,) = bell.rang_ns
                assert abs(rang - due) < MS / 100  # the loop counts in floating seconds
            elif silenced_ms < due_ms:
                assert bell.rang_ns == []

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
        assert len(bell.rang_ns) == 4

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
