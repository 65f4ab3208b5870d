"""Counters that worker processes share without a lock: a table in shared memory with one row for
each worker.

A worker writes only its own row and adds up all rows, so no two processes write one cell. A cell is
eight bytes at a multiple of eight, which processors write and read atomically. A count is stored
next to its minute, day or month. When the next minute begins, the count is set to 0 first and then
the minute, so a reader sees either the old minute, which it skips, or the new minute with its
count. Reservations for calls in flight belong to no day or month. A count stays at the largest or
least number of a cell where it would go beyond it, so that a limit that was reached stays reached.

A row has the sums of two days and two months: that which was charged last and the one before it.
If the wall clock steps over midnight and back, the first day still has its sum.

The memory outlives a worker, so a restarted worker continues in its row. What its predecessor had
reserved for calls in flight stays reserved until `forfeit` charges it. A row finds its names by
their hash, so workers may have different keys: one may use a newer configuration than another. The
last row belongs to no worker: it contains what was spent before the table was made.
"""

import hashlib
from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from typing import ClassVar, Literal

from splitsecond.gateway.records.shared_memory import create_memory, mapped

MAX_NAMES = 4096
"""Names in a row. Further names share a place, so their limits are reached too early, never too
late."""
_CELL_BYTES = 8
_NAME = 0
_MINUTE, _COUNT = 1, 3  # two minutes and their counts: the even, the odd
# from the place of a period: two of its numbers and their sums, and which of them was charged last:
# 0 or 1
_DAY, _MONTH = 5, 11
_SPENT, _LATEST = 2, 4
_RESERVED = 10
_NANO = 1_000_000_000
_MAX_CELL = (1 << 63) - 1
_MAX_USD = 9e9
"""More billionths do not fit into a cell."""
_EPOCH = date(1970, 1, 1).toordinal()

SpendingPeriod = Literal["day", "month"]


class SharedTable:
    """A table in shared memory: a row for each of `workers` and one more. A process writes only the
    row `row`.

    `memory`: the descriptor that `create` returned; None: memory of this process alone.
    """

    width: ClassVar[int]
    """Cells of each name in a row."""

    def __init__(self, memory: int | None, workers: int, row: int) -> None:
        self._rows, self._row = workers + 1, row
        self._cells = mapped(memory, self._size(workers)).cast("q")
        self._places: dict[tuple[int, str], int] = {}

    @classmethod
    def create(cls, workers: int) -> int:
        return create_memory(cls._size(workers))

    @classmethod
    def _size(cls, workers: int) -> int:
        return (workers + 1) * MAX_NAMES * cls.width * _CELL_BYTES

    def _place(self, row: int, name: str) -> int:
        at = self._places.get((row, name), -1)
        if at < 0:
            at = self._search(row, name)
            if self._cells[at + _NAME] == 0:
                return -1
            self._places[row, name] = at
        return at

    def _taken(self, row: int, name: str) -> int:
        at = self._place(row, name)
        if at < 0:
            at = self._search(row, name)
            self._cells[at + _NAME] = _hash(name)
            self._places[row, name] = at
        return at

    def _belongs(self, at: int, name: str) -> bool:
        return self._cells[at + _NAME] == _hash(name)

    def _is_free(self, row: int, name: str) -> bool:
        return self._cells[self._search(row, name) + _NAME] == 0

    def _search(self, row: int, name: str) -> int:
        name_hash = _hash(name)
        begin = row * MAX_NAMES * self.width
        for step in range(MAX_NAMES):
            at = begin + (name_hash + step) % MAX_NAMES * self.width
            if self._cells[at + _NAME] in (name_hash, 0):
                return at
        return begin + name_hash % MAX_NAMES * self.width


