"""What may help after a failure: the one place where policies learn what a fault means for them.

The same fault asks for different things of different policies, so this says what would help, and they decide. The
status or the kind decides; who is at fault decides where neither is known.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from splitsecond.errors import AllFailed, CallerFault, Fault, Overloaded, ProviderFault, TimedOut
from splitsecond.service import Call, Reply, Service

Remedy = Literal["change", "again", "later", "elsewhere"]
"""change: the request itself; no target will serve it as it is.
again: the same request at the same target, at once: a broken connection, a 500.
later: the same target after a while, or another one now: rate limits, overload.
elsewhere: another target only; this one is silent, down, or will not serve this key, model or length, or
speaks a dialect without words for the request. So after a refusal of our own that is called "ejected" (`standing`)."""

TOO_LONG = "context_length_exceeded"
"""The kind of a refusal of a prompt that is longer than the target takes."""
UNSPOKEN = "not_translatable"
"""The kind of our own refusal to ask a target whose dialect has no words for the request."""
BAD_KEY = "bad_key"
"""The kind of our own failure to have a key for the target: its file of credentials is gone, or makes no token."""

_BY_KIND: Mapping[str, Remedy] = {
    TOO_LONG: "elsewhere",
    "ejected": "elsewhere",
    BAD_KEY: "elsewhere",
    UNSPOKEN: "elsewhere",
    "reset": "again",
    "closed": "again",
    "truncated": "again",
    "in_band_error": "later",
}
_BY_STATUS: Mapping[int, Remedy] = {408: "later", 425: "later", 429: "later", 500: "again"}


def remedy(fault: Fault) -> Remedy:
    """What may help after `fault`, which came before the first token."""
    if isinstance(fault, AllFailed):
        found = {remedy(cause) for cause in fault.causes}
        return "change" if "change" in found else "later" if found & {"again", "later"} else "elsewhere"
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
    """How long we are asked to wait before we ask again; of several causes the longest. 0: nobody said.

    Until when a target stays down is no reason to keep off the others; where all are, the first to come back counts.
    """
    if isinstance(fault, AllFailed):
        if asked := [cause for cause in fault.causes if not ejected(cause)]:
            return max(map(retry_after_ns, asked))
        return min(filter(None, map(retry_after_ns, fault.causes)), default=0)
    if isinstance(fault, ProviderFault | Overloaded):
        return fault.retry_after_ns or 0
    return 0


def ejected(fault: Fault) -> bool:
    """Whether nothing was sent, because whoever was to be asked is down."""
    return all(map(ejected, fault.causes)) if isinstance(fault, AllFailed) else fault.kind == "ejected"


def only_tried(fault: Fault) -> bool:
    """Whether nobody failed who was thought to be well: whoever was asked at all was on trial."""
    if isinstance(fault, AllFailed):
        return all(map(only_tried, fault.causes))
    return (fault.on_trial and remedy(fault) != "change") or ejected(fault)


def all_failed(faults: Iterable[Fault]) -> AllFailed:
    """One fault for several, in the order in which they were tried; those of policies inside are listed one by one."""
    causes: list[Fault] = []
    for fault in faults:
        causes.extend(fault.causes if isinstance(fault, AllFailed) else [fault])
    return AllFailed(causes)


def check_time(call: Call, now_ns: int, service: Service) -> None:
    """Raises `TimedOut` where the call's deadline has passed: whoever is asked now could only fail."""
    if call.deadline_ns is not None and now_ns >= call.deadline_ns:
        raise TimedOut(f"the deadline of the whole call passed before {service!r} was asked", phase="total")


async def answered(service: Service, call: Call) -> Reply:
    """A reply that has a first token. An answer that ended well without one is no answer where others may be asked."""
    reply = await service(call)
    if reply.empty:
        raise await emptied(service, reply)
    return reply


async def emptied(service: Service, reply: Reply) -> ProviderFault:
    """What is wrong with the empty `reply` of `service`; it is closed."""
    await reply.aclose()
    words = f"{service!r} ended its answer without a single token"
    return ProviderFault(words, kind="empty_answer", phase="first token", status=200)
