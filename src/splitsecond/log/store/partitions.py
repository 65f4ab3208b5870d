"""Partitions of a log in PostgreSQL: one for each day (UTC) of `calls` and of `attempts`.

A day that is too old is dropped as a whole, which takes milliseconds, while deleting its rows would take hours in a log
of millions. Partitions are created days ahead. The default partition holds what belongs to no other one: the rows of a
log from before it had partitions, imported calls of long ago, and rows of a machine whose clock is wrong.

Creating and dropping wait `LOCK_MS` at most for a lock, because writers queue behind them.
"""

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from splitsecond.core.clock import US_PER_DAY

AHEAD_DAYS = 3
LOCK_MS = 1000
TABLES = ("calls", "attempts")
_LOCK = 0x5EC0_0DB6
"""The advisory lock of the process that creates and drops partitions."""
_DAYS = """
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass(:table)
"""


def divide(connection: Connection) -> None:
    for table in TABLES:
        default = f"{table}_default"
        indexes = connection.execute(
            text("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = :table AND indexname LIKE :by"),
            {"table": table, "by": f"{table}\\_by\\_%"},
        ).all()
        connection.exec_driver_sql(f"ALTER TABLE {table} RENAME TO {default}")
        connection.exec_driver_sql(f"ALTER TABLE {default} DROP CONSTRAINT {table}_pkey")
        for name, _ in indexes:
            connection.exec_driver_sql(f"ALTER INDEX {name} RENAME TO {name.replace(table, default, 1)}")
        connection.exec_driver_sql(
            f"CREATE TABLE {table} (LIKE {default} INCLUDING DEFAULTS, PRIMARY KEY (n, came_us)) "
            "PARTITION BY RANGE (came_us)"
        )
        connection.exec_driver_sql(f"ALTER SEQUENCE {table}_n_seq OWNED BY {table}.n")
        for _, definition in indexes:
            connection.exec_driver_sql(definition)
        connection.exec_driver_sql(f"ALTER TABLE {table} ATTACH PARTITION {default} DEFAULT")


def maintain(connection: Connection, now_us: int, cutoff_us: int) -> list[str]:
    """Create the partitions of the next days, and drop those that ended before `cutoff_us`. Return what failed.

    Only one process at a time does so; for others it returns at once.
    """
    if not connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": _LOCK}).scalar():
        return []
    failed = []
    try:
        connection.exec_driver_sql(f"SET lock_timeout = {LOCK_MS}")
        for table in TABLES:
            present = set(connection.execute(text(_DAYS), {"table": table}).scalars())
            if not present:
                continue
            today = now_us // US_PER_DAY
            wanted = {_name(table, day): day for day in range(today + 1, today + 1 + AHEAD_DAYS)}
            statements = [
                f"CREATE TABLE {name} PARTITION OF {table} FOR VALUES FROM ({day * US_PER_DAY}) "
                f"TO ({(day + 1) * US_PER_DAY})"
                for name, day in wanted.items()
                if name not in present
            ]
            last = _name(table, cutoff_us // US_PER_DAY)
            statements += [f"DROP TABLE {name}" for name in sorted(present) if name < last and name[-1].isdigit()]
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
    """Return the name of a day's partition. The number of the day, from 1970, has eight digits, so names sort."""
    return f"{table}_day_{day:08}"
