"""The log in a real PostgreSQL server: as in a file, and the faults that only a server has."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection
from tests.store.columns import check_columns
from tests.store.records import answered, kept, records, same_figures
from tests.store.server import Server
from tests.store.test_database import add_revisions
from tests.store.test_import import LITELLM, as_lines
from tests.store.test_processes import WORKER, worker
from tests.waiting import WITHIN_S

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import Observation
from splitsecond.log.store import migrations, tables
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.database import Database
from splitsecond.log.store.importing import import_log
from splitsecond.log.store.log import Log
from splitsecond.log.store.tables import VERSION
from splitsecond.log.store.writer import LogWriter

pytestmark = pytest.mark.system

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def a_log(started_server: Server) -> str:
    started_server.ensure_running()
    return started_server.database()


def written(url: str, given: list[CallRecord]) -> Log:
    with Log.open(url) as log:
        for record in given:
            log.put(record)
    assert (log.written, log.dropped, log.errors) == (len(given), 0, 0)
    return log


def calls(url: str) -> list[str]:
    with Log.open(url) as log:
        return [served.call for _, served in log.calls(LONG_AGO)]


@settings(max_examples=10)
@given(given=st.lists(records(), max_size=20, unique_by=lambda served: served.call))
def test_records_are_read_as_written(a_log: str, given: list[CallRecord]) -> None:
    log = written(a_log, given)
    # and those of the cases before
    found = {served.call: served for _, served in log.calls(LONG_AGO)}
    for served in given:
        assert found[served.call] == kept(served)
        same_figures(served, found[served.call])


def test_latest_attempts_and_spent_tokens(url: str) -> None:
    won = answered(100, ago_s=5)
    lost = Observation(
        id="req-100.2", call="req-100", target="slow/er", role="loser", input_tokens=9
    )
    log = written(
        url,
        [
            *(answered(i, target="a/x", ago_s=100 - i) for i in range(10)),
            msgspec.structs.replace(won, attempts=(*won.attempts, lost)),
            answered(101, client="other"),
            answered(102, target="old/one", ago_s=90000),
        ],
    )
    found = log.recent(timedelta(days=1), each=3)
    assert {o.id for o, _ in found} == {
        "req-7.1", "req-8.1", "req-9.1", "req-100.1", "req-100.2", "req-101.1",
    }  # fmt: skip
    spent = log.spent_tokens("team", clock.wall_time() - timedelta(hours=1))
    assert sorted(map(msgspec.structs.astuple, spent)) == [
        ("a/x", "", 100, 10, 1000, 400, 0, 0, 200),
        ("groq/fast", "", 100, 1, 100, 40, 0, 0, 20),
        ("slow/er", "", 9, 1, 9, 0, 0, 0, 0),
    ]


def test_columns_have_the_figures_of_the_observations(a_log: str) -> None:
    written(
        a_log, [answered(number, target=f"t/{number % 3}", ago_s=number) for number in range(30)]
    )
    assert check_columns(a_log) >= 30


def test_foreign_calls_are_imported_once(url: str, tmp_path: Path) -> None:
    file = as_lines(tmp_path / "file", [{**LITELLM, "request_id": f"r-{n}"} for n in range(20)])
    assert [import_log(file, url, {}).written for _ in range(2)] == [20, 0]
    assert len(calls(url)) == 20


def test_a_name_that_a_client_chose_is_kept_as_a_short_line(url: str) -> None:
    assert [
        s.route for _, s in written(url, [answered(1, route="a\0b\ud800")]).calls(LONG_AGO)
    ] == ["a b"]


def test_old_calls_are_forgotten(url: str) -> None:
    written(url, [answered(i, ago_s=age * 86400) for i, age in enumerate([40, 29])])
    assert calls(url) == ["req-1"]


def test_several_processes_write_one_log_without_loss(url: str) -> None:
    running = [worker(WORKER, url, str(300 * i), str(300 * (i + 1))) for i in range(3)]
    for process in running:
        assert process.communicate(timeout=WITHIN_S)[0].split() == ["300", "0", "0"]
    assert sorted(calls(url)) == sorted(f"req-{n}" for n in range(900))


def test_a_database_of_something_else_is_left_alone(server: Server, url: str) -> None:
    server.execute(url, "CREATE TABLE calls (a integer)")
    with pytest.raises(CallerFault, match="is not a log: it has a table 'calls'"):
        Log.open(url)
    assert server.execute(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == [
        ("calls",)
    ]


def test_a_database_may_be_shared_with_something_else(server: Server, url: str) -> None:
    server.execute(url, "CREATE TABLE invoices (a integer)")
    written(url, [answered(1)])
    assert calls(url) == ["req-1"]


def test_a_new_log_has_keys_and_indexes_in_each_partition(server: Server, url: str) -> None:
    written(url, [answered(1)])
    indexes = server.execute(
        url,
        "SELECT indexdef FROM pg_indexes WHERE tablename IN ('calls', 'attempts') ORDER BY "
        "indexname",
    )
    assert [str(text).partition(" USING btree ")[2] for (text,) in indexes] == [
        "(client, "
        "came_us)", "(target, came_us)", "(came_us)", "(n, came_us)", "(came_us)", "(n, came_us)",
        "(came_us) WHERE (stated_usd IS NOT NULL)",
    ]  # fmt: skip
    of_default = (
        "SELECT count(*) FROM pg_indexes WHERE tablename IN ('calls_default', 'attempts_default')"
    )
    assert server.execute(url, of_default) == [(len(indexes),)]


def test_gateways_that_start_together_migrate_once(
    server: Server, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Log.open(url).close()
    add_revisions(
        tmp_path / "migrations", monkeypatch, ("ALTER TABLE calls ADD COLUMN region TEXT",)
    )
    gateways, done, look, migrate = 4, list[int](), tables.are_current, migrations.upgrade
    all_have_looked = threading.Barrier(gateways, timeout=WITHIN_S)

    def are_current(connection: Connection) -> bool:
        found = look(connection)
        all_have_looked.wait()
        return found

    def upgrade(connection: Connection) -> None:
        done.append(1)
        migrate(connection)

    monkeypatch.setattr(tables, "are_current", are_current)
    monkeypatch.setattr(migrations, "upgrade", upgrade)
    with ThreadPoolExecutor(gateways) as pool:
        assert len(list(pool.map(Database.open, [url] * gateways))) == gateways
    assert done == [1]
    assert server.execute(url, "SELECT version_num FROM splitsecond_log") == [
        (str(tables.VERSION),)
    ]
    assert server.execute(url, "SELECT region FROM calls") == []


def test_a_log_of_a_newer_version_is_refused(server: Server, url: str) -> None:
    Log.open(url).close()
    server.execute(url, f"UPDATE splitsecond_log SET version_num = {VERSION + 1}")
    with pytest.raises(
        CallerFault, match=f"its tables are version {VERSION + 1}, this one knows {VERSION}"
    ):
        Log.open(url)


def test_missing_database_is_reported_without_the_password(url: str) -> None:
    with pytest.raises(CallerFault, match="does not exist") as caught:
        Log.open(url.replace("/log", "/nolog", 1))
    assert caught.value.kind == "log_unavailable"
    assert "unused-password" not in str(caught.value)


def test_terminated_connections_lose_no_record(server: Server, url: str) -> None:
    said: list[str] = []
    writer = LogWriter(Database.open(url), say=said.append)
    for number in range(3):
        writer.put(answered(number))
        writer.write()
        server.execute(  # and waits until it has ended
            url,
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE pid <> "
            "pg_backend_pid()",
        )
    assert writer.write()
    assert calls(url) == ["req-0", "req-1", "req-2"]
    assert (writer.written, writer.dropped, writer.errors) == (3, 0, 1)
    assert said[0].startswith(
        f"cannot write the log {writer._database.where}: terminating connection"
    )
    writer._disconnect()


def test_server_restart_loses_no_record(server: Server, url: str) -> None:
    said: list[str] = []
    writer = LogWriter(Database.open(url), say=said.append)
    writer.put(answered(1))
    assert writer.write()
    server.stop()
    try:
        for number in (2, 3):
            writer.put(answered(number))
            assert not writer.write()
    finally:
        server.start()
    writer.put(answered(4))
    assert writer.write()
    assert calls(url) == [f"req-{n}" for n in (1, 2, 3, 4)]
    assert (writer.written, writer.dropped, writer.errors) == (4, 0, 2)
    writer._disconnect()


def test_a_record_that_cannot_be_written_is_dropped_alone(url: str) -> None:
    said: list[str] = []
    writer = LogWriter(Database.open(url), say=said.append)
    for number in range(40):
        writer.put(answered(number, ago_s=1 - number / 100, status=1 << 64 if number == 7 else 200))
    assert writer.write()
    assert calls(url) == [f"req-{n}" for n in range(40) if n != 7]
    assert (writer.written, writer.dropped) == (39, 1)
    writer._disconnect()
