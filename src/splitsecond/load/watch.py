"""The instrument watches itself: what this process spent and missed during one block.

Garbage collection stops the process for as long as it takes, so it does not run inside a block: what lives at the
start is collected and frozen, then the collector is off until the end. That something collects nevertheless is counted.
"""

import gc
import os
import resource
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from splitsecond import clock
from splitsecond.timing.instrument import InstrumentReading

_SCHEDSTAT = Path("/proc/self/schedstat")


class Watch:
    """Keeps the collector off and the books open while its context is; `reading` sums up at any time."""

    def __init__(self) -> None:
        self.in_flight = 0
        self._peak_in_flight = 0
        self._late_max_ns = 0
        self._collections = 0

    def __enter__(self) -> Self:
        self._was_collecting = gc.isenabled()
        gc.collect()
        gc.freeze()
        gc.disable()
        gc.callbacks.append(self._collected)
        self._begin_ns = clock.now_ns()
        self._cpu_before_ns = _cpu_ns()
        self._wait_before_ns = _runqueue_wait_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gc.callbacks.remove(self._collected)
        gc.unfreeze()
        if self._was_collecting:
            gc.enable()

    def began(self) -> None:
        """A request is under way."""
        self.in_flight += 1
        self._peak_in_flight = max(self._peak_in_flight, self.in_flight)

    def ended(self) -> None:
        """A request has ended, however it did."""
        self.in_flight -= 1

    def dispatched(self, due_ns: int) -> None:
        """A request that was to leave at `due_ns` is leaving now."""
        self._late_max_ns = max(self._late_max_ns, clock.now_ns() - due_ns)

    def reading(self, condition: str, worker: int) -> InstrumentReading:
        """What was seen until now."""
        wait_ns = _runqueue_wait_ns()
        waited_ns = None if wait_ns is None or self._wait_before_ns is None else wait_ns - self._wait_before_ns
        return InstrumentReading(
            condition=condition,
            worker=worker,
            pid=os.getpid(),
            begin_ns=self._begin_ns,
            end_ns=clock.now_ns(),
            cpu_ns=_cpu_ns() - self._cpu_before_ns,
            runqueue_wait_ns=waited_ns,
            loop_lag_max_ns=self._late_max_ns,
            collections=self._collections,
            peak_in_flight=self._peak_in_flight,
        )

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        self._collections += phase == "start"


def _cpu_ns() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return round((used.ru_utime + used.ru_stime) * clock.NS_PER_S)


def _runqueue_wait_ns() -> int | None:
    """How long the main thread was runnable but not running; None where the system does not say."""
    try:
        return int(_SCHEDSTAT.read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
