"""Connection pool: which connections are idle and which are in use.

The connection released last is taken first (LIFO): it is the least likely to have been closed by
its server, and its congestion window the least likely to have shrunk. The pool sets no limit on
connections: the caller's concurrency decides, and a limit here would become unreported queueing
time.
"""

import asyncio

from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.internal_errors import contained
from splitsecond.core.transport.connection import HttpConnection
from splitsecond.core.transport.exchange import Origin

HINT_SHARE = 0.8
"""Share of the server's promised idle time that is used: the rest is for the request's way to the
server."""


class PoolStatistics(Struct, frozen=True):
    origins: int
    idle: int
    active: int

    def __str__(self) -> str:
        return f"[origins: {self.origins} | connections: {self.idle} idle, {self.active} active]"


class Pool:
    """Connections by origin, in order of release, each with the end of its idle time.

    One timer serves all: it sleeps until the first of these moments, closes what is due, and sleeps
    again. A timer for each would be set and cancelled with every request.
    """

    def __init__(self, idle_s: float) -> None:
        self._idle_ns = round(idle_s * NS_PER_S)
        self._idle: dict[Origin, dict[HttpConnection, int]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_ns = 0
        self._open: dict[HttpConnection, None] = {}

    def __repr__(self) -> str:
        return str(self.statistics())

    def statistics(self) -> PoolStatistics:
        idle = sum(map(len, self._idle.values()))
        return PoolStatistics(
            len({connection.origin for connection in self._open}), idle, len(self._open) - idle
        )

    def idle(self, origin: Origin) -> int:
        return len(self._idle.get(origin, ()))

    def active(self) -> list[HttpConnection]:
        idle = {connection for each in self._idle.values() for connection in each}
        return [connection for connection in self._open if connection not in idle]

    def take(self, origin: Origin) -> HttpConnection | None:
        idle = self._idle.get(origin)
        while idle:
            connection = next(reversed(idle))
            if connection.is_alive():
                del idle[connection]
                return connection
        return None

    def add(self, connection: HttpConnection) -> None:
        self._open[connection] = None

    def released(self, connection: HttpConnection) -> None:
        until_ns, hint_s = clock.now_ns() + self._idle_ns, connection.idle_limit_s
        if hint_s is not None:
            until_ns += min(round(HINT_SHARE * hint_s * NS_PER_S) - self._idle_ns, 0)
        idle = self._idle.get(connection.origin)
        if idle is None:
            idle = self._idle[connection.origin] = {}
        idle[connection] = until_ns
        if self._sweep is None or until_ns < self._sweep_ns:
            self._schedule_sweep(until_ns)

    def closed(self, connection: HttpConnection) -> None:
        self._open.pop(connection, None)
        idle = self._idle.get(connection.origin, {})
        idle.pop(connection, None)
        if not idle:
            self._idle.pop(connection.origin, None)

    def close_idle(self, origin: Origin) -> None:
        for connection in list(self._idle.get(origin, ())):
            connection.close()

    def _schedule_sweep(self, until_ns: int) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep_ns = until_ns
        self._sweep = asyncio.get_running_loop().call_at(until_ns / NS_PER_S, self._close_idle)

    def _close_idle(self) -> None:
        self._sweep = None
        due_ns = self._sweep_ns
        idling = [pair for idle in self._idle.values() for pair in idle.items()]
        for connection, until_ns in idling:
            if until_ns <= due_ns:
                with contained("callback"):
                    connection.close()
        if left := [until_ns for idle in self._idle.values() for until_ns in idle.values()]:
            self._schedule_sweep(min(left))

    def close(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection in list(self._open):
            connection.close()
