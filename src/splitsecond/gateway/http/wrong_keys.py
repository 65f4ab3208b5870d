"""Growing pauses before the response to a wrong key, by client address.

A pause slows down a client that guesses keys one after another. A client that guesses over many
connections does not wait for the responses, so only a few wrong keys of one address wait at a time:
the response to any further one closes its connection, and each guess then costs a new connection. A
valid key never waits, even if other clients behind the same address guess, so it cannot be locked
out. The length of keys protects them.

Each worker counts for itself. The address is that of the connection: headers that name another one
can be forged.
"""

import asyncio
import ipaddress

from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault

FREE = 5
"""Wrong keys without a pause: a client with an old key is not an attacker."""
FIRST_S = 0.25
"""The first pause; each further wrong key doubles it."""
LONGEST_S = 8.0
FORGET_NS = 300 * clock.NS_PER_S
"""Time without a wrong key after which the count of an address starts again."""
MAX_WAITING = 8
MAX_ADDRESSES = 4096
"""Addresses in memory. A new one replaces the one whose last wrong key is oldest."""
_IPV6_NETWORK = 64


class WrongKey(CallerFault):
    """A request with an invalid key. A request without a key raises another `CallerFault`."""


class _Address(Struct):
    wrong: int = 0
    waiting: int = 0
    last_ns: int = 0


class WrongKeys:
    def __init__(self) -> None:
        self._addresses: dict[str, _Address] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    async def pause(self, peer: str) -> bool:
        address = self._count(_network(peer))
        if address.wrong <= FREE:
            return True
        if address.waiting >= MAX_WAITING:
            return False
        address.waiting += 1
        try:
            await asyncio.sleep(pause_s(address.wrong))
        finally:
            address.waiting -= 1
        return True

    def _count(self, name: str) -> _Address:
        now_ns = clock.now_ns()
        address = self._addresses.pop(name, None)
        if address is None:
            address = _Address()
            if len(self._addresses) >= MAX_ADDRESSES:
                del self._addresses[next(iter(self._addresses))]
        elif now_ns - address.last_ns > FORGET_NS:
            address.wrong = 0
        self._addresses[name] = address  # moved to the end: the first one is the oldest
        address.wrong += 1
        address.last_ns = now_ns
        return address


def pause_s(wrong: int) -> float:
    doublings = min(wrong - FREE - 1, 16)
    return min(FIRST_S * 2**doublings, LONGEST_S) if doublings >= 0 else 0.0


def _network(peer: str) -> str:
    """Return the IPv4 address or the IPv6 /64 network of `peer`: one subscriber has a whole /64."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address):
        return peer
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), _IPV6_NETWORK), strict=False))
