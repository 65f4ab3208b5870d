"""Faults with which an attempt ends an answer itself: it is too late, too slow, or too long to be kept."""

from collections.abc import Mapping

from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.errors import Phase, ProviderFault, TimedOut
from splitsecond.core.service import RateFloor
from splitsecond.core.upstream.pending_bytes import HELD_BYTES

_MISSING: Mapping[Phase, str] = {
    "head": "no answer",
    "first token": "no token",
    "between tokens": "no further token",
}


def overdue(phase: Phase, after_ns: int, limit_ms: int | None = None) -> TimedOut:
    """Return the fault of a timeout in `phase` after `after_ns`. `limit_ms`: that of the phase; None: the call's."""
    if limit_ms is not None:
        return TimedOut(f"{_MISSING[phase]} for {limit_ms:,} ms", phase=phase, after_ns=after_ns)
    words = f"{_MISSING[phase]} when the deadline of {after_ns // NS_PER_MS:,} ms for the whole call passed"
    return TimedOut(words, phase="total", after_ns=after_ns)


def too_slow(rate: float, floor: RateFloor) -> TimedOut:
    """Return the fault of an answer with `rate` tokens per second, which is below `floor`."""
    words = (
        f"{rate:.2g} tokens per second in the last {floor.over_ns / NS_PER_S:g} s, "
        f"below the floor of {floor.tokens_per_s:g}"
    )
    return TimedOut(words, phase="between tokens", after_ns=floor.over_ns)


def no_token_yet(size: int, status: int) -> ProviderFault:
    """Return the fault of an answer whose first `size` bytes contain no token."""
    words = f"{size:,} bytes of an answer without a token, expected at most {HELD_BYTES:,}"
    return ProviderFault(words, kind="malformed", phase="first token", status=status)


def unread(size: int, status: int) -> ProviderFault:
    """Return the fault of a watched answer with `size` unread bytes."""
    words = f"{size:,} bytes of a watched answer were not read, expected at most {HELD_BYTES:,}"
    return ProviderFault(words, kind="too_long", phase="between tokens", status=status)
