"""How many records for the log wait in a worker, or at the hub, in a small file that outlives both.

The next worker in the slot of one that was killed counts as lost what that had in its memory. What
a dead worker had sent stays in the file until the hub has settled it; if the hub dies before, it is
lost too.
"""

import errno
import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path

from splitsecond.core.errors import say

DROPPED, WAITING, _CONNECTIONS = range(3)
"""Places in `RecordCounts.cells`. `DROPPED`: records of the slot that are lost. `WAITING`: records
in the memory of the slot's worker that are not in the socket of the hub. The third: connections of
the slot's workers so far."""
SENT, SETTLED, _HUB = range(3)
"""Places in the row of a connection: records that the worker has sent; those of them that the hub
has settled, which the hub writes; and the number of that hub."""
ROWS = 64
"""Connections with a row. Of an earlier one, what is not settled is counted as lost."""
_HEAD, _ROW = 3, 3
_FORMAT = f"{_HEAD + ROWS * _ROW}q"
_SIZE = struct.calcsize(_FORMAT)


class RecordCounts:
    """The counts of the worker slot number `worker` of the gateway whose hub has the socket
    `socket`."""

    def __init__(self, socket: Path, worker: int, say: Callable[[str], None] = say) -> None:
        self._worker = worker
        self._say = say
        path = socket.with_name(f"{socket.name}-{worker}")
        try:
            self.cells = memoryview(_mapped(path)).cast("q")
        except OSError as error:
            say(
                f"{path} cannot be written: {error.strerror}. What is lost if worker {worker} "
                "dies is not counted."
            )
            self.cells = memoryview(bytearray(_SIZE)).cast("q")

    def connect(self, hub: int) -> int:
        self.cells[_CONNECTIONS] += 1
        row = self.cells[_CONNECTIONS] % ROWS
        self._count(self._take(row))
        self.cells[_place(row) + _HUB] = hub
        return row

    def row(self, row: int) -> memoryview:
        begin = _place(row)
        return self.cells[begin : begin + _ROW]

    def settle(self, hub: int = 0) -> None:
        """Count and report the records that were lost with the last worker of the slot, and with a
        hub.

        `hub`: the number of the hub that lives; 0: none does.
        """
        waiting, self.cells[WAITING] = self.cells[WAITING], 0
        self._count(waiting + self._sent_to_others(hub))

    def hub_died(self) -> None:
        """Count and report what the hub had of dead workers. Call it when the hub has died."""
        self._count(self._sent_to_others(0))

    def _sent_to_others(self, hub: int) -> int:
        return sum(self._take(row) for row in range(ROWS) if self.cells[_place(row) + _HUB] != hub)

    def _take(self, row: int) -> int:
        """Clear a row. Return how many of its records are not settled."""
        cells = self.row(row)
        left = max(cells[SENT] - cells[SETTLED], 0)
        cells[SENT] = cells[SETTLED] = 0
        return left

    def _count(self, lost: int) -> None:
        if lost:
            self._say(
                f"worker {self._worker} died: its last records for the log "
                f"are lost: {lost:,} at most."
            )
        self.cells[DROPPED] += lost


def settle_all(socket: Path) -> None:
    begin = f"{socket.name}-"
    for path in sorted(socket.parent.glob(f"{begin}*")):
        RecordCounts(socket, int(path.name.removeprefix(begin))).settle()


def _place(row: int) -> int:
    return _HEAD + row * _ROW


def _mapped(path: Path) -> mmap.mmap:
    """Map the file, whose bytes are written first: without space for a page, the first write to it
    ends the process."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size < _SIZE:
            os.pwrite(descriptor, bytes(_SIZE), 0)
        return mmap.mmap(descriptor, _SIZE)
    except ValueError as error:  # the disk had no room for all of it
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
    finally:
        os.close(descriptor)
