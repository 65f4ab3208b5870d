"""Bounds on a request's head: the connection, fed by hand, in virtual time."""

import asyncio

import pytest
from tests.garbage import garbage
from tests.gateway.visitor import Transport, connected

from splitsecond.gateway.connection import HEAD_S, MAX_HEAD_BYTES, Connection
from splitsecond.gateway.visit import Application, Visit
from splitsecond.testing.virtual_time import run_virtual

MOST_BYTES = 1 << 20


async def answers(visit: Visit) -> None:
    await visit.body(MOST_BYTES)
    await visit.answer(200, b"")


async def opened(app: Application = answers) -> tuple[Connection, Transport]:
    transport = Transport()
    return connected(app, transport), transport


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nhost: x\r\n"])
def test_a_head_that_does_not_come_closes_the_connection(begun: bytes) -> None:
    async def main() -> None:
        connection, transport = await opened()
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
        connection, transport = await opened()
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
        connection, transport = await opened()
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


async def echoes(visit: Visit) -> None:
    """Answers with the path and the body, after a moment."""
    body = await visit.body(MOST_BYTES)
    await asyncio.sleep(1)
    await visit.answer(200, visit.path.encode() + b"?" + visit.query + b" " + body)


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: x", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@pytest.mark.parametrize("size", [1, 30, 1000])
def test_requests_that_come_before_the_answer_are_answered_in_order(size: int) -> None:
    async def main() -> None:
        connection, transport = await opened(echoes)
        requests = post("/a%20b?c=d", b"one") + post("/e", b"") + post("/f", b"three")
        for at in range(0, len(requests), size):
            connection.data_received(requests[at : at + size])
        await asyncio.sleep(5)
        bodies = [part.partition(b"\r\n\r\n")[2] for part in transport.written.split(b"HTTP/1.1 200 OK")[1:]]
        assert bodies == [b"/a b?c=d one", b"/e? ", b"/f? three"]
        assert not transport.closed
        connection.connection_lost(None)

    run_virtual(main())


def test_a_client_that_waits_for_a_word_gets_it_before_its_body_is_there() -> None:
    async def main() -> None:
        connection, transport = await opened(echoes)
        request = post("/a", b"one", "expect: 100-continue")
        connection.data_received(request[:-3])
        await asyncio.sleep(2)
        assert transport.written == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.data_received(request[-3:])
        await asyncio.sleep(2)
        assert transport.written.endswith(b"/a? one")
        connection.connection_lost(None)

    run_virtual(main())


WISHES = ["connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQAoAAAAAIAAAAA"]
CHUNKED = "\r\n".join(["POST /c HTTP/1.1", "host: x", "transfer-encoding: chunked", *WISHES, "", ""]).encode()
WEBSOCKET = b"GET /w HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"


@pytest.mark.parametrize("size", [1, 7, 150, 10_000])
def test_a_client_that_would_rather_speak_something_else_is_answered_to_its_body(size: int) -> None:
    async def main() -> None:
        connection, transport = await opened(echoes)
        chunked = CHUNKED + b"3\r\ntwo\r\n5\r\n more\r\n0\r\n\r\n"
        requests = [post("/a", b"one", *WISHES), chunked, WEBSOCKET, post("/b", b"", *WISHES), post("/d", b"last")] * 2
        sent = b"".join(requests)
        for at in range(0, len(sent), size):
            connection.data_received(sent[at : at + size])
        await asyncio.sleep(11)
        bodies = [part.partition(b"\r\n\r\n")[2] for part in transport.written.split(b"HTTP/1.1 200 OK")[1:]]
        assert bodies == [b"/a? one", b"/c? two more", b"/w? ", b"/b? ", b"/d? last"] * 2
        assert not transport.closed
        connection.connection_lost(None)

    run_virtual(main())


@pytest.mark.parametrize("body", [b"x\r\n", b"3\r\nfour\r\n", b"3\r\none\r\n0\r\n\r\n\x16\x03\x01\r\n"])
def test_a_wrong_body_of_such_a_client_is_refused_as_of_any(body: bytes) -> None:
    async def main() -> None:
        connection, transport = await opened(echoes)
        connection.data_received(CHUNKED + body)
        assert transport.written.startswith(b"HTTP/1.1 400 ")
        assert transport.closed
        connection.connection_lost(None)
        await asyncio.sleep(2)

    run_virtual(main())


def test_a_connection_is_kept_while_it_is_used_and_closed_when_it_is_idle() -> None:
    async def main() -> None:
        connection, transport = await opened(echoes)
        keep_s = connection.timeout_keep_alive
        for _ in range(3):
            connection.data_received(post("/a", b""))
            await asyncio.sleep(1 + keep_s - 0.5)
            assert not transport.closed
        await asyncio.sleep(1)
        assert transport.closed
        assert transport.written.count(b"HTTP/1.1 200 ") == 3
        connection.connection_lost(None)

    run_virtual(main())


@pytest.mark.parametrize("request_line", [b"GET", b"GET / HTTP/1.1 x", b"GET http://[ HTTP/1.1", b"\x16\x03\x01\x02"])
def test_what_is_no_request_is_refused(request_line: bytes) -> None:
    async def main() -> None:
        connection, transport = await opened(echoes)
        connection.data_received(request_line + b"\r\nhost: x\r\n\r\n")
        assert transport.written.startswith(b"HTTP/1.1 400 ")
        assert transport.closed
        connection.connection_lost(None)

    run_virtual(main())


def test_a_connection_that_is_lost_leaves_no_garbage() -> None:
    async def lives_and_ends(left: bytes) -> None:
        connection, transport = await opened()
        connection.data_received(post("/a", b"one"))
        await asyncio.sleep(1)
        assert transport.written.startswith(b"HTTP/1.1 200 ")
        connection.data_received(left)
        connection.connection_lost(None)
        await asyncio.sleep(1)

    async def main() -> None:
        with garbage() as found:
            for left in (b"", post("/a", b"two"), post("/a", b"two") * 2, post("/a", b"two", *WISHES)[:-1]):
                await lives_and_ends(left)
        assert {name: count for name, count in found.items() if name.startswith("splitsecond")} == {}

    run_virtual(main())
