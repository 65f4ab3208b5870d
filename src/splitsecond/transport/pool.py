"""The connections of a client: which are idle, which are in use.

The last one to come free is the first to go out again (LIFO): it is the least likely to have been closed by its
server, and its congestion window the least likely to have shrunk. Nothing limits how many there are: the caller's
concurrency decides, and a limit here would quietly become queueing time in someone's figures.

The pool only decides and keeps books. A connection that dies while idle says so itself (`gone`).
"""

import asyncio

from msgspec import Struct

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
    """Connections by origin, in order of coming free, each with the timer that ends its idling."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._idle: dict[Origin, dict[Connection, asyncio.TimerHandle]] = {}
        self._active: dict[Connection, None] = {}

    def __repr__(self) -> str:
        return str(self.statistics())

    def statistics(self) -> PoolStatistics:
        """The books as of now."""
        origins = {origin for origin, idle in self._idle.items() if idle} | {c.origin for c in self._active}
        return PoolStatistics(len(origins), sum(map(len, self._idle.values())), len(self._active))

    def idle(self, origin: Origin) -> int:
        """How many connections to `origin` wait for a request."""
        return len(self._idle.get(origin, ()))

    def active(self) -> list[Connection]:
        """Those that carry an exchange."""
        return list(self._active)

    def take(self, origin: Origin) -> Connection | None:
        """An idle connection that is alive, now active; None: there is none."""
        idle = self._idle.get(origin)
        while idle:
            connection = next(reversed(idle))
            if connection.is_alive():
                idle.pop(connection).cancel()
                self._active[connection] = None
                return connection
        return None

    def add(self, connection: Connection) -> None:
        """A new connection, for an exchange right now."""
        self._active[connection] = None

    def came_free(self, connection: Connection) -> None:
        """A connection is idle from now on, until it is taken, dies, or has waited long enough."""
        self._active.pop(connection, None)
        hint_s = connection.idle_limit_s
        wait_s = self._idle_s if hint_s is None else min(self._idle_s, HINT_SHARE * hint_s)
        timer = asyncio.get_running_loop().call_later(wait_s, connection.close)
        self._idle.setdefault(connection.origin, {})[connection] = timer

    def gone(self, connection: Connection) -> None:
        """A connection has closed."""
        self._active.pop(connection, None)
        idle = self._idle.get(connection.origin, {})
        if timer := idle.pop(connection, None):
            timer.cancel()
        if not idle:
            self._idle.pop(connection.origin, None)

    def close(self) -> None:
        """Close every connection."""
        for connection in [*self._active, *(c for idle in self._idle.values() for c in idle)]:
            connection.close()
