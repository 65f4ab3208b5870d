"""What the end of one attempt says of its target's health: the one table of it.

Three sorts of failure must not be mixed. One that another request would share (the target is down, or slow beyond any
deadline) counts. One that only this request has (it is wrong, too long, or was given up) says nothing. And one that
lies with our account will not pass by waiting, at any target that takes the same key.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Literal

from splitsecond.clock import NS_PER_S
from splitsecond.timing.observation import FaultRecord, Observation

Verdict = Literal["well", "ill", "limited", "unserved", "unpaid", "locked", "nothing"]
"""well: it answered. ill: it failed as it would fail others. limited: it asks us to come later.
unserved: it does not serve this model to us. unpaid: our account has no credit. locked: it refuses our key.
nothing: this tells nothing of it."""

_BY_STATUS: Mapping[int, Verdict] = {400: "locked", 401: "locked", 402: "unpaid", 403: "unserved", 404: "unserved"}
"""Of what is the provider's fault: 400 is so where it is the key that is bad (`wire/refusals`)."""
_KEY_WORDS = re.compile(r"api[ _-]?key|credential|authenticat|invalid token|suspended|deactivated", re.IGNORECASE)
"""A 403 with one of these is about the key; without, about the model or the region."""
_OURS = frozenset({"too_long", "empty_answer"})
"""Kinds that more often come of what was asked: an answer longer than we take, or without a visible word."""
LEAST_SILENCE_NS = 2 * NS_PER_S
"""Between two tokens. Shorter ones happen to targets that are well."""


def verdict(observation: Observation) -> Verdict:
    """What `observation`, of one attempt, says of its target."""
    if observation.outcome == "ok":
        return "well"
    fault = observation.fault
    if observation.outcome == "cancelled" or fault is None:
        return "nothing"
    if fault.type == "TimedOut" and fault.phase == "total" and observation.first_token_ns is not None:
        return "ill" if _fell_silent(observation) else "nothing"  # the answer was longer than its caller would wait
    return of_fault(fault)


def _fell_silent(observation: Observation) -> bool:
    """Whether the last token was so long ago that none was on its way: more than twice as long as any before took."""
    at = observation.token_at
    if not at or observation.sent_ns is None:
        return False
    longest_ns = max(later - earlier for earlier, later in pairwise([observation.sent_ns, *at]))
    return observation.end_ns - at[-1] > max(2 * longest_ns, LEAST_SILENCE_NS)


def of_fault(fault: FaultRecord) -> Verdict:
    """What a failure before the end of an answer says of its target."""
    match fault.type:
        case "CallerFault" | "Overloaded" | "AllFailed":
            return "nothing"
        case "ProviderFault" if fault.kind in _OURS:
            return "nothing"
        case "ProviderFault" if fault.status == 429 or (fault.retry_after_ns and fault.status not in _BY_STATUS):
            return "limited"
        case "ProviderFault" if fault.status == 403 and _KEY_WORDS.search(fault.message):
            return "locked"
        case "ProviderFault":
            return _BY_STATUS.get(fault.status, "ill")
        case _:
            return "ill"
