"""Partitions of a log in PostgreSQL: one for each day (UTC) of `calls` and of `attempts`.

A day that is too old is dropped as a whole, which takes milliseconds, while deleting its rows would
take hours in a log of millions. Partitions are created days ahead. The default partition holds what
belongs to no other one: calls of the first day, imported calls of long ago, and rows of a machine
whose clock is wrong.

Creating and dropping wait `LOCK_MS` at most for a lock, because writers queue behind them. What
fails is tried again at the next look, some minutes later.
"""

from sqlalchemy import DDL, Connection, Table, event, text
from sqlalchemy.exc import SQLAlchemyError

from splitsecond.core.clock import US_PER_DAY

AHEAD_DAYS = 3
LOCK_MS = 1000
TABLES = ("calls", "attempts")
_LOCK = 0x5EC0_0DB6
"""The advisory lock of the process that creates and drops partitions."""
_DAYS = """
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
  WHERE i.inhparent = to_regclass(:table)
"""


def partition(table: Table) -> None:
    """Have PostgreSQL create `table` partitioned by `came_us`, with its default partition."""
    table.kwargs["postgresql_partition_by"] = "RANGE (came_us)"
    # the key of a partitioned table must contain `came_us`
    table.primary_key.ddl_if(dialect="sqlite")
    for statement in (
        "ALTER TABLE %(table)s ADD PRIMARY KEY (n, came_us)",
        "CREATE TABLE %(table)s_default PARTITION OF %(table)s DEFAULT",
    ):
        make = DDL(statement)  # type: ignore[no-untyped-call]
        event.listen(table, "after_create", make.execute_if(dialect="postgresql"))


def maintain(connection: Connection, now_us: int, cutoff_us: int) -> list[str]:
    """Create the partitions of the next days, and drop those that ended before `cutoff_us`. Return
    what failed.

    Only one process at a time does so; for others it returns at once.
    """
    if not connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": _LOCK}).scalar():
        return []
    failed = []
    try:
        connection.exec_driver_sql(f"SET lock_timeout = {LOCK_MS}")
        for table in TABLES:
            present = set(connection.execute(text(_DAYS), {"table": table}).scalars())
            today = now_us // US_PER_DAY
            upcoming = {_name(table, day): day for day in range(today + 1, today + 1 + AHEAD_DAYS)}
            statements = [
                f"CREATE TABLE {name} PARTITION OF {table} FOR VALUES FROM ({day * US_PER_DAY}) "
                f"TO ({(day + 1) * US_PER_DAY})"
                for name, day in upcoming.items()
                if name not in present
            ]
            last = _name(table, cutoff_us // US_PER_DAY)
            statements += [
                f"DROP TABLE {name}"
                for name in sorted(present)
                if name < last and name[-1].isdigit()
            ]
            for statement in statements:
                try:
                    connection.exec_driver_sql(statement)
                except SQLAlchemyError as error:
                    failed.append(f"{statement.split(' FOR ')[0]}: {getattr(error, 'orig', error)}")
    finally:
        connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK})
        connection.exec_driver_sql("RESET lock_timeout")
    return failed


def _name(table: str, day: int) -> str:
    """Return the name of a day's partition. The number of the day, from 1970, has eight digits, so
    names sort."""
    return f"{table}_day_{day:08}"
