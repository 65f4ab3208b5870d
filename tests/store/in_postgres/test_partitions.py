"""Partitions of a log in PostgreSQL: created ahead, dropped when they are old, and none of it loses
a row."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection
from tests.store.in_postgres.test_log_in_postgres import calls, written
from tests.store.records import answered
from tests.store.server import Server

from splitsecond.core import clock
from splitsecond.core.clock import US_PER_DAY
from splitsecond.log.store.database import Database
from splitsecond.log.store.partitions import AHEAD_DAYS, maintain

pytestmark = pytest.mark.system


def partitions(server: Server, url: str, table: str = "calls") -> list[str]:
    query = (
        f"SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = "
        f"'{table}'::regclass ORDER BY 1"
    )
    return [str(name) for (name,) in server.execute(url, query) if not str(name).endswith("_idx")]


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    with Database.open(url).connect() as connection:
        yield connection


def day(days: int) -> int:
    """Return a number of days from today, in microseconds since 1970."""
    today_us = int(clock.wall_time().timestamp()) * 1_000_000 // US_PER_DAY * US_PER_DAY
    return today_us + days * US_PER_DAY


def test_the_next_days_have_partitions_and_old_ones_are_dropped(server: Server, url: str) -> None:
    written(url, [answered(1)])
    ahead = [f"calls_day_{day(each) // US_PER_DAY:08}" for each in range(1, AHEAD_DAYS + 1)]
    with connected(url) as connection:
        assert maintain(connection, day(0), day(-30)) == []
        assert partitions(server, url) == [*ahead, "calls_default"]
        assert maintain(connection, day(3), day(3)) == []
    kept = [f"calls_day_{day(each) // US_PER_DAY:08}" for each in range(3, 3 + AHEAD_DAYS + 1)]
    assert partitions(server, url) == [*kept, "calls_default"]
    assert len(partitions(server, url, "attempts")) == len(kept) + 1
    assert calls(url) == ["req-1"]


def test_rows_go_to_the_partition_of_their_day(server: Server, url: str) -> None:
    written(url, [answered(1)])
    with connected(url) as connection:
        maintain(connection, day(-2), day(-30))  # as if it were the day before yesterday
    written(url, [answered(2)])
    today = f"calls_day_{day(0) // US_PER_DAY:08}"
    # A row of today was there already, in the default partition, so today has none: rows are not
    # lost for it.
    assert today not in partitions(server, url)
    assert sorted(calls(url)) == ["req-1", "req-2"]
    server.execute(url, "DELETE FROM calls; DELETE FROM attempts")
    with connected(url) as connection:
        assert maintain(connection, day(-2), day(-30)) == []
    written(url, [answered(3)])
    assert server.execute(url, f"SELECT call FROM {today}") == [("req-3",)]


def test_lock_of_a_reader_delays_only_the_drop(server: Server, url: str) -> None:
    written(url, [answered(1)])
    with connected(url) as connection, connected(url) as reading:
        maintain(connection, day(-9), day(-30))
        reading.exec_driver_sql("BEGIN")
        reading.exec_driver_sql("SELECT * FROM calls").all()
        failed = maintain(connection, day(0), day(0))
        assert failed
        assert all("lock timeout" in each for each in failed)
        written(url, [answered(2)])
        reading.exec_driver_sql("COMMIT")
        assert maintain(connection, day(0), day(0)) == []


def test_only_one_process_at_a_time_creates_partitions(server: Server, url: str) -> None:
    written(url, [answered(1)])
    before = partitions(server, url)
    with connected(url) as connection, connected(url) as other:
        other.exec_driver_sql("SELECT pg_advisory_lock(x'5EC00DB6'::bigint)")
        assert maintain(connection, day(9), day(-30)) == []
    assert partitions(server, url) == before
