"""Faults of an attempt: its answer is too late, too slow or too long, or the client's own
credentials were refused."""

from collections.abc import Mapping

from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.errors import (
    KEY_REFUSED,
    MODEL_NOT_SERVED,
    NO_CREDIT,
    USAGE_LIMIT,
    CallerFault,
    Fault,
    Phase,
    ProviderFault,
    TimedOut,
)
from splitsecond.core.service import RateFloor
from splitsecond.core.upstream.pending_bytes import HELD_BYTES

_MISSING: Mapping[Phase, str] = {
    "head": "no answer",
    "first token": "no token",
    "between tokens": "no further token",
}

_OF_ACCOUNT = frozenset({KEY_REFUSED, NO_CREDIT, USAGE_LIMIT, "http_401", "http_402", "http_403"})


def overdue(phase: Phase, after_ns: int, limit_ms: int | None = None) -> TimedOut:
    """Return the fault of a timeout in `phase` after `after_ns`. `limit_ms`: that of the phase;
    None: the call's."""
    if limit_ms is not None:
        return TimedOut(f"{_MISSING[phase]} for {limit_ms:,} ms", phase=phase, after_ns=after_ns)
    words = (
        f"{_MISSING[phase]} when the deadline of {after_ns // NS_PER_MS:,} ms for the whole "
        f"call passed"
    )
    return TimedOut(words, phase="total", after_ns=after_ns)


def too_slow(rate: float, floor: RateFloor) -> TimedOut:
    words = (
        f"{rate:.2g} tokens per second in the last {floor.over_ns / NS_PER_S:g} s, "
        f"below the floor of {floor.tokens_per_s:g}"
    )
    return TimedOut(words, phase="between tokens", after_ns=floor.over_ns)


def no_token_yet(size: int, status: int) -> ProviderFault:
    words = f"{size:,} bytes of an answer without a token, expected at most {HELD_BYTES:,}"
    return ProviderFault(words, kind="malformed", phase="first token", status=status)


def unread(size: int, status: int) -> ProviderFault:
    words = f"{size:,} bytes of a watched answer were not read, expected at most {HELD_BYTES:,}"
    return ProviderFault(words, kind="too_long", phase="between tokens", status=status)


def of_client(fault: Fault) -> Fault:
    """Return the `fault` of a provider that was called with the client's own credentials, as the
    client must see it.

    A refusal of these credentials, or of their account, keeps its status: the client renews a token
    when it gets 401. It says nothing about the target, so it is a fault of the caller. A model that
    is not served is 404.
    """
    if not isinstance(fault, ProviderFault):
        return fault
    kind, status = fault.kind, fault.status if 400 <= fault.status < 500 else 403
    if kind in (MODEL_NOT_SERVED, "http_404"):
        kind, status = MODEL_NOT_SERVED, 404
    elif kind not in _OF_ACCOUNT:
        return fault
    return CallerFault(
        fault.message, kind=kind, phase=fault.phase, status=status, excerpt=fault.excerpt
    )
