"""One request under way: what its client sent, what is said back, and whether the client is still there.

Every request and every chunk of an answer passes here, so nothing here makes a task or opens a scope. One timer finds a
client that takes too long to send its request or to read the answer, and a call from its connection (`Line`) says that
it has left. Either breaks off what is done for it, by cancelling the task that serves it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, Self

from splitsecond import clock
from splitsecond.alarms import Alarm, Alarms
from splitsecond.errors import CallerFault
from splitsecond.gateway.connection import LINE
from splitsecond.gateway.refusal import Headers, Refusal

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

PATIENCE_NS = 60 * clock.NS_PER_S
"""How long a client may take to send its request; and to read on, once all buffers on the way are full."""
LEFT = 499
"""The status of an answer that its client did not stay for, as nginx writes it."""
NO_CONTENT = 204
_JSON = b"application/json"
_STREAM = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class Line(Protocol):
    """A client's connection, beyond what ASGI knows of it; see `connection`."""

    on_lost: Callable[[], None] | None

    def abort(self) -> None: ...


class Left(Exception):
    """The client has gone."""


class Visit(Alarm):
    """One request. Use as a context manager around all that is done for it: a client that leaves ends that with `Left`.

    `status`: what the client was told; 0 before that, `LEFT` where it did not stay for the whole answer. `complete`: it
    was told all. `client`: the name of its key, once that is known. `extra`: headers that go with whatever is answered.
    Of several headers of one name the last counts.
    """

    __slots__ = (
        "_alarms", "_late", "_line", "_reading", "_receive", "_send", "_since_ns", "_task", "client",
        "complete", "extra", "headers", "method", "path", "peer", "query", "start_ns", "status",
    )  # fmt: skip

    def __init__(self, scope: Scope, receive: Receive, send: Send, alarms: Alarms, start_ns: int) -> None:
        Alarm.__init__(self)
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope.get("query_string", b"")
        self.peer: str = (scope.get("client") or ("",))[0]
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        self.start_ns = start_ns
        self.status = 0
        self.client = ""
        self.extra: Headers = []
        self._receive = receive
        self._send = send
        self._line: Line = scope["extensions"][LINE]
        self._task = asyncio.current_task()
        self._alarms = alarms
        self._since_ns = start_ns  # since when we wait for the client; 0: we do not
        self._reading = True
        self._late = False
        self.complete = False

    def header(self, name: bytes) -> bytes:
        """The header of that name; b"" for none."""
        return self.headers.get(name, b"")

    def __enter__(self) -> Self:
        self._line.on_lost = self._lost
        self._alarms.set(self, self.start_ns + PATIENCE_NS, self.start_ns)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._line.on_lost = None
        self.silence()
        ours = self.status == LEFT and self._task is not None and self._task.uncancel() == 0
        if ours and kind is asyncio.CancelledError:
            raise Left from None

    def _lost(self) -> None:
        if not self.complete and self.status != LEFT and self._task is not None:
            self.status = LEFT
            self._task.cancel()

    def ring(self) -> None:
        """Gives a client up that has let us wait too long, or looks again when it could have."""
        now_ns = clock.now_ns()
        due_ns = (self._since_ns or now_ns) + PATIENCE_NS
        if now_ns < due_ns:
            self._alarms.set(self, due_ns, now_ns)
        elif self._reading and self._task is not None:
            self._late = True
            self._task.cancel()
        else:
            self._line.abort()  # closed politely, it would wait for the reader who does not read

    async def body(self, limit: int) -> bytes:
        """All of the request's body. Raises `CallerFault`: it is longer than `limit`, or does not come in time."""
        declared = self.headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared[:20]) > limit:
            raise _too_long(limit)
        try:
            body = await self._whole(limit)
        except asyncio.CancelledError:
            if self._late and self._task is not None and self._task.uncancel() == 0:
                self._since_ns = 0
                self._reading = False
                words = f"the request's body did not come within {PATIENCE_NS // clock.NS_PER_S} s"
                raise CallerFault(words, kind="slow_request", status=408) from None
            raise
        self._since_ns = 0
        self._reading = False
        return body

    async def _whole(self, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Left
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise _too_long(limit)
            parts.append(part)
            more = message.get("more_body", False)
        return b"".join(parts)  # of one it makes no copy

    async def begin_stream(self, headers: Headers) -> None:
        """The head of an answer that comes as a stream of events."""
        await self._begin(200, [*_STREAM, *headers])
        self._since_ns = 0

    async def send(self, data: bytes, *, last: bool = False) -> None:
        """A part of the answer's body."""
        self._since_ns = clock.now_ns()
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})
        self.complete = last
        self._since_ns = 0

    async def answer(self, status: int, body: bytes, headers: Headers | None = None, *, kind: bytes = _JSON) -> None:
        """A whole answer, of the content type `kind`."""
        given = headers or []
        if status != NO_CONTENT:
            given = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *given]
        await self._begin(status, given)
        await self._send({"type": "http.response.body", "body": body, "more_body": False})
        self.complete = True

    async def refuse(self, no: Refusal, headers: Headers | None = None) -> None:
        """An answer that says no."""
        await self.answer(no.status, no.body, [*no.headers, *(headers or [])])

    async def _begin(self, status: int, headers: Headers) -> None:
        self.status = status
        self._since_ns = clock.now_ns()
        if self.extra:
            headers = [*headers, *self.extra]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})


def _too_long(limit: int) -> CallerFault:
    return CallerFault(f"the request's body is longer than {limit} bytes", kind="request_too_large", status=413)
