"""The timetable of a watch: rounds begin at the start and then at whole multiples of one interval.

The times are absolute, so a long round does not delay the following ones. If a round is still running when the next one
is due, the next one is skipped.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from splitsecond import clock
from splitsecond.pacing import Pacer


async def rounds(every_ns: int, times: int | None, wait: Callable[[int], Awaitable[None]]) -> AsyncIterator[int]:
    """Yield each time a round is due, `times` times (None: for ever): the number of rounds skipped before it.

    `wait` returns at the given time.
    """
    start_ns, slot, begun, skipped = clock.now_ns(), 0, 0, 0
    while times is None or begun < times:
        await wait(start_ns + slot * every_ns)
        yield skipped
        begun += 1
        passed = -(-(clock.now_ns() - start_ns) // every_ns)
        slot, skipped = max(slot + 1, passed), max(0, passed - slot - 1)


async def sleep_until(due_ns: int) -> None:
    """Return at `due_ns` on the monotonic clock, or at once if that has passed."""
    with Pacer(asyncio.get_running_loop()) as pacer:
        await pacer.sleep_until(due_ns)
