"""Counts that several worker processes share without a lock: a table in memory that all map, one row for each worker.

A worker writes only its own row and adds all rows up, so no two ever write one cell; a cell is eight bytes at a
multiple of eight, which processors write and read whole. A count stands beside the minute, or day, that it is of. When
another begins, the count is set to 0 first and then the minute, so a reader sees the old minute, which it passes over,
or the new one with what belongs to it. What is set aside for calls under way is of no day.

The table is a file that all map. It outlives a worker, so that one which is started again goes on in its row; of calls
that ended with the one before, nothing is set aside any more. A row
finds its names by their hash, so that workers need not agree on the keys there are: one may serve by a newer
configuration than another. The last row is nobody's: it holds what was spent before the table began.
"""

import hashlib
import mmap
import os
from functools import lru_cache
from pathlib import Path

MOST_NAMES = 1024
"""In a row. Names beyond them share a place, which errs on the side of the limit."""
_CELLS = 8
_CELL_BYTES = 8
_NAME, _MINUTE, _COUNT, _DAY, _SPENT, _HELD = 0, 1, 3, 5, 6, 7  # two minutes and their counts: the even, the odd
_NANO = 1_000_000_000


class Tally:
    """Requests by the minute and US dollars by the day, of any number of names.

    `path`: of the file that all `workers` map, made by whichever comes first; this one is the `number`th, from 0. None:
    this process counts alone.
    """

    def __init__(self, path: Path | None = None, *, workers: int = 1, number: int = 0) -> None:
        if not 0 <= number < workers:
            raise ValueError(f"worker {number} of {workers}")
        self._rows = workers + 1
        self._cells = memoryview(_mapped(path, self._rows * MOST_NAMES * _CELLS * _CELL_BYTES)).cast("q")
        self._row = number
        self._places: dict[tuple[int, str], int] = {}
        begin = number * MOST_NAMES * _CELLS
        for at in range(begin, begin + MOST_NAMES * _CELLS, _CELLS):
            self._cells[at + _HELD] = 0

    def request(self, name: str, minute: int, count: int = 1) -> None:
        """So many more requests in this minute; less than 0: they were not let in after all."""
        cells, at = self._cells, self._taken(self._row, name)
        parity = minute & 1
        if cells[at + _MINUTE + parity] != minute:
            cells[at + _COUNT + parity] = 0
            cells[at + _MINUTE + parity] = minute
        cells[at + _COUNT + parity] += count

    def requests(self, name: str, minute: int) -> tuple[int, int]:
        """How many there were in this minute, and in the one before."""
        places = [at for row in range(self._rows) if (at := self._place(row, name)) >= 0]
        return self._count(places, minute), self._count(places, minute - 1)

    def spend(self, name: str, day: int, usd: float) -> None:
        """So much more on this day."""
        self._add(self._taken(self._row, name), day, usd)

    def carry_over(self, name: str, day: int, usd: float) -> None:
        """What was spent on this day before the table began. Only the first time counts, and only one worker may."""
        if self._place(self._rows - 1, name) < 0:
            self._add(self._taken(self._rows - 1, name), day, usd)

    def spent_usd(self, name: str, day: int) -> float:
        """What was spent on this day."""
        places = (self._place(row, name) for row in range(self._rows))
        return sum(self._cells[at + _SPENT] for at in places if at >= 0 and self._cells[at + _DAY] == day) / _NANO

    def hold(self, name: str, usd: float) -> None:
        """So much is set aside for a call under way; less than 0: it is given back."""
        self._cells[self._taken(self._row, name) + _HELD] += round(usd * _NANO)

    def held_usd(self, name: str) -> float:
        """What is set aside for calls under way."""
        places = (self._place(row, name) for row in range(self._rows))
        return sum(self._cells[at + _HELD] for at in places if at >= 0) / _NANO

    def _count(self, places: list[int], minute: int) -> int:
        cells, parity = self._cells, minute & 1
        return sum(cells[at + _COUNT + parity] for at in places if cells[at + _MINUTE + parity] == minute)

    def _add(self, at: int, day: int, usd: float) -> None:
        cells = self._cells
        if cells[at + _DAY] != day:
            cells[at + _SPENT] = 0
            cells[at + _DAY] = day
        cells[at + _SPENT] += round(usd * _NANO)

    def _place(self, row: int, name: str) -> int:
        """Where `name` stands in a row; -1: nowhere yet."""
        at = self._places.get((row, name), -1)
        if at < 0:
            at = self._search(row, name)
            if self._cells[at + _NAME] == 0:
                return -1
            self._places[row, name] = at
        return at

    def _taken(self, row: int, name: str) -> int:
        """Where `name` stands in a row of ours; from here on, if it stood nowhere."""
        at = self._place(row, name)
        if at < 0:
            at = self._search(row, name)
            self._cells[at + _NAME] = _hash(name)
            self._places[row, name] = at
        return at

    def _search(self, row: int, name: str) -> int:
        """Where `name` stands in a row, or may; where the row is full, a place that is another's too."""
        wanted = _hash(name)
        begin = row * MOST_NAMES * _CELLS
        for step in range(MOST_NAMES):
            at = begin + (wanted + step) % MOST_NAMES * _CELLS
            if self._cells[at + _NAME] in (wanted, 0):
                return at
        return begin + wanted % MOST_NAMES * _CELLS


def _mapped(path: Path | None, size: int) -> mmap.mmap:
    if path is None:
        return mmap.mmap(-1, size)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, size)  # a new file is all zeros; one that is there keeps what it holds
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)


@lru_cache(2 * MOST_NAMES)
def _hash(name: str) -> int:
    """63 bits that are never 0, the same in every process."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=_CELL_BYTES).digest(), "big") >> 1 | 1
