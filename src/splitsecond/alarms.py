"""Deadlines, of which hardly any ever passes.

A request has one after another: for its body, for the head of the answer, for the first token, for the next. To set a
timer of the event loop for each and to cancel it again costs more than all else that is done about them. So a deadline
that is still far away only stands on a list, with all others of its quarter of a second; when that begins, whoever
still stands there gets a timer of its own, which is as exact as the loop's. All lists share one timer, for the first
of them: with two minutes of them for each of a dozen targets, a timer for each list would be megabytes.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

from splitsecond import clock

_SPAN_BITS = 28
"""A list covers 2^28 ns, about a quarter of a second."""


class Alarm:
    """Has one deadline at a time. Whoever has deadlines is an alarm, not the owner of one: that would be a cycle."""

    __slots__ = ("_list", "_timer")

    def __init__(self) -> None:
        self._list: dict[Alarm, int] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def ring(self) -> None:
        """The deadline has come."""
        raise NotImplementedError

    def silence(self) -> None:
        """It will not ring."""
        listed = self._list
        if listed is not None:
            del listed[self]
            if not listed:
                listed.clear()  # it keeps the room of all that it ever held, and lies here for minutes
            self._list = None
        elif self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Alarms:
    """All alarms of one event loop; None: of that in which the first is set."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop
        self._lists: dict[int, dict[Alarm, int]] = {}
        self._spans: list[int] = []  # those of the lists, as a heap
        self._timer: asyncio.TimerHandle | None = None

    def set(self, alarm: Alarm, due_ns: int, now_ns: int) -> None:
        """`alarm`, which is not set, rings at `due_ns`."""
        span = due_ns >> _SPAN_BITS
        if span <= now_ns >> _SPAN_BITS:
            self._start(alarm, due_ns)
            return
        listed = self._lists.get(span)
        if listed is None:
            listed = self._lists[span] = {}
            heappush(self._spans, span)
            if self._spans[0] == span:
                self._await_first()
        listed[alarm] = due_ns
        alarm._list = listed

    def _await_first(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._call_at(self._spans[0] << _SPAN_BITS, self._begin)

    def _begin(self) -> None:
        """The span of the first list begins."""
        self._timer = None
        for alarm, due_ns in self._lists.pop(heappop(self._spans)).items():
            alarm._list = None
            self._start(alarm, due_ns)
        if self._spans:
            self._await_first()

    def _start(self, alarm: Alarm, due_ns: int) -> None:
        alarm._timer = self._call_at(due_ns, self._ring, alarm)

    def _call_at(self, due_ns: int, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.call_at(due_ns / clock.NS_PER_S, callback, *args)

    def _ring(self, alarm: Alarm) -> None:
        alarm._timer = None
        alarm.ring()
