"""How many records a worker has put, sent and settled, in a small file that outlives the worker.

A worker that is killed cannot say which records it had in its memory. The next worker in its slot reads from the file
how many they were, and counts them as lost.
"""

import errno
import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path

from splitsecond.core.errors import say

PUT, SENT, SETTLED, DROPPED, PROCESS = range(5)
"""Places in `RecordCounts.cells`. `PUT`: records of the slot's workers. `SENT`: those of them that are in the socket of
the log process, or settled. `SETTLED`: written, in a file, or counted in `DROPPED`, which counts the records that are
lost. `PROCESS`: when the socket was created that they were sent to, as a number for the log process."""
_SIZE = struct.calcsize("5q")


class RecordCounts:
    """The counts of the worker slot number `worker` of the gateway whose log process has the socket `socket`."""

    def __init__(self, socket: Path, worker: int, say: Callable[[str], None] = say) -> None:
        self._worker = worker
        self._say = say
        path = socket.with_name(f"{socket.name}-{worker}")
        try:
            self.cells = memoryview(_mapped(path)).cast("q")
        except OSError as error:
            say(f"{path} cannot be written: {error.strerror}. What is lost if worker {worker} dies is not counted.")
            self.cells = memoryview(bytearray(_SIZE)).cast("q")

    def settle(self, *, process_lives: bool = True) -> None:
        """Count and report the records that were lost with the last worker of the slot, if it died.

        `process_lives`: the log process that it sent records to reads what is in its socket.
        """
        cells = self.cells
        if lost := cells[PUT] - cells[SENT if process_lives else SETTLED]:
            self._say(f"worker {self._worker} died: its last records for the log are lost: {lost:,} at most.")
        cells[DROPPED] += lost
        cells[SENT] = cells[SETTLED] = cells[PUT]


def settle_all(socket: Path) -> None:
    begin = f"{socket.name}-"
    for path in sorted(socket.parent.glob(f"{begin}*")):
        RecordCounts(socket, int(path.name.removeprefix(begin))).settle()


def _mapped(path: Path) -> mmap.mmap:
    """Map the file, whose bytes are written first: without space for a page, the first write to it ends the process."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size < _SIZE:
            os.pwrite(descriptor, bytes(_SIZE), 0)
        return mmap.mmap(descriptor, _SIZE)
    except ValueError as error:  # the disk had no room for all of it
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
    finally:
        os.close(descriptor)
