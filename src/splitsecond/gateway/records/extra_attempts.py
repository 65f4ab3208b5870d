"""Attempts beyond the first of a call: what each was for, and whether it delivered the response."""

from collections.abc import Collection, Iterator
from typing import Literal

from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.observation import Observation
from splitsecond.log.store.call_record import CallRecord

ExtraKind = Literal["fallback", "retry", "escalation", "hedge", "race"]
AT_ONCE_NS = 20 * NS_PER_MS
"""Attempts that begin within this time of the first were sent at once: hedges wait longer."""


def extra_attempts(
    record: CallRecord, *, hedged: Collection[str] | None = None
) -> Iterator[tuple[ExtraKind, bool]]:
    """Yield the kind of each attempt after the first, and whether it delivered the response.

    After a failed attempt, another target is a fallback and the same one a retry; after a complete
    response it is an escalation. While others are running it is a hedge, or a branch of a race if
    all were sent at once, or if its target is not in `hedged` (`hedge_targets` of the route; None:
    not known).
    """
    if len(record.attempts) < 2:
        return
    first, *others = sorted(record.attempts, key=begun_ns)
    earlier = [first]
    for attempt in others:
        ended = [each for each in earlier if each.end_ns <= begun_ns(attempt)]
        failed = [each for each in ended if each.outcome == "failed"]
        kind: ExtraKind
        if failed:
            kind = "retry" if attempt.target in {each.target for each in failed} else "fallback"
        elif len(ended) == len(earlier):
            kind = "escalation"
        else:
            late = begun_ns(attempt) - begun_ns(first) > AT_ONCE_NS
            kind = "hedge" if late and (hedged is None or attempt.target in hedged) else "race"
        yield kind, attempt.role == "winner"
        earlier.append(attempt)


def begun_ns(attempt: Observation) -> int:
    """Return when an attempt began to connect; `start_ns` is the arrival of its call.

    Of one that was cancelled while it connected, that is not known. Most of these are branches of a
    race that was over, so it counts as begun when the call arrived.
    """
    if attempt.sent_ns is None and attempt.outcome == "cancelled":
        return attempt.start_ns
    connecting_ns = attempt.dns_ns + attempt.tcp_ns + attempt.tls_ns
    ready_ns = attempt.end_ns if attempt.sent_ns is None else attempt.sent_ns
    return max(attempt.start_ns, ready_ns - connecting_ns)
