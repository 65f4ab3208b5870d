"""Open a connected socket: resolve the name, connect TCP, open a proxy's tunnel, establish TLS.

TCP follows RFC 8305 ("happy eyeballs"). A host often has several addresses, and packets to one
address family may be lost without an error; trying the addresses one after another would then wait
for a timeout of a minute. So they are tried in an order that alternates between the families, each
started 250 ms after the one before, or at once when that one failed; the first to connect wins, and
the others are closed.
"""

import asyncio
import errno
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterable, Sequence
from itertools import chain, zip_longest
from typing import Any, TypeVar

from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.errors import NetworkFault, Phase, TimedOut
from splitsecond.core.transport.exchange import Origin
from splitsecond.core.transport.kernel import limit_unsent, stamp_arrivals
from splitsecond.core.transport.proxy import Proxy
from splitsecond.core.transport.tls import TlsSession, handshake

T = TypeVar("T")

STAGGER_S = 0.25
"""RFC 8305 section 8: "Recommended to be 250 milliseconds"."""

_KINDS = {
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "reset",
    errno.EMFILE: "file_limit",
    errno.ENFILE: "file_limit",
}
_HINTS = {
    "refused": "Is the server running, and is the port right?",
    "file_limit": "Raise the limit of open files (ulimit -n).",
}


class OpenSocket(Struct, frozen=True):
    sock: socket.socket
    tls: TlsSession | None
    peer: str
    dns_ns: int
    tcp_ns: int
    tls_ns: int


async def open_socket(
    origin: Origin,
    proxy: Proxy | None,
    trust: Callable[[], ssl.SSLContext],
    deadline_ns: int | None,
) -> OpenSocket:
    """Open a socket to `origin`, through `proxy` if given, until the absolute `deadline_ns`.

    Raises `NetworkFault` or `TimedOut`.
    """
    next_hop = origin if proxy is None else proxy.origin
    where = str(origin) if proxy is None else f"the proxy {proxy.origin} for {origin}"
    secure = origin.scheme == "https"
    context = trust() if secure else None

    begin = clock.now_ns()
    addresses = await _before(deadline_ns, "dns", where, resolve(next_hop.host, next_hop.port))
    resolved = clock.now_ns()
    sock, address = await _before(deadline_ns, "connect", where, connect(addresses, where))
    try:
        if proxy is not None and secure:
            await _before(deadline_ns, "connect", where, proxy.tunnel(sock, origin))
        connected = clock.now_ns()
        session, tls_ns = None, 0
        if context is not None:
            session = await _before(deadline_ns, "tls", where, handshake(sock, context, origin))
            tls_ns = clock.now_ns() - connected
    except BaseException:
        sock.close()
        raise
    return OpenSocket(sock, session, str(address), resolved - begin, connected - resolved, tls_ns)


async def _before(
    deadline_ns: int | None, phase: Phase, where: str, step: Coroutine[Any, Any, T]
) -> T:
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


class Address(Struct, frozen=True):
    family: int
    sockaddr: tuple[Any, ...]

    def __str__(self) -> str:
        host, port = self.sockaddr[:2]
        return f"[{host}]:{port}" if self.family == socket.AF_INET6 else f"{host}:{port}"


async def resolve(host: str, port: int) -> list[Address]:
    """Return the addresses of `host` in the order to try them. Raises `NetworkFault` of kind
    "dns"."""
    if literal := _literal(host, port):
        return [literal]
    loop = asyncio.get_running_loop()
    try:
        entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise NetworkFault(
            f"cannot resolve the host name {host}: {why}",
            kind="dns",
            phase="dns",
            hint="Check the host name and this machine's DNS.",
        ) from error
    return interleaved(Address(int(family), sockaddr) for family, _, _, _, sockaddr in entries)


def interleaved(addresses: Iterable[Address]) -> list[Address]:
    families: dict[int, list[Address]] = {}
    for address in addresses:
        families.setdefault(address.family, []).append(address)
    return [
        address
        for address in chain.from_iterable(zip_longest(*families.values()))
        if address is not None
    ]


async def connect(addresses: Sequence[Address], where: str) -> tuple[socket.socket, Address]:
    race = _Race()
    try:
        async with asyncio.TaskGroup() as attempts:
            running: set[asyncio.Task[None]] = set()
            for address in addresses:
                running.add(attempts.create_task(race.attempt(address)))
                _, running = await asyncio.wait(
                    running, timeout=STAGGER_S, return_when=asyncio.FIRST_COMPLETED
                )
                if race.won:
                    break
            while running and not race.won:
                _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in running:
                task.cancel()
    except BaseException:
        if race.won:
            race.won[0].close()
        raise
    if race.won is None:
        raise _failure(where, race.failures)
    return race.won


class _Race:
    def __init__(self) -> None:
        self.won: tuple[socket.socket, Address] | None = None
        self.failures: list[tuple[Address, OSError]] = []

    async def attempt(self, address: Address) -> None:
        try:
            sock = socket.socket(
                address.family, socket.SOCK_STREAM | getattr(socket, "SOCK_CLOEXEC", 0)
            )
        except OSError as error:
            self.failures.append((address, error))
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            limit_unsent(sock)
            stamp_arrivals(sock)
            await asyncio.get_running_loop().sock_connect(sock, address.sockaddr)
        except OSError as error:
            sock.close()
            self.failures.append((address, error))
        except BaseException:
            sock.close()
            raise
        else:
            if self.won:
                sock.close()
            else:
                self.won = sock, address


def _literal(host: str, port: int) -> Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.version == 4:
        return Address(socket.AF_INET, (host, port))
    return None if "%" in host else Address(socket.AF_INET6, (host, port, 0, 0))


def _failure(where: str, failures: Sequence[tuple[Address, OSError]]) -> NetworkFault:
    kind = _KINDS.get(failures[0][1].errno or 0, "unreachable")
    tried = "; ".join(
        f"{address}: {os.strerror(error.errno) if error.errno else error}"
        for address, error in failures
    )
    return NetworkFault(
        f"cannot connect to {where}, tried {len(failures)} of its addresses ({tried})",
        kind=kind,
        phase="connect",
        hint=_HINTS.get(kind, ""),
    )
