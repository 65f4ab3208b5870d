"""Temporary folders, `splitsecond-*`, which are removed soon after their process ends, even if it
is killed.

A killed process leaves its folder behind; the next process that creates a folder removes it. A lock
(flock) on a file in the folder shows whether its owner is alive: the kernel releases the lock when
the last process that holds the descriptor has ended. So neither a reused process id nor a race can
remove the folder of a living process.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

_PREFIX = "splitsecond-"
_LOCK = "owner.lock"
_MEMORY = Path("/dev/shm")


class Scratch(Struct, frozen=True):
    path: Path
    lock: int


@contextlib.contextmanager
def scratch_folder(kind: str = "") -> Iterator[Scratch]:
    parent = temporary_files()
    _sweep(parent)
    with tempfile.TemporaryDirectory(
        prefix=_PREFIX + kind, dir=parent, ignore_cleanup_errors=True
    ) as folder:
        path = Path(folder)
        lock = os.open(path / _LOCK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.write(lock, b"%d\n" % os.getpid())  # a file without a number is not locked yet
            yield Scratch(path, lock)
        finally:
            os.close(lock)


def temporary_files() -> Path:
    """Return the system's folder for temporary files. If no disk takes any now, it is Linux's
    folder in memory.

    Raises `FileNotFoundError` if there is none.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        if _MEMORY.is_dir():
            return _MEMORY
        raise


def _sweep(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # its owner lives, it is gone, or it is not our folder
            lock = os.open(folder / _LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = os.fstat(lock)
                if held.st_uid == os.getuid() and held.st_size and not folder.is_symlink():
                    shutil.rmtree(folder)
            finally:
                os.close(lock)
