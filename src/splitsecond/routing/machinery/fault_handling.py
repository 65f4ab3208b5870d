"""Remedies for failures: the one place where policies learn what a fault means for them.

The same fault leads to different actions in different policies, so this module names the remedy,
and they decide.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from splitsecond.core.errors import (
    CONTEXT_EXCEEDED,
    LARGER_THAN_LIMIT,
    MODEL_NOT_SERVED,
    NO_CLIENT_CREDENTIALS,
    NO_CREDIT,
    USAGE_LIMIT,
    AllFailed,
    CallerFault,
    Fault,
    Overloaded,
    ProviderFault,
    TimedOut,
)
from splitsecond.core.service import Call, Reply, Service

Remedy = Literal["change", "again", "later", "elsewhere"]
"""change: change the request; no target accepts it as it is.
again: send the same request to the same target at once: a broken connection, a 500.
later: ask the same target after a while, or another one now: rate limits, overload.
elsewhere: ask another target; this one is silent or down, does not accept this key, model or
    length, or its API format cannot express the request. Our own refusal "ejected" (its circuit
    breaker is open) belongs here too."""

TOO_LONG_ANSWER = "too_long"
"""The kind of fault for an answer that is longer than we accept, as that of any other target would
be."""
NOT_TRANSLATABLE = "not_translatable"
"""The kind of fault for a target whose API format cannot express the request. Nothing was sent."""
BAD_KEY = "bad_key"
"""The kind of fault for a target without a usable key of ours: its credentials file is missing or
gives no token."""

_BY_KIND: Mapping[str, Remedy] = {
    CONTEXT_EXCEEDED: "elsewhere",
    LARGER_THAN_LIMIT: "elsewhere",
    NO_CREDIT: "elsewhere",
    USAGE_LIMIT: "elsewhere",
    MODEL_NOT_SERVED: "elsewhere",
    NO_CLIENT_CREDENTIALS: "elsewhere",
    "ejected": "elsewhere",
    BAD_KEY: "elsewhere",
    NOT_TRANSLATABLE: "elsewhere",
    "reset": "again",
    "closed": "again",
    "truncated": "again",
    "in_band_error": "later",
}
_BY_STATUS: Mapping[int, Remedy] = {408: "later", 425: "later", 429: "later", 500: "again"}


def remedy(fault: Fault) -> Remedy:
    if isinstance(fault, AllFailed):
        remedies = {remedy(cause) for cause in fault.causes}
        return (
            "change"
            if "change" in remedies
            else "later"
            if remedies & {"again", "later"}
            else "elsewhere"
        )
    if fault.kind in _BY_KIND:
        way = _BY_KIND[fault.kind]
    elif isinstance(fault, CallerFault):
        way = "change"
    elif isinstance(fault, Overloaded):
        way = "later"
    elif isinstance(fault, ProviderFault):
        way = _BY_STATUS.get(fault.status, "later" if fault.status > 500 else "elsewhere")
    else:
        way = "elsewhere"
    return "later" if way == "again" and retry_after_ns(fault) else way


def retry_after_ns(fault: Fault) -> int:
    """Return the wait that the target asks for, of several causes the longest; 0: none.

    The time until a target is probed again does not delay the others; if all are down, the earliest
    counts.
    """
    if isinstance(fault, AllFailed):
        if live_causes := [cause for cause in fault.causes if not ejected(cause)]:
            return max(map(retry_after_ns, live_causes))
        return min(filter(None, map(retry_after_ns, fault.causes)), default=0)
    if isinstance(fault, ProviderFault | Overloaded):
        return fault.retry_after_ns or 0
    return 0


def causes(fault: Fault) -> Sequence[Fault]:
    return fault.causes if isinstance(fault, AllFailed) else (fault,)


def ejected(fault: Fault) -> bool:
    return all(each.kind == "ejected" for each in causes(fault))


def unsent(fault: Fault) -> bool:
    """Whether nothing was sent: circuit breakers are open, API formats cannot express the request,
    or the client has no credentials for the target."""
    return all(
        each.kind in ("ejected", NOT_TRANSLATABLE, NO_CLIENT_CREDENTIALS) for each in causes(fault)
    )


def only_probed(fault: Fault) -> bool:
    return all(
        ejected(each) or (each.on_trial and remedy(each) != "change") for each in causes(fault)
    )


def all_failed(faults: Iterable[Fault]) -> AllFailed:
    return AllFailed([cause for fault in faults for cause in causes(fault)])


def check_time(call: Call, now_ns: int, service: Service) -> None:
    if call.deadline_ns is not None and now_ns >= call.deadline_ns:
        raise TimedOut(
            f"the deadline of the whole call passed before {service!r} was asked", phase="total"
        )


async def answered(service: Service, call: Call) -> Reply:
    """Ask `service` for a reply with a first token. An answer that ends without one raises
    `ProviderFault`."""
    reply = await service(call)
    if reply.empty:
        raise await empty_answer(service, reply)
    return reply


async def empty_answer(service: Service, reply: Reply) -> ProviderFault:
    await reply.aclose()
    words = f"{service!r} ended its answer without a single token"
    return ProviderFault(words, kind="empty_answer", phase="first token", status=200)
