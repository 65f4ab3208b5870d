"""Pollers: call a connection when its socket is readable, one by one or in batches.

With hundreds of streams, a loop that wakes for every token spends most of its time on waking: the
switch to our process and the poll cost more than the read. A `BatchedPoller` lets arrivals of
streams that have begun gather for up to 2 ms and reads all of them at once. Arrivals have the
kernel's stamp, so this changes no time: it is read lag, recorded and reported like any other. Two
tokens of one stream would be merged only if they came within that time, which no provider of so
many streams does. But it delays everything else in the loop by up to the same time, so it is for
measuring only; in a gateway, whose clients wait for the bytes, the loop calls each connection.

Sockets that wait for their first token never gather, because a first token that is read together
with the next one would get the time of the next one. They have a poll of their own, which is looked
at while the others gather and between every few of their reads.

The wait blocks on purpose: returning to the loop would cost what the batching saves.

A socket can also rest: it is in neither poll until its time has come, and is then read once
(`sparse_reads`).
"""

import asyncio
import select
from collections.abc import Callable
from typing import Protocol

from splitsecond.core import clock
from splitsecond.core.internal_errors import report_internal_error

GATHERS_FROM = 32
"""Number of sockets from which arrivals are batched; below it waking is cheap, and prompt reading
matters more."""
GATHER_NS = 8 * clock.NS_PER_US
"""How long arrivals may gather for each socket: 2 ms with 256, where a token then waits for a fifth
of the time between two tokens of a stream of 100 tokens/s; 0.3 ms with 32, whose streams may be
faster."""
MAX_NS = 2 * clock.NS_PER_MS
READS_AT_ONCE = 8
"""How many gathered sockets are read before those that wait for a first token are looked at again:
0.2 ms."""
TICK_NS = 10 * clock.NS_PER_MS
"""Rests end at multiples of this time, so that one timer serves all sockets."""
MS_PER_S = 1000


class SocketPoller(Protocol):
    """Calls a function whenever a socket is readable.

    `gathers`: it batches reads, so packets can be merged. `looked_ns`: when the last look at
    sockets that do not gather began; what is read from one now arrived after that. 0: unknown.
    `gathered`: the number of sockets that gather.
    """

    gathers: bool
    looked_ns: int

    @property
    def gathered(self) -> int: ...

    def watch(self, descriptor: int, readable: Callable[[], None]) -> None: ...

    def gather(self, descriptor: int) -> None: ...

    def rest(self, descriptor: int, length_ns: int) -> None: ...

    def unwatch(self, descriptor: int) -> None: ...

    def close(self) -> None: ...


class LoopPoller:
    gathers = False
    looked_ns = 0
    gathered = 0

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def watch(self, descriptor: int, readable: Callable[[], None]) -> None:
        self._loop.add_reader(descriptor, readable)

    def gather(self, descriptor: int) -> None:
        """Do nothing: the loop calls each connection."""

    def rest(self, descriptor: int, length_ns: int) -> None:
        """Do nothing: the loop calls each connection."""

    def unwatch(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)

    def close(self) -> None:
        """Do nothing: it holds no resource."""


