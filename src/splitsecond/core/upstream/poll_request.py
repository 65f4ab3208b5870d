"""The first of two requests, at providers whose first response contains only the address of the
answer.

Its time is part of the attempt: the measurement begins with the first byte of this request. The
address comes from the provider, so it is followed only to the host of the first request and to the
hosts that the catalogue names. The key is sent only to the origin of the first request.
"""

import asyncio
from collections.abc import Collection, Mapping

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, Fault, ProviderFault, TimedOut, excerpt
from splitsecond.core.observation import ArrivalClock
from splitsecond.core.transport.exchange import Exchange, Origin, Receiver

MAX_BODY_BYTES = 1 << 20


class PollRequest:
    """Receives a whole response. Satisfies `core.transport.exchange.Receiver`."""

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

    def body_received(self, at: int, lag: int, source: ArrivalClock, data: bytes) -> None:
        self.body += data
        if len(self.body) > MAX_BODY_BYTES:
            words = f"the first response is longer than {MAX_BODY_BYTES:,} bytes"
            self.failed(
                at, ProviderFault(words, kind="malformed", phase="head", status=self.status)
            )

    def ended(self, at: int) -> None:
        self._over.set()

    def forward_to(self, other: Receiver) -> None:
        """Pass this response on to `other`, as if it were its own, so that refusals are read in one
        place."""
        other.head_received(self._at, self.status, self.headers)
        other.body_received(self._at, 0, "process", bytes(self.body))
        other.ended(self._at)

    def failed(self, at: int, fault: Fault) -> None:
        self._fault = self._fault or fault
        self._over.set()

    async def wait(self, exchange: Exchange, deadline_ns: int | None, after_ns: int | None) -> None:
        """Return when the response is complete. Closes `exchange` in any case.

        Raises the `Fault` that broke it, or `TimedOut`: at `deadline_ns`, the deadline of the whole
        call, or `after_ns` after the request was sent.
        """
        due = [] if after_ns is None else [(exchange.sent_ns + after_ns, False)]
        due += [] if deadline_ns is None else [(deadline_ns, True)]
        due_ns, total = min(due, default=(None, False))
        try:
            async with asyncio.timeout_at(None if due_ns is None else due_ns / clock.NS_PER_S):
                await self._over.wait()
        except TimeoutError:
            waited_ns = (due_ns or 0) - exchange.sent_ns
            words = (
                f"no first response, with the address of the answer, for "
                f"{waited_ns // clock.NS_PER_MS:,} ms"
            )
            raise TimedOut(words, phase="total" if total else "head", after_ns=waited_ns) from None
        finally:
            exchange.close()
        if self._fault is not None:
            raise self._fault


def stream_address(address: str, base: Origin, hosts: Collection[str]) -> tuple[Origin, str]:
    """Return the origin and path of `address`. Raises `ProviderFault` if its origin is not the
    provider's.

    It is the provider's if it has the scheme and the port of `base`, and its host or one of
    `hosts`.
    """
    try:
        origin, path = Origin.parse(address)
    except CallerFault as fault:
        words = f"the first response names an unusable address: {fault.message}"
        raise ProviderFault(words, kind="malformed", phase="head", status=200) from fault
    if origin not in (base, *(Origin(base.scheme, host, base.port) for host in hosts)):
        words = (
            f"the first response names an address outside the provider's hosts: "
            f"{excerpt(address.encode())}"
        )
        raise ProviderFault(words, kind="foreign_address", phase="head", status=200)
    return origin, path
