"""What Google says when it refuses: as every provider's, and what only its body tells.

A wait stands in the body (``RetryInfo``), not in a header. A quota for the day says so in its id (``QuotaFailure``);
then the wait of some seconds beside it is of no use. A region that is not served, or an account without billing, is a
400, but not the caller's fault: another target may serve the request.
"""

import json
from collections.abc import Mapping
from typing import Any

from splitsecond.clock import NS_PER_S
from splitsecond.errors import CallerFault, Fault, Phase, ProviderFault
from splitsecond.wire import refusals

_DAY_NS = 24 * 3600 * NS_PER_S
_HINTS = {
    404: "Check the model's name, and the base URL (it usually ends in /v1beta).",
    400: "Google does not serve this account here: check its region and billing.",
}
_DAY_HINT = "The quota for the day is used up; Google gives it anew at midnight Pacific time."


def fault_from_response(status: int, headers: Mapping[str, str], body: bytes, *, phase: Phase = "head") -> Fault:
    """The fault that a response with this `status` (not 200), these `headers` and this `body` amounts to.

    Where a quota for the day is used up, the wait is said to be a day: the end of Google's day is not in the answer.
    """
    fault = refusals.fault_from_response(status, headers, body, phase=phase)
    error = _error(body)
    if isinstance(fault, CallerFault) and error.get("status") == "FAILED_PRECONDITION":
        return ProviderFault(
            fault.message, kind=fault.kind, phase=phase, status=status, excerpt=fault.excerpt, hint=_HINTS[400]
        )
    if isinstance(fault, ProviderFault) and status == 429 and any("PerDay" in quota for quota in _quota_ids(error)):
        fault.hint, fault.retry_after_ns = _DAY_HINT, _DAY_NS
    elif status == 404:
        fault.hint = _HINTS[404]
    return fault


def _error(body: bytes) -> dict[str, Any]:
    try:
        match json.loads(body):
            case {"error": dict(error)} | [{"error": dict(error)}, *_]:
                return error
    except (ValueError, RecursionError):
        pass
    return {}


def _quota_ids(error: dict[str, Any]) -> list[str]:
    ids: list[str] = []
    details = error.get("details")
    for detail in details if isinstance(details, list) else []:
        match detail:
            case {"violations": [*violations]}:
                ids += [str(violation.get("quotaId")) for violation in violations if isinstance(violation, dict)]
    return ids
