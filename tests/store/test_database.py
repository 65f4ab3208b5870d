"""A log that cannot be opened says why and what to do, before anything is served."""

import contextlib
import errno
import importlib.util
import os
import shutil
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, event
from tests.cases import each_case
from tests.store.records import answered, in_session

from splitsecond.core.errors import CallerFault
from splitsecond.log.store import database, migrations, tables
from splitsecond.log.store.database import Database, _tune, check_url
from splitsecond.log.store.log import Log, Past
from splitsecond.log.store.rows import (
    ACCOUNTING_COLUMNS,
    CHOICE_COLUMNS,
    SESSION_COLUMNS,
    rows,
)
from splitsecond.log.store.writer import LogWriter


@each_case(
    ("url", "said", "hint"),
    [
        ("splitsecond.db", "the log's URL is not one", "sqlite:///splitsecond.db"),
        ("", "the log's URL is not one", "sqlite:///splitsecond.db"),
        ("postgresql://host:port/x", "the log's URL is not one", "sqlite:///splitsecond.db"),
        ("mysql://host/log", "cannot be kept in 'mysql'", "postgresql://USER@HOST/DATABASE"),
        ("sqlite://", "must name a file", "Three slashes"),
        ("sqlite:///:memory:", "must name a file", "Three slashes"),
        ("sqlite://folder/log.db", "must name a file", "Three slashes"),
        ("sqlite:///log.db?mode=ro", "must name a file", "Three slashes"),
        ("sqlite:////tmp", "the log's file /tmp is a folder", "Name a file in it"),
        ("sqlite:////no/such/log.db", "there is no folder /no/such", "Make it"),
        ("postgresql://host", "names no database", "postgresql://USER@HOST/DATABASE"),
    ],
)
def test_invalid_url_is_refused(url: str, said: str, hint: str) -> None:
    with pytest.raises(CallerFault, match=said) as caught:
        check_url(url)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///log.db",
        "sqlite+pysqlite:////tmp/log.db",
        "postgres://host/log",
        "postgresql://u:p@h:1/log",
    ],
)
def test_valid_url_opens_nothing(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_url(url)
    assert list(tmp_path.iterdir()) == []


@given(
    st.text(max_size=60),
    st.sampled_from(["", "sqlite:///", "sqlite://", "postgresql://", "mysql+x://"]),
)
def test_any_url_is_valid_or_a_fault(text: str, scheme: str) -> None:
    with contextlib.suppress(CallerFault):
        check_url(scheme + text)


def test_a_missing_driver_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CallerFault, match="needs its driver") as caught:
        check_url("postgresql://host/log")
    assert caught.value.hint == "pip install 'splitsecond[postgres]'"


def test_unreachable_server_is_named_without_the_password() -> None:
    with pytest.raises(CallerFault) as caught:
        Log.open("postgresql://me:hunter2secret@127.0.0.1:1/log")
    assert caught.value.kind == "log_unavailable"
    assert "cannot open the log log at 127.0.0.1:1: " in str(caught.value)
    assert "hunter2secret" not in str(caught.value)


def test_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.db").write_bytes(b"these are notes of mine, and they are to stay\n" * 100)
    with pytest.raises(CallerFault, match="file is not a database") as caught:
        Log.open(f"sqlite:///{tmp_path}/log.db")
    assert caught.value.kind == "not_a_log"
    assert (tmp_path / "log.db").read_bytes().startswith(b"these are notes")


def test_damaged_log_is_refused(tmp_path: Path) -> None:
    Log.open(f"sqlite:///{tmp_path}/log.db").close()
    data = bytearray((tmp_path / "log.db").read_bytes())
    data[100:4096] = b"\xff" * 3996  # its table of tables
    (tmp_path / "log.db").write_bytes(data)
    with pytest.raises(CallerFault, match="malformed") as caught:
        Log.open(f"sqlite:///{tmp_path}/log.db")
    assert caught.value.kind == "not_a_log"


