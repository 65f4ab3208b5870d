"""Readings of the instrument itself: one for each block of requests that one worker process sent.

A measurement of a provider is only as good as the client that made it. Read lag is part of each
`Observation`; what can only be measured per process (CPU time, time spent runnable but not running,
garbage collection) is here.
"""

from collections.abc import Iterable

from msgspec import Struct

from splitsecond.core.observation import PacketCounts


class InstrumentReading(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One worker process during one block. Times are monotonic nanoseconds or durations in
    nanoseconds.

    `runqueue_wait_ns`: time spent runnable but not running (second number of /proc/self/schedstat);
    None if the system does not report it. A client that waits for the processor reads late, and may
    starve a server on the same machine. `loop_lag_max_ns`: the longest delay of a scheduled
    dispatch. `collections`: garbage collections within the block; must be 0. `frozen`: the times,
    (begin, end), in which the process stood still for a second or longer. `priority`: the
    scheduling priority of the process at the end, "real time", "nice -20" or "normal". `packets`:
    what the packet clock has seen; None without one.

    Of a worker on a node, `node` is its name. `clock_offset_ns` is its clock minus that of the
    machine that led the run, whose clock the times of this reading are on; it is known to
    `clock_error_ns`. `lost`: why the block ended before its time; "": it did not.
    """

    condition: str
    worker: int = 0
    pid: int = 0
    begin_ns: int
    end_ns: int
    cpu_ns: int = 0
    runqueue_wait_ns: int | None = None
    loop_lag_max_ns: int = 0
    collections: int = 0
    peak_in_flight: int = 0
    frozen: list[tuple[int, int]] = []
    priority: str = ""
    packets: PacketCounts | None = None
    node: str = ""
    clock_offset_ns: int = 0
    clock_error_ns: int = 0
    lost: str = ""


def packet_counts(readings: Iterable[InstrumentReading]) -> PacketCounts:
    counts = [reading.packets for reading in readings if reading.packets is not None]
    return PacketCounts(
        *(sum(getattr(each, name) for each in counts) for name in PacketCounts.__struct_fields__)
    )
