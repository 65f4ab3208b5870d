"""When the rounds of a watch begin: at the start, and then at its whole multiples of one interval.

The times are absolute, so that a round that takes long does not push those that follow it. A round that is still going
on when the next is due takes its place: that one is left out, not made up for.
"""

import asyncio
from collections.abc import Callable, Iterator

from splitsecond import clock
from splitsecond.pacing import Pacer


def rounds(every_ns: int, times: int | None, wait: Callable[[int], None] | None = None) -> Iterator[int]:
    """Comes back each time a round is due, `times` times (None: for ever), with how many were left out before it.

    `wait` returns at the time that it is given; by default by sleeping.
    """
    wait = wait or sleep_until
    start_ns, slot, begun, left_out = clock.now_ns(), 0, 0, 0
    while times is None or begun < times:
        wait(start_ns + slot * every_ns)
        yield left_out
        begun += 1
        passed = -(-(clock.now_ns() - start_ns) // every_ns)
        slot, left_out = max(slot + 1, passed), max(0, passed - slot - 1)


def sleep_until(due_ns: int) -> None:
    """Return at `due_ns` on the monotonic clock, at once if that has passed. Ctrl-C ends it."""
    asyncio.run(_asleep_until(due_ns))


async def _asleep_until(due_ns: int) -> None:
    with Pacer(asyncio.get_running_loop()) as pacer:
        await pacer.sleep_until(due_ns)
