"""The clock: the only module that reads the time.

Time inside the program is an ``int`` of nanoseconds on the monotonic clock (CLOCK_MONOTONIC). This
clock never steps and is the same in every process of one machine, and ``loop.time()`` of asyncio
and uvloop reads it in seconds.

The wall clock is read for two purposes only: to date a moment (`wall_time`, `wall_offset_us`), and
to convert a kernel receive timestamp, which Linux gives in wall-clock time, to the monotonic clock
(`arrival`). The conversion uses the difference of two wall readings that are microseconds apart, so
a wrong or slewed wall clock does no harm.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
US_PER_DAY = 86_400_000_000

now_ns: Callable[[], int] = time.monotonic_ns
"""The monotonic clock, in nanoseconds: the system's own function, because a request calls it a
dozen times. Call it as `clock.now_ns()`: a directly imported name bypasses the test clock."""
_wall_ns: Callable[[], int] = time.time_ns
QUICK_NS = NS_PER_US
"""Reading both clocks takes less than this, unless something else runs in between."""
INTERRUPTED_NS = 10 * NS_PER_US
"""If reading them took longer than this, the process did not run in between."""


def arrival(kernel_wall_ns: int) -> tuple[int, int]:
    """Return when a packet reached this machine and how late it is read: ``(at, lag)``.

    `kernel_wall_ns` is the kernel's receive timestamp (SO_TIMESTAMPNS), on the wall clock. `at` is
    the arrival on the monotonic clock, `lag` the nanoseconds from then to this call. A negative lag
    (the wall clock stepped back between the two readings) counts as 0.

    `at` is never before the arrival, so it is never before the packet was sent. It is later by the
    time between reading the two clocks, at most `INTERRUPTED_NS`.
    """
    seen = now_ns()
    wall = _wall_ns()
    after = now_ns()
    offset = wall - after if after - seen <= INTERRUPTED_NS else _shortest_reading()[1]
    lag = seen + offset - kernel_wall_ns
    if lag < 0:
        return seen, 0
    return seen - lag, lag


def wall_time() -> datetime:
    """Return the wall-clock time in UTC, to date a moment. Never subtract two of these."""
    return datetime.fromtimestamp(_wall_ns() / NS_PER_S, UTC)


def wall_offset_us() -> int:
    return wall_offset_ns() // NS_PER_US


def wall_offset_ns() -> int:
    """Return wall-clock minus monotonic time, in nanoseconds.

    The process can be interrupted between reading the two clocks, which must not shift what is
    dated: two moments more than a microsecond apart keep their order.
    """
    duration_ns, offset = _shortest_reading()
    return offset + duration_ns // 2


def _shortest_reading() -> tuple[int, int]:
    """Read both clocks until a reading is quick, three times at most. Return how long the shortest
    reading took, and its wall clock minus its end."""
    readings = []
    for _ in range(3):
        before = now_ns()
        wall = _wall_ns()
        after = now_ns()
        readings.append((after - before, wall - after))
        if after - before <= QUICK_NS:
            break
    return min(readings)


def is_real() -> bool:
    """Return whether the clock is the machine's, so that kernel timers agree with it; False inside
    `using`."""
    return now_ns is time.monotonic_ns


@contextmanager
def using(
    monotonic_ns: Callable[[], int], wall_ns: Callable[[], int] | None = None
) -> Iterator[None]:
    """Replace the clocks by `monotonic_ns` (and `wall_ns`) while the context is open, for tests in
    virtual time."""
    global now_ns, _wall_ns
    before = now_ns, _wall_ns
    now_ns, _wall_ns = monotonic_ns, wall_ns or monotonic_ns
    try:
        yield
    finally:
        now_ns, _wall_ns = before
