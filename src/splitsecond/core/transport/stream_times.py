"""Arrival times of the bytes of one TCP stream, from the sequence numbers of the packets that
brought them.

A byte counts as arrived when it and all bytes before it have: nobody can use a byte behind a gap.
So a packet that overtook another has the time of the other, and bytes whose first packet was lost
have the time of the retransmission.
"""

from bisect import bisect_right, insort
from itertools import chain
from operator import sub

_MODULUS = 1 << 32
_HALF = 1 << 31


class StreamTimes:
    """Arrival times of the bytes of one stream that were not read yet. Offsets count from the
    stream's first byte.

    `sequence` is the sequence number of the first byte. `arrived` is the offset up to which bytes
    have arrived without a gap, `read` the offset up to which they were read. `reordered` and
    `repeated` count packets that came early, and packets without any new byte.

    `add` runs once for each packet, and `take` once for each read, so what a read takes as a whole
    is handed out as the lists that hold it.
    """

    __slots__ = (
        "_early",
        "_ends",
        "_sequence",
        "_times",
        "arrived",
        "read",
        "reordered",
        "repeated",
    )

    def __init__(self, sequence: int) -> None:
        self._sequence = sequence  # the sequence number of the byte at `arrived`
        # the offsets at which the packets end that have arrived, in order
        self._ends: list[int] = []
        self._times: list[int] = []  # their arrivals
        self._early: list[tuple[int, int]] = []  # (begin, end) of what came behind a gap, in order
        self.arrived = self.read = self.reordered = self.repeated = 0

    def __len__(self) -> int:
        return len(self._ends) + len(self._early)

    def add(self, sequence: int, length: int, at: int) -> None:
        if sequence == self._sequence and not self._early:
            self._sequence = (sequence + length) % _MODULUS
            self.arrived = end = self.arrived + length
            self._ends.append(end)
            self._times.append(at)
            return
        ahead = (sequence - self._sequence) % _MODULUS
        if not ahead:
            self._append(self.arrived + length, at)
        elif ahead >= _HALF:  # it begins before what has arrived
            if length > _MODULUS - ahead:
                self._append(self.arrived + length - (_MODULUS - ahead), at)
            else:
                self.repeated += 1
        else:
            self.reordered += 1
            insort(self._early, (self.arrived + ahead, self.arrived + ahead + length))

    def take(self, count: int) -> tuple[list[int], list[int]]:
        """Return the sizes and the arrivals of the packets that brought the next `count` bytes.
        These count as read.

        If only a part of a packet is taken, its size is that of the part.
        """
        read, end = self.read, self.read + count
        ends, times = self._ends, self._times
        self.read = end
        if end == self.arrived:
            self._ends, self._times = [], []
        else:
            whole = bisect_right(ends, end)
            self._ends, self._times = ends[whole:], times[whole:]
            part = end > (ends[whole - 1] if whole else read)
            del ends[whole + part :], times[whole + part :]
            if part:
                ends[whole] = end
        return list(map(sub, ends, chain((read,), ends))), times

    def skip(self, count: int, at: int) -> None:
        self.read += count
        if self.read > self.arrived:
            self._append(self.read, at)
        obsolete = bisect_right(self._ends, self.read)
        del self._ends[:obsolete], self._times[:obsolete]

    def _append(self, end: int, at: int) -> None:
        early = self._early
        while early and early[0][0] <= end:
            end = max(end, early.pop(0)[1])
        self._sequence = (self._sequence + end - self.arrived) % _MODULUS
        self.arrived = end
        self._ends.append(end)
        self._times.append(at)


def monotonic(arrivals: list[int], first: int, last: int) -> list[int]:
    """Return `arrivals` so that none is before the one before it or before `first`, and none is
    after `last`.

    Two processors can stamp packets out of their order, and the two clocks are compared anew for
    each look at the ring.
    """
    if first <= arrivals[0] and arrivals[-1] <= last and arrivals == sorted(arrivals):
        return arrivals
    ordered = []
    for at in arrivals:
        first = min(max(at, first), last)
        ordered.append(first)
    return ordered
