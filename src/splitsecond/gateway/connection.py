"""A client's connection: uvicorn's own protocol, with what it does not have itself: bounds on a request's head, and a
word to whoever serves a request at the moment when its client leaves.

A head that is too long, or that comes too slowly, closes the connection: whoever sends one is no client. The other way
to learn that a client has left, ASGI's, takes a second task for each request, and costs more than all our own work.

What uvicorn does for each request is done here instead, with less: paths are read once, a timer serves a connection and
not a request, and `Turn` is both ends of what the application sees.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from splitsecond.gateway.turn import Turn

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 100
HEAD_S = 20.0
"""How long a connection may take to its first whole head, and each further head from its first byte on."""
LINE = "splitsecond.line"
"""The name under which a request's scope holds its connection, among the extensions."""
_FRAMING = (b"content-length", b"transfer-encoding")
"""The headers that say where a body ends."""
_TOO_LARGE = b"431 Request Header Fields Too Large"
_TOO_SLOW = b"408 Request Timeout"


class Connection(HttpToolsProtocol):
    """See the file. Bytes of a head are counted as they come, as the parser holds an unfinished line for ever."""

    cycle: Turn
    pipeline: deque[tuple[Turn, ASGI3Application]]  # type: ignore[assignment] # of turns only
    _in_head = True
    _begun = False  # the head that comes next, or a part of it, is there
    _head_bytes = 0
    _read_bytes = 0
    _patience: asyncio.TimerHandle | None = None
    _idle_since = 0.0
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
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        if self.cycle is not None:
            self.cycle.lost()
        self.pipeline.clear()
        self.cycle = None  # type: ignore[assignment] # turns hold us: a cycle, as that of the parser
        self.flow.resume_writing()
        self.transport.close()
        self.parser = None  # type: ignore[assignment] # as uvicorn does, to cut a cycle
        if self.on_lost is not None:
            self.on_lost()

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
        if not self._in_head:
            return
        if self._begun and self._patience is None:
            self._await_head()
        # A read that ends in a head may have begun in the body before it: only heads that stay unfinished count.
        if self._head_bytes > MAX_HEAD_BYTES + len(data) or len(self.headers or ()) > MAX_HEADERS:
            self._refuse(_TOO_LARGE)

    def _go_on(self, wish: httptools.HttpParserUpgrade, data: bytes) -> None:
        """A client that would rather speak something else is answered in HTTP/1.1, as a server may (RFC 9110, 7.8).
        Java's client asks for HTTP/2 like that. The parser has stopped behind the head, and knows of no body."""
        while True:
            data = data[wish.args[0] :]
            try:
                if self.cycle.scope["method"] != "CONNECT":
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
            self.cycle.more_body = True
            self.parser = httptools.HttpRequestParser(_Twice(self))
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(framing))

    # What the parser finds.

    def on_message_begin(self) -> None:
        self._begun = True
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        most_bytes = self._head_bytes + self._read_bytes
        self._in_head = False
        self._begun = False
        self._head_bytes = 0
        self._calm()
        if len(self.headers) > MAX_HEADERS or (most_bytes > MAX_HEAD_BYTES and self._head_size() > MAX_HEAD_BYTES):
            self._refuse(_TOO_LARGE)
            raise ValueError(f"{len(self.headers)} headers of {self._head_size()} bytes")  # so the parser stops here
        before, turn = self.cycle, self._turn()
        self.cycle = turn
        if before is None or before.response_complete:
            turn.start(self.app, self.loop)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((turn, self.app))

    def _turn(self) -> Turn:
        """The request whose head has come."""
        parser = self.parser
        version = parser.get_http_version()
        path, raw_path, query = _located(self.url)
        scope = {
            "type": "http",
            "http_version": version,
            "method": parser.get_method().decode("ascii"),
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self.headers,
            "client": self.client,
            "extensions": {LINE: self},
        }
        return Turn(
            scope,
            self.transport,
            self.flow,
            self.server_state.default_headers,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            expects=self.expect_100_continue,
            on_response=self.on_response_complete,
            tasks=self.tasks,
            logger=self.logger,
        )

    def on_body(self, body: bytes) -> None:
        self.cycle.came(body)

    def on_message_complete(self) -> None:
        self._in_head = True
        self.cycle.whole()

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(msg)

    # Between two requests.

    def on_response_complete(self) -> None:
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            turn, app = self.pipeline.pop()
            turn.start(app, self.loop)
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._await_request(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection that has been idle for long enough. One that is not is looked at after its answer."""
        self.timeout_keep_alive_task = None
        if self._begun or not self.cycle.response_complete:
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
def _located(url: bytes) -> tuple[str, bytes, bytes]:
    """The path, the path as it came, and the query. Raises what `httptools` does for what is no URL."""
    parsed = httptools.parse_url(url)
    raw: bytes = parsed.path
    path = raw.decode("ascii")
    return unquote(path) if "%" in path else path, raw, parsed.query or b""
