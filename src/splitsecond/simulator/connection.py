"""One client's connection: uvicorn's own protocol, and what raw ASGI does not offer.

ASGI can neither reset a connection nor say when one is lost without a task that waits for it, and its `send` has to be
awaited, once for each token. So the connection puts itself, and the time at which a request arrived, into the scope's
extensions. Head and end of an answer go through ASGI; the tokens between are written here, each as one HTTP chunk.
"""

import socket
import struct
from collections.abc import Callable
from typing import Any, Protocol, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from splitsecond import clock

EXTENSION = "splitsecond"
MAX_UNREAD_BYTES = 4 << 20
"""How much a client may leave unread before it is given up."""


class Doorkeeper(Protocol):
    """The application, as far as a new connection is concerned."""

    def refuses_connection(self, port: int) -> bool: ...


class Connection(HttpToolsProtocol):
    """A connection. `on_lost` is called when the client has gone; whoever answers a request sets and clears it."""

    on_lost: Callable[[], None] | None = None

    def connection_made(self, transport: Any) -> None:
        # asyncio does this only for listening sockets that were made with the protocol's number. Without it what is
        # written after the head waits until the client has acknowledged the head: up to 40 ms on a kept connection.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        doorkeeper = cast(Doorkeeper, self.app)
        if doorkeeper.refuses_connection(transport.get_extra_info("sockname")[1]):
            self.reset()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: {"connection": self, "arrived_ns": clock.now_ns()}}

    def write_chunk(self, data: bytes) -> bool:
        """Write `data` as one chunk of the body, at once. False: the client has left too much unread."""
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return self.transport.get_write_buffer_size() <= MAX_UNREAD_BYTES

    def reset(self) -> None:
        """Reset (RST instead of FIN): the peer loses what it has not read yet. One that is closing is left to it."""
        if self.transport.is_closing():
            return
        raw = self.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()