def test_unopenable_log_file_counts_as_away(tmp_path: Path) -> None:
    why = list[str]()
    Database.open(f"sqlite:///{tmp_path}/gone/log.db", away=why.append)
    url = f"sqlite:///{tmp_path}/log.db"
    Log.open(url).close()
    with (tmp_path / "log.db").open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3996)
    Database.open(url, away=why.append)
    (tmp_path / "log.db").write_bytes(b"these are notes of mine, and they are to stay\n" * 100)
    with pytest.raises(CallerFault, match="file is not a database"):
        Database.open(url, away=why.append)
    assert why == ["unable to open database file", "database disk image is malformed"]


def test_a_file_that_may_not_be_created_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(CallerFault, match=r"cannot open the log .*/log\.db: Permission denied"):
            Database.open(f"sqlite:///{tmp_path}/log.db", away=lambda why: None)


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "theirs.db")
    connection.execute("CREATE TABLE invoices (a)")
    with pytest.raises(CallerFault, match="is not a log: it has a table 'invoices'"):
        Log.open(f"sqlite:///{tmp_path}/theirs.db")
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("invoices",)]
    assert connection.execute("PRAGMA journal_mode").fetchall() == [("delete",)]
    connection.close()


def test_an_unfinished_creation_leaves_no_table(tmp_path: Path) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    url = f"sqlite:///{tmp_path}/log.db"
    event.listen(tables.STAMP, "before_create", fail)  # after all other tables
    try:
        with pytest.raises(OSError, match="No space left"):
            Database.open(url)
    finally:
        event.remove(tables.STAMP, "before_create", fail)
    connection = sqlite3.connect(tmp_path / "log.db")
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    connection.close()
    with Database.open(url).connect() as opened:
        assert tables.are_current(opened)


def stamped(path: Path, version: object) -> str:
    Log.open(f"sqlite:///{path}/log.db").close()
    connection = sqlite3.connect(path / "log.db")
    connection.execute("UPDATE splitsecond_log SET version_num = ?", (version,))
    connection.commit()
    connection.close()
    return f"sqlite:///{path}/log.db"


@pytest.mark.parametrize("version", [tables.VERSION + 1, 99, "unknown"])
def test_a_log_of_a_newer_version_is_refused(tmp_path: Path, version: object) -> None:
    said = f"its tables are version {version}, this one knows {tables.VERSION}"
    with pytest.raises(CallerFault, match=said) as caught:
        Log.open(stamped(tmp_path, version))
    assert caught.value.kind == "newer_log"


def add_revisions(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *statements: tuple[str, ...]
) -> None:
    """Add a revision to those of the log for each tuple of SQL statements."""
    shutil.copytree(migrations.FOLDER, folder)
    for number, texts in enumerate(statements, tables.VERSION + 1):
        lines = [
            "from alembic import op",
            f"revision = '{number}'",
            f"down_revision = '{number - 1}'",
            "def upgrade():",
        ]
        lines += [f"    op.execute({text!r})" for text in texts]
        (folder / "versions" / f"v{number}.py").write_text("\n".join(lines))
    monkeypatch.setattr(migrations, "FOLDER", folder)
    monkeypatch.setattr(tables, "VERSION", tables.VERSION + len(statements))


def test_older_log_is_migrated_step_by_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = stamped(tmp_path, tables.VERSION)
    add_a_column = "ALTER TABLE calls ADD COLUMN region TEXT NOT NULL DEFAULT ''"
    needs_it = "UPDATE calls SET region = 'eu'"
    add_revisions(tmp_path / "migrations", monkeypatch, (add_a_column,), (needs_it,))
    for _ in range(2):  # the second time there is nothing to do
        Log.open(url).close()
    connection = sqlite3.connect(tmp_path / "log.db")
    assert connection.execute("SELECT version_num FROM splitsecond_log").fetchall() == [
        (str(tables.VERSION),)
    ]
    connection.close()


def test_the_newest_revision_is_the_version_of_the_tables() -> None:
    assert ScriptDirectory(str(migrations.FOLDER)).get_heads() == [str(tables.VERSION)]


