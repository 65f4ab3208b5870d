"""W3C trace context: the ids under which a call and its attempts appear in distributed traces.

They are derived from the ids of the call and the attempt, so that nothing has to be remembered
between the moment when a request goes out and the moment when its span is exported. The trace is
the client's, if its request names one.

Source: W3C Recommendation "Trace Context" (2021), section 3.2, the header ``traceparent``.
"""

import re
from hashlib import blake2b

from msgspec import Struct

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?"
)
_VERSION_00_LENGTH = 55
_SAMPLED = 1


class TraceContext(Struct, frozen=True):
    """The trace of a call. `parent`: the client's span, 0 without one. `sampled`: the client wants
    it recorded.

    `sampled` is None if the client does not say.
    """

    trace: int
    parent: int = 0
    sampled: bool | None = None


def trace_context(call: str, traceparent: str) -> TraceContext:
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None or (traceparent.startswith("00") and len(traceparent) != _VERSION_00_LENGTH):
        digits = call.rpartition("-")[2]
        own = re.fullmatch("(?!0{32})[0-9a-f]{32}", digits) is not None
        return TraceContext(int(digits, 16) if own else _hash(call, 16))
    trace, parent, flags = match.groups()
    return TraceContext(int(trace, 16), int(parent, 16), bool(int(flags, 16) & _SAMPLED))


def span_id(identity: str) -> int:
    return _hash(identity, 8)


def attempt_traceparent(call: str, attempt: str, traceparent: str) -> str:
    context = trace_context(call, traceparent)
    return (
        f"00-{context.trace:032x}-{span_id(attempt):016x}-"
        f"{0 if context.sampled is False else _SAMPLED:02x}"
    )


def _hash(text: str, length: int) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=length).digest()) or 1  # 0 is no id
