"""One request of a client's connection, and its answer: what ASGI calls `receive` and `send`.

uvicorn's own makes an event for each request, writes head and body of an answer apart, and looks through every header
with regular expressions; for an answer of some hundred bytes that is most of what the connection costs. Here a head
waits for the first bytes that follow it, which the gateway has by the time it makes one.
"""

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_STATUS_LINES = {status.value: b"HTTP/1.1 %d %b" % (status.value, status.phrase.encode()) for status in HTTPStatus}
_NO_BODY = frozenset({204, 304})
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Turn(RequestResponseCycle):
    """See the file. `on_response` is called when the answer is complete."""

    def __init__(
        self,
        scope: Any,
        transport: asyncio.Transport,
        flow: FlowControl,
        headers: list[tuple[bytes, bytes]],
        *,
        keep_alive: bool,
        expects: bool,
        on_response: Callable[[], None],
        tasks: set[asyncio.Task[None]],
        logger: Any,
    ) -> None:
        """`headers` go with every answer. `tasks`: those of all requests. `expects`: the client waits for a word before
        it sends its body.
        """
        self.scope = scope
        self.transport = transport
        self.flow = flow
        self.logger = logger
        self.default_headers = headers
        self.on_response = on_response
        self._tasks = tasks
        self.disconnected = False
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = expects
        self.more_body = True
        self.response_started = False
        self.response_complete = False
        self._body: list[bytes] = []
        self._held = 0
        self._taken = False
        self._waiter: asyncio.Future[None] | None = None
        self._head = b""
        self._chunked = False
        self._silent = scope["method"] == "HEAD"

    # What the connection tells.

    def came(self, body: bytes) -> None:
        """A piece of the request's body. Where nobody takes it the client is held back."""
        if self.response_complete:
            return
        self._body.append(body)
        self._held += len(body)
        if self._held > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        if self._waiter is not None:
            self._wake(self._waiter)

    def whole(self) -> None:
        """All of the request is there."""
        self.more_body = False
        if self._waiter is not None:
            self._wake(self._waiter)

    def lost(self) -> None:
        """The client has left."""
        self.disconnected = not self.response_complete
        if self._waiter is not None:
            self._wake(self._waiter)

    def _wake(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_result(None)

    def start(self, app: ASGI3Application, loop: asyncio.AbstractEventLoop) -> None:
        """Has the application answer, in a task that stands among `tasks` until it has."""
        self._tasks.add(loop.create_task(self.run_asgi(app)))

    async def run_asgi(self, app: ASGI3Application) -> None:
        """Has the application answer. Where it does not, the client is told so, or hung up on."""
        try:
            await app(self.scope, self.receive, self.send)
            if not self.response_complete and not self.disconnected:
                raise RuntimeError("the application has returned without an answer")
        except BaseException as error:
            self.logger.error("Exception in ASGI application\n", exc_info=error)
            if self.response_started:
                self.transport.close()
            else:
                await self.send_500_response()
        finally:
            task = asyncio.current_task()
            if task is not None:
                self._tasks.discard(task)

    # What the application calls.

    async def receive(self) -> Any:
        """See ASGI: the next piece of the request, or that there is no more of it and the client has left."""
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(_CONTINUE)
            self.waiting_for_100_continue = False
        while not (self._body or self.disconnected or self.response_complete) and (self.more_body or self._taken):
            self.flow.resume_reading()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        self._held = 0
        self._taken = not self.more_body
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: Mapping[str, Any]) -> None:
        """See ASGI. Waits while the client does not read; after it has left nothing is sent."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self._begin(message["status"], message["headers"])
            return
        if self.response_complete:
            raise RuntimeError("the answer is complete already")
        body = message.get("body", b"")
        more = message.get("more_body", False)
        if self._silent:
            body = b""
        end = b"" if more or self._silent or not self._chunked else b"0\r\n\r\n"
        if body and self._chunked:
            data = b"".join((self._head, b"%x\r\n" % len(body), body, b"\r\n", end))
        else:
            data = b"".join((self._head, body, end))
        if data:
            self.transport.write(data)
        self._head = b""
        if not more:
            self.response_complete = True
            if self._waiter is not None:
                self._wake(self._waiter)
            if not self.keep_alive:
                self.transport.close()
            self.on_response()

    def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        if self.response_started:
            raise RuntimeError("the answer has begun already")
        self.response_started = True
        self.waiting_for_100_continue = False
        lines = [_STATUS_LINES[status], *map(b": ".join, self.default_headers), *map(b": ".join, headers)]
        head = b"\r\n".join(lines)
        if not head.count(b"\n") == head.count(b"\r") == len(lines) - 1:
            raise RuntimeError("a header of an answer holds a line break")
        if status not in _NO_BODY and head.find(b"\r\ncontent-length: ") < 0:
            if self.scope["http_version"] == "1.1":
                self._chunked = True
                head += b"\r\ntransfer-encoding: chunked"
            else:
                self.keep_alive = False  # the end of the connection is the end of the body
        self._head = head + (b"\r\n\r\n" if self.keep_alive else b"\r\nconnection: close\r\n\r\n")
