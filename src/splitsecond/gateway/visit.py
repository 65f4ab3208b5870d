"""One request of a client's connection, and its answer: what the client sent, what is said back, and whether it is
still there.

The connection makes it when a request's head has come, and tells it of the body as that comes. Every request and every
chunk of an answer passes here, so nothing lies between this and the connection (ASGI's messages cost a third of all
that is done for a request before it has a policy), the head of an answer waits for the first bytes that follow it, and
a timer is set only where the client is waited for: for the rest of its request, or for it to read on.

When a client leaves, or does not read on, the task that serves it is cancelled or ends with `Left`, and whatever is
done for it ends.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Protocol

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.server import ServerState

from splitsecond import clock
from splitsecond.errors import CallerFault
from splitsecond.gateway.refusal import Headers, Refusal

Application = Callable[["Visit"], Coroutine[Any, Any, None]]

PATIENCE_NS = 60 * clock.NS_PER_S
"""How long a client may take to send its request; and to read on, once all buffers on the way are full."""
LEFT = 499
"""The status of an answer that its client did not stay for, as nginx writes it."""
NO_CONTENT = 204
_JSON = b"application/json"
_TEXT = b"text/plain; charset=utf-8"
_STREAM = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
_PHRASES = {status.value: status.phrase for status in HTTPStatus} | {529: "Overloaded"}
_STATUS_LINES = {code: b"HTTP/1.1 %d %b" % (code, _PHRASES.get(code, "").encode()) for code in range(200, 600)}
"""Of each status that there can be: providers have their own, as Anthropic's 529, which no list of HTTP's has."""
_KEPT = (b"", b"")
_CLOSED = (b"connection: close", b"", b"")
"""How a head ends."""
_header_line = b": ".join
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"


class Line(Protocol):
    """A client's connection, as far as one of its requests needs it. `tasks`: those of all requests of all."""

    transport: asyncio.Transport
    flow: FlowControl
    server_state: ServerState
    tasks: set[asyncio.Task[None]]
    logger: logging.Logger
    client: tuple[str, int] | None

    def on_response_complete(self) -> None: ...


class Left(Exception):
    """The client has gone."""


