"""Traffic never waits for the log or fails because of it; records that the database takes late are
not lost."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from tests.store.records import answered

from splitsecond.core import clock
from splitsecond.log.store import database, writer
from splitsecond.log.store.database import Database
from splitsecond.log.store.log import Log
from splitsecond.log.store.writer import LogWriter


class Desk:
    """A writer without its thread: `write` is what the thread does. `said` is what it complained
    of."""

    def __init__(self, folder: Path, *, queue: int = 4096) -> None:
        self.file = folder / "log.db"
        self.said: list[str] = []
        self.writer = LogWriter(
            Database.open(f"sqlite:///{self.file}"), say=self.said.append, queue=queue
        )

    def put(self, *numbers: int) -> None:
        for number in numbers:
            self.writer.put(answered(number))

    @property
    def calls(self) -> list[str]:
        connection = sqlite3.connect(self.file)
        try:
            found = connection.execute("SELECT call FROM calls ORDER BY n").fetchall()
            assert connection.execute("SELECT count(*) FROM attempts").fetchone() == (len(found),)
        finally:
            connection.close()
        return [call.removeprefix("req-") for (call,) in found]

    @property
    def counts(self) -> tuple[int, int, int]:
        """Written, dropped, errors."""
        return self.writer.written, self.writer.dropped, self.writer.errors


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(database, "BUSY_S", 0.01)
    made = Desk(tmp_path)
    yield made
    made.writer._disconnect()


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Another process writes, and does not end."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


def test_full_queue_drops_new_records(tmp_path: Path) -> None:
    desk = Desk(tmp_path, queue=2)
    desk.put(1, 2, 3, 4)
    assert desk.writer.write()
    desk.put(5)
    assert desk.writer.write()
    assert (desk.calls, desk.counts) == (["1", "2", "5"], (3, 2, 0))
    desk.writer._disconnect()


def test_records_are_written_after_the_lock_ends(desk: Desk) -> None:
    with locked(desk.file):
        desk.put(1)
        assert not desk.writer.write()
        desk.put(2)
        assert not desk.writer.write()
    desk.put(3)
    assert desk.writer.write()
    assert (desk.calls, desk.counts) == (["1", "2", "3"], (3, 0, 2))
    assert desk.said == [
        f"cannot write the log {desk.file}: database is locked",
        f"the log {desk.file} is written again; records lost so far: 0",
    ]


def test_a_log_that_stays_locked_keeps_a_bounded_number(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PENDING", 3)
    with locked(desk.file):
        for number in range(5):
            desk.put(number)
            assert not desk.writer.write()
    assert desk.writer.write()
    assert (desk.calls, desk.counts) == (["2", "3", "4"], (3, 2, 5))


def test_failures_are_reported_once_a_minute(desk: Desk) -> None:
    desk.put(1)
    moment = [0]
    with locked(desk.file), clock.using(lambda: moment[0]):
        for second in range(0, 130, 10):
            moment[0] = second * clock.NS_PER_S
            assert not desk.writer.write()
    assert desk.said == [f"cannot write the log {desk.file}: database is locked"] * 3


def test_the_pause_after_failures_doubles_to_a_bound(desk: Desk) -> None:
    desk.put(1)
    pauses = []
    with locked(desk.file):
        for _ in range(8):
            assert not desk.writer.write()
            pauses.append(desk.writer._rounds_left)
    assert pauses == [1, 2, 4, 8, 16, 32, 40, 40]
    assert desk.writer.write()
    with locked(desk.file):
        desk.put(2)
        assert not desk.writer.write()
    assert desk.writer._rounds_left == 1


def test_a_full_disk_loses_nothing_once_there_is_room(desk: Desk) -> None:
    desk.put(0)
    assert desk.writer.write()
    connection = desk.writer._connected()
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
    connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    desk.put(*range(1, 200))
    assert not desk.writer.write()
    assert desk.calls == ["0"]  # nothing of a batch, or all of it
    assert "database or disk is full" in desk.said[0]
    assert desk.writer.write()  # by a connection without that limit
    assert (desk.calls, desk.counts) == ([str(n) for n in range(200)], (200, 0, 1))


def test_removed_file_is_created_again(desk: Desk) -> None:
    desk.put(1)
    assert desk.writer.write()
    for file in desk.file.parent.iterdir():
        file.unlink()
    desk.put(2)
    assert desk.writer.write()
    assert (desk.calls, desk.counts) == (["2"], (2, 0, 1))
    assert desk.said[0] == f"log {desk.file}: the file was removed; a new one is created"


def test_a_folder_that_was_removed_is_waited_for(desk: Desk) -> None:
    desk.put(1)
    shutil.rmtree(desk.file.parent)
    assert not desk.writer.write()
    assert "unable to open database file" in desk.said[0]
    desk.file.parent.mkdir()
    assert desk.writer.write()
    assert (desk.calls, desk.counts) == (["1"], (1, 0, 1))


def test_file_that_is_no_longer_a_log_is_left_alone(desk: Desk) -> None:
    desk.put(1)
    for file in desk.file.parent.iterdir():
        file.unlink()
    other = sqlite3.connect(desk.file)
    other.execute("CREATE TABLE theirs (a)")
    other.close()
    assert not desk.writer.write()
    assert "is not a log" in desk.said[0]
    other = sqlite3.connect(desk.file)
    assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    other.close()


@pytest.mark.parametrize("bad", [0, 7, 39])
def test_a_record_that_cannot_be_written_is_dropped_alone(desk: Desk, bad: int) -> None:
    for number in range(40):
        record = answered(number)
        if number == bad:
            attempt = msgspec.structs.replace(record.attempts[0], output_tokens=1 << 64)
            record = msgspec.structs.replace(record, attempts=(attempt,))
        desk.writer.put(record)
    assert desk.writer.write()
    assert sorted(map(int, desk.calls)) == [n for n in range(40) if n != bad]
    assert desk.counts == (39, 1, 0)
    assert "a record cannot be written" in desk.said[0]
    desk.put(40)
    assert desk.writer.write()
    assert "40" in desk.calls


@pytest.mark.parametrize("number", [1, 7, 8, 9, 31, 32, 33, 500])
def test_any_number_of_records_goes_in_in_order(desk: Desk, number: int) -> None:
    desk.put(*range(number))
    assert desk.writer.write()
    assert desk.calls == [str(n) for n in range(number)]


def test_a_batch_takes_a_bounded_number(desk: Desk) -> None:
    desk.put(*range(writer.BATCH + 100))
    assert desk.writer.write()
    assert writer.BATCH <= desk.writer.written < writer.BATCH + 32
    assert desk.writer.write()
    assert desk.writer.written == writer.BATCH + 100


def test_old_rows_are_deleted_in_small_parts(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "SWEEP_ROWS", 4)
    for number in range(10):
        desk.writer.put(answered(number, ago_s=40 * 86400))
    left = []
    for _ in range(5):
        assert desk.writer.write()
        left.append(len(desk.calls))
    assert left == [6, 2, 0, 0, 0]
    assert not desk.writer._sweeping  # until some minutes later
    desk.writer.put(answered(11, ago_s=40 * 86400))
    assert desk.writer.write()
    assert desk.calls == ["11"]


def test_closing_ends_though_the_log_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.01)
    said: list[str] = []
    log = Log.open(f"sqlite:///{tmp_path}/log.db", say=said.append)
    with locked(tmp_path / "log.db"):
        log.put(answered(1))
        log.close()
        log.close()
    assert (log.written, log.dropped) == (0, 1)
    assert said[-1] == f"log {tmp_path}/log.db: closed; records not written: 1"


def test_thread_writes_records_when_the_lock_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.01)
    said: list[str] = []
    with Log.open(f"sqlite:///{tmp_path}/log.db", say=said.append) as log:
        with locked(tmp_path / "log.db"):
            log.put(answered(1))
            while not log.errors:
                assert isinstance(log._writer, LogWriter)
                log._writer._thread.join(0.01)
        log.put(answered(2))
    assert (log.written, log.dropped) == (2, 0)
    assert [served.call for _, served in log.calls(datetime(2020, 1, 1, tzinfo=UTC))] == [
        "req-1",
        "req-2",
    ]


def test_writer_yields_the_cpu_unless_a_full_batch_waits(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []
    monkeypatch.setattr(writer, "_yield_processor", lambda: left.append(len(desk.writer._queue)))
    desk.put(*range(100))
    desk.writer.write()
    assert len(left) > 2 * 100 / 32
    left.clear()
    desk.put(*range(3 * writer.BATCH))
    desk.writer.write()
    assert not left
    desk.writer.write()
    desk.writer.write()
    assert left
    assert max(left) < writer.BATCH