class BatchedPoller:
    """Two epolls for all sockets, themselves registered with the loop. Linux only. See the module's
    docstring."""

    gathers = True

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._gathered: set[int] = set()
        self._resting: dict[int, int] = {}
        """The tick at which the rest of a socket ends. Those that rest are gathered ones, and in no
        epoll."""
        self._ends: dict[int, list[int]] = {}
        """The sockets whose rest ends at a tick. One that was unwatched meanwhile is still here."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_end = 0
        """The tick for which the timer is set; 0 while it fires, so that no tick is earlier."""
        self._polled_ns = self.looked_ns = 0
        self._prompt_epoll, self._epoll = select.epoll(), select.epoll()
        loop.add_reader(self._prompt_epoll.fileno(), self._read_prompt)
        loop.add_reader(self._epoll.fileno(), self._read_gathered)

    @property
    def gathered(self) -> int:
        return len(self._gathered)

    def watch(self, descriptor: int, readable: Callable[[], None]) -> None:
        if descriptor in self._gathered:
            self.unwatch(descriptor)
        if descriptor not in self._callbacks:
            self._prompt_epoll.register(descriptor, select.EPOLLIN)
        self._callbacks[descriptor] = readable

    def gather(self, descriptor: int) -> None:
        if self._resting.pop(descriptor, None) is not None:
            self._epoll.register(descriptor, select.EPOLLIN)
        elif descriptor not in self._gathered:
            self._prompt_epoll.unregister(descriptor)
            self._epoll.register(descriptor, select.EPOLLIN)
            self._gathered.add(descriptor)

    def rest(self, descriptor: int, length_ns: int) -> None:
        """Leave a descriptor that gathers alone for `length_ns`, then call it once, whether or not
        it is readable.

        After that it gathers again, unless the call lets it rest again.
        """
        if descriptor not in self._resting:
            self._epoll.unregister(descriptor)
        end = self._resting[descriptor] = -(-(clock.now_ns() + length_ns) // TICK_NS)
        self._ends.setdefault(end, []).append(descriptor)
        if self._timer is None or end < self._timer_end:
            self._set_timer()

    def unwatch(self, descriptor: int) -> None:
        is_watched = self._callbacks.pop(descriptor, None) is not None
        resting = self._resting.pop(descriptor, None) is not None
        if is_watched and not resting and not self._epoll.closed:
            (self._epoll if descriptor in self._gathered else self._prompt_epoll).unregister(
                descriptor
            )
        self._gathered.discard(descriptor)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._epoll.closed:
            for epoll in (self._prompt_epoll, self._epoll):
                self._loop.remove_reader(epoll.fileno())
                epoll.close()

    def _read_prompt(self) -> None:
        began_ns = clock.now_ns()
        for descriptor, _ in self._prompt_epoll.poll(0, len(self._callbacks) or 1):
            self._call(descriptor)
        self.looked_ns = began_ns

    def _read_gathered(self) -> None:
        sockets = len(self._gathered) - len(self._resting)
        if sockets >= GATHERS_FROM:
            self._wait(self._polled_ns + min(sockets * GATHER_NS, MAX_NS))
        for number, (descriptor, _) in enumerate(self._epoll.poll(0, sockets or 1)):
            if number % READS_AT_ONCE == 0:
                self._read_prompt()
            self._call(descriptor)
        self._polled_ns = clock.now_ns()

    def _set_timer(self) -> None:
        """Wake up when the next rest has ended.

        uvloop counts whole milliseconds, from the one that has begun, and rounds to the nearest. So
        a timer for the exact time could fire too early, and when it is set again for less than half
        a millisecond, it fires in each iteration of the loop until that time. Therefore it is set
        for the next whole millisecond after that time.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._timer_end = min(self._ends)
        left_ns = max(self._timer_end * TICK_NS - clock.now_ns(), 0)
        self._timer = self._loop.call_later(
            (-(-left_ns // clock.NS_PER_MS) + 1) / MS_PER_S, self._end_rests
        )

    def _end_rests(self) -> None:
        now = clock.now_ns() // TICK_NS
        number = self._timer_end = 0
        for end in sorted(tick for tick in self._ends if tick <= now):
            for descriptor in self._ends.pop(end):
                if self._resting.get(descriptor) != end:
                    continue  # no longer watched
                if number % READS_AT_ONCE == 0:
                    self._read_prompt()
                number += 1
                self._call(descriptor)
                if self._resting.get(descriptor) == end:
                    del self._resting[descriptor]
                    self._epoll.register(descriptor, select.EPOLLIN)
        self._timer = None
        if self._ends:
            self._set_timer()

    def _wait(self, due_ns: int) -> None:
        while clock.is_real() and (left_ns := due_ns - clock.now_ns()) > 0:
            if select.select([self._prompt_epoll], [], [], left_ns / clock.NS_PER_S)[0]:
                self._read_prompt()

    def _call(self, descriptor: int) -> None:
        readable = self._callbacks.get(descriptor)
        if readable is not None:  # else an earlier callback of this batch closed it
            try:
                readable()
            except Exception as error:  # the other sockets of the batch must not wait for it
                report_internal_error("callback", error)


def make_poller(loop: asyncio.AbstractEventLoop, *, gather: bool) -> SocketPoller:
    return BatchedPoller(loop) if gather and hasattr(select, "epoll") else LoopPoller(loop)
