"""What the instrument says of itself: one reading for each block of requests that one worker process sent.

A number about a provider is only as good as the client that took it. Read lag stands on each `Observation`; what can
only be seen per process (CPU, time spent runnable but not running, garbage collection) stands here.
"""

from msgspec import Struct


class InstrumentReading(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One worker process during one block. Times are monotonic nanoseconds or durations in nanoseconds.

    `runqueue_wait_ns`: runnable but not running (second number of /proc/self/schedstat); None where the system does
    not say. A client that waits for the processor reads late, and its server may have been starved by it.
    `loop_lag_max_ns`: the latest that a scheduled dispatch ran after it was due. `collections`: garbage collections
    that ran inside the block; must be 0.
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
