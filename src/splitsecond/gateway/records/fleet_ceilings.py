"""Ceilings of this gateway within the limits that a fleet of gateways shares: a table in shared
memory.

The hub (`fleet/member`) writes ceilings into it, and the workers compare their use with them, so no
request waits for a database. A worker writes only how many requests it refused because of a
ceiling, which is how the fleet process learns that the gateway needs more.

A name that has no place in the table, because `MAX_NAMES` others have taken one since the gateway
started, has no ceiling, so its requests are refused: a shared place would give it the ceiling of
another.
"""

from typing import Literal

from splitsecond.gateway.records.shared_counters import SharedTable, within_cell

Limit = Literal["requests", "usd", "usd_per_month"]
NANO = 1_000_000_000
_PLACES: dict[Limit, int] = {"requests": 1, "usd": 2, "usd_per_month": 3}
# added to the place of a limit; the share is only for requests
_CEILING, _OTHERS, _REFUSED, _SHARE = 0, 3, 6, 9
_FLEET = ""
"""The name under which the table contains what concerns all keys."""
_UNTIL, _OFFSET, _REACHED = 1, 2, 3


class FleetCeilings(SharedTable):
    width = 11

    def __init__(self, memory: int | None, *, workers: int, number: int | None = None) -> None:
        super().__init__(memory, workers, workers if number is None else number)
        self._last = workers
        if number is None:
            self._taken(self._row, _FLEET)  # before any key takes the last place

    def ceiling(self, limit: Limit, name: str, now_ns: int) -> int:
        """Return what the workers of this gateway may use together; 0 before the first answer of
        the database."""
        ceiling, share = self.held(limit, name)
        return (
            min(ceiling, share)
            if limit == "requests" and now_ns >= self._fleet(_UNTIL)
            else ceiling
        )

    def held(self, limit: Limit, name: str) -> tuple[int, int]:
        at = self._place(self._last, name)
        if at < 0:
            return 0, 0
        at += _PLACES[limit]
        return self._cells[at + _CEILING], self._cells[at + _SHARE] if limit == "requests" else 0

    def others(self, limit: Limit, name: str) -> int:
        at = self._place(self._last, name)
        return 0 if at < 0 else self._cells[at + _PLACES[limit] + _OTHERS]

    def refuse(self, limit: Limit, name: str) -> None:
        at = self._place_of_own(name)
        if at >= 0:
            self._cells[at + _PLACES[limit] + _REFUSED] += 1

    def refused(self, limit: Limit, name: str) -> int:
        places = (self._place(row, name) for row in range(self._last))
        return sum(self._cells[at + _PLACES[limit] + _REFUSED] for at in places if at >= 0)

    @property
    def offset_ns(self) -> int:
        return self._fleet(_OFFSET)

    @property
    def reached_ns(self) -> int:
        return self._fleet(_REACHED)

    def set(self, limit: Limit, name: str, *, ceiling: int, share: int, others: int) -> bool:
        at = self._place_of_own(name)
        if at < 0:
            return False
        at += _PLACES[limit]
        self._cells[at + _CEILING] = within_cell(ceiling)
        self._cells[at + _OTHERS] = within_cell(others)
        if limit == "requests":
            self._cells[at + _SHARE] = within_cell(share)
        return True

    def reach(self, reached_ns: int, until_ns: int, offset_ns: int) -> None:
        at = self._taken(self._row, _FLEET)
        self._cells[at + _OFFSET] = offset_ns
        self._cells[at + _UNTIL] = until_ns
        self._cells[at + _REACHED] = reached_ns

    def _place(self, row: int, name: str) -> int:
        at = super()._place(row, name)
        return at if at >= 0 and self._belongs(at, name) else -1

    def _place_of_own(self, name: str) -> int:
        at = self._place(self._row, name)
        if at < 0 and self._is_free(self._row, name):
            at = self._taken(self._row, name)
        return at

    def _fleet(self, cell: int) -> int:
        at = self._place(self._last, _FLEET)
        return 0 if at < 0 else self._cells[at + cell]
