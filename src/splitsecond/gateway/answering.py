"""The way out of a client's connection: head and body of an answer in one write.

uvicorn writes them apart and looks through every header with regular expressions; for an answer of some hundred bytes
that is a third of all that the connection costs. Here a head waits for the first bytes that follow it, which the
gateway has by the time it makes one. All else that uvicorn does with a request stays as it is.
"""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_STATUS_LINES = {status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus}
_NO_BODY = frozenset({204, 304})


class Answering:
    """The answer to one request: `send` stands in the place of uvicorn's own."""

    def __init__(self, cycle: RequestResponseCycle, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """`headers` go with every answer."""
        self._cycle = cycle
        self._headers = headers
        self._head = b""
        self._chunked = False
        self._silent = cycle.scope["method"] == "HEAD"

    async def send(self, message: Mapping[str, Any]) -> None:
        """See ASGI. Waits while the client does not read; after it has left nothing is sent."""
        cycle = self._cycle
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        if message["type"] == "http.response.start":
            self._begin(message["status"], message["headers"])
            return
        if cycle.response_complete:
            raise RuntimeError("the answer is complete already")
        body = message.get("body", b"")
        more = message.get("more_body", False)
        data = self._head + self._framed(body, more)
        self._head = b""
        if data:
            cycle.transport.write(data)
        if not more:
            cycle.response_complete = True
            cycle.message_event.set()
            if not cycle.keep_alive:
                cycle.transport.close()
            cycle.on_response()

    def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        cycle = self._cycle
        if cycle.response_started:
            raise RuntimeError("the answer has begun already")
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        lines = [_STATUS_LINES[status]]
        sized = status in _NO_BODY
        for name, value in (*self._headers, *headers):
            lines.append(name + b": " + value + b"\r\n")
            if name == b"content-length":
                sized = True
        if not sized and cycle.scope["http_version"] == "1.1":
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        elif not sized:
            cycle.keep_alive = False  # the end of the connection is the end of the body
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        head = b"".join(lines)
        if not head.count(b"\n") == head.count(b"\r") == len(lines):
            raise RuntimeError("a header of an answer holds a line break")
        self._head = head

    def _framed(self, body: bytes, more: bool) -> bytes:
        if self._silent:
            return b""
        if not self._chunked:
            return body
        chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return chunk if more else chunk + b"0\r\n\r\n"