def test_a_process_of_the_older_version_keeps_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    older = LogWriter(Database.open(url))
    older.put(answered(0))
    assert older.write()
    add_revisions(
        tmp_path / "migrations", monkeypatch, ("ALTER TABLE calls ADD COLUMN region TEXT",)
    )
    newer = Database.open(url)
    older.put(answered(1))
    assert older.write()
    with newer.connect() as connection:
        assert connection.exec_driver_sql("SELECT region FROM calls").all() == [(None,), (None,)]
    older._disconnect()


def test_calls_of_the_first_version_have_no_session(tmp_path: Path) -> None:
    url = stamped(tmp_path, 1)
    connection = sqlite3.connect(tmp_path / "log.db")
    connection.execute("DROP INDEX calls_with_cost")
    for name in (*SESSION_COLUMNS, *ACCOUNTING_COLUMNS, *CHOICE_COLUMNS):
        connection.execute(f"ALTER TABLE calls DROP COLUMN {name}")
    names = [row[1] for row in connection.execute("PRAGMA table_info(calls)") if row[1] != "n"]
    row = rows(answered(0)).call[: len(names)]
    places = ", ".join("?" * len(names))
    connection.execute(f"INSERT INTO calls ({', '.join(names)}) VALUES ({places})", row)
    connection.commit()
    connection.close()
    with Log.open(url) as log:
        log.put(answered(1, session=in_session()))
    found = [
        record.session for _, record in Past.open(url).calls(datetime.now(UTC) - timedelta(days=1))
    ]
    assert found == [None, in_session()]


def test_failed_migration_step_leaves_the_log_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = stamped(tmp_path, tables.VERSION)
    here = tables.VERSION
    half_a_step = ("ALTER TABLE calls ADD COLUMN region TEXT", "UPDATE absent SET region = 'eu'")
    add_revisions(tmp_path / "migrations", monkeypatch, half_a_step)
    with pytest.raises(CallerFault, match="no such table: absent"):
        Log.open(url)
    connection = sqlite3.connect(tmp_path / "log.db")
    assert connection.execute("SELECT version_num FROM splitsecond_log").fetchall() == [
        (str(here),)
    ]
    assert "region" not in [row[1] for row in connection.execute("PRAGMA table_info(calls)")]
    connection.close()


def test_file_is_tuned_and_has_an_index_of_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_tune", _tune)  # tests do not wait for the disk
    with Database.open(f"sqlite:///{tmp_path}/log.db").connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 1
        plan = connection.exec_driver_sql(
            "EXPLAIN QUERY PLAN"
            " SELECT * FROM attempts WHERE target = 'a' AND came_us >= 5 "
            "ORDER BY came_us DESC LIMIT 9"
        ).all()
    assert [row[3] for row in plan] == [
        "SEARCH attempts USING INDEX attempts_by_target (target=? AND came_us>?)"
    ]


def test_blocks_of_columns_are_read_from_an_index_alone(tmp_path: Path) -> None:
    with Database.open(f"sqlite:///{tmp_path}/log.db").connect() as connection:
        plan = connection.exec_driver_sql(
            "EXPLAIN QUERY PLAN SELECT count(*), group_concat(packed, '') FROM attempts"
            " WHERE came_us >= 5 AND came_us < 9"
        ).all()
    assert [row[3] for row in plan] == [
        "SEARCH attempts USING COVERING INDEX attempts_by_time (came_us>? AND came_us<?)"
    ]


def test_a_second_process_waits_while_one_migrates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = stamped(tmp_path, tables.VERSION)
    monkeypatch.setattr(tables, "VERSION", tables.VERSION + 1)
    monkeypatch.setattr(database, "BUSY_S", 0)
    migrating, opened, goes_on = threading.Event(), threading.Event(), threading.Event()

    def migrate(connection: Connection) -> None:
        migrating.set()
        assert goes_on.wait(20)

    def is_current(connection: Connection) -> bool:
        opened.set()
        return are_current(connection)

    are_current = tables.are_current
    monkeypatch.setattr(migrations, "upgrade", migrate)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(Database.open, url)
        assert migrating.wait(20)
        monkeypatch.setattr(tables, "are_current", is_current)
        second = threads.submit(Database.open, url)
        assert opened.wait(20)
        threads.submit(goes_on.set)
        assert first.result(20).where == second.result(20).where
