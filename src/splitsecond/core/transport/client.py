"""HTTP client: takes a ready connection or opens one, writes the request, and returns the exchange.

A request that was lost on a pooled connection is sent again from the read callback, long after
`send` has returned. So the reconnect runs in a task of the client: the only kind of task here that
no TaskGroup holds. The client keeps each until it ends; closing its exchange, or the client,
cancels it.
"""

import asyncio
import contextlib
import itertools
import socket
import ssl
from collections.abc import Callable, Mapping
from functools import partial

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, Fault, NetworkFault
from splitsecond.core.observation import ArrivalClock, PacketCounts
from splitsecond.core.transport.connecting import open_socket
from splitsecond.core.transport.connection import HttpConnection, ReadBuffer, ReadContext
from splitsecond.core.transport.exchange import Connected, Exchange, Origin, Receiver, Request
from splitsecond.core.transport.packets import PacketRing
from splitsecond.core.transport.polling import make_poller
from splitsecond.core.transport.pool import Pool, PoolStatistics
from splitsecond.core.transport.proxy import Proxies, proxies_of_environment
from splitsecond.core.transport.request_bytes import render
from splitsecond.core.transport.sparse_reads import SparseReads
from splitsecond.core.transport.tls import prepare_context

IDLE_S = 60.0
"""How long an idle connection is kept if its server names no limit. Shorter than the usual 75 s of
nginx, and of middleboxes that forget a silent connection; if a server closes earlier, the pool
notices when it happens.
"""

OPEN_AT_ONCE = 32
"""Connections that `warm` opens at a time: a burst of hundreds overflows a server's accept
queue."""


