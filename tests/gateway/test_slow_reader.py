"""A client that asks for a stream and does not read it, over real sockets: it is hung up on, and its provider too."""

import asyncio
import socket
from types import TracebackType
from typing import Any, Self

import pytest
import uvicorn
import uvloop
from tests.gateway.visitor import OneRoute

from splitsecond.events import Event
from splitsecond.gateway import visit
from splitsecond.gateway.app import Gateway
from splitsecond.gateway.connection import Connection
from splitsecond.gateway.records.books import Books
from splitsecond.service import Call, Reply
from splitsecond.store.served import Served

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % (b"x" * 60_000)
REQUEST = b'{"model":"fast","stream":true}'
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
TIMEOUT_S = 30.0


class Endless:
    """A service whose answer does not end. `closed` is set when its caller is done with it."""

    target = "a/x"
    empty = False
    token_ns = 0

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    async def __call__(self, call: Call) -> Reply:
        return self

    async def read(self) -> bytes:
        await asyncio.sleep(0)
        return EVENT

    async def finished(self) -> None:
        """Nobody asks for that."""

    def arrived(self) -> list[Event]:
        return []

    async def aclose(self) -> None:
        self.closed.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def _rest(client: socket.socket) -> bytes:
    """The last of what the client can still read."""
    last = b""
    try:
        while data := await asyncio.get_running_loop().sock_recv(client, 1 << 20):
            last = data
    except ConnectionResetError:
        pass  # it depends on what was left in the kernel
    return last


def test_a_reader_who_stops_reading_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(visit, "PATIENCE_NS", 200_000_000)
    records: list[Served] = []

    async def main() -> bytes:
        service, recorded = Endless(), asyncio.Event()

        def keep(record: Served) -> None:
            records.append(record)
            recorded.set()

        routes: Any = OneRoute(service)
        gateway: Any = Gateway(routes, books=Books(keep))
        config = uvicorn.Config(
            gateway, http=Connection, ws="none", lifespan="off", interface="asgi3", proxy_headers=False
        )
        server = uvicorn.Server(config)
        config.load()
        server.lifespan = config.lifespan_class(config)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            await server.startup([listening])
            loop = asyncio.get_running_loop()
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.setblocking(False)
                await loop.sock_connect(client, listening.getsockname())
                await loop.sock_sendall(client, HEAD % len(REQUEST) + REQUEST)
                async with asyncio.timeout(TIMEOUT_S):
                    await service.closed.wait()
                    await recorded.wait()
                    last = await _rest(client)
            server.should_exit = True
            await server.shutdown([listening])
        return last

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        last = runner.run(main())
    (record,) = records
    assert not last.endswith(b"0\r\n\r\n")  # the end of a stream that is whole
    assert (record.status, record.outcome) == (499, "cancelled")
    assert "without completing" not in caplog.text
