"""From an origin to a connected socket: name, TCP, tunnel, TLS. Each step is timed, and held to the deadline.

A deadline that passes becomes a `TimedOut` in the phase of the step it passed in. Whatever a step opened is closed
when it, or a later one, fails or is cancelled.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from msgspec import Struct

from splitsecond import clock
from splitsecond.clock import NS_PER_MS, NS_PER_S
from splitsecond.errors import Phase, TimedOut
from splitsecond.transport.dialling import connect, resolve
from splitsecond.transport.exchange import Origin
from splitsecond.transport.proxy import Proxy
from splitsecond.transport.tls import TlsSession, handshake

T = TypeVar("T")


class Opened(Struct, frozen=True):
    """A socket that is ready for a request, and what it took."""

    sock: socket.socket
    tls: TlsSession | None
    peer: str
    dns_ns: int
    tcp_ns: int
    tls_ns: int


async def opened(
    origin: Origin, proxy: Proxy | None, trust: Callable[[], ssl.SSLContext], deadline_ns: int | None
) -> Opened:
    """Connect to `origin`, through `proxy` if there is one. Raises `NetworkFault` or `TimedOut`."""
    next_hop = origin if proxy is None else proxy.origin
    where = str(origin) if proxy is None else f"the proxy {proxy.origin} for {origin}"
    secure = origin.scheme == "https"
    context = trust() if secure else None

    begin = clock.now_ns()
    addresses = await _by(deadline_ns, "dns", where, resolve(next_hop.host, next_hop.port))
    named = clock.now_ns()
    sock, address = await _by(deadline_ns, "connect", where, connect(addresses, where))
    try:
        if proxy is not None and secure:
            await _by(deadline_ns, "connect", where, proxy.tunnel(sock, origin))
        connected = clock.now_ns()
        session, tls_ns = None, 0
        if context is not None:
            session = await _by(deadline_ns, "tls", where, handshake(sock, context, origin))
            tls_ns = clock.now_ns() - connected
    except BaseException:
        sock.close()
        raise
    return Opened(sock, session, str(address), named - begin, connected - named, tls_ns)


async def _by(deadline_ns: int | None, phase: Phase, where: str, step: Coroutine[Any, Any, T]) -> T:
    begin = clock.now_ns()
    left_s = None if deadline_ns is None else max(deadline_ns - begin, 0) / NS_PER_S
    try:
        async with asyncio.timeout(left_s):
            return await step
    except TimeoutError as error:
        waited = clock.now_ns() - begin
        raise TimedOut(
            f"no connection to {where} in time, {waited / NS_PER_MS:.0f} ms into this step",
            phase=phase,
            after_ns=waited,
        ) from error
