"""From a host name to a TCP connection, after RFC 8305 ("happy eyeballs").

A host often has several addresses, and one family may be broken without anyone being told: a packet to it vanishes.
Trying the addresses one after another would then wait out a timeout of a minute. So they are tried in an order that
alternates between the families, each started 250 ms after the one before, or at once when that one failed; the first
to connect wins, and the others are closed.
"""

import asyncio
import errno
import ipaddress
import os
import socket
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import Any

from msgspec import Struct

from splitsecond.errors import NetworkFault
from splitsecond.transport.kernel import stamp_arrivals

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


class Address(Struct, frozen=True):
    """One address of a host, as the socket calls want it."""

    family: int
    sockaddr: tuple[Any, ...]

    def __str__(self) -> str:
        host, port = self.sockaddr[:2]
        return f"[{host}]:{port}" if self.family == socket.AF_INET6 else f"{host}:{port}"


async def resolve(host: str, port: int) -> list[Address]:
    """The addresses of `host` in the order to try them. Raises `NetworkFault` of kind "dns"."""
    if literal := _literal(host, port):
        return [literal]
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise NetworkFault(
            f"cannot resolve the host name {host}: {why}",
            kind="dns",
            phase="dns",
            hint="Check the host name and this machine's DNS.",
        ) from error
    return interleaved(Address(int(family), sockaddr) for family, _, _, _, sockaddr in found)


def interleaved(addresses: Iterable[Address]) -> list[Address]:
    """Alternate between families, beginning with that of the first; the resolver's order within each."""
    families: dict[int, list[Address]] = {}
    for address in addresses:
        families.setdefault(address.family, []).append(address)
    return [address for address in chain.from_iterable(zip_longest(*families.values())) if address is not None]


async def connect(addresses: Sequence[Address], where: str) -> tuple[socket.socket, Address]:
    """Connect to the first of `addresses` that answers. Raises `NetworkFault`; closes every socket it does not return.

    `where` names the other side in messages.
    """
    race = _Race()
    try:
        async with asyncio.TaskGroup() as attempts:
            running: set[asyncio.Task[None]] = set()
            for address in addresses:
                running.add(attempts.create_task(race.attempt(address)))
                _, running = await asyncio.wait(running, timeout=STAGGER_S, return_when=asyncio.FIRST_COMPLETED)
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
    """Attempts to connect; the first that succeeds wins."""

    def __init__(self) -> None:
        self.won: tuple[socket.socket, Address] | None = None
        self.failures: list[tuple[Address, OSError]] = []

    async def attempt(self, address: Address) -> None:
        try:
            sock = socket.socket(address.family, socket.SOCK_STREAM | getattr(socket, "SOCK_CLOEXEC", 0))
        except OSError as error:
            self.failures.append((address, error))
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
    """An address that needs no resolver. One with a zone ("fe80::1%eth0") does, to learn the interface."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.version == 4:
        return Address(socket.AF_INET, (host, port))
    return None if "%" in host else Address(socket.AF_INET6, (host, port, 0, 0))


def _failure(where: str, failures: Sequence[tuple[Address, OSError]]) -> NetworkFault:
    """One fault for all attempts; the first address, which the resolver preferred, decides its kind."""
    kind = _KINDS.get(failures[0][1].errno or 0, "unreachable")
    tried = "; ".join(f"{address}: {os.strerror(error.errno) if error.errno else error}" for address, error in failures)
    return NetworkFault(
        f"cannot connect to {where}, tried {len(failures)} of its addresses ({tried})",
        kind=kind,
        phase="connect",
        hint=_HINTS.get(kind, ""),
    )
