"""The timer wheel fires each entry at its time, near or far, and no cancelled one: in virtual
time."""

import asyncio
import gc
import sys
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec import field
from tests.cases import each_case

from splitsecond.core import clock
from splitsecond.core.timers import TimerEntry, TimerWheel
from splitsecond.testing.virtual_time import run_virtual

MS = clock.NS_PER_MS


class Entry(TimerEntry, eq=False):
    """Records when it fired."""

    fired: list[int] = field(default_factory=list)

    def timer_fired(self) -> None:
        self.fired.append(clock.now_ns())


@each_case("after_ms", [0, 1, 100, 268, 269, 500, 1000, 60_000, 3_600_000])
def test_an_entry_fires_once_at_its_time(after_ms: int) -> None:
    async def main() -> None:
        entry, now_ns = Entry(), clock.now_ns()
        TimerWheel(asyncio.get_running_loop()).set(entry, now_ns + after_ms * MS, now_ns)
        await asyncio.sleep(2 * after_ms / 1000 + 1)
        assert [(fired_ns - now_ns) // MS for fired_ns in entry.fired] == [after_ms]

    run_virtual(main())


@each_case("after_ms", [1, 300, 60_000])
@each_case("share", [0.0, 0.5, 0.999])
def test_a_cancelled_entry_does_not_fire_and_can_be_set_again(after_ms: int, share: float) -> None:
    async def main() -> None:
        entry, wheel = Entry(), TimerWheel(asyncio.get_running_loop())
        now_ns = clock.now_ns()
        wheel.set(entry, now_ns + after_ms * MS, now_ns)
        await asyncio.sleep(share * after_ms / 1000)
        entry.cancel_timer()
        entry.cancel_timer()
        await asyncio.sleep(2 * after_ms / 1000)
        assert entry.fired == []
        now_ns = clock.now_ns()
        wheel.set(entry, now_ns + after_ms * MS, now_ns)
        await asyncio.sleep(2 * after_ms / 1000)
        assert [(fired_ns - now_ns) // MS for fired_ns in entry.fired] == [after_ms]

    run_virtual(main())


def test_entries_that_share_a_timer_fire_at_their_own_times() -> None:
    async def main() -> None:
        wheel, now_ns = TimerWheel(asyncio.get_running_loop()), clock.now_ns()
        entries = [Entry() for _ in range(100)]
        for number, entry in enumerate(entries):
            wheel.set(entry, now_ns + (5000 + number) * MS, now_ns)
        for entry in entries[::2]:
            entry.cancel_timer()
        await asyncio.sleep(6)
        assert not any(entry.fired for entry in entries[::2])
        assert [(entry.fired[0] - now_ns) // MS for entry in entries[1::2]] == list(
            range(5001, 5100, 2)
        )

    run_virtual(main())


def test_entries_fire_in_order_of_time() -> None:
    async def main() -> None:
        wheel, now_ns = TimerWheel(asyncio.get_running_loop()), clock.now_ns()
        entries = {after_ms: Entry() for after_ms in range(0, 60_000, 150)}
        for after_ms in Random(1).sample(list(entries), len(entries)):
            wheel.set(entries[after_ms], now_ns + after_ms * MS, now_ns)
        await asyncio.sleep(61)
        assert {
            after_ms: [(ns - now_ns) // MS for ns in entry.fired]
            for after_ms, entry in entries.items()
        } == {after_ms: [after_ms] for after_ms in entries}

    run_virtual(main())


def test_distant_entries_share_one_timer() -> None:
    async def main() -> None:
        wheel, now_ns = TimerWheel(asyncio.get_running_loop()), clock.now_ns()
        before = len(_timers())
        for second in reversed(range(1, 120)):
            wheel.set(Entry(), now_ns + second * clock.NS_PER_S, now_ns)
        assert len(_timers()) == before + 1

    run_virtual(main())


@given(
    st.lists(
        st.tuples(st.integers(0, 3000), st.integers(1, 3000), st.none() | st.integers(0, 3000)),
        max_size=12,
    )
)
def test_each_entry_fires_at_its_time_unless_it_was_cancelled(
    plans: list[tuple[int, int, int | None]],
) -> None:
    """Each entry is set after some ms, is due some ms later, and is cancelled some ms after it was
    set, or never."""

    async def play(wheel: TimerWheel, entry: Entry, plan: tuple[int, int, int | None]) -> int:
        after_ms, due_ms, cancelled_ms = plan
        await asyncio.sleep(after_ms / 1000)
        now_ns = clock.now_ns()
        wheel.set(entry, now_ns + due_ms * MS, now_ns)
        if cancelled_ms is not None:
            await asyncio.sleep(cancelled_ms / 1000)
            entry.cancel_timer()
        return now_ns + due_ms * MS

    async def main() -> None:
        wheel = TimerWheel(asyncio.get_running_loop())
        entries = [Entry() for _ in plans]
        due_ns = await asyncio.gather(*map(play, [wheel] * len(plans), entries, plans))
        await asyncio.sleep(4)
        for entry, due, (_, due_ms, cancelled_ms) in zip(entries, due_ns, plans, strict=True):
            if cancelled_ms is None or cancelled_ms > due_ms:
                (fired,) = entry.fired
                assert abs(fired - due) < MS / 100  # the loop counts in floating seconds
            elif cancelled_ms < due_ms:
                assert entry.fired == []

    run_virtual(main())


def test_an_entry_that_fired_or_was_cancelled_can_be_set_again() -> None:
    async def main() -> None:
        wheel, entry = TimerWheel(asyncio.get_running_loop()), Entry()
        for due_ms in (10, 700, 10, 700):
            now_ns = clock.now_ns()
            wheel.set(entry, now_ns + due_ms * MS, now_ns)
            entry.cancel_timer()
            entry.cancel_timer()
            wheel.set(entry, now_ns + due_ms * MS, now_ns)
            await asyncio.sleep(1)
        assert len(entry.fired) == 4

    run_virtual(main())


def test_cancelled_entries_take_no_memory() -> None:
    async def main() -> None:
        wheel = TimerWheel(asyncio.get_running_loop())
        entries = [Entry() for _ in range(1000)]
        now_ns = clock.now_ns()
        for entry in entries:
            wheel.set(entry, now_ns + 60_000 * MS, now_ns)
        (slot,) = wheel._slots.values()
        for entry in entries:
            entry.cancel_timer()
        assert sys.getsizeof(slot) == sys.getsizeof({})

    run_virtual(main())


def _timers() -> list[asyncio.TimerHandle]:
    """Return the pending timers of all loops."""
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, asyncio.TimerHandle) and not each.cancelled()
    ]
