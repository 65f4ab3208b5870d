"""A client's connection: parses HTTP/1.1 requests, enforces limits on them, and answers them in
order.

Headers or trailers that are too long, and headers that arrive too slowly, are refused and close the
connection. So does a client that leaves a response unread for too long. To save work for each
request, timers belong to the connection, and parsed URLs are cached.
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

import httptools

from splitsecond.core import clock
from splitsecond.core.serving.request_cycle import Application, RequestCycle, ServerState
from splitsecond.core.serving.request_head import BAD_REQUEST, FRAMING, ambiguous, parse_url
from splitsecond.core.serving.slow_reader import SlowReaderLimit

KEEP_ALIVE_S = 75.0
"""How long an idle connection stays open. As in nginx: longer than a benchmark's pause between two
conditions."""
MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 100
HEAD_S = 20.0
"""How long a client may take to send the headers of a request, from their first byte on."""
MAX_PIPELINED = 100
"""How many requests may wait for the response before them. The connection closes after the last of
their responses."""
_RST = struct.pack("ii", 1, 0)
"""The value of SO_LINGER that makes closing a socket reset its connection."""
_TOO_LARGE = b"431 Request Header Fields Too Large"
_TOO_SLOW = b"408 Request Timeout"
UNAVAILABLE = b"503 Service Unavailable"


class ServerConnection(asyncio.Protocol):
    """The protocol of one connection.

    `on_connect` is called when the connection is made and may refuse or reset it.
    `peer` is the client's address; "" if the transport has none.
    """

    transport: asyncio.Transport
    peer = ""
    write_paused = False
    _read_paused = False
    _in_head = True  # the next byte belongs to the headers of a request, not to its body
    _begun = False  # a part of the next request's headers has arrived
    _arrived_ns = 0  # the time at which that part began to arrive
    # bytes since the last headers or part of a body: of headers, trailers or chunk extensions
    _loose_bytes = 0
    _read_bytes = 0  # size of the last read
    _full = False  # too many requests are pipelined: nothing more is parsed
    _idle_since = 0.0
    _current: RequestCycle | None = None  # the request that is answered now, or was answered last
    _last: RequestCycle | None = None  # the request whose headers arrived last
    _head_timer: asyncio.TimerHandle | None = None
    _idle_timer: asyncio.TimerHandle | None = None
    _slow_reader: SlowReaderLimit | None = None  # made when a response is left unread

    def __init__(
        self,
        application: Application,
        state: ServerState,
        on_connect: "Callable[[ServerConnection], None] | None" = None,
    ) -> None:
        self.state = state
        self.pipeline: deque[RequestCycle] = deque()  # requests that wait for earlier responses
        self._application = application
        self._on_connect = on_connect
        self._loop = asyncio.get_running_loop()
        self._writable = asyncio.Event()
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._parser: Any = _parser(self)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) else ""
        self.state.connections.add(self)
        if self.state.ending:  # it was accepted just before: nobody would tell it to end
            transport.close()
        elif self._on_connect is not None:
            self._on_connect(self)
        if not transport.is_closing():
            self._await_head(self.state.first_request_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        if self._slow_reader is not None:
            self._slow_reader.stop()
        self._stop_idle_timer()
        self.state.connections.discard(self)
        if self._current is not None:
            self._current.connection_lost()
        self.pipeline.clear()
        self._last = self._current = self._parser = None  # each of them refers to the connection
        self._allow_writing()
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        self._read_bytes = len(data)
        self._loose_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse_invalid()
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(upgrade, data)
        if self._begun or self._loose_bytes:
            self._limit_loose_bytes(len(data))

    def _limit_loose_bytes(self, read_bytes: int) -> None:
        if self._begun and self._head_timer is None:
            self._await_head(HEAD_S)
        # A read that ends in headers may have begun in the body before them, so the last read does
        # not count.
        if self._loose_bytes > MAX_HEAD_BYTES + read_bytes or len(self._headers) > MAX_HEADERS:
            self._refuse(_TOO_LARGE)

    def _ignore_upgrade(self, upgrade: httptools.HttpParserUpgrade, data: bytes) -> None:
        """Continue in HTTP/1.1 when a client offers another protocol, as a server may (RFC 9110,
        7.8). Java's client offers HTTP/2 in that way. The parser has stopped after the headers and
        does not expect a body."""
        rest = memoryview(data)
        while True:
            rest = rest[upgrade.args[0] :]
            try:
                if self._last is not None and self._last.method != "CONNECT":
                    self._expect_body(self._last)
                self._parser.feed_data(rest)
            except httptools.HttpParserUpgrade as another:
                upgrade = another
            except httptools.HttpParserError:
                return self._refuse_invalid()
            else:
                return None

    def _expect_body(self, cycle: RequestCycle) -> None:
        framing = [b"%b: %b\r\n" % header for header in self._headers if header[0] in FRAMING]
        if framing:
            cycle.expect_body()
            self._parser = _parser(_RepeatedHead(self))
            self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(framing))

    # Called by the parser. An exception stops it.

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            self._full = True
            self.pipeline[-1].keep_alive = False
            raise ValueError(f"more than {MAX_PIPELINED} requests are pipelined")
        self._begun = True
        self._arrived_ns = clock.now_ns()
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        headers = self._headers
        if len(headers) > MAX_HEADERS or (
            self._loose_bytes + self._read_bytes > MAX_HEAD_BYTES
            and self._head_size() > MAX_HEAD_BYTES
        ):
            self._refuse(_TOO_LARGE)
            raise ValueError(f"{len(headers)} headers of {self._head_size()} bytes")
        parser, by_name = self._parser, dict(headers)
        version = parser.get_http_version()
        if (
            version != "1.1"
            or b"host" not in by_name
            or b"transfer-encoding" in by_name
            or len(by_name) < len(headers)
        ) and (refusal := ambiguous(version, headers)) is not None:
            self._refuse(*refusal)
            raise ValueError("invalid headers")
        cycle = RequestCycle(
            self,
            parser.get_method().decode("ascii"),
            parse_url(self._url),
            by_name,
            arrived_ns=self._arrived_ns,
            http_1_1=version == "1.1",
            keep_alive=version != "1.0" and parser.should_keep_alive(),
        )
        self._in_head = self._begun = False
        self._loose_bytes = 0
        if self._head_timer is not None:
            self._stop_head_timer()
        self._last = cycle
        if self._current is None or self._current.complete:
            self._start(cycle)
        else:
            self.pause_reading()
            self.pipeline.append(cycle)

    def on_body(self, body: bytes) -> None:
        self._loose_bytes = 0
        if self._last is not None:
            self._last.body_received(body)

    def on_message_complete(self) -> None:
        if len(self._headers) > MAX_HEADERS:  # the parser appends trailers, which are not used
            self._refuse(_TOO_LARGE)
            raise ValueError(f"{len(self._headers)} headers and trailers")
        self._in_head = True
        last = self._last
        if last is not None:
            last.request_received()
            if last.complete and not last.keep_alive:
                raise ValueError("the connection is closed: no request follows")

    def _start(self, cycle: RequestCycle) -> None:
        self._current = cycle
        cycle.start(self._application, self._loop)

    def _head_size(self) -> int:
        return sum(len(name) + len(value) for name, value in self._headers) + len(self._url)

    # Backpressure.

    def pause_reading(self) -> None:
        if not self._read_paused:
            self._read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._read_paused:
            self._read_paused = False
            self.transport.resume_reading()

    async def drain(self) -> None:
        await self._writable.wait()

    def pause_writing(self) -> None:
        self.write_paused = True
        self._writable.clear()
        self._limit_reader()
        self.state.unread.add(self.transport)

    def resume_writing(self) -> None:
        self._allow_writing()
        if self._slow_reader is not None and not self.transport.is_closing():
            self._slow_reader.stop()

    def _allow_writing(self) -> None:
        if self.write_paused:
            self.state.unread.remove(self.transport)
        self.write_paused = False
        self._writable.set()

    def eof_received(self) -> None:
        """The client has disconnected: the transport closes itself after sending what was
        written."""
        self._limit_reader()

    def close(self) -> None:
        self.transport.close()
        self._limit_reader()

    def reset(self) -> None:
        """Reset the connection (RST instead of FIN), so that the peer loses unread bytes, unless it
        is closing."""
        if not self.transport.is_closing():
            self.transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, _RST
            )
            self.transport.abort()

    def _limit_reader(self) -> None:
        if self._slow_reader is None:
            self._slow_reader = SlowReaderLimit(self.transport, self._loop)
        self._slow_reader.start()

    # Between two requests.

    def shut_down(self) -> None:
        if self._last is None or self._last.complete:
            self.close()
        else:
            self._last.keep_alive = False

    def on_response_complete(self) -> None:
        if self.transport.is_closing():
            return
        following = self.pipeline.popleft() if self.pipeline else None
        if self._read_paused and not self.pipeline and not self._full:
            self.resume_reading()  # no request waits
        if following is not None:
            self._start(following)
            return
        self._idle_since = self._loop.time()
        if self._idle_timer is None:
            self._await_request(KEEP_ALIVE_S)

    def _await_request(self, seconds: float) -> None:
        self._idle_timer = self._loop.call_later(seconds, self._check_idle)

    def _check_idle(self) -> None:
        self._idle_timer = None
        if self._begun or self._last is None or not self._last.complete:
            return
        left_s = self._idle_since + KEEP_ALIVE_S - self._loop.time()
        if left_s > 0:
            self._await_request(left_s)
        elif not self.transport.is_closing():
            self.close()

    def _stop_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _await_head(self, seconds: float) -> None:
        self._head_timer = self._loop.call_later(seconds, self._refuse, _TOO_SLOW)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    # Refusals.

    def refuse_connection(self, message: bytes) -> None:
        self._refuse(UNAVAILABLE, message)

    def _refuse_invalid(self) -> None:
        if not self._full:
            self._refuse(BAD_REQUEST, b"Invalid HTTP request received.")

    def _refuse(self, status: bytes, message: bytes = b"") -> None:
        if self.transport.is_closing():
            return
        current = self._current
        if current is None or (
            current.complete if self._in_head else current is self._last and not current.status
        ):
            head = (
                b"HTTP/1.1 %b\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: "
                b"close\r\n\r\n"
            )
            self.transport.write(head % (status, len(message)) + message)
        self.close()


class _RepeatedHead:
    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._repeated = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def on_message_begin(self) -> None:
        if self._repeated:
            self._connection._headers = []
        else:
            self._connection.on_message_begin()

    def on_headers_complete(self) -> None:
        if self._repeated:
            self._repeated = self._connection._in_head = self._connection._begun = False
        else:
            self._connection.on_headers_complete()


def _parser(callbacks: Any) -> Any:
    parser = httptools.HttpRequestParser(callbacks)
    # answer a request before those that it forbids
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser
