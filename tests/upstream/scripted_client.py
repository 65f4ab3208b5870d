"""A transport without sockets: a test says what arrives, and when. Times are virtual."""

import asyncio
from collections.abc import Mapping
from typing import cast

from splitsecond.core import clock
from splitsecond.core.errors import Fault
from splitsecond.core.transport.client import Client
from splitsecond.core.transport.exchange import (
    Connected,
    Exchange,
    Origin,
    Receiver,
    Request,
    TimeLeft,
)

MS = clock.NS_PER_MS
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class ScriptedExchange:
    """What `Attempt` needs of an exchange, and what a test wants to know of it."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.connection = Connected(1, False, 1 * MS, 2 * MS, 3 * MS, "127.0.0.1:1")
        self.sent_ns = clock.now_ns()
        self.written_ns = 0
        self.resent = self.sparse = False
        self.time_left: TimeLeft = lambda: None
        self.closed_ns: int | None = None
        self.holds: list[str] = []
        self.unread: list[tuple[int, bytes]] = []
        """What came while the socket rested, with its arrival."""

    def packets_read(self) -> tuple[int, int]:
        return 1, 0

    def gather(self, time_left: TimeLeft) -> None:
        self.time_left = time_left

    def read_resting(self) -> None:
        self.unread, unread = [], self.unread
        for at, data in unread:
            self.receiver.body_received(at, clock.now_ns() - at, "kernel", data)

    def pause(self) -> None:
        self.holds.append("pause")

    def resume(self) -> None:
        self.holds.append("resume")

    def rtt_ns(self) -> int:
        return 4 * MS

    def close(self) -> None:
        if self.closed_ns is None:
            self.closed_ns = clock.now_ns()

    def head(self, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.receiver.head_received(clock.now_ns(), status, headers or {})

    def body(self, data: bytes) -> None:
        self.receiver.body_received(clock.now_ns(), 0, "kernel", data)

    def text(self, text: str) -> None:
        self.body(self.text_event(text))

    def text_event(self, text: str) -> bytes:
        return b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % text.encode()

    def finish(self) -> None:
        self.body(FINISH)

    def end(self) -> None:
        self.receiver.ended(clock.now_ns())

    def fail(self, fault: Fault) -> None:
        self.receiver.failed(clock.now_ns(), fault)


class ScriptedClient:
    """Hands each request to the test as a `ScriptedExchange`."""

    def __init__(self) -> None:
        self.sent: list[tuple[Origin, Request]] = []
        self.refuse_with: Fault | None = None
        # set it to let a request that waits for a connection go on
        self.dialling: asyncio.Event | None = None
        self.closed = False
        self._exchanges: asyncio.Queue[ScriptedExchange] = asyncio.Queue()

    def as_client(self) -> Client:
        return cast(Client, self)

    async def send(
        self,
        origin: Origin,
        request: Request,
        receiver: Receiver,
        *,
        connect_deadline_ns: int | None = None,
    ) -> Exchange:
        if self.dialling is not None:
            await self.dialling.wait()
        if self.refuse_with is not None:
            raise self.refuse_with
        self.sent.append((origin, request))
        exchange = ScriptedExchange(receiver)
        self._exchanges.put_nowait(exchange)
        return cast(Exchange, exchange)

    async def exchange(self) -> ScriptedExchange:
        """The next request's exchange."""
        return await self._exchanges.get()

    async def warm(self, origin: Origin, count: int) -> int:
        return count

    def close(self) -> None:
        self.closed = True
