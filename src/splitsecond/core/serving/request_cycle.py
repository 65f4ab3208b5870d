"""One request of a client's connection with its response.

Every request and every chunk of a response passes here, so little lies between application and
transport: the status line and the headers wait for the first bytes of the body, and the only timer
is the one that limits how long the client may take to send its body.

When the client disconnects, the task is cancelled or ends with `ClientLeft`, which ends all work
for the request.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from email.utils import format_datetime
from http import HTTPStatus
from typing import Any, Protocol

from splitsecond.core import clock
from splitsecond.core.errors import CLIENT_LEFT, CallerFault
from splitsecond.core.internal_errors import report_internal_error
from splitsecond.core.serving.slow_reader import UnreadResponses

Headers = Sequence[tuple[bytes, bytes]]
Application = Callable[["RequestCycle"], Coroutine[Any, Any, None]]

BODY_TIMEOUT_NS = 60 * clock.NS_PER_S
"""How long a client may take to send the body of its request."""
MAX_UNREAD_REQUEST_BYTES = 64 * 1024
"""Reading pauses when more bytes of a body have arrived than this before the application asks for
it."""
NO_CONTENT = 204
EVENT_STREAM = b"text/event-stream; charset=utf-8"
JSON = b"application/json"
_TEXT = b"text/plain; charset=utf-8"
_NO_CACHE = (b"cache-control", b"no-cache")
_PHRASES = {status.value: status.phrase for status in HTTPStatus} | {529: "Overloaded"}
_STATUS_LINES = {
    code: b"HTTP/1.1 %d %b" % (code, _PHRASES.get(code, "").encode()) for code in range(200, 600)
}
"""The status lines of all codes, because providers use codes that are not registered, such as
Anthropic's 529."""
_KEEP_ALIVE = (b"", b"")
_CLOSE = (b"connection: close", b"", b"")
_header_line = b": ".join
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"


class ServerState:
    """State that all connections of a server share.

    `date_line` is the Date header of responses. `ending` is set when the server begins to shut
    down. `first_request_s` limits how long a new connection may take to send its first headers, in
    seconds. `unread`: the responses that clients have not read.
    """

    def __init__(self, *, first_request_s: float) -> None:
        self.connections: set[Any] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.date_line = b""
        self.update_date()
        self.ending = False
        self.first_request_s = first_request_s
        self.unread = UnreadResponses()

    def update_date(self) -> None:
        self.date_line = b"date: " + format_datetime(clock.wall_time(), usegmt=True).encode()


class ClientConnection(Protocol):
    transport: asyncio.Transport
    state: ServerState
    write_paused: bool
    peer: str

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...

    def reset(self) -> None: ...

    def on_response_complete(self) -> None: ...


class ClientLeft(Exception):
    """The client has disconnected."""


class BodyBudget(Protocol):
    def take(self, cycle: "RequestCycle", size: int) -> None:
        """Hold `size` bytes more for the request. Raises a `Fault` if there is no room."""
        ...


class ErrorReply(Protocol):
    @property
    def status(self) -> int: ...

    @property
    def body(self) -> bytes: ...

    @property
    def headers(self) -> Headers: ...


