"""The request that comes before the one that answers, where a provider gives only the address of an answer first.

Its time is part of the attempt's: what is measured begins with the first byte of this request. The address comes from
the provider, so it is followed only to the provider's own hosts, and the key goes along only where the first one went.
"""

import asyncio
from collections.abc import Mapping

from splitsecond import clock
from splitsecond.errors import CallerFault, Fault, ProviderFault, TimedOut, excerpt
from splitsecond.transport.exchange import Exchange, Origin, Receiver

MAX_BODY_BYTES = 1 << 20


class Prelude:
    """Takes the first answer whole. Satisfies `transport.exchange.Receiver`."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.body = bytearray()
        self._over = asyncio.Event()
        self._fault: Fault | None = None
        self._at = 0

    def head_received(self, at: int, status: int, headers: Mapping[str, str]) -> None:
        self._at = at
        self.status, self.headers = status, headers

    def body_received(self, at: int, lag: int, kernel_time: bool, data: bytes) -> None:
        self.body += data
        if len(self.body) > MAX_BODY_BYTES:
            words = f"the first answer is longer than {MAX_BODY_BYTES} bytes"
            self.failed(at, ProviderFault(words, kind="malformed", phase="head", status=self.status))

    def ended(self, at: int) -> None:
        self._over.set()

    def told(self, other: Receiver) -> None:
        """Tells `other` of this answer, as if it had been its own: a refusal is read by who reads all of them."""
        other.head_received(self._at, self.status, self.headers)
        other.body_received(self._at, 0, False, bytes(self.body))
        other.ended(self._at)

    def failed(self, at: int, fault: Fault) -> None:
        self._fault = self._fault or fault
        self._over.set()

    async def answered(self, exchange: Exchange, deadline_ns: int | None, after_ns: int | None) -> None:
        """Returns when the answer is there; closes `exchange` however it goes.

        Raises the `Fault` that broke it, and `TimedOut` at `deadline_ns`, that of the whole call, or `after_ns` after
        the request was sent.
        """
        due = [] if after_ns is None else [(exchange.sent_ns + after_ns, False)]
        due += [] if deadline_ns is None else [(deadline_ns, True)]
        due_ns, total = min(due, default=(None, False))
        try:
            async with asyncio.timeout_at(None if due_ns is None else due_ns / clock.NS_PER_S):
                await self._over.wait()
        except TimeoutError:
            waited_ns = (due_ns or 0) - exchange.sent_ns
            words = f"no first answer, which says where the answer is, for {waited_ns // clock.NS_PER_MS} ms"
            raise TimedOut(words, phase="total" if total else "head", after_ns=waited_ns) from None
        finally:
            exchange.close()
        if self._fault is not None:
            raise self._fault


def followed(address: str, base: Origin) -> tuple[Origin, str]:
    """Where `address` is, and its path. Raises `ProviderFault` for one that is not at a host of the provider's.

    Those are the host of `base` and its neighbours: stream.example.com, where that is api.example.com.
    """
    try:
        origin, path = Origin.parse(address)
    except CallerFault as fault:
        words = f"the first answer names an address that cannot be used: {fault.message}"
        raise ProviderFault(words, kind="malformed", phase="head", status=200) from fault
    near = origin.host == base.host or _neighbours(origin.host, base.host)
    if not near or (base.scheme == "https" and origin.scheme != "https"):
        words = f"the first answer names an address that is not the provider's own: {excerpt(address.encode())}"
        raise ProviderFault(words, kind="foreign_address", phase="head", status=200)
    return origin, path


def _neighbours(one: str, other: str) -> bool:
    """Whether two names differ in their first label only, below a domain of at least two labels. Addresses never do."""
    domain = one.partition(".")[2]
    return domain == other.partition(".")[2] and "." in domain and not domain.rpartition(".")[2].isdigit()
