"""The tables of the gateway's log, and what version of them a database holds.

Strategy: two wide tables that SQL can be asked directly, `calls` and `attempts`. A call and its attempts are found
together by `came_us` (the wall clock, UTC, microseconds) and `call`. Both are written in the order of time, so an
index on a moment grows at its end, where one on a call's random id would touch a page of its own for each row.

Durations are nanoseconds. In `attempts` a name that an `Observation` has means what it means there, except that moments
(`sent_ns` to `end_ns`) count from the call's arrival; so TTFT is first_token_ns − sent_ns, and the wait of the client
first_token_ns alone. `server_*_ns` are the provider's own words of where its time went (`store/server_times`).
"""

from collections.abc import Callable, Mapping

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    inspect,
    select,
)

from splitsecond.errors import CallerFault

VERSION = 2

_KEY = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows by itself only under this very name of a type


def _text(*names: str) -> list[Column[str]]:
    return [Column(name, Text, nullable=False) for name in names]


def _flags(*names: str) -> list[Column[bool]]:
    return [Column(name, Boolean, nullable=False) for name in names]


def _whole(*names: str) -> list[Column[int]]:
    return [Column(name, BigInteger, nullable=False) for name in names]


def _maybe(*names: str) -> list[Column[int]]:
    """Null where it did not happen, or nobody said."""
    return [Column(name, BigInteger) for name in names]


METADATA = MetaData()

CALLS = Table(
    "calls",
    METADATA,
    Column("n", _KEY, primary_key=True),
    *_whole("came_us"),
    *_text("call", "route", "client", "operation"),
    *_flags("stream"),
    *_whole("status"),
    *_text("cache", "target", "outcome", "fault"),
    *_maybe("first_token_ns"),
    *_whole("end_ns", "attempts"),
    *_maybe("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens"),
    *_text("token_source"),
    Index("calls_by_time", "came_us"),
)

ATTEMPTS = Table(
    "attempts",
    METADATA,
    Column("n", _KEY, primary_key=True),
    *_whole("came_us"),
    *_text("call", "id", "client", "target", "role", "outcome"),
    *_flags("streamed"),
    *_text("fault_type", "fault", "phase", "message"),
    *_whole("fault_status", "status"),
    *_text("finish_reason"),
    *_whole("dns_ns", "tcp_ns", "tls_ns"),
    *_flags("reused", "resent"),
    *_maybe("rtt_ns", "sent_ns", "head_ns", "first_token_ns", "first_answer_ns", "last_token_ns"),
    *_whole("end_ns"),
    *_maybe(
        "first_event_tokens", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens"
    ),
    *_text("token_source"),
    *_whole("lag_max_ns"),
    *_flags("kernel_time"),
    *_maybe("server_queue_ns", "server_prefill_ns", "server_decode_ns", "server_head_ns", "server_total_ns"),
    Index("attempts_by_time", "came_us"),
    Index("attempts_by_target", "target", "came_us"),
    Index("attempts_by_client", "client", "came_us"),
)

STAMP = Table("splitsecond_log", METADATA, Column("version", Integer, nullable=False))


def _add_server_times(connection: Connection) -> None:
    for name in ("queue", "prefill", "decode", "head", "total"):
        connection.exec_driver_sql(f"ALTER TABLE attempts ADD COLUMN server_{name}_ns BIGINT")


MIGRATIONS: Mapping[int, Callable[[Connection], None]] = {1: _add_server_times}
"""What makes a database of a version one of the next. A column that is added may be null: a process of the version
before may still be writing."""


def prepare(connection: Connection, where: str, *, shared: bool) -> None:
    """Makes the tables, or brings them up to this version. To be called in a transaction that keeps others out.

    `shared`: the database may hold tables of others. Raises `CallerFault` where it is of a newer version, or not ours.
    """
    present = set(inspect(connection).get_table_names())
    if STAMP.name not in present:
        if present & {CALLS.name, ATTEMPTS.name} if shared else present:
            raise CallerFault(
                f"the database {where} holds something else: there is a table {min(present)!r}, but none of ours",
                kind="not_a_log",
                hint="Give the log a database of its own.",
            )
        METADATA.create_all(connection)
        connection.execute(STAMP.insert().values(version=VERSION))
        return
    found = connection.execute(select(STAMP.c.version)).scalar()
    if not isinstance(found, int) or found > VERSION:
        raise CallerFault(
            f"the log {where} was written by a newer version: its tables are version {found}, this one knows {VERSION}",
            kind="newer_log",
            hint="Update splitsecond, or name another log.",
        )
    for version in range(found, VERSION):
        MIGRATIONS[version](connection)
    if found < VERSION:
        connection.execute(STAMP.update().values(version=VERSION))
