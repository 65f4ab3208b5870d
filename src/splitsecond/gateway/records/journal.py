"""Journal of the calls in flight that have money reserved: one file for each slot of a worker.

A killed worker cannot write a log. Its replacement, or the next gateway with the same log, reads
from the journal which calls were in flight, and charges and logs them. The processes of a gateway
share one descriptor of the file with a shared flock on it; the kernel releases it when the last of
them dies, so a file that can be locked exclusively has no living owner.

A slot of the file holds the length of its entry and the entry. They are written together within a
page of memory, so a killed worker leaves all of it or nothing. The length is 0 in an empty slot.
The file is not mapped: a disk that is full or gone would end the process (SIGBUS), while a failed
write is only an entry less.
"""

import contextlib
import errno
import os
import struct
from collections.abc import Callable

import msgspec
from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.service import Operation
from splitsecond.gateway.records.reservation import ReservedTokens

SLOTS = 4096
"""Calls of one worker. Money of further calls is reserved too, but they have no entry."""
SLOT_BYTES = 4096
SAY_NS = 60 * clock.NS_PER_S
_LENGTH = struct.Struct("<I")
_EMPTY = _LENGTH.pack(0)


class Reservation(Struct, frozen=True, kw_only=True):
    call: str
    client: str
    team: str = ""
    route: str
    operation: Operation
    stream: bool
    start_ns: int
    usd: float
    usages: tuple[ReservedTokens, ...]


class Journal:
    """The entries of one worker, in the open file `file`.

    `missing` counts calls without an entry: no slot was free, their entry was too long, or the file
    could not be written, which `say` hears once a minute at most.
    """

    def __init__(self, file: int, say: Callable[[str], None]) -> None:
        self.missing = 0
        self._file = file
        self._say = say
        self._said_ns: int | None = None
        self._free = list(range(SLOTS - 1, -1, -1))

    def write(self, entry: Reservation) -> int | None:
        data = msgspec.msgpack.encode(entry)
        if self._free and len(data) <= SLOT_BYTES - _LENGTH.size:
            slot = self._free.pop()
            if self._put(slot, data):
                return slot
            self.erase(slot)
        self.missing += 1
        return None

    def rewrite(self, slot: int, entry: Reservation) -> None:
        data = msgspec.msgpack.encode(entry)
        if len(data) <= SLOT_BYTES - _LENGTH.size:
            self._put(slot, data)

    def _put(self, slot: int, data: bytes) -> bool:
        frame = _LENGTH.pack(len(data)) + data
        try:
            if os.pwrite(self._file, frame, slot * SLOT_BYTES) == len(frame):
                return True
            self._failed(os.strerror(errno.ENOSPC))
        except OSError as error:
            self._failed(error.strerror or str(error))
        return False

    def erase(self, slot: int) -> None:
        with contextlib.suppress(OSError):  # a call that is in the log as well is logged once
            os.pwrite(self._file, _EMPTY, slot * SLOT_BYTES)
        self._free.append(slot)

    def entries(self) -> list[Reservation]:
        """Return the entries of a worker that died. What is no entry is left out. Raises
        `OSError`."""
        entries = []
        for _, data in self._used_slots():
            with contextlib.suppress(ValueError):  # another program has written into the file
                entries.append(msgspec.msgpack.decode(data, type=Reservation))
        return entries

    def clear(self) -> None:
        for slot, _ in self._used_slots():
            os.pwrite(self._file, _EMPTY, slot * SLOT_BYTES)

    def _used_slots(self) -> list[tuple[int, bytes]]:
        data = os.pread(self._file, min(os.fstat(self._file).st_size, SLOTS * SLOT_BYTES), 0)
        slots = []
        for at in range(0, len(data) - _LENGTH.size + 1, SLOT_BYTES):
            (length,) = _LENGTH.unpack_from(data, at)
            if length:
                slots.append(
                    (
                        at // SLOT_BYTES,
                        data[at + _LENGTH.size : at + min(_LENGTH.size + length, SLOT_BYTES)],
                    )
                )
        return slots

    def _failed(self, why: str) -> None:
        now_ns = clock.now_ns()
        if self._said_ns is None or now_ns - self._said_ns >= SAY_NS:
            self._said_ns = now_ns
            self._say(
                f"The journal of calls in flight cannot be written: {why}. Calls that are not in "
                f"it are not logged if "
                "their worker dies, and not charged if the whole gateway dies."
            )
