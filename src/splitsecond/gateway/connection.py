"""A client's connection: uvicorn's own protocol, with what it does not have itself: bounds on a request's head, and a
word to whoever serves a request at the moment when its client leaves.

A head that is too long, or that comes too slowly, closes the connection: whoever sends one is no client. The other way
to learn that a client has left, ASGI's, takes a second task for each request, and costs more than all our own work.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from splitsecond.gateway.answering import Answering

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 100
HEAD_S = 20.0
"""How long a connection may take to its first whole head, and each further head from its first byte on."""
LINE = "splitsecond.line"
"""The name under which a request's scope holds its connection, among the extensions."""
_TOO_LARGE = b"431 Request Header Fields Too Large"
_TOO_SLOW = b"408 Request Timeout"


class Connection(HttpToolsProtocol):
    """See the file. Bytes of a head are counted as they come, as the parser holds an unfinished line for ever."""

    _in_head = True
    _begun = False  # the head that comes next, or a part of it, is there
    _head_bytes = 0
    _read_bytes = 0
    _patience: asyncio.TimerHandle | None = None
    on_lost: Callable[[], None] | None = None
    """Called when the connection is lost: set by whoever serves the request under way, and only while it does."""

    def abort(self) -> None:
        """Closes the connection at once; what was not sent yet is thrown away."""
        self.transport.abort()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm()
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()

    def on_message_begin(self) -> None:
        self._begun = True
        super().on_message_begin()
        self.scope["extensions"] = {LINE: self}  # type: ignore[dict-item] # ASGI has dictionaries there, never ours

    def data_received(self, data: bytes) -> None:
        self._read_bytes = len(data)
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if not self._in_head:
            return
        if self._begun and self._patience is None:
            self._await_head()
        # A read that ends in a head may have begun in the body before it: only heads that stay unfinished count.
        if self._head_bytes > MAX_HEAD_BYTES + len(data) or len(self.headers or ()) > MAX_HEADERS:
            self._refuse(_TOO_LARGE)

    def on_headers_complete(self) -> None:
        most_bytes = self._head_bytes + self._read_bytes
        self._in_head = False
        self._begun = False
        self._head_bytes = 0
        self._calm()
        if len(self.headers) > MAX_HEADERS or (most_bytes > MAX_HEAD_BYTES and self._head_size() > MAX_HEAD_BYTES):
            self._refuse(_TOO_LARGE)
            raise ValueError(f"{len(self.headers)} headers of {self._head_size()} bytes")  # so the parser stops here
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        cycle.send = Answering(cycle, self.server_state.default_headers).send  # type: ignore[method-assign]
        super()._start_asgi_task(cycle, app)

    def on_message_complete(self) -> None:
        self._in_head = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def _head_size(self) -> int:
        return sum(len(name) + len(value) for name, value in self.headers) + len(self.url)

    def _await_head(self) -> None:
        self._patience = self.loop.call_later(HEAD_S, self._refuse, _TOO_SLOW)

    def _calm(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _refuse(self, status: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status)
            self.transport.close()
