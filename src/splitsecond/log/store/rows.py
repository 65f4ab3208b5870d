"""Conversion between a `CallRecord` and rows of the two tables.

Rows are plain tuples in the order of the tables' columns, because they are made for every request.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from struct import error as StructError
from typing import Any, NamedTuple

from sqlalchemy import Row

from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.errors import excerpt
from splitsecond.core.observation import FaultRecord, Observation
from splitsecond.core.service import RoutingChoice
from splitsecond.core.session import CallSession
from splitsecond.core.timing.packed_attempt import (
    MAX_ATTEMPTS,
    PACKED,
    attempt_numbers,
    call_hash,
    label_hash,
)
from splitsecond.core.timing.server_times import duration_ns
from splitsecond.log.store.call_record import CallAccounting, CallRecord
from splitsecond.log.store.tables import ATTEMPTS, CALLS

NAME_LENGTH = 200
"""Longest name in characters. Clients can put any text into `model`."""
LONGEST_REASON = 1000
"""Longest finish reason that is examined, in characters."""
_NO_TOKENS: tuple[Any, ...] = (None, None, None, None, None, None, "")
SESSION_COLUMNS = (
    "session",
    "agent",
    "parent",
    "turn",
    "new_tokens",
    "reusable_tokens",
    "idle_ms",
    "repeated",
)
_NO_SESSION: tuple[int | None, ...] = (None,) * len(SESSION_COLUMNS)
ACCOUNTING_COLUMNS = ("team", "tags", "stated_usd")
_NO_ACCOUNTING = (None, None, None)
CHOICE_COLUMNS = ("choice", "choice_available", "choice_ppm")
_NO_CHOICE: tuple[int | None, ...] = (None,) * len(CHOICE_COLUMNS)
MAX_PLACES = (1 << 63) - 1
"""The bits of a number of 8 bytes: branches after the 63rd are not in it."""
MILLION = 1_000_000
_NO_FAULT = ("", "", "", "", 0)
QUEUE_TIME = "queue_time"
"""The name of the time before any work among the timings of an attempt that was read from the log,
in seconds."""
_SERVER_TIMES = {
    QUEUE_TIME: 0,
    "prompt_time": 1,
    "prompt_ms": 1,
    "prompt_eval_duration": 1,
    "completion_time": 2,
    "predicted_ms": 2,
    "eval_duration": 2,
    "processing_ms": 3,
    "total_time": 4,
    "total_duration": 4,
}
"""Places among the columns `server_queue_ns` to `server_total_ns`, by the names of Groq, Cerebras
and Replicate (which end in ``_time``), of llama.cpp and OpenAI (``_ms``), and of Ollama
(``_duration``). Other names are dropped."""
_NO_SERVER_TIMES: tuple[int | None, ...] = (None,) * 5


class Rows(NamedTuple):
    call: tuple[Any, ...]
    attempts: list[tuple[Any, ...]]


def rows(record: CallRecord) -> Rows:
    start, came_us = record.start_ns, record.came_us
    route, client = _line(record.route), _line(record.client)
    answer = _NO_TOKENS
    attempts = []
    count = len(record.attempts)
    same = (call_hash(record.call), min(count, MAX_ATTEMPTS)) if count > 1 else (0, 1)
    accounting: tuple[Any, ...] = _NO_ACCOUNTING
    names: tuple[str, ...] = (route,)
    if record.accounting is not None:
        accounting = _accounting(record.accounting)
        names = (route, *accounting_names(*accounting))
    for o in record.attempts:
        tokens = (
            o.input_tokens,
            o.cached_tokens,
            o.cache_write_tokens,
            o.cache_write_1h_tokens,
            o.output_tokens,
            o.reasoning_tokens,
            o.token_source,
        )
        if o.role == "winner":
            answer = tokens
        attempts.append(
            _attempt(o, (came_us, record.call, o.id, client), start, tokens, names, same)
        )
    first_token = record.first_token_ns
    call = (
        came_us,
        record.call,
        route,
        client,
        record.operation,
        record.stream,
        record.status,
        record.cache,
        _line(record.target),
        record.outcome,
        record.fault,
        None if first_token is None else first_token - start,
        record.end_ns - start,
        count,
        *answer,
        *(_NO_SESSION if record.session is None else _session(record.session)),
        *(_NO_CHOICE if record.choice is None else _choice(record.choice)),
        *accounting,
    )
    return Rows(call, attempts)


def _session(session: CallSession) -> tuple[int | None, ...]:
    return (
        session_number(session.id),
        session_number(session.agent) if session.agent else None,
        session_number(session.parent) if session.parent else None,
        session.turn,
        session.new_tokens,
        session.reusable_tokens,
        None if session.idle_ns is None else session.idle_ns // NS_PER_MS,
        session.repeated or None,
    )


def _accounting(accounting: CallAccounting) -> tuple[str | None, str | None, float | None]:
    return _line(accounting.team) or None, _line(accounting.tags) or None, accounting.stated_usd


def accounting_names(
    team: str | None, tags: str | None, stated_usd: float | None
) -> tuple[str, ...]:
    """Return what the accounting of a call adds to its attempts' `label_hash`."""
    return team or "", tags or "", "" if stated_usd is None else "stated"


def _choice(choice: RoutingChoice) -> tuple[int, ...]:
    return choice.place, choice.available & MAX_PLACES, round(choice.odds * MILLION)


def session_number(identity: str) -> int:
    """Return a hash of 16 hexadecimal digits as a number of 8 bytes, which a database can hold."""
    number = int(identity, 16)
    return number - (1 << 64) if number >> 63 else number


