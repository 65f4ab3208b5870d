"""A timer wheel for deadlines that almost never fire.

A request has one deadline after another: for its body, the response headers, the first token, the
next token. Setting and cancelling a timer of the event loop for each costs more than everything
else that is done about them. So a deadline that is far away is only an entry in the list of its
time slot, a quarter of a second long. When the slot begins, the entries that are still in the list
get timers of their own, which are as exact as the loop's. All lists share one timer, for the
earliest of them: with two minutes of slots for each of a dozen targets, a timer for each list would
take megabytes.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

from msgspec import Struct

from splitsecond.core import clock

EARLY_NS = clock.NS_PER_MS
"""A timer fires at most that much before its time: uvloop rounds to the nearest millisecond."""
_SLOT_BITS = 28
"""A slot is 2^28 ns long, about a quarter of a second."""


class TimerEntry(Struct, eq=False, kw_only=True):
    """Base class of objects that have one deadline at a time. Subclass it; holding one creates a
    reference cycle."""

    _slot: "dict[TimerEntry, int] | None" = None
    _timer: asyncio.TimerHandle | None = None

    def timer_fired(self) -> None:
        raise NotImplementedError

    def cancel_timer(self) -> None:
        slot = self._slot
        if slot is not None:
            del slot[self]
            if not slot:
                # frees the memory of all former entries; the empty list can stay for minutes
                slot.clear()
            self._slot = None
        elif self._timer is not None:
            self._timer.cancel()
            self._timer = None


class TimerWheel:
    """All deadlines of one event loop, by default of the loop in which the first deadline is
    set."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop
        self._slots: dict[int, dict[TimerEntry, int]] = {}
        self._numbers: list[int] = []  # a heap of the keys of `_slots`
        self._timer: asyncio.TimerHandle | None = None

    def set(self, entry: TimerEntry, due_ns: int, now_ns: int) -> None:
        number = due_ns >> _SLOT_BITS
        slot = self._slots.get(number)
        if slot is None:
            if number <= now_ns >> _SLOT_BITS:
                self._start(entry, due_ns)
                return
            slot = self._slots[number] = {}
            heappush(self._numbers, number)
            if self._numbers[0] == number:
                self._await_first()
        slot[entry] = due_ns
        entry._slot = slot

    def _await_first(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._call_at(self._numbers[0] << _SLOT_BITS, self._begin_slot)

    def _begin_slot(self) -> None:
        self._timer = None
        for entry, due_ns in self._slots.pop(heappop(self._numbers)).items():
            entry._slot = None
            self._start(entry, due_ns)
        if self._numbers:
            self._await_first()

    def _start(self, entry: TimerEntry, due_ns: int) -> None:
        entry._timer = self._call_at(due_ns, self._fire, entry)

    def _call_at(
        self, due_ns: int, callback: Callable[..., object], *args: object
    ) -> asyncio.TimerHandle:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.call_at(due_ns / clock.NS_PER_S, callback, *args)

    def _fire(self, entry: TimerEntry) -> None:
        entry._timer = None
        entry.timer_fired()
