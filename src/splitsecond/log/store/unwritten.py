"""Files with records of calls that wait to be written to the log.

The hub saves what it cannot write within a second, a worker what the hub does not take. A hub
writes the records when the database answers, and removes the file. A record can be in two files, or
in the log as well, so the reader asks the log first (`Log.contained`).

The files are beside a SQLite log, as LOG.unwritten-*, and otherwise in the temporary folder. After
`MAGIC` a file has frames as on the socket of the hub. A process holds a lock (flock) on a file
while it writes or reads it. A file that was cut off is read up to its last whole record.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import struct
from collections.abc import Sequence, Set
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import msgspec

from splitsecond.core import clock
from splitsecond.log.store.call_record import CallRecord

MAGIC = b"splitsecond unwritten 1\n"
LENGTH = struct.Struct(">I")
MIN_FREE = 0.05
"""Share of the disk that the files leave free. Beyond it, records wait in memory as long as there
is room."""
LONGEST_RECORD = 64 << 20
_DECODER = msgspec.msgpack.Decoder(CallRecord)


class UnwrittenFile:
    """A file for records of the log whose files' paths begin with `stem`. It is created with the
    first record.

    `only_writes`: this process writes no records into the log, so others may do that with other
    files meanwhile.
    """

    def __init__(self, stem: Path, *, only_writes: bool = False) -> None:
        self._stem = stem
        self._lock = fcntl.LOCK_SH if only_writes else fcntl.LOCK_EX
        self._descriptor: int | None = None
        self._room = 0  # bytes on the disk, when last looked, without those written since
        self._look_ns = 0
        self._begin()

    def add(self, records: Sequence[bytes]) -> None:
        """Append encoded records, all or none of them. Raises `OSError`, also if too little of the
        disk is free."""
        if not records:
            return
        # Few calls of the system, and few steps of the interpreter: a thread that does this waits
        # for each of them.
        data = b"".join(
            chain.from_iterable(zip(map(LENGTH.pack, map(len, records)), records, strict=True))
        )
        self._check_room(len(data))
        if self._broken:
            raise OSError(errno.EIO, "the file ends in half a record")
        if self._descriptor is None:
            self._descriptor = self._opened()
        if not self.records:
            data = MAGIC + data
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:  # the disk is full: what follows must not come after half a record
            self._cut(len(data) - len(left))
            raise
        self.records += len(records)
        self._room -= len(data)

    def found(self) -> "FoundFile":
        """Return the file for reading, still locked. Do not use this object again."""
        descriptor, self._descriptor = self._descriptor, None
        assert descriptor is not None  # there are records
        os.lseek(descriptor, 0, os.SEEK_SET)
        return FoundFile(self.path, os.fdopen(descriptor, "rb"), self.records)

    def remove(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                self.path.unlink()
        self.close()

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
        if self._broken:
            self._begin()

    def _begin(self) -> None:
        self.path = self._stem.with_name(f"{self._stem.name}{secrets.token_hex(4)}")
        self.records = 0
        self._broken = False  # it ends in half a record that could not be cut off

    def _check_room(self, size: int) -> None:
        now_ns = clock.now_ns()
        if now_ns >= self._look_ns:
            self._room, self._look_ns = room(self._stem.parent), now_ns + clock.NS_PER_S
        if size > self._room:
            raise OSError(errno.ENOSPC, f"less than {MIN_FREE:.0%} of the disk is free")

    def _opened(self) -> int:
        if self.records:
            with contextlib.suppress(OSError):  # a hub reads it, or has read it
                if (
                    descriptor := _locked(self.path, os.O_RDWR | os.O_APPEND, self._lock)
                ) is not None:
                    return descriptor
        self._begin()
        descriptor = os.open(
            self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(descriptor, self._lock)
        except OSError:  # the file system has no locks
            os.close(descriptor)
            self.path.unlink()
            raise
        return descriptor

    def _cut(self, size: int) -> None:
        assert self._descriptor is not None  # it is open
        try:
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - size)
        except OSError:
            self._broken = True
            return
        if not self.records:
            self.remove()


def save(stem: Path, records: Sequence[bytes]) -> str:
    file = UnwrittenFile(stem)
    try:
        file.add(records)
    finally:
        file.close()
    return f"They are kept in {file.path}; the next start writes them."


class FoundFile:
    """A file that is complete, locked by this process. `records`: how many have been read."""

    def __init__(self, path: Path, file: BinaryIO, expected: int = 0) -> None:
        self.path = path
        self.expected = expected
        self.records = 0
        self._file = file
        if file.read(len(MAGIC)) != MAGIC:
            raise ValueError("it does not begin like a file of records")

    def read(self, most: int) -> list[CallRecord]:
        """Return the next records, at most `most`; none at the end.

        Raises `ValueError` for what is no record, and `OSError`.
        """
        records: list[CallRecord] = []
        while len(records) < most and len(header := self._file.read(LENGTH.size)) == LENGTH.size:
            (length,) = LENGTH.unpack(header)
            if length > LONGEST_RECORD:
                raise ValueError(f"a record of {length:,} bytes")
            if len(data := self._file.read(length)) < length:
                break
            try:
                records.append(_DECODER.decode(data))
            except RecursionError:
                raise ValueError("a record that is nested too deeply") from None
        self.records += len(records)
        return records

    def remove(self) -> None:
        try:
            self.path.unlink(missing_ok=True)
        finally:
            self._file.close()

    def close(self) -> None:
        self._file.close()


def room(folder: Path) -> int:
    """Return how many bytes the files may take of the disk of `folder`."""
    disk = os.statvfs(folder)
    return int((disk.f_bavail - MIN_FREE * disk.f_blocks) * disk.f_frsize)


def claim(stem: Path, ignored: Set[Path] = frozenset()) -> tuple[list[FoundFile], dict[Path, str]]:
    """Lock and return the files of the log but for those `ignored`, and why others of that name
    cannot be read.

    Returns none while another process reads one of them: two processes must not write the same
    record at once.
    """
    claimed: list[FoundFile] = []
    wrong: dict[Path, str] = {}
    try:
        paths = sorted(set(_paths(stem)) - ignored)
    except OSError:
        return claimed, wrong
    for path in paths:
        try:
            descriptor = _locked(path, os.O_RDONLY, fcntl.LOCK_EX)
        except BlockingIOError:
            if _is_only_written(path):
                continue
            for each in claimed:
                each.close()
            return [], wrong
        except OSError as error:
            wrong[path] = error.strerror or str(error)
            continue
        if descriptor is None:
            continue
        file = os.fdopen(descriptor, "rb")
        try:
            claimed.append(FoundFile(path, file))
        except (ValueError, OSError) as error:
            file.close()
            wrong[path] = str(error)
    return claimed, wrong


def left_before(stem: Path, moment: datetime) -> bool:
    try:
        return any(path.stat().st_mtime < moment.timestamp() for path in _paths(stem))
    except OSError:  # a file has just been removed: look again
        return True


def _is_only_written(path: Path) -> bool:
    try:
        descriptor = _locked(path, os.O_RDONLY, fcntl.LOCK_SH)
    except OSError:
        return False
    if descriptor is not None:
        os.close(descriptor)
    return True


def _locked(path: Path, mode: int, lock: int) -> int | None:
    """Open and lock a file. Return its descriptor; None if it is not there any more, empty, or of
    another user.

    Raises `BlockingIOError` if another process has it locked.
    """
    try:
        # Without waiting: anybody can put a named pipe into the temporary folder.
        descriptor = os.open(path, mode | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, lock | fcntl.LOCK_NB)
        status = os.fstat(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    if (
        stat.S_ISREG(status.st_mode)
        and status.st_uid == os.getuid()
        and status.st_size
        and status.st_nlink
    ):
        return descriptor
    os.close(descriptor)
    return None


def _paths(stem: Path) -> Sequence[Path]:
    with os.scandir(stem.parent) as entries:
        return [stem.parent / each.name for each in entries if each.name.startswith(stem.name)]
