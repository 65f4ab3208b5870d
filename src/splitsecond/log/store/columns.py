"""Reader of the log's attempts as columns, for figures over millions of requests.

The database joins the packed numbers (`core/timing/packed_attempt`) of a block of rows into one
value, which numpy reads as it is, ten times as fast as an object for each row. A block with a row
without packed numbers, because one of them is too large, is read from the other columns.

Blocks are ranges of time, so memory does not grow with the log; several threads read them, because
drivers release the interpreter while the database works.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import islice, pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
from sqlalchemy import ColumnElement, Connection, LargeBinary, Row, Text, and_, cast, func, select

from splitsecond.core.timing.columns import LAYOUT, AttemptColumns, AttemptLabel
from splitsecond.core.timing.packed_attempt import FIELDS, LABEL_AT, attempt_numbers, call_hash
from splitsecond.log.store.tables import ATTEMPTS, CALLS, WITH_CALL

ROWS = 30_000
"""Rows of one block: some 5 MB in memory."""
THREADS = max(2, min(4, os.cpu_count() or 1))
AHEAD = 8
"""Blocks that are read before they are used."""
_LABELS_AT_ONCE = 500
_NUMBERS_AT_ONCE = 5000
_NUMBERS = [name for name in FIELDS if name not in ("came_us", "label")]
_A = ATTEMPTS.c
_HASH = func.substr(_A.packed, LABEL_AT + 1, 8, type_=LargeBinary)
ROUTE, OF_CALL = func.coalesce(CALLS.c.route, ""), func.coalesce(CALLS.c.attempts, 1)
TEAM, TAGS = func.coalesce(CALLS.c.team, ""), func.coalesce(CALLS.c.tags, "")
STATED = CALLS.c.stated_usd.is_not(None)
_NAMES = (_A.target, _A.client, ROUTE, _A.tier, _A.fault, TEAM, TAGS, STATED)
_TIMES = (
    "sent_ns", "head_ns", "first_token_ns", "first_answer_ns", "last_token_ns", "end_ns",
    "first_event_tokens",
)  # fmt: skip
_TOKENS = (
    "input_tokens", "cached_tokens", "cache_write_tokens", "cache_write_1h_tokens", "output_tokens",
    "reasoning_tokens", "token_source",
)  # fmt: skip
_OTHERS = (
    "came_us",
    "call",
    "outcome",
    "role",
    "streamed",
    "fault_type",
    "status",
    "unstreamed_tokens",
)
Part = TypeVar("Part")


class Connecting(Protocol):
    """Opens a connection; its faults are those of the log."""

    def __call__(self) -> AbstractContextManager[Connection]: ...


def attempt_columns(
    connect: Connecting, since_us: int, until_us: int, targets: Sequence[str] = ()
) -> Iterator[tuple[AttemptColumns, float]]:
    """Yield the attempts of calls from `since_us` until before `until_us`, in blocks, in the order
    of time.

    The second value is the share of the blocks that have been read. `targets`: only those to these
    targets; empty: to all.
    """
    with connect() as connection:
        edges = _edges(connection, since_us, until_us)
    label_of: dict[int, AttemptLabel] = {}
    target_names = frozenset(targets)

    def read(start_us: int, end_us: int) -> AttemptColumns | None:
        rows = and_(_A.came_us >= start_us, _A.came_us < end_us)
        with connect() as connection:
            columns = _packed(connection, rows, label_of)
            if columns is None:
                columns = _by_row(connection, rows)
        if target_names:
            columns = columns.taken(
                np.array([each.target in target_names for each in columns.labels], bool)[
                    columns.label
                ]
            )
        return columns if len(columns.label) else None

    yield from read_ahead(
        list(pairwise(edges)), lambda edge: read(*edge), threads=THREADS, ahead=AHEAD
    )


def read_ahead(
    parts: Sequence[Part],
    read: Callable[[Part], AttemptColumns | None],
    *,
    threads: int,
    ahead: int,
) -> Iterator[tuple[AttemptColumns, float]]:
    """Yield what `read` returns for each part, but not None, with the share of the parts that has
    been read.

    Threads read up to `ahead` parts before they are used.
    """
    with ThreadPoolExecutor(threads, "splitsecond-log") as pool:
        following = iter(parts)
        reading: deque[Future[AttemptColumns | None]] = deque()
        for number in range(1, len(parts) + 1):
            reading.extend(
                pool.submit(read, part) for part in islice(following, ahead + 1 - len(reading))
            )
            if (block := reading.popleft().result()) is not None:
                yield block, number / len(parts)


def _edges(connection: Connection, since_us: int, until_us: int) -> list[int]:
    """Return the times between which blocks of about `ROWS` rows lie, in order; none for a log
    without rows.

    They are the times of every `ROWS`-th row as it was written. In a log of calls as they came,
    these are even; in an imported one in any order, they are a sample of its times.
    """
    first, last = (connection.execute(select(each(_A.n))).scalar() for each in (func.min, func.max))
    if first is None or last is None:
        return []
    numbers = range(first, last + 1, ROWS)
    times: set[int] = set()
    for i in range(0, len(numbers), _NUMBERS_AT_ONCE):
        sample = select(_A.came_us).where(_A.n.in_(numbers[i : i + _NUMBERS_AT_ONCE]))
        times.update(connection.execute(sample).scalars())
    return [since_us, *[each for each in sorted(times)[1:] if since_us < each < until_us], until_us]


def _packed(
    connection: Connection, rows: ColumnElement[bool], cached: dict[int, AttemptLabel]
) -> AttemptColumns | None:
    """Return the attempts in these rows by their packed numbers, None if that fails. Adds to the
    `cached` labels."""
    count, block = connection.execute(select(func.count(), _joined(connection)).where(rows)).one()
    if len(block or b"") != count * LAYOUT.itemsize:
        return None
    packed = np.frombuffer(block or b"", LAYOUT)
    hashes, label = np.unique(packed["label"], return_inverse=True)
    names = hashes.tolist()
    unknown = [name for name in names if name not in cached]
    for i in range(0, len(unknown), _LABELS_AT_ONCE):
        cached |= _labels(connection, rows, unknown[i : i + _LABELS_AT_ONCE])
    if not cached.keys() >= set(unknown):
        return None  # a process has just deleted these rows, because they are too old
    return AttemptColumns(
        labels=[cached[name] for name in names],
        label=label,
        came_us=packed["came_us"].astype(np.int64),
        **{name: packed[name].astype(np.int64) for name in _NUMBERS},
    )


def _joined(connection: Connection) -> ColumnElement[bytes]:
    """Return the packed numbers of many rows as one value, in SQL."""
    if connection.dialect.name == "sqlite":  # joins only texts, but takes the bytes as they are
        return cast(func.group_concat(cast(_A.packed, Text), ""), LargeBinary)
    return func.string_agg(_A.packed, cast(b"", LargeBinary), type_=LargeBinary)


def _labels(
    connection: Connection, rows: ColumnElement[bool], hashes: Sequence[int]
) -> dict[int, AttemptLabel]:
    """Return the names that each hash stands for, from the first of the rows that has it."""
    keys = [each.to_bytes(8, "little") for each in hashes]
    first = connection.execute(
        select(func.min(_A.n)).where(rows, _HASH.in_(keys)).group_by(_HASH)
    ).scalars()
    query = select(_HASH, *_NAMES).select_from(WITH_CALL).where(_A.n.in_(first.all()))
    return {
        int.from_bytes(hashed, "little"): AttemptLabel._make(names)
        for hashed, *names in connection.execute(query)
    }


def numbers_of(row: Row[Any], label: int, attempts: int) -> tuple[int, ...]:
    """Return the numbers of `FIELDS` for a row of `ATTEMPTS`. `attempts`: those of its call."""
    call = call_hash(row.call) if attempts > 1 else 0
    times, tokens = (tuple(getattr(row, name) for name in names) for names in (_TIMES, _TOKENS))
    return attempt_numbers(
        lambda *numbers: numbers,
        (row.came_us, label, call, attempts),
        (row.outcome, row.role, row.streamed, row.fault_type, row.status, row.unstreamed_tokens),
        times,
        tokens,
    )


def _by_row(connection: Connection, rows: ColumnElement[bool]) -> AttemptColumns:
    places: dict[tuple[str, ...], int] = {}
    numbers: list[tuple[Any, ...]] = []
    others = (_A[name] for name in (*_OTHERS, *_TIMES, *_TOKENS))
    for row in connection.execute(
        select(OF_CALL, *_NAMES, *others).select_from(WITH_CALL).where(rows)
    ):
        attempts, *names = row[: len(_NAMES) + 1]
        place = places.setdefault(tuple(names), len(places))
        numbers.append(numbers_of(row, place, attempts))
    columns = np.array(numbers, np.int64).reshape(len(numbers), len(FIELDS)).T
    return AttemptColumns(
        labels=[*map(AttemptLabel._make, places)],
        came_us=columns[0],
        label=columns[1],
        **dict(zip(_NUMBERS, columns[2:], strict=True)),
    )