class RequestCycle:
    """A request and its response.

    `headers`: the request's headers by lower-case name; of duplicates the last wins. `arrived_ns`:
    when the first byte of the request was read. `start_ns`: when the application started with it,
    after the responses to earlier requests of the connection. `status`: the status that was sent; 0
    before that, `CLIENT_LEFT` if the response was aborted. `complete`: the whole response was
    written. `client`: for the application: the name of the client's key. `extra`: headers that are
    added to any response. `http_1_1`: not HTTP/1.0. `keep_alive`: the connection stays open after
    the response. `on_lost`: called when the client disconnects, before the task is cancelled.
    `held_bytes`: what a `BodyBudget` holds for the request.
    """

    _task: asyncio.Task[None]  # set by `start`
    _limit: int  # of the body, while the application waits for it

    __slots__ = (
        "_body", "_chunked", "_connection", "_head", "_left", "_limit", "_received", "_task",
        "_waiter",
        "arrived_ns", "client", "complete", "extra", "headers", "held_bytes", "http_1_1",
        "keep_alive", "method",
        "on_lost", "path", "query", "start_ns", "status",
    )  # fmt: skip

    def __init__(
        self,
        connection: ClientConnection,
        method: str,
        url: tuple[str, bytes],
        headers: Mapping[bytes, bytes],
        *,
        arrived_ns: int,
        http_1_1: bool,
        keep_alive: bool,
    ) -> None:
        self.method = method
        self.path, self.query = url
        self.headers = headers
        self.keep_alive = keep_alive
        self.arrived_ns = arrived_ns
        self.start_ns = 0
        self.status = 0
        self.complete = False
        self.client = ""
        self.held_bytes = 0
        self.extra: Headers = ()
        self.on_lost: Callable[[], None] | None = None
        self.http_1_1 = http_1_1
        self._connection = connection
        self._left = False  # or the response was aborted
        self._body: bytes | bytearray = b""
        self._received = False  # the whole request
        # set while the application waits for the body
        self._waiter: asyncio.Future[None] | None = None
        self._head = b""  # status line and headers that are not yet written
        self._chunked = False

    @property
    def peer(self) -> str:
        return self._connection.peer

    @property
    def connection(self) -> ClientConnection:
        return self._connection

    @property
    def descriptor(self) -> int:
        sock = self._connection.transport.get_extra_info("socket")
        return -1 if sock is None else sock.fileno()

    def header(self, name: bytes) -> bytes:
        return self.headers.get(name, b"")

    # Called by the connection.

    def start(self, application: Application, loop: asyncio.AbstractEventLoop) -> None:
        self._task = loop.create_task(self._serve(application))
        self._connection.state.tasks.add(self._task)

    def body_received(self, data: bytes) -> None:
        if self.complete:
            return
        if not self._body:
            self._body = data
        elif isinstance(self._body, bytearray):
            self._body += data
        else:
            # a list of parts of 2 bytes each would take 30 times their size
            self._body = bytearray(self._body)
            self._body += data
        if self._waiter is None:
            if len(self._body) > MAX_UNREAD_REQUEST_BYTES:
                self._connection.pause_reading()
        elif len(self._body) > self._limit:
            self._wake(self._waiter)

    def expect_body(self) -> None:
        self._received = False

    def request_received(self) -> None:
        self._received = True
        if self._waiter is not None:
            self._wake(self._waiter)
        elif self.complete and not self.keep_alive:
            self._connection.close()

    def connection_lost(self) -> None:
        if self.complete or self._left:
            return
        self._break_off()
        if self.on_lost is not None:
            self.on_lost()
        if self.start_ns:  # a task that has not started skips the application
            self._task.cancel()

    def _wake(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_result(None)

    def _break_off(self) -> None:
        self._left = True
        self.status = CLIENT_LEFT

    async def _serve(self, application: Application) -> None:
        """Call the application. If it fails, answer with status 500, or close the connection within
        a response.

        A request that is cancelled because the process ends gets status 503: another server can
        answer it.
        """
        self.start_ns = clock.now_ns()
        try:
            if not self._left:
                await application(self)
                if not (self.complete or self._left):
                    raise RuntimeError("the application has returned without a complete response")
        except ClientLeft:
            pass
        except BaseException as error:
            if not self._was_cancelled_by_us(error):
                self._fail(error)
        finally:
            self._connection.state.tasks.discard(self._task)

    def _was_cancelled_by_us(self, error: BaseException) -> bool:
        ours = isinstance(error, asyncio.CancelledError) and self._left
        return ours and self._task.uncancel() == 0

    def _fail(self, error: BaseException) -> None:
        ending = isinstance(error, asyncio.CancelledError) and self._task.cancelling() > 0
        if not ending:
            report_internal_error("request", error)
        if self.complete:
            return  # the connection may carry the next request already
        if self.status:
            self._connection.close()
            return
        self.keep_alive = False
        status = HTTPStatus.SERVICE_UNAVAILABLE if ending else HTTPStatus.INTERNAL_SERVER_ERROR
        text = status.phrase.encode()
        self.begin(status, content_headers(_TEXT, text))
        self.write(text, last=True)

    # Called by the application.

    async def body(self, limit: int, budget: BodyBudget | None = None) -> bytes:
        """Return the request's body, whose bytes `budget` holds unless they are few.

        Raises `CallerFault` if it has more than `limit` bytes or is not sent in time, and the
        faults of `budget`.
        """
        if not self._received:
            await self._receive(limit, budget)
        size = len(self._body)
        if size > limit:
            raise _too_long(limit)
        if size > MAX_UNREAD_REQUEST_BYTES:
            self._connection.resume_reading()
        body, self._body = self._body, b""
        return bytes(body)  # does not copy `bytes`

    async def _receive(self, limit: int, budget: BodyBudget | None) -> None:
        connection = self._connection
        allowed = self._allowed(limit, budget)
        expects = self.http_1_1 and self.header(b"expect").lower() == b"100-continue"
        if expects and not connection.transport.is_closing():
            connection.transport.write(_CONTINUE)
        connection.resume_reading()
        try:
            async with asyncio.timeout_at((self.start_ns + BODY_TIMEOUT_NS) / clock.NS_PER_S):
                await self._arrived(allowed)
                while budget is not None and not self._received and len(self._body) <= limit:
                    allowed = min(2 * len(self._body), limit)
                    budget.take(self, allowed - self.held_bytes)
                    await self._arrived(allowed)
        except TimeoutError:
            message = (
                f"the request's body did not arrive within {BODY_TIMEOUT_NS // clock.NS_PER_S} s"
            )
            raise CallerFault(message, kind="slow_request", status=408) from None

    def _allowed(self, limit: int, budget: BodyBudget | None) -> int:
        """Return the bytes of the body that may arrive before `budget` is asked for more."""
        declared = self.header(b"content-length")
        if not declared.isdigit():
            return limit if budget is None else MAX_UNREAD_REQUEST_BYTES
        size = int(declared)
        if size > limit:
            raise _too_long(limit)
        if budget is not None and size > MAX_UNREAD_REQUEST_BYTES:
            budget.take(self, size)
        return limit

    async def _arrived(self, limit: int) -> None:
        self._limit = limit
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def answer(
        self, status: int, body: bytes, headers: Headers = (), *, kind: bytes = JSON
    ) -> None:
        self.begin(
            status, [*(() if status == NO_CONTENT else content_headers(kind, body)), *headers]
        )
        await self.send(body, last=True)

    async def refuse(self, error: ErrorReply, headers: Headers = ()) -> None:
        await self.answer(error.status, error.body, [*error.headers, *headers])

    def begin(self, status: int, headers: Headers) -> None:
        """Begin a response. Its status and headers are written with the first bytes of the body, or
        by `flush`."""
        # its loss is reported only in the next iteration of the loop
        if self._connection.transport.is_closing():
            self._break_off()
        if self._left:
            raise ClientLeft
        if self.status:
            raise RuntimeError("the response has begun already")
        lines = (
            _STATUS_LINES[status],
            self._connection.state.date_line,
            *map(_header_line, headers),
            *map(_header_line, self.extra),
            *(_KEEP_ALIVE if self.keep_alive else _CLOSE),
        )
        head = b"\r\n".join(lines)
        if not head.count(b"\n") == head.count(b"\r") == len(lines) - 1:
            raise RuntimeError("a header of the response contains a line break")
        self.status = status
        self._head = head

    def begin_stream(self, headers: Headers, *, kind: bytes = EVENT_STREAM) -> None:
        self._chunked = self.http_1_1
        if self._chunked:
            self.begin(
                200,
                [(b"content-type", kind), _NO_CACHE, *headers, (b"transfer-encoding", b"chunked")],
            )
        else:
            self.keep_alive = False  # the end of the connection is the end of the body
            self.begin(200, [(b"content-type", kind), _NO_CACHE, *headers])

    async def send(self, data: bytes, *, last: bool = False) -> None:
        if self._connection.write_paused:
            # the connection aborts itself if the client does not read
            await self._connection.drain()
        self.write(data, last=last)

    @property
    def ready(self) -> bool:
        return not (self._left or self._connection.write_paused)

    def send_now(self, data: bytes) -> int:
        """Write a part of the response's body at once. Returns how many bytes the client has not
        read yet.

        A closing connection ends the request at once: its loss is reported only in the next
        iteration of the loop, and a caller that is late may have many parts to write before that.
        """
        transport = self._connection.transport
        if not self._left and transport.is_closing():
            self.connection_lost()
            return 0
        self.write(data, last=False)
        return transport.get_write_buffer_size()

    def flush(self) -> None:
        self._connection.transport.write(self._head)
        self._head = b""

    def cut(self) -> None:
        self._break_off()
        self._connection.close()

    def reset(self) -> None:
        self._break_off()
        self._connection.reset()

    def write(self, data: bytes, *, last: bool) -> None:
        if self._left:
            raise ClientLeft
        if self.complete:
            raise RuntimeError("the response is complete already")
        if self.method == "HEAD":
            data = b""
        if data and self._chunked:
            end = b"\r\n0\r\n\r\n" if last else b"\r\n"
            self._connection.transport.write(
                b"".join((self._head, b"%x\r\n" % len(data), data, end))
            )
            self._head = b""
        elif data or last:
            self._connection.transport.write(self._head + (_LAST_CHUNK if self._chunked else data))
            self._head = b""
        if last:
            self.complete = True
            self._body = b""  # the connection keeps its last request
            if not self.keep_alive and (self._received or not self.http_1_1):
                # else when the request's body has arrived: closing now would reset it
                self._connection.close()
            self._connection.on_response_complete()


def content_headers(kind: bytes, body: bytes) -> Headers:
    return ((b"content-type", kind), (b"content-length", b"%d" % len(body)))


def _too_long(limit: int) -> CallerFault:
    return CallerFault(
        f"the request's body is longer than {limit:,} bytes", kind="request_too_large", status=413
    )
