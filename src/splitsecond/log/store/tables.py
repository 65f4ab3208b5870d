"""Tables of the gateway's log, and their version in a database.

There are two wide tables that can be queried directly, `calls` and `attempts`. A call and its
attempts are found together by `came_us` (wall clock, UTC, microseconds) and `call`. In PostgreSQL
both have a partition for each day (`log/store/partitions`). Rows are written in the order of time,
so an index on a time grows at its end, while an index on the random ids of calls would touch a page
of its own for each row.

The texts of the columns are the source of docs/reference/log.md. A column of `attempts` without a
text has the name and meaning of a field of `Observation`, except that times (`sent_ns` to `end_ns`)
count from the arrival of the call.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    and_,
    inspect,
    select,
    text,
)

from splitsecond.core.errors import CallerFault
from splitsecond.log.store import partitions

VERSION = 4
"""The newest revision in `log/store/migrations`."""

# SQLite numbers rows only for a column of exactly this type
_KEY = BigInteger().with_variant(Integer, "sqlite")


def _text(**columns: str) -> list[Column[str]]:
    return [Column(name, Text, nullable=False, doc=doc) for name, doc in columns.items()]


def _flags(**columns: str) -> list[Column[bool]]:
    return [Column(name, Boolean, nullable=False, doc=doc) for name, doc in columns.items()]


def _whole(**columns: str) -> list[Column[int]]:
    return [Column(name, BigInteger, nullable=False, doc=doc) for name, doc in columns.items()]


def _maybe(**columns: str) -> list[Column[int]]:
    """Return columns that are null if something did not happen or was not reported."""
    return [Column(name, BigInteger, doc=doc) for name, doc in columns.items()]


METADATA = MetaData()

CALLS = Table(
    "calls",
    METADATA,
    Column("n", _KEY, primary_key=True, doc="Number of the row."),
    *_whole(came_us="When the call came in: microseconds since 1970, UTC."),
    *_text(
        call="Id of the call.",
        route="The route or target that the client named in `model`.",
        client="Name of the client's key.",
        operation="`chat`, `completions` or `embeddings`.",
    ),
    *_flags(stream="Whether the client asked for a stream."),
    *_whole(status="HTTP status of the response; 499 if the client left before it."),
    *_text(
        cache="`hit`, `shared` (with an identical call in flight), "
        "`miss`, or empty without a cache.",
        target="The target that answered, or empty.",
        outcome="`ok`, `failed` or `cancelled`.",
        fault="Kind of the fault that the client received, or empty.",
    ),
    *_maybe(first_token_ns="Time from the arrival of the call to the first token."),
    *_whole(
        end_ns="Time from the arrival of the call to the last byte of its response.",
        attempts="Number of requests that were sent to targets.",
    ),
    *_maybe(
        input_tokens="Input tokens of the attempt that answered, like the following counts.",
        cached_tokens="Input tokens read from the provider's prompt cache.",
        cache_write_tokens="Input tokens written to the provider's prompt cache.",
        cache_write_1h_tokens="Of these, the tokens that were written for an "
        "hour, which cost more.",
        output_tokens="Output tokens, reasoning included.",
        reasoning_tokens="Output tokens that were reasoning.",
    ),
    *_text(
        token_source="Where `output_tokens` comes from: `usage`, `tokenizer`, `events` or "
        "`estimate`."
    ),
    *_maybe(
        session="The session that the call belongs to: a keyed hash, signed; null without one, "
        "like the following.",
        agent="The agent within the session that sent it: a keyed hash, "
        "signed; null for the main one.",
        parent="The agent that started this agent, if the client says so.",
        turn="Number of the call within its agent, from 1.",
        new_tokens="Estimated input tokens that the agent had not sent before.",
        reusable_tokens="Estimated input tokens that a prompt cache without limits would contain.",
        idle_ms="Milliseconds from the end of the agent's answer before "
        "to the arrival of the call.",
        repeated="How often in a row the model had called a tool with the same arguments, if "
        "three times or more.",
        choice="Place, from 0, of the branch that a choosing policy chose first; null without a "
        "choice, like the following. Of choices within choices, that of the outer one.",
        choice_available="The places that could be chosen, as bits: 5 for the first and the third.",
        choice_ppm="Millionths of probability with which all choices were made as they were; 0 "
        "where it is unknown, because a policy explored or drew from the uncertainty of estimates.",
    ),
    Column(
        "team",
        Text,
        doc="The team of the client's key, or that which an imported log names; null without one.",
    ),
    Column("tags", Text, doc="Its tags, sorted and joined by `, `; null without one."),
    Column(
        "stated_usd", Double, doc="What an imported log states that the call cost, in US dollars."
    ),
    Index("calls_by_time", "came_us"),
    # nothing for the gateway's own calls, whose cost follows from their tokens
    Index(
        "calls_with_cost",
        "came_us",
        sqlite_where=text("stated_usd IS NOT NULL"),
        postgresql_where=text("stated_usd IS NOT NULL"),
    ),
)

ATTEMPTS = Table(
    "attempts",
    METADATA,
    Column("n", _KEY, primary_key=True, doc="Number of the row."),
    *_whole(came_us="When the call came in: microseconds since 1970, UTC."),
    *_text(
        call="Id of the call.",
        id="Id of the attempt: that of its call and a number.",
        client="Name of the client's key.",
        target="The target.",
        role="`winner` or `loser`.",
        outcome="`ok`, `failed` or `cancelled` (we closed it before its end).",
    ),
    *_flags(streamed=""),
    *_text(
        fault_type="Who is at fault, such as `ProviderFault`; empty without a fault.",
        fault="Kind of the fault, a fixed word to count by.",
        phase="How far the request had come when it failed.",
        message="What happened, shortened.",
    ),
    *_whole(fault_status="HTTP status of the fault, 0 without one.", status=""),
    *_text(finish_reason=""),
    *_whole(dns_ns="", tcp_ns="", tls_ns=""),
    *_flags(reused="", resent=""),
    *_maybe(
        rtt_ns="", sent_ns="", head_ns="", first_token_ns="", first_answer_ns="", last_token_ns=""
    ),
    *_whole(end_ns=""),
    *_maybe(
        first_event_tokens="Tokens that arrived with the first one; all, if the speed after it is "
        "not known.",
        input_tokens="",
        cached_tokens="",
        cache_write_tokens="",
        cache_write_1h_tokens="",
        output_tokens="",
        reasoning_tokens="",
    ),
    *_text(token_source=""),
    *_whole(lag_max_ns=""),
    *_flags(kernel_time=""),
    *_maybe(
        server_queue_ns="Time before any work, by the server's own report, "
        "like the following times.",
        server_prefill_ns="Time to read the prompt.",
        server_decode_ns="Time to write the answer.",
        server_head_ns="Time from the arrival of the request to the head of the response.",
        server_total_ns="Time from the arrival of the request to the end of the answer.",
        unstreamed_tokens="",
    ),
    *_text(
        tier="The speed tier that served the request, in the provider's word; empty if unknown."
    ),
    Column(
        "packed",
        LargeBinary,
        doc="The numbers of this row that `speed` and `cost` read, in the layout of "
        "`splitsecond/core/timing/packed_attempt.py`; null where a number is too large.",
    ),
    # In SQLite it contains `packed`, so `speed` reads it alone: in the table, 41 columns come
    # before that one.
    Index("attempts_by_time", "came_us", "packed").ddl_if(dialect="sqlite"),
    Index("attempts_by_time", "came_us").ddl_if(dialect="postgresql"),
    Index("attempts_by_target", "target", "came_us"),
    Index("attempts_by_client", "client", "came_us"),
)

WITH_CALL = ATTEMPTS.outerjoin(
    CALLS, and_(CALLS.c.came_us == ATTEMPTS.c.came_us, CALLS.c.call == ATTEMPTS.c.call)
)

partitions.partition(CALLS)
partitions.partition(ATTEMPTS)

STAMP = Table("splitsecond_log", METADATA, Column("version_num", String(32), primary_key=True))
"""Alembic's table, which contains the version."""


def are_current(connection: Connection) -> bool:
    """Return whether the tables have this version. Needs no lock."""
    return inspect(connection).has_table(STAMP.name) and _version(connection) == str(VERSION)


def prepare(connection: Connection, where: str, *, shared: bool) -> None:
    """Create the tables, or migrate them to this version. Call it in a transaction that excludes
    other writers.

    `shared`: the database may contain other tables. Raises `CallerFault` if the log has a newer
    version, or the database is not a log.
    """
    present = set(inspect(connection).get_table_names())
    if STAMP.name not in present:
        if present & {CALLS.name, ATTEMPTS.name} if shared else present:
            raise CallerFault(
                f"the database {where} is not a log: it has a table "
                f"{min(present)!r}, but none of a log",
                kind="not_a_log",
                hint="Give the log a database of its own.",
            )
        METADATA.create_all(connection)
        connection.execute(STAMP.insert().values(version_num=str(VERSION)))
        return
    version = _version(connection)
    if version == str(VERSION):
        return
    if version is None or not version.isdecimal() or int(version) > VERSION:
        raise CallerFault(
            f"the log {where} was written by a newer version: its tables are version {version}, "
            f"this one knows {VERSION}",
            kind="newer_log",
            hint="Update splitsecond, or name another log.",
        )
    # Alembic takes a tenth of a second to import, and only an older log needs it.
    from splitsecond.log.store import migrations

    migrations.upgrade(connection)


def _version(connection: Connection) -> str | None:
    return connection.execute(select(STAMP.c.version_num)).scalar()
