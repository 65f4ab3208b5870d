"""Files with records that wait for the log."""

import errno
import fcntl
import os
import stat
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from tests.store.records import answered

from splitsecond.core import clock
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.remote_writer import encode
from splitsecond.log.store.unwritten import (
    LENGTH,
    LONGEST_RECORD,
    FoundFile,
    UnwrittenFile,
    claim,
    left_before,
    save,
)

DATA = [encode(answered(number)) for number in range(3)]
RECORDS = [msgspec.msgpack.decode(data, type=CallRecord) for data in DATA]


@pytest.fixture
def stem(tmp_path: Path) -> Path:
    return tmp_path / "log [1].db.unwritten-"


def found(stem: Path) -> FoundFile:
    (file,), wrong = claim(stem)
    assert not wrong
    return file


def test_saved_records_are_read_in_blocks(stem: Path) -> None:
    assert str(stem) in save(stem, DATA)
    file = found(stem)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert [file.read(2), file.read(2), file.read(2)] == [RECORDS[:2], RECORDS[2:], []]
    assert file.records == 3
    file.remove()
    assert claim(stem) == ([], {})


def test_no_file_is_created_without_records(stem: Path) -> None:
    file = UnwrittenFile(stem)
    file.add([])
    file.remove()
    assert not list(stem.parent.iterdir())


def test_claim_returns_no_file_while_another_process_uses_one(stem: Path) -> None:
    save(stem, DATA)
    writing = UnwrittenFile(stem)
    writing.add(DATA)
    assert claim(stem) == ([], {})
    writing.close()
    files, _ = claim(stem)
    assert len(files) == 2
    assert claim(stem) == ([], {})
    for each in files:
        each.close()
    again, _ = claim(stem)
    assert len(again) == 2
    for each in again:
        each.remove()


def test_truncated_file_is_read_up_to_its_last_complete_record(stem: Path) -> None:
    save(stem, DATA)
    (path,) = stem.parent.iterdir()
    size = path.stat().st_size
    for left in (size - 1, size - len(DATA[2]) - LENGTH.size + 3):
        os.truncate(path, left)
        file = found(stem)
        assert file.read(9) == RECORDS[:2]
        file.close()


def test_foreign_files_are_named_or_ignored(stem: Path) -> None:
    junk, empty, pipe, gone = (
        stem.with_name(f"{stem.name}{name}") for name in ("junk", "empty", "pipe", "gone")
    )
    junk.write_bytes(b"something else that is long enough")
    empty.touch()
    os.mkfifo(pipe)
    gone.symlink_to(stem.parent / "elsewhere")
    files, wrong = claim(stem, {gone})
    assert files == []
    assert wrong == {junk: "it does not begin like a file of records"}
    assert claim(stem, {junk})[1] == {gone: os.strerror(errno.ELOOP)}


@pytest.mark.parametrize("frame", [LENGTH.pack(3) + b"abc", LENGTH.pack(LONGEST_RECORD + 1)])
def test_invalid_record_is_refused(stem: Path, frame: bytes) -> None:
    save(stem, DATA[:1])
    (path,) = stem.parent.iterdir()
    with path.open("ab") as file:
        file.write(frame)
    taken = found(stem)
    assert taken.read(1) == RECORDS[:1]
    with pytest.raises(ValueError, match=r"Expected|bytes"):
        taken.read(1)
    taken.close()


def test_full_disk_leaves_complete_records(stem: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, write = UnwrittenFile(stem), os.write

    def full(descriptor: int, data: memoryview) -> int:
        if len(data) <= 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:-10])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            file.add(DATA)
    assert not list(stem.parent.iterdir())
    file.add(DATA[:1])
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            file.add(DATA[1:2])
    file.add(DATA[2:])
    file.close()
    left = found(stem)
    assert left.read(9) == [RECORDS[0], RECORDS[2]]
    left.remove()


def test_files_leave_a_part_of_the_disk_free(stem: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size, free = len(b"".join(DATA)) + LENGTH.size * len(DATA), iter((6, 5))
    monkeypatch.setattr(
        os,
        "statvfs",
        lambda folder: SimpleNamespace(f_blocks=100, f_bavail=next(free), f_frsize=size),
    )
    file = UnwrittenFile(stem)
    file.add(DATA)
    with pytest.raises(OSError, match="less than 5% of the disk is free"):
        file.add(DATA)
    file.remove()


def test_closed_file_is_continued_until_it_is_read(stem: Path) -> None:
    file = UnwrittenFile(stem, only_writes=True)
    for number in range(2):
        file.add(DATA[number : number + 1])
        file.close()
    left = found(stem)
    file.add(DATA[2:])
    file.close()
    assert left.read(9) == RECORDS[:2]
    left.remove()
    left = found(stem)
    assert left.read(9) == RECORDS[2:]
    left.remove()
    file.add(DATA)
    assert file.records == 3


def test_file_of_a_writing_worker_does_not_block_other_files(stem: Path) -> None:
    writing = UnwrittenFile(stem, only_writes=True)
    writing.add(DATA)
    save(stem, DATA[:1])
    left = found(stem)
    assert left.path != writing.path
    assert left.read(9) == RECORDS[:1]
    left.remove()
    assert claim(stem) == ([], {})
    writing.close()
    left = found(stem)
    assert left.read(9) == RECORDS
    left.close()


def test_file_that_cannot_be_truncated_gets_no_more_records(
    stem: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, write = UnwrittenFile(stem), os.write
    file.add(DATA[:1])

    def full(descriptor: int, data: memoryview) -> int:
        if len(data) <= 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:-10])

    def fails(descriptor: int, size: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        patch.setattr(os, "ftruncate", fails)
        with pytest.raises(OSError, match="No space left"):
            file.add(DATA[1:2])
    with pytest.raises(OSError, match="half a record"):
        file.add(DATA[1:2])
    file.close()
    file.add(DATA[1:])
    file.close()
    files, wrong = claim(stem)
    assert wrong == {}
    assert sorted((each.read(9) for each in files), key=len) == [RECORDS[:1], RECORDS[1:]]
    for each in files:
        each.close()


def test_file_system_without_locks_saves_nothing(
    stem: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fails)
    file = UnwrittenFile(stem)
    for _ in range(2):
        with pytest.raises(OSError, match="locks"):
            file.add(DATA)
    assert not list(stem.parent.iterdir())


def test_missing_folder_has_no_files(stem: Path) -> None:
    file = UnwrittenFile(stem)
    file.add(DATA)
    (path,) = stem.parent.iterdir()
    path.unlink()
    stem.parent.rmdir()
    file.remove()
    assert claim(stem) == ([], {})
    assert left_before(stem, clock.wall_time())
    with pytest.raises(FileNotFoundError):
        save(stem, DATA)


def test_left_before_compares_the_time_of_files(stem: Path) -> None:
    assert not left_before(stem, clock.wall_time() + timedelta(hours=1))
    save(stem, DATA)
    assert left_before(stem, clock.wall_time() + timedelta(hours=1))
    assert not left_before(stem, clock.wall_time() - timedelta(hours=1))
