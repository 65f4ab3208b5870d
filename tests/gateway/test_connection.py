"""Bounds on a request's head: the connection, fed by hand, in virtual time."""

import asyncio
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from splitsecond.gateway.connection import HEAD_S, MAX_HEAD_BYTES, Connection
from splitsecond.testing.virtual_time import run_virtual


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """Nothing is read anyway."""

    def resume_reading(self) -> None:
        """Nothing is read anyway."""


async def answers(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def connected() -> tuple[Connection, Transport]:
    config = uvicorn.Config(answers, lifespan="off", ws="none", log_config=None)
    config.load()
    connection, transport = Connection(config, ServerState(), {}), Transport()
    connection.connection_made(transport)
    return connection, transport


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nhost: x\r\n"])
def test_a_head_that_does_not_come_closes_the_connection(begun: bytes) -> None:
    async def main() -> None:
        connection, transport = await connected()
        if begun:
            connection.data_received(begun)
        await asyncio.sleep(HEAD_S - 1)
        assert transport.written == b""
        await asyncio.sleep(2)
        assert transport.written.startswith(b"HTTP/1.1 408 ")
        connection.connection_lost(None)

    run_virtual(main())


@pytest.mark.parametrize("size", [1, 100, 100_000])
@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
@pytest.mark.parametrize("line", [b"x: " + b"a" * 2 * MAX_HEAD_BYTES, b"\r\n".join([b"x: a"] * 101)])
def test_a_head_that_is_too_long_is_refused(size: int, end: bytes, line: bytes) -> None:
    async def main() -> None:
        connection, transport = await connected()
        head = b"GET / HTTP/1.1\r\nhost: x\r\n" + line + end
        for at in range(0, len(head), size):
            if not transport.closed:
                connection.data_received(head[at : at + size])
        assert transport.closed
        assert transport.written.startswith(b"HTTP/1.1 431 ")
        connection.connection_lost(None)

    run_virtual(main())


def test_a_long_body_is_no_long_head_and_the_next_request_is_served() -> None:
    async def main() -> None:
        connection, transport = await connected()
        body = b"a" * 3 * MAX_HEAD_BYTES
        request = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        for _ in range(3):
            for at in range(0, len(request), 50_000):
                connection.data_received(request[at : at + 50_000])
                await asyncio.sleep(0)
            await asyncio.sleep(0.01)
        assert transport.written.count(b"HTTP/1.1 200 ") == 3
        connection.connection_lost(None)

    run_virtual(main())
