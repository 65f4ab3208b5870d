"""The only place where time is read.

Time inside the program is an ``int`` of nanoseconds on the monotonic clock (CLOCK_MONOTONIC). It never steps, it
is the same clock in every process of one machine, and ``loop.time()`` of asyncio and uvloop is the same clock in
seconds; so a stamp taken by the simulator and one taken by the client can be subtracted.

Wall-clock time is read for two purposes only: to name the moment at which a run began (`wall_time`), and to place a
kernel receive timestamp, which Linux gives in wall-clock time, on the monotonic clock (`arrival`). The latter takes
the difference of two wall readings microseconds apart, so a clock that is wrong or slewed does no harm.

Tests replace the source with `using`, so that time passes only when they say so.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

now_ns: Callable[[], int] = time.monotonic_ns
"""The monotonic clock, in nanoseconds. It is the clock's own function, as a request asks a dozen times; so whoever asks
says `clock.now_ns()`: a name of one's own for it would not be replaced."""
_wall_ns: Callable[[], int] = time.time_ns


def arrival(kernel_wall_ns: int) -> tuple[int, int]:
    """When a packet reached this machine, and how late we looked at it.

    `kernel_wall_ns` is the kernel's receive timestamp (SO_TIMESTAMPNS), on the wall clock. Returns ``(at, lag)``:
    the arrival on the monotonic clock, and the nanoseconds since then. A lag that is negative (the wall clock
    stepped back between the two readings) counts as none.
    """
    seen = now_ns()
    lag = _wall_ns() - kernel_wall_ns
    if lag < 0:
        return seen, 0
    return seen - lag, lag


def block_until(due_ns: int) -> None:
    """Keeps this thread, event loop and all, until `due_ns` on the monotonic clock. For well below a millisecond or so.

    Returns at once where time is virtual.
    """
    left_ns = due_ns - now_ns()
    if left_ns > 0 and is_real():
        time.sleep(left_ns / NS_PER_S)


def wall_time() -> datetime:
    """The wall clock, in UTC, for naming a moment. Never subtract two of these."""
    return datetime.fromtimestamp(_wall_ns() / NS_PER_S, UTC)


def is_real() -> bool:
    """Whether time is the machine's own, so that a kernel timer may be set by it; not while `using` replaces it."""
    return now_ns is time.monotonic_ns


@contextmanager
def using(monotonic_ns: Callable[[], int], wall_ns: Callable[[], int] | None = None) -> Iterator[None]:
    """Read time from `monotonic_ns` (and `wall_ns`) while the context is open. For tests in virtual time."""
    global now_ns, _wall_ns
    before = now_ns, _wall_ns
    now_ns, _wall_ns = monotonic_ns, wall_ns or monotonic_ns
    try:
        yield
    finally:
        now_ns, _wall_ns = before
