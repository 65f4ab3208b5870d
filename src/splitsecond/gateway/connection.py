"""A client's connection: uvicorn's own protocol, with what it does not have itself: bounds on a request's head, and a
word to whoever serves a request at the moment when its client leaves.

A head that is too long, or that comes too slowly, closes the connection: whoever sends one is no client. ASGI's way to
learn that a client has left takes a second task for each request, and costs more than all our own work; so what serves
a request is given a `Visit`, and no messages.

What uvicorn does for each request is done here instead, with less: paths are read once, and a timer serves a connection
and not a request.
"""

import asyncio
from collections import deque
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from splitsecond.gateway.visit import Application, Visit

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 100
HEAD_S = 20.0
"""How long a connection may take to its first whole head, and each further head from its first byte on."""
_FRAMING = (b"content-length", b"transfer-encoding")
"""The headers that say where a body ends."""
_TOO_LARGE = b"431 Request Header Fields Too Large"
_TOO_SLOW = b"408 Request Timeout"


class Connection(HttpToolsProtocol):
    """See the file. Bytes of a head are counted as they come, as the parser holds an unfinished line for ever."""

    app: Application
    cycle: Visit  # type: ignore[assignment] # whose head came last
    pipeline: deque[Visit]  # type: ignore[assignment] # whose turn has not come
    _served: Visit | None = None  # whose turn it is, or was
    _in_head = True
    _begun = False  # the head that comes next, or a part of it, is there
    _head_bytes = 0
    _read_bytes = 0
    _patience: asyncio.TimerHandle | None = None
    _idle_since = 0.0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm()
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        if self._served is not None:
            self._served.lost()
        self.pipeline.clear()
        self.cycle = self._served = None  # type: ignore[assignment] # they hold us: a cycle, as that of the parser
        self.flow.resume_writing()
        self.transport.close()
        self.parser = None  # type: ignore[assignment] # as uvicorn does, to cut a cycle

    def data_received(self, data: bytes) -> None:
        self._read_bytes = len(data)
        if self._in_head:
            self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        except httptools.HttpParserUpgrade as wish:
            self._go_on(wish, data)
        if self._in_head and (self._begun or self._head_bytes):
            self._bound_head(len(data))

    def _bound_head(self, read_bytes: int) -> None:
        """A head is not there yet, or only a part of it."""
        if self._begun and self._patience is None:
            self._await_head()
        # A read that ends in a head may have begun in the body before it: only heads that stay unfinished count.
        if self._head_bytes > MAX_HEAD_BYTES + read_bytes or len(self.headers or ()) > MAX_HEADERS:
            self._refuse(_TOO_LARGE)

    def _go_on(self, wish: httptools.HttpParserUpgrade, data: bytes) -> None:
        """A client that would rather speak something else is answered in HTTP/1.1, as a server may (RFC 9110, 7.8).
        Java's client asks for HTTP/2 like that. The parser has stopped behind the head, and knows of no body."""
        while True:
            data = data[wish.args[0] :]
            try:
                if self.cycle.method != "CONNECT":
                    self._expect_body()
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as another:
                wish = another
            except httptools.HttpParserError:
                return self.send_400_response("Invalid HTTP request received.")
            else:
                return None

    def _expect_body(self) -> None:
        """Where the head that has come speaks of one another parser reads it, for which it begins anew."""
        framing = [b"%b: %b\r\n" % header for header in self.headers if header[0] in _FRAMING]
        if framing:
            self.cycle.goes_on()
            self.parser = httptools.HttpRequestParser(_Twice(self))
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(framing))

    # What the parser finds.

    def on_message_begin(self) -> None:
        self._begun = True
        self.url = b""
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        most_bytes = self._head_bytes + self._read_bytes
        self._in_head = self._begun = False
        self._head_bytes = 0
        if self._patience is not None:
            self._calm()
        if len(self.headers) > MAX_HEADERS or (most_bytes > MAX_HEAD_BYTES and self._head_size() > MAX_HEAD_BYTES):
            self._refuse(_TOO_LARGE)
            raise ValueError(f"{len(self.headers)} headers of {self._head_size()} bytes")  # so the parser stops here
        parser = self.parser
        version = parser.get_http_version()
        self.cycle = visit = Visit(
            self,
            parser.get_method().decode("ascii"),
            _located(self.url),
            self.headers,
            http_1_1=version == "1.1",
            keep_alive=version != "1.0" and parser.should_keep_alive(),
        )
        if self._served is None or self._served.complete:
            self._serve(visit)
        else:
            self.flow.pause_reading()
            self.pipeline.append(visit)

    def _serve(self, visit: Visit) -> None:
        self._served = visit
        visit.start(self.app, self.loop)

    def on_body(self, body: bytes) -> None:
        self.cycle.came(body)

    def on_message_complete(self) -> None:
        self._in_head = True
        self.cycle.whole()

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(msg)

    # Between two requests.

    def shutdown(self) -> None:
        """The server is about to end: so is the connection, after the answer under way."""
        if self.cycle is None or self.cycle.complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            self._serve(self.pipeline.popleft())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._await_request(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection that has been idle for long enough. One that is not is looked at after its answer."""
        self.timeout_keep_alive_task = None
        if self._begun or not self.cycle.complete:
            return
        left_s = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._await_request(left_s)
        elif not self.transport.is_closing():
            self.transport.close()

    def _await_request(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

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


class _Twice:
    """Between `connection` and a parser that is given the head of a request again: the connection knows it already."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def on_headers_complete(self) -> None:
        if self._known:
            self._known = self._connection._in_head = self._connection._begun = False
        else:
            self._connection.on_headers_complete()


@lru_cache(maxsize=256)
def _located(url: bytes) -> tuple[str, bytes]:
    """The path, and the query. Raises what `httptools` does for what is no URL."""
    parsed = httptools.parse_url(url)
    path: str = parsed.path.decode("ascii")
    return unquote(path) if "%" in path else path, parsed.query or b""
