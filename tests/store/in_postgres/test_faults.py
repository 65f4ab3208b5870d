"""The log, with a connection to PostgreSQL that breaks at each message, and with a server that is
away at first."""

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from tests.store.cutting_relay import BREAKS, Break, CuttingRelay
from tests.store.records import answered
from tests.store.server import Server
from tests.waiting import until

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.log.store import database
from splitsecond.log.store.database import Database
from splitsecond.log.store.log import Log, Past
from splitsecond.log.store.writer import LogWriter

pytestmark = pytest.mark.system
MAX_MESSAGES = 400
HOUR = timedelta(hours=1)


@pytest.fixture
def relay(server: Server) -> Iterator[CuttingRelay]:
    relay = CuttingRelay(server.socket)
    yield relay
    relay.close()


def each_break(relay: CuttingRelay, how: Break, act: Callable[[], object], step: int) -> int:
    """Call `act` with a connection that breaks after every `step`th message. Return how often it
    broke."""
    for broken, messages in enumerate(range(BREAKS.index(how), MAX_MESSAGES, step)):
        relay.cut_after(messages, how)
        act()
        if not relay.broken:
            relay.left = None
            return broken
    raise AssertionError("there are too many messages")


@pytest.mark.parametrize("how", BREAKS)
def test_a_reader_gets_one_kind_of_error(
    url: str, relay: CuttingRelay, how: Break, caplog: pytest.LogCaptureFixture
) -> None:
    with Log.open(url) as log:
        for number in range(3):
            log.put(answered(number))
    past, since = Past.open(relay.url(url)), clock.wall_time() - HOUR
    failed = []

    def read() -> None:
        try:
            past.recent(HOUR)
            past.contained([answered(1)])
            past.spent_tokens("team", since)
            list(past.calls(since))
            list(past.attempts(since, clock.wall_time()))
        except CallerFault as fault:
            failed.append(fault.kind)

    broken = each_break(relay, how, read, step=11)
    assert broken >= 5
    assert failed == ["log_unavailable"] * broken
    assert not [
        each
        for each in caplog.records
        if each.levelno >= logging.ERROR and each.name.startswith("sqlalchemy")
    ]


@pytest.mark.parametrize("how", BREAKS)
def test_writer_loses_no_record_when_its_connection_breaks(
    url: str, relay: CuttingRelay, how: Break
) -> None:
    """A commit whose confirmation is lost is repeated, so a call may be in the log twice, never
    missing."""
    opened = Database.open(relay.url(url))
    written: list[str] = []

    def write() -> None:
        writer = LogWriter(opened, say=lambda words: None)
        records = [answered(len(written) + number) for number in range(3)]
        for record in records:
            writer.put(record)
        for _ in range(3):
            writer.write()
        writer._disconnect()
        assert (writer.written, writer.dropped, writer.failing) == (3, 0, False)
        written.extend(record.call for record in records)

    assert each_break(relay, how, write, step=13) >= 4
    assert {record.call for _, record in Past.open(url).calls(clock.wall_time() - HOUR)} == set(
        written
    )


def test_log_opens_through_a_broken_connection(url: str, relay: CuttingRelay) -> None:
    def open_log() -> None:
        reasons: list[str] = []
        opened = Database.open(relay.url(url), away=reasons.append)
        assert len(reasons) == relay.broken
        assert opened.is_server

    assert each_break(relay, "closed", open_log, step=5) >= 3


def test_log_is_created_when_an_absent_server_returns(server: Server, url: str) -> None:
    said: list[str] = []
    reasons: list[str] = []
    server.stop()
    with Log.open(url, say=said.append, away=reasons.append) as log:
        log.put(answered(1))
        until(lambda: log.failing, "the thread does not try to write")
        assert (log.waiting, log.written, log.dropped) == (1, 0, 0)
        server.start()
        until(lambda: log.written == 1 and not log.failing, "the record is not written")
        assert log.waiting == 0
    assert [record.call for _, record in Past.open(url).calls(clock.wall_time() - HOUR)] == [
        "req-1"
    ]
    assert len(reasons) == 1
    assert said[0].startswith("cannot write the log ")
    assert said[-1].endswith("is written again; records lost so far: 0")


def test_wait_for_a_migration_of_another_process_is_bounded(
    server: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splitsecond.log.store.database.PREPARE_S", 1)
    with Database.open(url).connect() as connection:
        connection.exec_driver_sql("BEGIN")
        connection.exec_driver_sql("LOCK splitsecond_log")
        reasons: list[str] = []
        Database.open(url, away=reasons.append)
        assert "timeout" in reasons[0]
        connection.exec_driver_sql("ROLLBACK")


def test_stuck_preparation_does_not_block_other_writers(url: str) -> None:
    with Database.open(url).connect() as stuck:
        stuck.exec_driver_sql("BEGIN")
        stuck.exec_driver_sql(f"SELECT pg_advisory_xact_lock({database._LOCK})")
        with Log.open(url) as log:
            log.put(answered(1))
            until(lambda: log.written == 1, "the record is not written")
        stuck.exec_driver_sql("ROLLBACK")


def test_foreign_database_is_refused_even_if_away_is_allowed(server: Server, url: str) -> None:
    server.execute(url, "CREATE TABLE calls (a integer)")
    with pytest.raises(CallerFault, match="is not a log"):
        Database.open(url, away=pytest.fail)
