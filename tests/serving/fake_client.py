"""A client of `serving` without sockets: a fake transport, and a parser of what is written to
it."""

import asyncio
import weakref
from collections.abc import Callable

import httptools

from splitsecond.core import clock
from splitsecond.core.serving.connection import HEAD_S, ServerConnection
from splitsecond.core.serving.request_cycle import Application, ServerState


class Transport(asyncio.Transport):
    """A fake transport to a client at the address `peer`, which keeps what is written, and when.

    `closed`: the server closed the connection; `aborted`: without sending the rest. `unread`: how
    many bytes the client has not read yet, as a test sets it.
    """

    def __init__(self, peer: str = "127.0.0.1") -> None:
        super().__init__({"peername": (peer, 5000)})
        self.writes: list[bytes] = []
        self.times: list[int] = []
        self.closed = False
        self.aborted = False
        self.unread = 0
        self.reading_paused = False
        self.connection: Callable[[], ServerConnection | None] = lambda: None

    @property
    def written(self) -> bytes:
        return b"".join(self.writes)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.writes.append(bytes(data))
        self.times.append(clock.now_ns())

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True
        if (connection := self.connection()) is not None:
            asyncio.get_running_loop().call_soon(connection.connection_lost, None)

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading_paused = True

    def resume_reading(self) -> None:
        self.reading_paused = False


class ReceivedResponse:
    """A response as another parser reads it. `pairs`: its headers; `headers`: the last of each
    name."""

    def __init__(self, data: bytes) -> None:
        self.body = b""
        self.pairs: list[tuple[str, str]] = []
        self.complete = False
        self.parser = httptools.HttpResponseParser(self)
        self.parser.feed_data(data)
        self.status: int = self.parser.get_status_code()

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.pairs)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.pairs.append((name.decode().lower(), value.decode()))

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.complete = True


def connected(
    application: Application,
    transport: Transport,
    on_connect: Callable[[ServerConnection], None] | None = None,
) -> ServerConnection:
    """Return a new connection to `application` over `transport`."""
    state = ServerState(first_request_s=HEAD_S)
    state.date_line = b"date: today"
    connection = ServerConnection(application, state, on_connect)
    transport.connection = weakref.ref(connection)
    connection.connection_made(transport)
    return connection