def session_id(number: int | None) -> str:
    """Return the hash that `session_number` made a number of; "" for None."""
    return "" if number is None else f"{number % (1 << 64):016x}"


def _attempt(
    o: Observation,
    key: tuple[Any, ...],
    start: int,
    tokens: tuple[Any, ...],
    names: tuple[str, ...],
    same: tuple[int, int],
) -> tuple[Any, ...]:
    fault = o.fault
    first_token, target, tier = o.first_token_ns, _line(o.target), _line(o.tier)
    fault_type, kind, *_ = fault_texts = _NO_FAULT if fault is None else _fault(fault)
    times = (
        None if o.sent_ns is None else o.sent_ns - start,
        None if o.head_ns is None else o.head_ns - start,
        None if first_token is None else first_token - start,
        None if o.first_answer_ns is None else o.first_answer_ns - start,
        None if o.last_token_ns is None else o.last_token_ns - start,
        o.end_ns - start,
        None if first_token is None else o.first_event_tokens,
    )
    label = label_hash(target, key[3], names[0], tier, kind, *names[1:])
    try:
        packed = attempt_numbers(
            PACKED.pack,
            (key[0], label, *same),
            (o.outcome, o.role, o.streamed, fault_type, o.status, o.unstreamed_tokens),
            times,
            tokens,
        )
    except StructError:
        packed = None
    return (
        *key,
        target,
        o.role,
        o.outcome,
        o.streamed,
        *fault_texts,
        o.status,
        _line(o.finish_reason[:LONGEST_REASON]),
        o.dns_ns,
        o.tcp_ns,
        o.tls_ns,
        o.reused,
        o.resent,
        o.rtt_ns,
        *times,
        *tokens,
        o.lag_max_ns,
        o.kernel_time,
        *(_server_times(o.server_timings) if o.server_timings else _NO_SERVER_TIMES),
        o.unstreamed_tokens,
        tier,
        packed,
    )


def _fault(fault: FaultRecord) -> tuple[str, str, str, str, int]:
    return fault.type, fault.kind, fault.phase, excerpt(fault.message), fault.status


def _server_times(reported: Mapping[str, float]) -> tuple[int | None, ...]:
    times_ns = list(_NO_SERVER_TIMES)
    for name, value in reported.items():
        place = _SERVER_TIMES.get(name)
        took_ns = None if place is None else duration_ns(name, value)
        if place is not None and took_ns is not None:
            times_ns[place] = round(took_ns)
    return tuple(times_ns)


@lru_cache(maxsize=4096)
def _line(name: str) -> str:
    """Shorten a name to a line that any database accepts: PostgreSQL refuses NUL, both refuse half
    a surrogate pair."""
    return name if len(name) <= NAME_LENGTH and name.isprintable() else excerpt(name)[:NAME_LENGTH]


_SAME_NAMES = [
    c.name for c in ATTEMPTS.c if c.name in Observation.__struct_fields__ and c.name != "fault"
]
_FAULT = ("fault_type", "fault", "phase", "message", "fault_status")
_CALL = [
    c.name
    for c in CALLS.c
    if c.name in CallRecord.__struct_fields__
    and c.name not in ("attempts", "session", "accounting", "choice")
]
ATTEMPT_COLUMNS = [
    ATTEMPTS.c[name]
    for name in ("came_us", "first_event_tokens", "server_queue_ns", *_FAULT, *_SAME_NAMES)
]
CALL_COLUMNS = [
    CALLS.c[name]
    for name in (
        "came_us",
        "n",
        *SESSION_COLUMNS,
        *CHOICE_COLUMNS,
        *ACCOUNTING_COLUMNS,
        *_CALL,
    )
]


def observation(row: Sequence[Any]) -> Observation:
    _, first, queue_ns, fault_type, kind, phase, message, status, *same = row
    fault = None
    if fault_type:
        fault = FaultRecord(type=fault_type, kind=kind, phase=phase, message=message, status=status)
    token_counts = [] if first is None else [first]
    timings = {} if queue_ns is None else {QUEUE_TIME: queue_ns / NS_PER_S}
    return Observation(
        fault=fault,
        tokens_so_far=token_counts,
        server_timings=timings,
        **dict(zip(_SAME_NAMES, same, strict=True)),
    )


def call_record(row: Row[Any], attempts: Sequence[Observation]) -> CallRecord:
    own = 2 + len(SESSION_COLUMNS)
    session = None if row.session is None else call_session(row[2:own])
    place, available, ppm, team, tags, stated_usd, *call = tuple(row)[own:]
    accounting = None
    if (team, tags, stated_usd) != _NO_ACCOUNTING:
        accounting = CallAccounting(team=team or "", tags=tags or "", stated_usd=stated_usd)
    choice = None if place is None else RoutingChoice(place, available, ppm / MILLION)
    return CallRecord(
        start_ns=0,
        session=session,
        accounting=accounting,
        choice=choice,
        attempts=tuple(attempts),
        **dict(zip(_CALL, call, strict=True)),
    )


def call_session(columns: Sequence[Any]) -> CallSession:
    session, agent, parent, turn, new, reusable, idle_ms, repeated = columns
    return CallSession(
        id=session_id(session),
        source="",
        agent=session_id(agent),
        parent=session_id(parent),
        turn=turn,
        new_tokens=new,
        reusable_tokens=reusable,
        idle_ns=None if idle_ms is None else idle_ms * NS_PER_MS,
        repeated=repeated or 0,
    )
