"""Journal of the calls in flight that have money reserved: one memory-mapped file for each worker.

A killed worker cannot write a log. Its replacement, or the next gateway with the same log, reads from the journal which
calls were in flight, and charges and logs them. A worker holds a shared flock on its file; the kernel releases it when
the worker dies, so a file that can be locked exclusively has no living owner.

A slot holds the length of its entry and then the entry. The length is written last and is 0 in an empty slot, so a
partial entry is never read.
"""

import fcntl
import os
from pathlib import Path

import msgspec
from msgspec import Struct

from splitsecond.gateway.records.reservation import ReservedTokens
from splitsecond.gateway.records.shared_counters import mapped
from splitsecond.service import Operation

SLOTS = 4096
"""Calls of one worker. Money of further calls is reserved too, but they have no entry."""
SLOT_BYTES = 4096
"""Length of a slot, with the length field of its entry."""
_LENGTHS_BYTES = 8 * SLOTS


class Reservation(Struct, frozen=True, kw_only=True):
    """One call in flight, and the most that it may use at each of its targets."""

    call: str
    client: str
    route: str
    operation: Operation
    stream: bool
    start_ns: int
    usd: float
    usages: tuple[ReservedTokens, ...]


class Journal:
    """The entries of one worker. The file is sparse: unused slots take no memory."""

    def __init__(self, path: Path, *, lock: int = fcntl.LOCK_SH) -> None:
        """Raises `BlockingIOError` if another process holds a conflicting `lock`."""
        self._path = path
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, lock | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise
        self._data = memoryview(mapped(path, _LENGTHS_BYTES + SLOTS * SLOT_BYTES))
        self._lengths = self._data[:_LENGTHS_BYTES].cast("q")
        self._free = list(range(SLOTS - 1, -1, -1))

    def write(self, entry: Reservation) -> int | None:
        """Store an entry and return its slot; None if no slot is free, or the entry is too long for a slot."""
        data = msgspec.msgpack.encode(entry)
        if not self._free or len(data) > SLOT_BYTES:
            return None
        slot = self._free.pop()
        self._put(slot, data)
        return slot

    def rewrite(self, slot: int, entry: Reservation) -> None:
        """Replace the entry in a slot. The old one stays if the new one is too long."""
        data = msgspec.msgpack.encode(entry)
        if len(data) <= SLOT_BYTES:
            self._lengths[slot] = 0
            self._put(slot, data)

    def _put(self, slot: int, data: bytes) -> None:
        at = _LENGTHS_BYTES + slot * SLOT_BYTES
        self._data[at : at + len(data)] = data
        self._lengths[slot] = len(data)

    def erase(self, slot: int) -> None:
        """Free the slot of a call that has ended."""
        self._lengths[slot] = 0
        self._free.append(slot)

    def entries(self) -> list[Reservation]:
        """Return the entries of a worker that died."""
        found = []
        for slot in range(SLOTS):
            if length := self._lengths[slot]:
                at = _LENGTHS_BYTES + slot * SLOT_BYTES
                found.append(msgspec.msgpack.decode(self._data[at : at + length], type=Reservation))
        return found

    def clear(self) -> None:
        """Erase the entries of a worker that died. Call it before the first `write`."""
        for slot in range(SLOTS):
            self._lengths[slot] = 0

    def close(self) -> None:
        """Remove the file and release its lock. Remaining entries are lost; later writes have no effect."""
        self._path.unlink(missing_ok=True)
        os.close(self._lock)
