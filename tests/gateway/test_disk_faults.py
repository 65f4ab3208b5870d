"""A disk that takes no writes: what is lost is reported and counted, nothing else stops."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.test_orphans import ENTRY

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.gateway.records import orphans, shared_memory
from splitsecond.gateway.records.journal import SAY_NS, SLOT_BYTES, Journal
from splitsecond.gateway.records.orphans import (
    journal_stem,
    log_orphans,
    open_journal,
    recover,
    remove_journals,
)
from splitsecond.gateway.records.shared_memory import create_memory, mapped
from splitsecond.log.store.log import Log, Past
from splitsecond.log.store.settings import LogSettings


@pytest.fixture
def full() -> Iterator[int]:
    """A file on a full disk."""
    descriptor = os.open("/dev/full", os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def refuse(*_: object, **options: object) -> int:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_journal_on_a_full_disk_counts_missing_entries(full: int) -> None:
    said, now = list[str](), [0]
    journal = Journal(full, said.append)
    with clock.using(lambda: now[0]):
        assert [journal.write(ENTRY) for _ in range(3)] == [None] * 3
        now[0] = SAY_NS
        assert journal.write(ENTRY) is None
    assert journal.missing == 4
    assert len(said) == 2
    assert said[0].startswith(
        "The journal of calls in flight cannot be written: No space left on device."
    )


def test_a_journal_writes_again_when_the_disk_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(create_memory(0), print)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda file, data, at: len(data) - 1)
        assert journal.write(ENTRY) is None
    slot = journal.write(ENTRY)
    assert slot == 0
    assert journal.entries() == [ENTRY]


@given(st.lists(st.tuples(st.integers(0, 3 * SLOT_BYTES), st.binary(max_size=40)), max_size=6))
def test_damaged_journal_entries_are_left_out(damage: list[tuple[int, bytes]]) -> None:
    file = create_memory(0)
    for at, data in damage:
        os.pwrite(file, data, at)
    journal = Journal(file, print)
    assert all(type(each) is type(ENTRY) for each in journal.entries())
    journal.clear()
    assert journal.entries() == []
    os.close(file)


def test_a_journal_without_its_folder_is_in_memory(tmp_path: Path) -> None:
    said = list[str]()
    descriptor = open_journal(tmp_path / "gone" / "log.db.in-flight-1", 0, said.append)
    assert "cannot be created: No such file or directory. If the whole gateway dies" in said[0]
    Journal(descriptor, said.append).write(ENTRY)
    assert Journal(descriptor, said.append).entries() == [ENTRY]


def test_orphaned_calls_stay_in_their_journal_until_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, said = LogSettings(f"sqlite:///{tmp_path}/log.db"), list[str]()
    stem = journal_stem(settings)
    descriptor = open_journal(stem, 0, said.append)
    Journal(descriptor, said.append).write(ENTRY)
    os.close(descriptor)

    def unavailable(*_: object, **options: object) -> None:
        raise CallerFault("cannot open the log: database or disk is full", kind="log_unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(Log, "open", unavailable)
        patch.setattr(orphans, "save", refuse)
        recover(settings, said.append)
    assert said == [
        "cannot open the log: database or disk is full.",
        "The log lacks 1 call of workers that died. They cannot be saved: [Errno 30] Read-only "
        "file system.",
    ]
    recover(settings, said.append)
    assert "killed with 1 call of key 'web' in flight" in said[-1]
    ((_, record),) = Past.open(settings.url).calls(clock.wall_time().replace(year=2000))
    assert record.call == ENTRY.call
    assert [*tmp_path.glob("*in-flight*")] == []
    remove_journals(stem)


def test_unreadable_journal_is_reported_and_the_start_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, said = LogSettings(f"sqlite:///{tmp_path}/log.db"), list[str]()
    os.close(open_journal(journal_stem(settings), 0, said.append))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", refuse)
        recover(settings, said.append)
    assert "of a gateway that was killed cannot be read: Read-only file system." in said[0]


def test_missing_log_folder_is_reported_and_raises_nothing(tmp_path: Path) -> None:
    said = list[str]()
    gone = LogSettings(f"sqlite:///{tmp_path}/gone/log.db")
    assert not log_orphans(gone, [orphans.orphan_record(ENTRY)], said.append)
    assert "The log lacks 1 call" in said[-1]


def test_memory_is_shared_on_a_system_without_memory_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "_memory_file", None)
    memory = create_memory(16)
    mapped(memory, 16)[3] = 7
    assert mapped(memory, 16).tobytes() == bytes(3) + b"\x07" + bytes(12)
    os.close(memory)
