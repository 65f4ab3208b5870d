"""The way out: head and body in one write, in the form that the client's version of HTTP takes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httptools
import pytest
import uvicorn
from tests.gateway.test_connection import Transport
from uvicorn.server import ServerState

from splitsecond.gateway.connection import Connection
from splitsecond.testing.virtual_time import run_virtual

Send = Callable[[dict[str, Any]], Awaitable[None]]
START = {"type": "http.response.start", "status": 200, "headers": [(b"x-a", b"b")]}


class Writes(Transport):
    """Keeps each write by itself. `hung_up`: we closed the connection after the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.each: list[bytes] = []
        self.hung_up = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        self.each.append(bytes(data))


class Read:
    """An answer as another parser reads it."""

    def __init__(self, data: bytes) -> None:
        self.body = b""
        self.headers: dict[bytes, bytes] = {}
        self.complete = False
        self.parser = httptools.HttpResponseParser(self)
        self.parser.feed_data(data)
        self.status = self.parser.get_status_code()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.complete = True


async def answered(act: Callable[[Send], Awaitable[None]], head: str = "GET / HTTP/1.1") -> Writes:
    async def app(scope: Any, receive: Any, send: Send) -> None:
        await act(send)

    config = uvicorn.Config(app, lifespan="off", ws="none", log_config=None)
    config.load()
    state = ServerState()
    state.default_headers = [(b"date", b"today")]
    connection, transport = Connection(config, state, {}), Writes()
    connection.connection_made(transport)
    connection.data_received(f"{head}\r\nhost: x\r\n\r\n".encode())
    await asyncio.sleep(1)
    transport.hung_up = transport.closed
    connection.connection_lost(None)
    return transport


def body(data: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


def sized(size: int, status: int = 200) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": [(b"content-length", b"%d" % size)]}


def test_a_whole_answer_is_one_write() -> None:
    async def act(send: Send) -> None:
        await send(sized(2))
        await send(body(b"hi"))

    async def main() -> None:
        transport = await answered(act)
        (data,) = transport.each
        read = Read(data)
        assert (read.status, read.body, read.complete) == (200, b"hi", True)
        assert read.headers[b"date"] == b"today"
        assert not transport.hung_up

    run_virtual(main())


def test_a_stream_is_one_write_for_each_part_and_its_head_goes_with_the_first() -> None:
    async def act(send: Send) -> None:
        await send(START)
        await send(body(b"one", more=True))
        await send(body(b"", more=True))
        await send(body(b"two", more=True))
        await send(body(b""))

    async def main() -> None:
        transport = await answered(act)
        assert len(transport.each) == 3
        read = Read(transport.each[0])
        assert (read.headers[b"transfer-encoding"], read.headers[b"x-a"]) == (b"chunked", b"b")
        assert (read.body, read.complete) == (b"one", False)
        assert transport.each[1:] == [b"3\r\ntwo\r\n", b"0\r\n\r\n"]
        assert Read(transport.written).complete

    run_virtual(main())


def test_a_client_of_http_1_0_reads_to_the_end_of_the_connection() -> None:
    async def act(send: Send) -> None:
        await send(START)
        await send(body(b"one", more=True))
        await send(body(b"two"))

    async def main() -> None:
        transport = await answered(act, "GET / HTTP/1.0")
        head, _, rest = transport.written.partition(b"\r\n\r\n")
        assert rest == b"onetwo"
        assert b"transfer-encoding" not in head
        assert b"\r\nconnection: close" in head
        assert transport.hung_up

    run_virtual(main())


@pytest.mark.parametrize(("request_head", "status"), [("HEAD / HTTP/1.1", 200), ("GET / HTTP/1.1", 204)])
def test_some_answers_have_no_body(request_head: str, status: int) -> None:
    async def act(send: Send) -> None:
        await send(sized(2, status) if status == 200 else {**START, "status": status})
        await send(body(b"hi" if status == 200 else b""))

    async def main() -> None:
        written = (await answered(act, request_head)).written
        assert written.endswith(b"\r\n\r\n")
        assert written.startswith(b"HTTP/1.1 %d " % status)
        assert b"transfer-encoding" not in written

    run_virtual(main())


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b=c", b"a\nb", b"a\rb"])
def test_no_header_holds_a_line_break(value: bytes) -> None:
    async def act(send: Send) -> None:
        with pytest.raises(RuntimeError, match="line break"):
            await send({**START, "headers": [(b"x-a", value)]})

    async def main() -> None:
        assert b"set-cookie" not in (await answered(act)).written

    run_virtual(main())


@pytest.mark.parametrize("messages", [[START, START], [sized(0), body(b""), body(b"more")]])
def test_what_a_server_must_not_do(messages: list[dict[str, Any]]) -> None:
    async def act(send: Send) -> None:
        for message in messages[:-1]:
            await send(message)
        with pytest.raises(RuntimeError, match="already"):
            await send(messages[-1])

    async def main() -> None:
        await answered(act)

    run_virtual(main())
