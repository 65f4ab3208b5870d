"""What Cohere says when it refuses: as every provider's, with hints that fit its addresses."""

from collections.abc import Mapping

from splitsecond.errors import Fault, Phase
from splitsecond.wire import refusals

_HINTS = {
    404: "Check the model's name, and the base URL (it usually ends in /v2).",
    405: "Check the base URL (it usually ends in /v2).",
}


def fault_from_response(status: int, headers: Mapping[str, str], body: bytes, *, phase: Phase = "head") -> Fault:
    """The fault that a response with this `status` (not 200), these `headers` and this `body` amounts to."""
    fault = refusals.fault_from_response(status, headers, body, phase=phase)
    fault.hint = _HINTS.get(status, fault.hint)
    return fault