class Visit:
    """See the file. `headers`: of several of one name the last.

    `start_ns`: when its turn came. `status`: what the client was told; 0 before that, `LEFT` where it did not stay for
    the whole answer. `complete`: it was told all. `client`: the name of its key, once that is known. `extra`: headers
    that go with whatever is answered. `keep_alive`: the connection stays open after the answer.
    """

    _task: asyncio.Task[None]  # from its turn on
    _limit: int  # of the body, while that is waited for

    __slots__ = (
        "_body", "_chunked", "_head", "_http_1_1", "_left", "_limit", "_line", "_size", "_task", "_waiter",
        "_whole", "client", "complete", "extra", "headers", "keep_alive", "method", "path", "query", "start_ns",
        "status",
    )  # fmt: skip

    def __init__(
        self, line: Line, method: str, url: tuple[str, bytes], headers: Headers, *, http_1_1: bool, keep_alive: bool
    ) -> None:
        """`url`: path and query."""
        self.method = method
        self.path, self.query = url
        self.headers: Mapping[bytes, bytes] = dict(headers)
        self.keep_alive = keep_alive
        self.start_ns = 0
        self.status = 0
        self.complete = False
        self.client = ""
        self.extra: Sequence[tuple[bytes, bytes]] = ()
        self._http_1_1 = http_1_1
        self._line = line
        self._left = False
        self._body: list[bytes] = []
        self._whole = False  # all of the request is there
        self._size = 0  # of the body so far
        self._waiter: asyncio.Future[None] | None = None  # of who waits for the body
        self._head = b""  # waits for what follows it
        self._chunked = False

    @property
    def peer(self) -> str:
        """The address that it comes from, "" where there is none."""
        return self._line.client[0] if self._line.client else ""

    def header(self, name: bytes) -> bytes:
        """The header of that name; b"" for none."""
        return self.headers.get(name, b"")

    # What the connection tells.

    def start(self, app: Application, loop: asyncio.AbstractEventLoop) -> None:
        """It is this one's turn: `app` answers, in a task that stands among the line's until it has."""
        self._task = loop.create_task(self._serve(app))
        self._line.tasks.add(self._task)

    def came(self, body: bytes) -> None:
        """A piece of the request's body. Where nobody waits for it the client is held back."""
        if self.complete:
            return
        self._body.append(body)
        self._size += len(body)
        if self._waiter is None:
            if self._size > HIGH_WATER_LIMIT:
                self._line.flow.pause_reading()
        elif self._size > self._limit:
            self._wake(self._waiter)

    def goes_on(self) -> None:
        """What looked like all of the request was only its head."""
        self._whole = False

    def whole(self) -> None:
        """All of the request is there."""
        self._whole = True
        if self._waiter is not None:
            self._wake(self._waiter)

    def lost(self) -> None:
        """The client has left."""
        if self.complete or self._left:
            return
        self._leave()
        if self.start_ns:  # before that the task could not be cancelled in good order
            self._task.cancel()

    def _wake(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_result(None)

    def _leave(self) -> None:
        self._left = True
        self.status = LEFT

    # Who serves it.

    async def _serve(self, app: Application) -> None:
        """Has `app` answer. Where it does not, the client is told so, or hung up on."""
        self.start_ns = clock.now_ns()
        try:
            if not self._left:
                await app(self)
                if not self.complete:
                    raise RuntimeError("the application has returned without an answer")
        except Left:
            pass
        except BaseException as error:
            if not self._was_cancelled_by_us(error):
                self._fail(error)
        finally:
            self._line.tasks.discard(self._task)

    def _was_cancelled_by_us(self, error: BaseException) -> bool:
        ours = isinstance(error, asyncio.CancelledError) and self._left
        return ours and self._task.uncancel() == 0

    def _fail(self, error: BaseException) -> None:
        self._line.logger.error("A request was not answered\n", exc_info=error)
        if self.status:
            self._line.transport.close()
            return
        self.keep_alive = False
        words = HTTPStatus.INTERNAL_SERVER_ERROR.phrase.encode()
        self._begin(HTTPStatus.INTERNAL_SERVER_ERROR, _sized(_TEXT, words))
        self._write(words, last=True)

    async def body(self, limit: int) -> bytes:
        """All of the request's body. Raises `CallerFault`: it is longer than `limit`, or does not come in time."""
        if not self._whole:
            await self._rest(limit)
        if self._size > limit:
            raise _too_long(limit)
        if self._size > HIGH_WATER_LIMIT:
            self._line.flow.resume_reading()
        pieces, self._body = self._body, []
        return b"".join(pieces)  # of one it makes no copy

    async def _rest(self, limit: int) -> None:
        """Returns when all of the body is there, or more than `limit`."""
        line = self._line
        declared = self.header(b"content-length")
        if declared.isdigit() and int(declared) > limit:
            raise _too_long(limit)
        if self.header(b"expect").lower() == b"100-continue" and not line.transport.is_closing():
            line.transport.write(_CONTINUE)
        line.flow.resume_reading()
        self._limit = limit
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout_at((self.start_ns + PATIENCE_NS) / clock.NS_PER_S):
                await self._waiter
        except TimeoutError:
            words = f"the request's body did not come within {PATIENCE_NS // clock.NS_PER_S} s"
            raise CallerFault(words, kind="slow_request", status=408) from None
        finally:
            self._waiter = None

    async def answer(self, status: int, body: bytes, headers: Headers | None = None, *, kind: bytes = _JSON) -> None:
        """A whole answer, of the content type `kind`."""
        self._begin(status, [*(() if status == NO_CONTENT else _sized(kind, body)), *(headers or ())])
        if self._line.flow.write_paused:
            await self._read_on()
        self._write(body, last=True)

    async def refuse(self, no: Refusal, headers: Headers | None = None) -> None:
        """An answer that says no."""
        await self.answer(no.status, no.body, [*no.headers, *(headers or [])])

    def begin_stream(self, headers: Headers) -> None:
        """The head of an answer that comes as a stream of events."""
        self._chunked = self._http_1_1
        if self._chunked:
            self._begin(200, [*_STREAM, *headers, (b"transfer-encoding", b"chunked")])
        else:
            self.keep_alive = False  # the end of the connection is the end of the body
            self._begin(200, [*_STREAM, *headers])

    async def send(self, data: bytes, *, last: bool = False) -> None:
        """A part of the answer's body, when the client can take it."""
        if self._line.flow.write_paused:
            await self._read_on()
        self._write(data, last=last)

    async def _read_on(self) -> None:
        """Returns when the client has read on. One that does not is hung up on."""
        try:
            async with asyncio.timeout(PATIENCE_NS / clock.NS_PER_S):
                await self._line.flow.drain()
        except TimeoutError:
            self._leave()
            self._line.transport.abort()  # closed politely, it would wait for the reader who does not read
            raise Left from None

    def _begin(self, status: int, headers: Headers) -> None:
        if self._left:
            raise Left
        if self.status:
            raise RuntimeError("the answer has begun already")
        given = (*self._line.server_state.default_headers, *headers, *self.extra)
        lines = (_STATUS_LINES[status], *map(_header_line, given), *(_KEPT if self.keep_alive else _CLOSED))
        head = b"\r\n".join(lines)
        if not head.count(b"\n") == head.count(b"\r") == len(lines) - 1:
            raise RuntimeError("a header of an answer holds a line break")
        self.status = status
        self._head = head

    def _write(self, data: bytes, *, last: bool) -> None:
        if self._left:
            raise Left
        if self.complete:
            raise RuntimeError("the answer is complete already")
        if self.method == "HEAD":
            data = b""
        if data and self._chunked:
            end = b"\r\n0\r\n\r\n" if last else b"\r\n"
            self._line.transport.write(b"".join((self._head, b"%x\r\n" % len(data), data, end)))
            self._head = b""
        elif data or last:
            self._line.transport.write(self._head + (_LAST_CHUNK if self._chunked else data))
            self._head = b""
        if last:
            self.complete = True
            if not self.keep_alive:
                self._line.transport.close()
            self._line.on_response_complete()


def _sized(kind: bytes, body: bytes) -> Headers:
    return [(b"content-type", kind), (b"content-length", b"%d" % len(body))]


def _too_long(limit: int) -> CallerFault:
    return CallerFault(f"the request's body is longer than {limit} bytes", kind="request_too_large", status=413)
