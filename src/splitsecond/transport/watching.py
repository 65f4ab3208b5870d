"""Who calls a connection when its socket has bytes: the event loop itself, or a gatherer for many sockets at once.

With hundreds of streams, a loop that wakes for every token spends most of its time on waking: the switch to our process
and the poll cost more than the read. A `Gatherer` lets arrivals gather for up to 2 ms and reads all of them in one
go. Because arrivals carry the kernel's stamp this moves no figure: it is read lag, which is kept and reported like
any other. Two tokens of one stream would have to come within that time to be seen as one read, which no provider of
so many streams does. What it does delay is what else the loop has to do, by up to the same time, so it is for
measuring only; a gateway, whose clients wait for the bytes, lets the loop call.

The waiting blocks on purpose: to give the thread back to the loop would cost what is to be saved.
"""

import asyncio
import select
from collections.abc import Callable
from typing import Protocol

from splitsecond import clock

GATHERS_FROM = 32
"""Sockets from which on arrivals are let to gather; below, waking is a small part, and prompt reading is worth more."""
GATHER_NS = 8 * clock.NS_PER_US
"""How long arrivals may gather for each socket: 2 ms with 256, where a token then waits for a fifth of the time between
two tokens of a stream of 100 tokens/s; 0.3 ms with 32, whose streams may be faster."""
MOST_NS = 2 * clock.NS_PER_MS


class Watching(Protocol):
    """Calls back whenever a socket has something to read."""

    def watch(self, descriptor: int, readable: Callable[[], None]) -> None: ...

    def unwatch(self, descriptor: int) -> None: ...

    def close(self) -> None: ...


class ByLoop:
    """The event loop calls each connection as soon as it has bytes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def watch(self, descriptor: int, readable: Callable[[], None]) -> None:
        """Call `readable` from now on."""
        self._loop.add_reader(descriptor, readable)

    def unwatch(self, descriptor: int) -> None:
        """Do not call it any more; nothing happens where nobody was to be called."""
        self._loop.remove_reader(descriptor)

    def close(self) -> None:
        """Nothing is held."""


class Gatherer:
    """One epoll for all sockets, itself watched by the loop. Linux only: see `watching`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._polled_ns = 0
        self._epoll = select.epoll()
        loop.add_reader(self._epoll.fileno(), self._some_readable)

    def watch(self, descriptor: int, readable: Callable[[], None]) -> None:
        """Call `readable` from now on."""
        if descriptor not in self._callbacks:
            self._epoll.register(descriptor, select.EPOLLIN)
        self._callbacks[descriptor] = readable

    def unwatch(self, descriptor: int) -> None:
        """Do not call it any more; nothing happens where nobody was to be called."""
        if self._callbacks.pop(descriptor, None) is not None and not self._epoll.closed:
            self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Let go of the epoll. Again: nothing."""
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    def _some_readable(self) -> None:
        sockets = len(self._callbacks)
        if sockets >= GATHERS_FROM:
            clock.block_until(self._polled_ns + min(sockets * GATHER_NS, MOST_NS))
        for descriptor, _ in self._epoll.poll(0, sockets or 1):
            readable = self._callbacks.get(descriptor)  # None: an earlier callback of this round closed it
            if readable is not None:
                readable()
        self._polled_ns = clock.now_ns()


def watching(loop: asyncio.AbstractEventLoop, *, gather: bool) -> Watching:
    """A `Gatherer` where it is wanted and the system has epoll, else `ByLoop`."""
    return Gatherer(loop) if gather and hasattr(select, "epoll") else ByLoop(loop)
