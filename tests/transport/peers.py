"""The other side of the wire: scripted servers, and a receiver that records its callbacks."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from ssl import SSLContext
from typing import Self

from splitsecond.core import clock
from splitsecond.core.errors import Fault
from splitsecond.core.observation import ArrivalClock
from splitsecond.core.transport import Exchange, Origin, Request

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
GET = Request("GET", "/")


class Recorder:
    """A receiver. `story` has its callbacks without times: ("head", status), bytes, then "ended" or
    the kind."""

    def __init__(self) -> None:
        self.story: list[object] = []
        self.headers: Mapping[str, str] = {}
        self.at: list[int] = []
        self.late: list[int] = []
        """For each piece of body: how long before "now" its `at` lies, less its lag. Never below
        zero."""
        self.clocks: list[ArrivalClock] = []
        self.fault: Fault | None = None
        self.begun = asyncio.Event()
        self.over = asyncio.Event()

    @property
    def body(self) -> bytes:
        return b"".join(piece for piece in self.story if isinstance(piece, bytes))

    def head_received(self, at: int, status: int, headers: Mapping[str, str]) -> None:
        self.at.append(at)
        self.headers = headers
        self.story.append(("head", status))
        self.begun.set()

    def body_received(self, at: int, lag: int, source: ArrivalClock, data: bytes) -> None:
        self.at.append(at)
        self.late.append(clock.now_ns() - at - lag)
        self.clocks.append(source)
        self.story.append(data)

    def ended(self, at: int) -> None:
        self.at.append(at)
        self.story.append("ended")
        self.over.set()

    def failed(self, at: int, fault: Fault) -> None:
        self.at.append(at)
        self.fault = fault
        self.story.append(fault.kind)
        self.over.set()


class Closer(Recorder):
    """Closes its exchange from inside the call named by `on`."""

    def __init__(self, on: str) -> None:
        super().__init__()
        self.on = on
        self.exchange: Exchange | None = None

    def _close(self, call: str) -> None:
        if call == self.on and self.exchange is not None:
            self.exchange.close()

    def head_received(self, at: int, status: int, headers: Mapping[str, str]) -> None:
        super().head_received(at, status, headers)
        self._close("head")

    def body_received(self, at: int, lag: int, source: ArrivalClock, data: bytes) -> None:
        super().body_received(at, lag, source, data)
        self._close("body")

    def ended(self, at: int) -> None:
        super().ended(at)
        self._close("ended")


class Peer:
    """A server on the loopback. The n-th connection is served by the n-th script, later ones by the
    last."""

    def __init__(
        self, *scripts: Script, tls: SSLContext | None = None, host: str = "127.0.0.1"
    ) -> None:
        self._scripts, self._tls, self._host = scripts, tls, host
        self._tasks: list[asyncio.Task[object]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self._host, 0, ssl=self._tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        scheme = "http" if self._tls is None else "https"
        self.origin = Origin(scheme, self._host, self.port)
        return self

    def stop_listening(self) -> None:
        """From now on nobody can connect."""
        self._server.close()

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)  # the transports close in the loop's next turn

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        self._writers.append(writer)
        script = self._scripts[min(self.connections, len(self._scripts) - 1)]
        self.connections += 1
        with suppress(asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            await script(reader, writer)
        writer.close()


def stay(*answers: bytes) -> Script:
    """A script: one answer to each request, then keep the connection open until the client closes
    it."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        await reader.read()

    return script


def close(*answers: bytes) -> Script:
    """A script: one answer to each request, then close."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()

    return script


def chunked(pieces: Sequence[bytes]) -> bytes:
    """A chunked body."""
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
