"""A `Served` as rows of the two tables, and rows as a `Served` again.

Rows are plain tuples in the order of the tables' columns: they are made for every request. What comes back has moments
that count from the call's arrival, no time of each token and none of the server's own, and the same figures as what was
put in.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Row

from splitsecond.errors import excerpt
from splitsecond.store.served import Served
from splitsecond.store.server_times import UNSAID, server_times
from splitsecond.store.tables import ATTEMPTS, CALLS
from splitsecond.timing.observation import FaultRecord, Observation

NAME_LENGTH = 200
"""Characters of a name that are kept. Clients choose what they put into `model`."""
LONGEST_SAID = 1000
"""Characters of a provider's word that are looked at."""
_NO_TOKENS: tuple[Any, ...] = (None, None, None, None, None, "")


class Rows(NamedTuple):
    """One record, ready to be inserted."""

    call: tuple[Any, ...]
    attempts: list[tuple[Any, ...]]


def rows(served: Served, wall_us: int) -> Rows:
    """The rows of `served`. `wall_us`: what to add to monotonic microseconds to have wall-clock ones."""
    start = served.start_ns
    came_us = start // 1000 + wall_us
    client = _line(served.client)
    answer = _NO_TOKENS
    attempts = []
    for o in served.attempts:
        tokens = (
            o.input_tokens,
            o.cached_tokens,
            o.cache_write_tokens,
            o.output_tokens,
            o.reasoning_tokens,
            o.token_source,
        )
        if o.role == "winner":
            answer = tokens
        attempts.append(_attempt(o, (came_us, served.call, o.id, client), start, tokens))
    first_token = served.first_token_ns
    call = (
        came_us,
        served.call,
        _line(served.route),
        client,
        served.operation,
        served.stream,
        served.status,
        served.cache,
        _line(served.target),
        served.outcome,
        served.fault,
        None if first_token is None else first_token - start,
        served.end_ns - start,
        len(attempts),
        *answer,
    )
    return Rows(call, attempts)


def _attempt(o: Observation, key: tuple[Any, ...], start: int, tokens: tuple[Any, ...]) -> tuple[Any, ...]:
    fault = o.fault
    first_token = o.first_token_ns
    return (
        *key,
        _line(o.target),
        o.role,
        o.outcome,
        o.streamed,
        *(("", "", "", "", 0) if fault is None else _fault(fault)),
        o.status,
        _line(o.finish_reason[:LONGEST_SAID]),
        o.dns_ns,
        o.tcp_ns,
        o.tls_ns,
        o.reused,
        o.resent,
        o.rtt_ns,
        None if o.sent_ns is None else o.sent_ns - start,
        None if o.head_ns is None else o.head_ns - start,
        None if first_token is None else first_token - start,
        None if o.first_answer_ns is None else o.first_answer_ns - start,
        None if o.last_token_ns is None else o.last_token_ns - start,
        o.end_ns - start,
        None if first_token is None else o.first_event_tokens,
        *tokens,
        o.lag_max_ns,
        o.kernel_time,
        *(server_times(o.server_timings) if o.server_timings else UNSAID),
    )


def _fault(fault: FaultRecord) -> tuple[str, str, str, str, int]:
    return fault.type, fault.kind, fault.phase, excerpt(fault.message), fault.status


@lru_cache(maxsize=4096)
def _line(name: str) -> str:
    """A name as a short line that every database takes: PostgreSQL refuses NUL, both refuse half a surrogate pair."""
    return name if len(name) <= NAME_LENGTH and name.isprintable() else excerpt(name)[:NAME_LENGTH]


_ALIKE = [c.name for c in ATTEMPTS.c if c.name in Observation.__struct_fields__ and c.name != "fault"]
_FAULT = ("fault_type", "fault", "phase", "message", "fault_status")
_CALL = [c.name for c in CALLS.c if c.name in Served.__struct_fields__ and c.name != "attempts"]
ATTEMPT_COLUMNS = [ATTEMPTS.c[name] for name in ("came_us", "first_event_tokens", *_FAULT, *_ALIKE)]
"""What `observation` reads, in this order."""
CALL_COLUMNS = [CALLS.c[name] for name in ("came_us", "n", *_CALL)]
"""What `served` reads, in this order."""


def observation(row: Sequence[Any]) -> Observation:
    """The attempt in a row of `ATTEMPT_COLUMNS`."""
    _, first, kind_of_fault, kind, phase, message, status, *alike = row
    fault = None
    if kind_of_fault:
        fault = FaultRecord(type=kind_of_fault, kind=kind, phase=phase, message=message, status=status)
    counted = [] if first is None else [first]
    return Observation(fault=fault, tokens_so_far=counted, **dict(zip(_ALIKE, alike, strict=True)))


def served(row: Row[Any], attempts: Sequence[Observation]) -> Served:
    """The call in a row of `CALL_COLUMNS`, with its attempts."""
    return Served(start_ns=0, attempts=tuple(attempts), **dict(zip(_CALL, row[2:], strict=True)))
