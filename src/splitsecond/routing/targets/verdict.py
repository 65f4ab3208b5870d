"""The table of verdicts: what the end of one attempt means for its target.

Three kinds of failure must not be mixed. A failure that other requests would share (the target is
down, or slower than any deadline) counts. A failure of this request alone (it is wrong, too long,
or was given up) means nothing. And a failure of our account does not pass by waiting, at any target
that uses the same key.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Literal

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import (
    KEY_REFUSED,
    LARGER_THAN_LIMIT,
    MODEL_NOT_SERVED,
    NO_CREDIT,
    USAGE_LIMIT,
)
from splitsecond.core.observation import FaultRecord, Observation

AttemptVerdict = Literal["healthy", "failing", "limited", "unserved", "unpaid", "locked", "nothing"]
"""healthy: it answered. failing: it failed as other requests would fail. limited: it asks us to
wait. unserved: it does not serve this model to us. unpaid: our account has too little credit.
locked: it refuses our key. nothing: the attempt tells nothing about the target."""

_BY_STATUS: Mapping[int, AttemptVerdict] = {
    401: "locked",
    402: "unpaid",
    403: "unserved",
    404: "unserved",
    410: "unserved",
}
"""For faults of the provider. Messages are never examined here, because they may quote the client's
request."""
_OF_THE_REQUEST = frozenset({400, 413, 422})
"""Statuses of refusals that may concern this request only, although another target may serve it."""
_BY_KIND: Mapping[str, AttemptVerdict] = {
    KEY_REFUSED: "locked",
    NO_CREDIT: "unpaid",
    USAGE_LIMIT: "limited",
    MODEL_NOT_SERVED: "unserved",
}
"""For faults of the provider that its error code names, with any status."""
_OURS = frozenset({"too_long", "empty_answer", LARGER_THAN_LIMIT})
"""Kinds that the request causes more often than the target: an answer longer than we accept, or
without any text; a request that alone exceeds a limit."""
MIN_SILENCE_NS = 2 * NS_PER_S
"""The shortest gap between two tokens that counts as silence. Shorter gaps happen at healthy
targets."""


def verdict(observation: Observation) -> AttemptVerdict:
    if observation.outcome == "ok":
        return "healthy"
    fault = observation.fault
    if observation.outcome == "cancelled" or fault is None:
        return "nothing"
    if (
        fault.type == "TimedOut"
        and fault.phase == "total"
        and observation.first_token_ns is not None
    ):
        # the answer took longer than the caller waits
        return "failing" if _fell_silent(observation) else "nothing"
    return of_fault(fault)


def _fell_silent(observation: Observation) -> bool:
    """Return whether the target stopped answering: the last gap is more than twice as long as any
    gap before."""
    at = observation.token_at
    if not at or observation.sent_ns is None:
        return False
    longest_ns = max(later - earlier for earlier, later in pairwise([observation.sent_ns, *at]))
    return observation.end_ns - at[-1] > max(2 * longest_ns, MIN_SILENCE_NS)


def of_fault(fault: FaultRecord) -> AttemptVerdict:
    match fault.type:
        case "CallerFault" | "Overloaded" | "AllFailed":
            return "nothing"
        case "ProviderFault" if fault.kind in _OURS:
            return "nothing"
        case "ProviderFault" if fault.kind in _BY_KIND:
            return _BY_KIND[fault.kind]
        case "ProviderFault" if fault.status in _OF_THE_REQUEST:
            return "nothing"
        case "ProviderFault" if fault.status == 429 or (
            fault.retry_after_ns and fault.status not in _BY_STATUS
        ):
            return "limited"
        case "ProviderFault":
            return _BY_STATUS.get(fault.status, "failing")
        case _:
            return "failing"
