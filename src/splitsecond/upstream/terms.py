"""What all attempts at one target have in common: put together once for the target, and not for each request. And in
which words one is late."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from splitsecond.alarms import Alarms
from splitsecond.clock import NS_PER_MS
from splitsecond.errors import Fault, Phase, TimedOut
from splitsecond.timing.observation import Observation
from splitsecond.upstream.spec import Timeouts

Observer = Callable[[Observation], None]
"""Is told of each attempt when it has ended."""


class FaultReader(Protocol):
    """A dialect's reading of an error answer."""

    def __call__(self, status: int, headers: Mapping[str, str], body: bytes) -> Fault: ...


class Terms(Struct, frozen=True):
    """See the file. `read_fault`: what an error answer says. `secrets`: what no fault may hold.

    `raw`: their replies keep the bytes of the body, for `Reply.read`, and no events. Of a watched call both are kept.
    """

    target: str
    timeouts: Timeouts
    read_fault: FaultReader
    observer: Observer
    alarms: Alarms
    secrets: Sequence[str] = ()
    raw: bool = False


_MISSING: Mapping[Phase, str] = {
    "head": "no answer",
    "first token": "no token",
    "between tokens": "no further token",
}


def overdue(phase: Phase, after_ns: int, limit_ms: int | None = None) -> TimedOut:
    """The fault of not having had what `phase` waits for, `after_ns`. `limit_ms`: of that phase; None: of the call."""
    if limit_ms is not None:
        return TimedOut(f"{_MISSING[phase]} for {limit_ms} ms", phase=phase, after_ns=after_ns)
    words = f"{_MISSING[phase]} when the deadline of {after_ns // NS_PER_MS} ms for the whole call passed"
    return TimedOut(words, phase="total", after_ns=after_ns)
