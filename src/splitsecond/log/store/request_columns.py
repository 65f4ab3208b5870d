"""Calls of one route and their attempts as columns, for a replay of them (`replay`).

A fortnight has too many calls for an object each, so the database's rows become arrays, page by
page.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from sqlalchemy import ColumnElement, Connection, Row, and_, func, or_, select

from splitsecond.core.timing.columns import US_PER_HOUR, Integers
from splitsecond.core.timing.packed_attempt import OUTCOMES, UNKNOWN
from splitsecond.log.store.tables import ATTEMPTS, CALLS

PAGE = 20_000
OPERATIONS = ("chat", "completions")
_C, _A = CALLS.c, ATTEMPTS.c
_CALL_NUMBERS = (
    "came_us", "stream", "first_token_ns", "end_ns", "input_tokens", "output_tokens", "session",
    "agent", "turn",
    "new_tokens", "reusable_tokens", "choice", "choice_ppm",
)  # fmt: skip
_ATTEMPT_NUMBERS = (
    "dns_ns", "tcp_ns", "tls_ns", "sent_ns", "first_token_ns", "last_token_ns", "end_ns",
    "input_tokens",
    "cached_tokens", "cache_write_tokens", "cache_write_1h_tokens", "output_tokens", "status",
)  # fmt: skip
_MAIN_AGENT = 0
_KEPT_HERE = ("ejected",)
"""Faults of calls that were sent to no target because all of them were down: another policy may
serve such calls."""


class LoggedFault(NamedTuple):
    type: str
    kind: str
    phase: str
    status: int


class CallColumns(Struct, frozen=True, kw_only=True):
    """One place for each call, in the order in which they came; a number that is not known is
    `UNKNOWN`.

    `outcome`: place in `OUTCOMES`. `client`, `target`: places in the lists of `RequestColumns`;
    UNKNOWN: none. `agent`: 0 for the main one.
    """

    came_us: Integers
    stream: Integers
    outcome: Integers
    client: Integers
    target: Integers
    first_token_ns: Integers
    end_ns: Integers
    input_tokens: Integers
    output_tokens: Integers
    session: Integers
    agent: Integers
    turn: Integers
    new_tokens: Integers
    reusable_tokens: Integers
    choice: Integers
    choice_ppm: Integers


class LoggedAttempts(Struct, frozen=True, kw_only=True):
    """One place for each attempt, in the order of their calls. `call`: the place of its call.
    `fault`: UNKNOWN without one. Times count from the arrival of the call."""

    call: Integers
    target: Integers
    outcome: Integers
    fault: Integers
    dns_ns: Integers
    tcp_ns: Integers
    tls_ns: Integers
    sent_ns: Integers
    first_token_ns: Integers
    last_token_ns: Integers
    end_ns: Integers
    input_tokens: Integers
    cached_tokens: Integers
    cache_write_tokens: Integers
    cache_write_1h_tokens: Integers
    output_tokens: Integers
    status: Integers


class RequestColumns(Struct, frozen=True, kw_only=True):
    targets: Sequence[str]
    clients: Sequence[str]
    faults: Sequence[LoggedFault]
    calls: CallColumns
    attempts: LoggedAttempts


def request_columns(
    connection: Connection, route: str, spans_us: Sequence[tuple[int, int]]
) -> RequestColumns:
    """Return the calls to `route` that came in within these times, and their attempts.

    Calls that a cache answered, and those that were refused before a policy saw them, are left out.
    """
    targets: dict[str, int] = {}
    clients: dict[str, int] = {}
    faults: dict[LoggedFault, int] = {}
    calls: list[Integers] = []
    attempts: list[Integers] = []
    before = 0
    for since_us, until_us in spans_us:
        for rows in _pages(connection, route, since_us, until_us):
            places = {(row.came_us, row.call): before + place for place, row in enumerate(rows)}
            numbers = [
                (
                    OUTCOMES.index(row.outcome), clients.setdefault(row.client, len(clients)),
                    targets.setdefault(row.target, len(targets)) if row.target else UNKNOWN,
                    *row[5:],
                )
                for row in rows
            ]  # fmt: skip
            calls.append(np.array(numbers, np.int64))
            attempt_rows = []
            for row in _attempts(connection, rows[0].came_us, rows[-1].came_us):
                if (place := places.get((row.came_us, row.call))) is None:
                    continue
                fault = UNKNOWN
                if row.fault_type:
                    key = LoggedFault(row.fault_type, row.fault, row.phase, row.fault_status)
                    fault = faults.setdefault(key, len(faults))
                target = targets.setdefault(row.target, len(targets))
                attempt_rows.append((place, target, OUTCOMES.index(row.outcome), fault, *row[8:]))
            attempt_rows.sort(key=lambda one: one[0])
            attempts.append(
                np.array(attempt_rows, np.int64).reshape(
                    len(attempt_rows), len(LoggedAttempts.__struct_fields__)
                )
            )
            before += len(rows)
    call_names = ("outcome", "client", "target", *_CALL_NUMBERS)
    attempt_names = LoggedAttempts.__struct_fields__
    return RequestColumns(
        targets=list(targets),
        clients=list(clients),
        faults=list(faults),
        calls=CallColumns(**_columns(calls, call_names)),
        attempts=LoggedAttempts(**_columns(attempts, attempt_names)),
    )


def calls_by_hour(
    connection: Connection, route: str, since_us: int, until_us: int
) -> list[tuple[int, int]]:
    """Return each hour (hours since 1970) with calls to `route`, and their number."""
    hour_us = (_C.came_us - _C.came_us % US_PER_HOUR).label("hour_us")
    query = (
        select(hour_us, func.count()).where(_wanted(route, since_us, until_us)).group_by("hour_us")
    )
    return sorted((at_us // US_PER_HOUR, count) for at_us, count in connection.execute(query))


def routes(connection: Connection, since_us: int, until_us: int) -> list[tuple[str, int]]:
    """Return the routes of calls in this time, the most frequent first, with the number of their
    calls."""
    query = (
        select(_C.route, func.count())
        .where(_C.came_us >= since_us, _C.came_us < until_us)
        .group_by(_C.route)
    )
    return sorted(
        ((route, count) for route, count in connection.execute(query)), key=lambda one: -one[1]
    )


def _wanted(route: str, since_us: int, until_us: int) -> ColumnElement[bool]:
    served = or_(_C.attempts > 0, _C.fault.in_(_KEPT_HERE))
    return and_(
        _C.came_us >= since_us,
        _C.came_us < until_us,
        _C.route == route,
        _C.operation.in_(OPERATIONS),
        _C.cache.in_(("", "miss")),
        served,
    )


def _pages(
    connection: Connection, route: str, since_us: int, until_us: int
) -> Iterator[Sequence[Row[Any]]]:
    filled = (
        func.coalesce(_C[name], _MAIN_AGENT if name == "agent" else UNKNOWN)
        for name in _CALL_NUMBERS[2:]
    )
    names = (
        _C.n,
        _C.call,
        _C.outcome,
        _C.client,
        _C.target,
        *(_C[name] for name in _CALL_NUMBERS[:2]),
    )
    columns = (*names, *filled)
    page = (
        select(*columns)
        .where(_wanted(route, since_us, until_us))
        .order_by(_C.came_us, _C.n)
        .limit(PAGE)
    )
    after: ColumnElement[bool] = _C.came_us >= since_us
    while rows := connection.execute(page.where(after)).all():
        yield rows
        last = rows[-1]
        after = and_(_C.came_us >= last.came_us, or_(_C.came_us > last.came_us, _C.n > last.n))


def _attempts(connection: Connection, first_us: int, last_us: int) -> Iterator[Row[Any]]:
    numbers = [func.coalesce(_A[name], UNKNOWN) for name in _ATTEMPT_NUMBERS]
    names = (
        _A.came_us,
        _A.call,
        _A.target,
        _A.outcome,
        _A.fault_type,
        _A.fault,
        _A.phase,
        _A.fault_status,
    )
    query = (
        select(*names, *numbers)
        .where(_A.came_us >= first_us, _A.came_us <= last_us)
        .order_by(_A.came_us, _A.n)
    )
    yield from connection.execute(query)


def _columns(parts: Sequence[Integers], names: Sequence[str]) -> dict[str, Integers]:
    rows = np.concatenate(parts) if parts else np.zeros((0, len(names)), np.int64)
    return {name: np.ascontiguousarray(rows[:, place]) for place, name in enumerate(names)}
