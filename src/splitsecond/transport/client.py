"""The HTTP client: takes a ready connection or opens one, writes the request, and hands back the exchange.

`send` is the only thing that waits, and it waits only for a connection. The answer comes to the receiver by itself.

A request that was lost on a connection from the pool is sent again from the read callback, long after `send` has
returned, so that dialling runs in a task of the client's own: the one kind of task here that no TaskGroup holds. The
client keeps each until it ends; closing its exchange, or the client, cancels it.
"""

import asyncio
import itertools
import ssl
from collections.abc import Mapping
from functools import partial

from splitsecond import clock
from splitsecond.errors import CallerFault, Fault, NetworkFault
from splitsecond.transport.connection import Connection, ReadBuffer
from splitsecond.transport.exchange import Connected, Exchange, Origin, Receiver, Request
from splitsecond.transport.opening import opened
from splitsecond.transport.pool import Pool, PoolStatistics
from splitsecond.transport.proxy import Proxies, proxies_of_environment
from splitsecond.transport.rendering import rendered
from splitsecond.transport.tls import prepared
from splitsecond.transport.watching import Watching, watching

IDLE_S = 60.0
"""How long an idle connection is kept where its server does not say. Shorter than the usual 75 s of nginx, and of
the middleboxes that forget a silent connection; a server that closes earlier is noticed when it does."""

OPEN_AT_ONCE = 32
"""Most connections that `warm` opens side by side: a burst of hundreds overflows a server's accept queue."""


class Client:
    """One per event loop. Not for threads. Make it and use it within the same loop, and close it at the end."""

    def __init__(
        self,
        *,
        trust: ssl.SSLContext | None = None,
        proxies: Mapping[str, str] | None = None,
        idle_s: float = IDLE_S,
        gather: bool = False,
    ) -> None:
        """`trust`: whom to believe, None: the system; its ALPN is set. `proxies`: see `Proxies`, None: environment.

        `gather`: let arrivals on many connections gather before they are read, which is for measuring; see `watching`.

        Raises `CallerFault` where a proxy is not usable.
        """
        self._trust = trust
        self._context: ssl.SSLContext | None = None
        self._proxies = Proxies(proxies_of_environment() if proxies is None else proxies)
        self._pool = Pool(idle_s)
        self._buffer = ReadBuffer()
        self._ids = itertools.count(1)
        self._redials: dict[asyncio.Task[None], Exchange] = {}
        self._gather = gather
        self._watching: Watching | None = None
        self._closed = False

    def __repr__(self) -> str:
        return repr(self._pool)

    def statistics(self) -> PoolStatistics:
        """How many connections there are now."""
        return self._pool.statistics()

    async def send(
        self, origin: Origin, request: Request, receiver: Receiver, *, connect_deadline_ns: int | None = None
    ) -> Exchange:
        """Write `request` on a ready connection; return at its first bytes. The answer goes to `receiver`.

        Raises `NetworkFault` or `TimedOut` where no connection is had (the deadline is absolute), `CallerFault` for
        a request that cannot be sent. Cancelling it closes what it opened.
        """
        method, payload = request.method, self._rendered(origin, request)
        connection = self._pool.take(origin)
        reused = connection is not None
        if connection is None:
            connection = await self._opened(origin, connect_deadline_ns)
            self._pool.add(connection)
        again = partial(self._redial, origin, method, payload, connect_deadline_ns)
        exchange = Exchange(receiver, connection.facts, again)
        connection.carry(exchange, payload, method, reused=reused)
        return exchange

    async def warm(self, origin: Origin, count: int, *, connect_deadline_ns: int | None = None) -> int:
        """Open connections until `count` are idle; return how many are.

        Fewer is no failure, but none at all raises what the first attempt met.
        """
        turns = asyncio.Semaphore(OPEN_AT_ONCE)
        faults: list[Fault] = []

        async def one() -> None:
            async with turns:
                try:
                    connection = await self._opened(origin, connect_deadline_ns)
                except Fault as fault:
                    faults.append(fault)
                else:
                    self._pool.add(connection)
                    self._pool.came_free(connection)

        async with asyncio.TaskGroup() as openings:
            for _ in range(count - self._pool.idle(origin)):
                openings.create_task(one())
        idle = self._pool.idle(origin)
        if faults and not idle:
            raise faults[0]
        return idle

    def close(self) -> None:
        """Close every connection. Exchanges under way fail with kind "closed". Nothing can be sent afterwards."""
        self._closed = True
        under_way = [c.exchange for c in self._pool.active() if c.exchange] + list(self._redials.values())
        for exchange in under_way:
            exchange.abandon(clock.now_ns(), NetworkFault("the client was closed", kind="closed", phase="total"))
        self._pool.close()
        if self._watching is not None:
            self._watching.close()

    def _rendered(self, origin: Origin, request: Request) -> bytes:
        if self._closed:
            raise CallerFault("the client is closed", kind="client_closed")
        proxy = self._proxies.between(origin) if origin.scheme == "http" else None
        if proxy is None:
            return rendered(request, origin)
        return rendered(request, origin, via_proxy=True, extra=proxy.authorization)

    async def _opened(self, origin: Origin, deadline_ns: int | None) -> Connection:
        ready = await opened(origin, self._proxies.between(origin), self._tls_context, deadline_ns)
        if self._closed:
            ready.sock.close()
            raise NetworkFault("the client was closed", kind="closed", phase="connect")
        facts = Connected(next(self._ids), False, ready.dns_ns, ready.tcp_ns, ready.tls_ns, ready.peer)
        loop = asyncio.get_running_loop()
        if self._watching is None:
            self._watching = watching(loop, gather=self._gather)
        return Connection(
            ready.sock,
            ready.tls,
            origin=origin,
            facts=facts,
            home=self._pool,
            buffer=self._buffer,
            loop=loop,
            watching=self._watching,
        )

    def _tls_context(self) -> ssl.SSLContext:
        """Made at the first need, as most of its time goes into reading the system's certificates."""
        if self._context is None:
            self._context = prepared(self._trust)
        return self._context

    def _redial(
        self, origin: Origin, method: str, payload: bytes, connect_deadline_ns: int | None, exchange: Exchange
    ) -> asyncio.Task[None]:
        """Connecting may take as long as it might have before, when a connection was there."""
        allowed_ns = None if connect_deadline_ns is None else connect_deadline_ns - exchange.sent_ns

        async def redial() -> None:
            deadline_ns = None if allowed_ns is None else clock.now_ns() + allowed_ns
            try:
                connection = await self._opened(origin, deadline_ns)
            except Fault as fault:
                exchange.over(clock.now_ns(), fault, answered=False)
            else:
                self._pool.add(connection)
                connection.carry(exchange, payload, method, reused=False)

        task = asyncio.get_running_loop().create_task(redial())
        self._redials[task] = exchange
        task.add_done_callback(lambda done: self._redials.pop(done, None))
        return task