class Client:
    """HTTP client of one event loop. Not thread-safe. Create, use and close it within the same
    loop."""

    def __init__(
        self,
        *,
        trust: ssl.SSLContext | None = None,
        proxies: Mapping[str, str] | None = None,
        idle_s: float = IDLE_S,
        gather: bool = False,
        arrival_clock: ArrivalClock = "kernel",
        exact_itl: bool = False,
        opened: Callable[[socket.socket], None] = lambda sock: None,
    ) -> None:
        """`trust`: TLS context, None for the system's certificates; its ALPN protocols are set
        here. `proxies`: as for `Proxies`, None for the environment. `gather`: batch the reads of
        many connections, which is for measuring only. `arrival_clock`: the best clock to take
        arrival times from. If "packets" is not available, it is the kernel. `exact_itl`: a client
        that gathers reads no response sparsely, unless the packet clock gives the times. `opened`
        is called with the socket of each new connection.

        Raises `CallerFault` if a proxy setting is unusable.
        """
        self._trust = trust
        self._context: ssl.SSLContext | None = None
        self._proxies = Proxies(proxies_of_environment() if proxies is None else proxies)
        self._pool = Pool(idle_s)
        self._ids = itertools.count(1)
        self._reconnects: dict[asyncio.Task[None], Exchange] = {}
        self._gather = gather
        self._exact_itl = exact_itl
        self._reading: ReadContext | None = None
        self._arrival_clock = arrival_clock
        self._ring: PacketRing | None = None
        self._opened = opened
        self._closed = False

    def __repr__(self) -> str:
        return repr(self._pool)

    def statistics(self) -> PoolStatistics:
        return self._pool.statistics()

    def packet_counts(self) -> PacketCounts | None:
        return None if self._ring is None else self._ring.counts()

    async def send(
        self,
        origin: Origin,
        request: Request,
        receiver: Receiver,
        *,
        connect_deadline_ns: int | None = None,
    ) -> Exchange:
        """Write `request` on a ready connection and return. The response goes to `receiver`.

        Raises `NetworkFault` or `TimedOut` if no connection can be opened (`connect_deadline_ns` is
        absolute), and `CallerFault` for a request that cannot be sent. Cancelling it closes what it
        opened.
        """
        method, payload = request.method, self._render(origin, request)
        connection = self._pool.take(origin)
        reused = connection is not None
        if connection is None:
            connection = await self._connect(origin, connect_deadline_ns)
            self._pool.add(connection)
        again = partial(self._reconnect, origin, method, payload, connect_deadline_ns)
        exchange = Exchange(receiver, connection.info, again)
        connection.start(exchange, payload[0], method, reused=reused, body=payload[1])
        return exchange

    async def warm(
        self, origin: Origin, count: int, *, connect_deadline_ns: int | None = None
    ) -> int:
        turns = asyncio.Semaphore(OPEN_AT_ONCE)
        faults: list[Fault] = []

        async def one() -> None:
            async with turns:
                try:
                    connection = await self._connect(origin, connect_deadline_ns)
                except Fault as fault:
                    faults.append(fault)
                else:
                    self._pool.add(connection)
                    self._pool.released(connection)

        async with asyncio.TaskGroup() as openings:
            for _ in range(count - self._pool.idle(origin)):
                openings.create_task(one())
        idle = self._pool.idle(origin)
        if faults and not idle:
            raise faults[0]
        return idle

    def close(self) -> None:
        """Close every connection. Exchanges in flight fail with kind "closed". Nothing can be sent
        afterwards."""
        self._closed = True
        in_flight = [c.exchange for c in self._pool.active() if c.exchange] + list(
            self._reconnects.values()
        )
        for exchange in in_flight:
            exchange.abort(
                clock.now_ns(), NetworkFault("the client was closed", kind="closed", phase="total")
            )
        self._pool.close()
        if self._reading is not None:
            self._reading.poller.close()
        if self._ring is not None:
            self._ring.close()

    def _render(self, origin: Origin, request: Request) -> tuple[bytes, bytes]:
        if self._closed:
            raise CallerFault("the client is closed", kind="client_closed")
        proxy = self._proxies.proxy_for(origin) if origin.scheme == "http" else None
        if proxy is None:
            return render(request, origin)
        return render(request, origin, via_proxy=True, extra=proxy.authorization)

    async def _connect(self, origin: Origin, deadline_ns: int | None) -> HttpConnection:
        proxy = self._proxies.proxy_for(origin)
        reading = self._open_once()
        if self._ring is not None:
            self._ring.expect((origin if proxy is None else proxy.origin).port)
        ready = await open_socket(origin, proxy, self._tls_context, deadline_ns)
        if self._closed:
            ready.sock.close()
            raise NetworkFault("the client was closed", kind="closed", phase="connect")
        self._opened(ready.sock)
        info = Connected(
            next(self._ids), False, ready.dns_ns, ready.tcp_ns, ready.tls_ns, ready.peer
        )
        return HttpConnection(
            ready.sock,
            ready.tls,
            origin=origin,
            info=info,
            owner=self._pool,
            reading=reading,
        )

    def _open_once(self) -> ReadContext:
        if self._reading is not None:
            return self._reading
        loop = asyncio.get_running_loop()
        if self._arrival_clock == "packets":
            # not allowed, or not on this system: observations say which clock
            with contextlib.suppress(OSError):
                self._ring = PacketRing(loop)
        poller = make_poller(loop, gather=self._gather)
        sparse = SparseReads(exact=self._exact_itl) if self._gather else None
        self._reading = ReadContext(
            loop, poller, ReadBuffer(), self._arrival_clock, self._ring, sparse
        )
        return self._reading

    def _tls_context(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = prepare_context(self._trust)
        return self._context

    def _reconnect(
        self,
        origin: Origin,
        method: str,
        payload: tuple[bytes, bytes],
        connect_deadline_ns: int | None,
        exchange: Exchange,
    ) -> asyncio.Task[None]:
        """Send the request of `exchange` on a new connection, with the same time for connecting as
        the first.

        The other idle connections are closed: what has ended one of them, such as a restart of the
        server, has mostly ended all of them, and each would cost another request that is sent
        twice.
        """
        self._pool.close_idle(origin)
        allowed_ns = None if connect_deadline_ns is None else connect_deadline_ns - exchange.sent_ns

        async def reconnect() -> None:
            deadline_ns = None if allowed_ns is None else clock.now_ns() + allowed_ns
            try:
                connection = await self._connect(origin, deadline_ns)
            except Fault as fault:
                exchange.finish(clock.now_ns(), fault, answered=False)
            else:
                self._pool.add(connection)
                connection.start(exchange, payload[0], method, reused=False, body=payload[1])

        task = asyncio.get_running_loop().create_task(reconnect())
        self._reconnects[task] = exchange
        task.add_done_callback(lambda done: self._reconnects.pop(done, None))
        return task
