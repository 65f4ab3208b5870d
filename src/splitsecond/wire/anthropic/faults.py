"""What Anthropic says when it refuses: as every provider's, and one thing that only its words tell.

An account that may not be served (no credit left, its own limit reached, disabled) gets a 400, but that is not the
caller's fault: another target may serve the request.
"""

import re
from collections.abc import Mapping

from splitsecond.errors import CallerFault, Fault, Phase, ProviderFault
from splitsecond.wire import refusals

_ACCOUNT = re.compile(r"credit balance|API usage limits|organization has been disabled", re.IGNORECASE)
_ACCOUNT_HINT = "Anthropic does not serve this account now: check its billing and its limits."


def fault_from_response(status: int, headers: Mapping[str, str], body: bytes, *, phase: Phase = "head") -> Fault:
    """The fault that a response with this `status` (not 200), these `headers` and this `body` amounts to."""
    fault = refusals.fault_from_response(status, headers, body, phase=phase)
    if isinstance(fault, CallerFault) and _ACCOUNT.search(fault.message):
        return ProviderFault(
            fault.message, kind=fault.kind, phase=phase, status=status, excerpt=fault.excerpt, hint=_ACCOUNT_HINT
        )
    return fault
