"""Observations of attempts that somebody else made, for what is learned from them."""

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.errors import Fault
from splitsecond.core.events import RateLimits
from splitsecond.core.observation import Observation
from splitsecond.core.timing.timeline import record_fault

TARGET = "a/x"


def answered(
    ttft_ms: float = 200,
    *,
    tpot_ms: float = 10,
    tokens: int = 11,
    input_tokens: int | None = None,
    end_ns: int | None = None,
    target: str = TARGET,
    call: str = "c",
    connecting_ms: float = 0,
    streamed: bool = True,
    limits: RateLimits | None = None,
) -> Observation:
    """An answer that ended well, just now or at `end_ns`, after `connecting_ms` and `ttft_ms` to
    its first token."""
    end_ns = clock.now_ns() if end_ns is None else end_ns
    first_ns = end_ns - round((tokens - 1) * tpot_ms * NS_PER_MS)
    return Observation(
        id=f"{call}.1",
        call=call,
        target=target,
        tcp_ns=round(connecting_ms * NS_PER_MS),
        sent_ns=first_ns - round(ttft_ms * NS_PER_MS),
        head_ns=first_ns,
        first_token_ns=first_ns,
        last_token_ns=end_ns,
        end_ns=end_ns,
        token_at=[first_ns] * tokens,
        token_lengths=[4] * tokens,
        input_tokens=input_tokens,
        output_tokens=tokens,
        token_source="usage",
        streamed=streamed,
        limits=limits,
    )


def closed(waited_ms: float, *, target: str = TARGET, call: str = "c") -> Observation:
    """An attempt that was given up after `waited_ms`, without a token."""
    end_ns = clock.now_ns()
    sent_ns = end_ns - round(waited_ms * NS_PER_MS)
    return Observation(
        id=f"{call}.1",
        call=call,
        target=target,
        outcome="cancelled",
        sent_ns=sent_ns,
        end_ns=end_ns,
    )


def failed(
    fault: Fault, waited_ms: float = 10, *, target: str = TARGET, call: str = "c", sent: bool = True
) -> Observation:
    """An attempt that failed with `fault` after `waited_ms`, before its first token."""
    end_ns = clock.now_ns()
    return Observation(
        id=f"{call}.1",
        call=call,
        target=target,
        outcome="failed",
        fault=record_fault(fault),
        sent_ns=end_ns - round(waited_ms * NS_PER_MS) if sent else None,
        end_ns=end_ns,
    )