class SharedCounters(SharedTable):
    """Requests per minute, and US dollars per day and month, by name. Days are numbered from
    1970.

    `memory`: that of all `workers`; None: this process counts alone. `number`: this worker's, from
    0.
    """

    width = 16

    def __init__(self, memory: int | None = None, *, workers: int = 1, number: int = 0) -> None:
        if not 0 <= number < workers:
            raise ValueError(f"worker {number} of {workers}")
        super().__init__(memory, workers, number)

    def request(self, name: str, minute: int, count: int = 1) -> None:
        """Count requests in this minute. A negative `count` takes back requests that were
        refused."""
        cells, at = self._cells, self._taken(self._row, name)
        parity = minute & 1
        if cells[at + _MINUTE + parity] != minute:
            cells[at + _COUNT + parity] = 0
            cells[at + _MINUTE + parity] = minute
        cells[at + _COUNT + parity] = within_cell(cells[at + _COUNT + parity] + count)

    def requests(self, name: str, minute: int) -> tuple[int, int]:
        places = [at for row in range(self._rows) if (at := self._place(row, name)) >= 0]
        return self._count(places, minute), self._count(places, minute - 1)

    def spend(self, name: str, day: int, usd: float) -> None:
        amount = nano(usd)
        self._add(self._taken(self._row, name), day, amount, amount)

    def carry_over(self, name: str, day: int, usd: float, earlier_usd: float = 0.0) -> None:
        """Add spending from before the table was made: `usd` of this day, and `earlier_usd` of the
        days before it in its month. Only the first call counts, and only one worker may call it."""
        if self._place(self._rows - 1, name) < 0:
            at = self._taken(self._rows - 1, name)
            self._add(at, day, nano(usd), nano(usd + earlier_usd))

    def is_carried_over(self, name: str) -> bool:
        return self._place(self._rows - 1, name) >= 0

    def spent_usd(self, name: str, day: int, period: SpendingPeriod = "day") -> float:
        """Return what was spent on `day`, or in its month."""
        cells, total = self._cells, 0
        begin, number = (_DAY, day) if period == "day" else (_MONTH, month_of(day))
        for row in range(self._rows):
            at = self._place(row, name)
            if at < 0:
                continue
            at += begin
            if cells[at] == number:
                total += cells[at + _SPENT]
            elif cells[at + 1] == number:
                total += cells[at + _SPENT + 1]
        return total / _NANO

    def reserve(self, name: str, usd: float) -> None:
        at = self._taken(self._row, name) + _RESERVED
        self._cells[at] = within_cell(self._cells[at] + nano(usd))

    def reserved_usd(self, name: str) -> float:
        places = (self._place(row, name) for row in range(self._rows))
        return sum(self._cells[at + _RESERVED] for at in places if at >= 0) / _NANO

    def forfeit(self, names: Iterable[str], day: int) -> dict[str, float]:
        """Charge to `day` what is still reserved in this worker's row, and return it by name.

        For the start of a worker, whose predecessor in the row has died. The amount of names that
        are not in `names` is returned under "".
        """
        name_by_hash = {_hash(name): name for name in names}
        charged: dict[str, float] = {}
        begin = self._row * MAX_NAMES * self.width
        for at in range(begin, begin + MAX_NAMES * self.width, self.width):
            usd = self._cells[at + _RESERVED] / _NANO
            if usd > 0:
                self._add(at, day, nano(usd), nano(usd))
                name = name_by_hash.get(self._cells[at + _NAME], "")
                charged[name] = charged.get(name, 0.0) + usd
            self._cells[at + _RESERVED] = 0
        return charged

    def _count(self, places: list[int], minute: int) -> int:
        cells, parity = self._cells, minute & 1
        return sum(
            cells[at + _COUNT + parity] for at in places if cells[at + _MINUTE + parity] == minute
        )

    def _add(self, at: int, day: int, of_day: int, of_month: int) -> None:
        """Add billionths of a dollar to a day, and to its month."""
        self._add_to(at + _DAY, day, of_day)
        self._add_to(at + _MONTH, month_of(day), of_month)

    def _add_to(self, at: int, number: int, amount: int) -> None:
        cells = self._cells
        place = cells[at + _LATEST]
        if cells[at + place] != number:
            place = 1 - place
            if cells[at + place] != number:
                cells[at + _SPENT + place] = 0
                cells[at + place] = number
            cells[at + _LATEST] = place
        cells[at + _SPENT + place] = within_cell(cells[at + _SPENT + place] + amount)


@lru_cache(64)
def month_of(day: int) -> int:
    """Return the number of the month that contains a day of UTC, which is numbered from 1970."""
    calendar_day = date.fromordinal(_EPOCH + day)
    return calendar_day.year * 12 + calendar_day.month - 1


def within_cell(count: int) -> int:
    return min(max(count, 0), _MAX_CELL)


def nano(usd: float) -> int:
    return round(max(-_MAX_USD, min(_MAX_USD, usd)) * _NANO)


@lru_cache(2 * MAX_NAMES)
def _hash(name: str) -> int:
    """Return 63 bits that are never all 0, the same in every process."""
    return (
        int.from_bytes(hashlib.blake2b(name.encode(), digest_size=_CELL_BYTES).digest(), "big") >> 1
        | 1
    )
