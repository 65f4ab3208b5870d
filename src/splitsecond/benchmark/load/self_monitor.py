"""Self-monitoring of a worker process: the CPU time it used and the delays it had during one block.

The garbage collector is off inside a block; a collection that runs anyway is counted. A timer beats
ten times a second. If no beat came for `FREEZE_NS`, the process or the whole machine stood still,
and requests that were in flight then show the machine, not the target.
"""

import asyncio
import gc
import os
import resource
from pathlib import Path
from typing import Any, Self

from splitsecond.benchmark.load.priority import priority
from splitsecond.core import clock
from splitsecond.core.timing.instrument import InstrumentReading

_SCHEDSTAT = Path("/proc/self/schedstat")
BEAT_S = 0.1
FREEZE_NS = clock.NS_PER_S
"""Least time between two beats that counts as a standstill. A busy machine delays a beat by some
tens of ms."""


class SelfMonitor:
    def __init__(self) -> None:
        self.in_flight = 0
        self._peak_in_flight = 0
        self._late_max_ns = 0
        self._collections = 0
        self._frozen: list[tuple[int, int]] = []

    def __enter__(self) -> Self:
        self._was_collecting = gc.isenabled()
        gc.collect()
        gc.freeze()
        gc.disable()
        gc.callbacks.append(self._collected)
        self._loop = asyncio.get_running_loop()
        self._begin_ns = self._beat_ns = clock.now_ns()
        self._timer = self._loop.call_later(BEAT_S, self._beat)
        self._cpu_before_ns = _cpu_ns()
        self._wait_before_ns = _runqueue_wait_ns()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        gc.callbacks.remove(self._collected)
        gc.unfreeze()
        if self._was_collecting:
            gc.enable()

    def began(self) -> None:
        self.in_flight += 1
        self._peak_in_flight = max(self._peak_in_flight, self.in_flight)

    def ended(self) -> None:
        self.in_flight -= 1

    def dispatched(self, due_ns: int) -> None:
        self._late_max_ns = max(self._late_max_ns, clock.now_ns() - due_ns)

    def reading(self, condition: str) -> InstrumentReading:
        self._listen()
        wait_ns = _runqueue_wait_ns()
        waited_ns = (
            None
            if wait_ns is None or self._wait_before_ns is None
            else wait_ns - self._wait_before_ns
        )
        return InstrumentReading(
            condition=condition,
            pid=os.getpid(),
            begin_ns=self._begin_ns,
            end_ns=clock.now_ns(),
            cpu_ns=_cpu_ns() - self._cpu_before_ns,
            runqueue_wait_ns=waited_ns,
            loop_lag_max_ns=self._late_max_ns,
            collections=self._collections,
            peak_in_flight=self._peak_in_flight,
            frozen=self._frozen,
            priority=priority(),
        )

    def _beat(self) -> None:
        self._timer = self._loop.call_later(BEAT_S, self._beat)
        self._listen()

    def _listen(self) -> None:
        before_ns, self._beat_ns = self._beat_ns, clock.now_ns()
        if self._beat_ns - before_ns >= FREEZE_NS:
            self._frozen.append((before_ns, self._beat_ns))

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        self._collections += phase == "start"


def _cpu_ns() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return round((used.ru_utime + used.ru_stime) * clock.NS_PER_S)


def _runqueue_wait_ns() -> int | None:
    try:
        return int(_SCHEDSTAT.read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
