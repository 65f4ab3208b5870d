"""The connections of a client: which are idle, which are in use.

The last one to come free is the first to go out again (LIFO): it is the least likely to have been closed by its
server, and its congestion window the least likely to have shrunk. Nothing limits how many there are: the caller's
concurrency decides, and a limit here would quietly become queueing time in someone's figures.

The pool only decides and keeps books. A connection that dies while idle says so itself (`gone`).
"""

import asyncio

from msgspec import Struct

from splitsecond import clock
from splitsecond.clock import NS_PER_S
from splitsecond.transport.connection import Connection
from splitsecond.transport.exchange import Origin

HINT_SHARE = 0.8
"""How much of the idle time that a server promises we use: the rest is for our request's way to it."""


class PoolStatistics(Struct, frozen=True):
    """How many connections there are now, and to how many origins."""

    origins: int
    idle: int
    active: int

    def __str__(self) -> str:
        return f"[origins: {self.origins} | connections: {self.idle} idle, {self.active} active]"


class Pool:
    """Connections by origin, in order of coming free, each with the moment at which its idling ends.

    One timer serves them all: it sleeps until the first of these moments, closes what is due, and sleeps again. A timer
    for each would be set and cancelled with every request.
    """

    def __init__(self, idle_s: float) -> None:
        self._idle_ns = round(idle_s * NS_PER_S)
        self._idle: dict[Origin, dict[Connection, int]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_ns = 0
        self._open: dict[Connection, None] = {}

    def __repr__(self) -> str:
        return str(self.statistics())

    def statistics(self) -> PoolStatistics:
        """The books as of now."""
        idle = sum(map(len, self._idle.values()))
        return PoolStatistics(len({connection.origin for connection in self._open}), idle, len(self._open) - idle)

    def idle(self, origin: Origin) -> int:
        """How many connections to `origin` wait for a request."""
        return len(self._idle.get(origin, ()))

    def active(self) -> list[Connection]:
        """Those that carry an exchange."""
        idle = {connection for each in self._idle.values() for connection in each}
        return [connection for connection in self._open if connection not in idle]

    def take(self, origin: Origin) -> Connection | None:
        """An idle connection that is alive, now active; None: there is none."""
        idle = self._idle.get(origin)
        while idle:
            connection = next(reversed(idle))
            if connection.is_alive():
                del idle[connection]
                return connection
        return None

    def add(self, connection: Connection) -> None:
        """A new connection. Until it comes free it is active."""
        self._open[connection] = None

    def came_free(self, connection: Connection) -> None:
        """A connection is idle from now on, until it is taken, dies, or has waited long enough."""
        until_ns, hint_s = clock.now_ns() + self._idle_ns, connection.idle_limit_s
        if hint_s is not None:
            until_ns += min(round(HINT_SHARE * hint_s * NS_PER_S) - self._idle_ns, 0)
        idle = self._idle.get(connection.origin)
        if idle is None:
            idle = self._idle[connection.origin] = {}
        idle[connection] = until_ns
        if self._sweep is None or until_ns < self._sweep_ns:
            self._sweep_by(until_ns)

    def gone(self, connection: Connection) -> None:
        """A connection has closed."""
        self._open.pop(connection, None)
        idle = self._idle.get(connection.origin, {})
        idle.pop(connection, None)
        if not idle:
            self._idle.pop(connection.origin, None)

    def _sweep_by(self, until_ns: int) -> None:
        """Lets the timer go off at `until_ns`, which is before it would."""
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
                connection.close()
        if left := [until_ns for idle in self._idle.values() for until_ns in idle.values()]:
            self._sweep_by(min(left))

    def close(self) -> None:
        """Close every connection."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection in list(self._open):
            connection.close()
