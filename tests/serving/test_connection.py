"""Parsing and limits of a connection, in virtual time."""

import asyncio

import pytest
from tests.cases import each_case
from tests.garbage import garbage
from tests.serving.fake_client import Transport, connected

from splitsecond.core.serving.connection import (
    HEAD_S,
    KEEP_ALIVE_S,
    MAX_HEAD_BYTES,
    MAX_PIPELINED,
    ServerConnection,
)
from splitsecond.core.serving.request_cycle import Application, RequestCycle, ServerState
from splitsecond.testing.virtual_time import run_virtual

MAX_BYTES = 1 << 20


async def answers(cycle: RequestCycle) -> None:
    await cycle.body(MAX_BYTES)
    await cycle.answer(200, b"")


async def opened(app: Application = answers) -> tuple[ServerConnection, Transport]:
    transport = Transport()
    return connected(app, transport), transport


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nhost: x\r\n"])
def test_headers_that_do_not_arrive_in_time_close_the_connection(begun: bytes) -> None:
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


def test_first_request_may_have_a_longer_timeout() -> None:
    async def main() -> None:
        transport = Transport()
        connection = ServerConnection(answers, ServerState(first_request_s=2 * HEAD_S))
        connection.connection_made(transport)
        closed = []
        for seconds in (2 * HEAD_S - 1, 2):
            await asyncio.sleep(seconds)
            closed.append(transport.closed)
        assert closed == [False, True]
        connection.connection_lost(None)

    run_virtual(main())


@each_case("size", [1, 100, 100_000])
@each_case("end", [b"", b"\r\n\r\n"])
@each_case("line", [b"x: " + b"a" * 2 * MAX_HEAD_BYTES, b"\r\n".join([b"x: a"] * 101)])
def test_headers_that_are_too_long_are_refused(size: int, end: bytes, line: bytes) -> None:
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


def test_long_body_does_not_count_against_the_header_limit() -> None:
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


async def echoes(cycle: RequestCycle) -> None:
    """Answer with the path and the body, after a second."""
    body = await cycle.body(MAX_BYTES)
    await asyncio.sleep(1)
    await cycle.answer(200, cycle.path.encode() + b"?" + cycle.query + b" " + body)


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: x", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@pytest.mark.parametrize("size", [1, 30, 1000])
def test_pipelined_requests_are_answered_in_order(size: int) -> None:
    async def main() -> None:
        connection, transport = await opened(echoes)
        requests = post("/a%20b?c=d", b"one") + post("/e", b"") + post("/f", b"three")
        for at in range(0, len(requests), size):
            connection.data_received(requests[at : at + size])
        await asyncio.sleep(5)
        bodies = [
            part.partition(b"\r\n\r\n")[2]
            for part in transport.written.split(b"HTTP/1.1 200 OK")[1:]
        ]
        assert bodies == [b"/a b?c=d one", b"/e? ", b"/f? three"]
        assert not transport.closed
        connection.connection_lost(None)

    run_virtual(main())


async def refuses(cycle: RequestCycle) -> None:
    await cycle.answer(401, b"")


@pytest.mark.parametrize("size", [1, 20, 1000])
def test_close_waits_for_the_body_of_a_refused_request(size: int) -> None:
    async def main() -> None:
        connection, transport = await opened(refuses)
        request = post("/a", b"b" * 100, "connection: close")
        connection.data_received(request[:-80])
        await asyncio.sleep(1)
        assert transport.written.startswith(b"HTTP/1.1 401 ")
        # a socket with unread bytes would be reset, and the client lose the response
        assert not transport.closed
        rest = request[-80:] + post("/b", b"")
        for at in range(0, len(rest), size):
            if not transport.is_closing():
                connection.data_received(rest[at : at + size])
        assert transport.is_closing()
        await asyncio.sleep(1)
        assert transport.written.count(b"HTTP/1.1 ") == 1
        connection.connection_lost(None)

    run_virtual(main())


def test_missing_body_after_the_response_is_awaited_briefly() -> None:
    async def main() -> None:
        connection, transport = await opened(refuses)
        connection.data_received(post("/a", b"b" * 100, "connection: close")[:-1])
        await asyncio.sleep(KEEP_ALIVE_S + 1)
        assert transport.closed
        connection.connection_lost(None)

    run_virtual(main())


def test_expect_100_continue_is_answered_before_the_body_arrives() -> None:
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


def test_a_client_of_http_1_0_gets_no_interim_response() -> None:
    async def main() -> None:
        connection, transport = await opened(echoes)
        request = post("/a", b"one", "expect: 100-continue").replace(b"HTTP/1.1", b"HTTP/1.0")
        connection.data_received(request[:-3])
        await asyncio.sleep(2)
        assert transport.written == b""
        connection.data_received(request[-3:])
        await asyncio.sleep(2)
        assert transport.written.startswith(b"HTTP/1.1 200 ")
        connection.connection_lost(None)

    run_virtual(main())


UPGRADE = [
    "connection: upgrade, http2-settings",
    "upgrade: h2c",
    "http2-settings: AAMAAABkAAQAoAAAAAIAAAAA",
]
CHUNKED = "\r\n".join(
    ["POST /c HTTP/1.1", "host: x", "transfer-encoding: chunked", *UPGRADE, "", ""]
).encode()
WEBSOCKET = b"GET /w HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"


@pytest.mark.parametrize("size", [1, 7, 150, 10_000])
def test_an_offered_upgrade_is_ignored_and_the_body_is_read(size: int) -> None:
    async def main() -> None:
        connection, transport = await opened(echoes)
        chunked = CHUNKED + b"3\r\ntwo\r\n5\r\n more\r\n0\r\n\r\n"
        requests = [
            post("/a", b"one", *UPGRADE),
            chunked,
            WEBSOCKET,
            post("/b", b"", *UPGRADE),
            post("/d", b"last"),
        ] * 2
        sent = b"".join(requests)
        for at in range(0, len(sent), size):
            connection.data_received(sent[at : at + size])
        await asyncio.sleep(11)
        bodies = [
            part.partition(b"\r\n\r\n")[2]
            for part in transport.written.split(b"HTTP/1.1 200 OK")[1:]
        ]
        assert bodies == [b"/a? one", b"/c? two more", b"/w? ", b"/b? ", b"/d? last"] * 2
        assert not transport.closed
        connection.connection_lost(None)

    run_virtual(main())


@pytest.mark.parametrize("body", [b"x\r\n", b"3\r\nfour\r\n"])
def test_an_invalid_body_after_an_offered_upgrade_is_refused(body: bytes) -> None:
    async def main() -> None:
        connection, transport = await opened(echoes)
        connection.data_received(CHUNKED + body)
        assert transport.written.startswith(b"HTTP/1.1 400 ")
        assert transport.closed
        connection.connection_lost(None)
        await asyncio.sleep(2)

    run_virtual(main())


def test_idle_connection_closes_after_the_keep_alive_time() -> None:
    async def main() -> None:
        connection, transport = await opened(echoes)
        keep_s = KEEP_ALIVE_S
        for _ in range(3):
            connection.data_received(post("/a", b""))
            await asyncio.sleep(1 + keep_s - 0.5)
            assert not transport.closed
        await asyncio.sleep(1)
        assert transport.closed
        assert transport.written.count(b"HTTP/1.1 200 ") == 3
        connection.connection_lost(None)

    run_virtual(main())


@pytest.mark.parametrize(
    "request_line", [b"GET", b"GET / HTTP/1.1 x", b"GET http://[ HTTP/1.1", b"\x16\x03\x01\x02"]
)
def test_invalid_requests_are_refused(request_line: bytes) -> None:
    async def main() -> None:
        connection, transport = await opened(echoes)
        connection.data_received(request_line + b"\r\nhost: x\r\n\r\n")
        assert transport.written.startswith(b"HTTP/1.1 400 ")
        assert transport.closed
        connection.connection_lost(None)

    run_virtual(main())


def test_a_lost_connection_leaves_no_garbage() -> None:
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
            for left in (
                b"",
                post("/a", b"two"),
                post("/a", b"two") * 2,
                post("/a", b"two", *UPGRADE)[:-1],
            ):
                await lives_and_ends(left)
        assert {
            name: count for name, count in found.items() if name.startswith("splitsecond")
        } == {}

    run_virtual(main())


CHUNKS = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n"


@each_case("size", [100, 1_400, 60_000, 200_000])
@each_case("end", [b"", b"\r\n\r\n"])
@each_case(
    "rest",
    [
        b"0\r\n" + b"a: b\r\n" * 100_000,
        b"0\r\na: " + b"b" * 600_000,
        b"0\r\n" + b"b" * 600_000 + b": a",
    ],
    ids=["many trailers", "a long trailer", "a long name of a trailer"],
)
def test_trailers_that_are_too_long_are_refused(size: int, end: bytes, rest: bytes) -> None:
    async def main() -> None:
        connection, transport = await opened()
        sent = CHUNKS + rest + end
        fed = 0
        for at in range(0, len(sent), size):
            if not transport.closed:
                connection.data_received(sent[at : at + size])
                fed = at + size
        assert transport.closed
        assert transport.written.startswith(b"HTTP/1.1 431 ")
        assert fed <= MAX_HEAD_BYTES + 3 * size
        connection.connection_lost(None)

    run_virtual(main())


def test_a_chunk_extension_that_does_not_end_is_refused() -> None:
    async def main() -> None:
        connection, transport = await opened()
        connection.data_received(CHUNKS + b"1")
        for _ in range(2 * MAX_HEAD_BYTES // 1000):
            if not transport.closed:
                connection.data_received(b";" + b"a" * 999)
        assert transport.written.startswith(b"HTTP/1.1 431 ")
        connection.connection_lost(None)

    run_virtual(main())


def test_a_few_trailers_and_chunk_extensions_are_ignored() -> None:
    async def main() -> None:
        connection, transport = await opened(echoes)
        for _ in range(3):
            connection.data_received(CHUNKS + b"1;x=y\r\nb\r\n0\r\nchecksum: 1\r\n\r\n")
            await asyncio.sleep(2)
        assert transport.written.count(b"/? ab") == 3
        connection.connection_lost(None)

    run_virtual(main())


def test_invalid_body_after_the_response_closes_the_connection() -> None:
    async def answers_at_once(cycle: RequestCycle) -> None:
        await cycle.answer(200, b"")

    async def main() -> None:
        connection, transport = await opened(answers_at_once)
        connection.data_received(CHUNKS)
        await asyncio.sleep(1)
        connection.data_received(b"no chunk\r\n")
        assert transport.closed
        assert transport.written.count(b"HTTP/1.1 ") == 1
        connection.connection_lost(None)

    run_virtual(main())


def test_refusal_does_not_overtake_the_request_before_it() -> None:
    async def main() -> None:
        connection, transport = await opened(echoes)
        connection.data_received(post("/a", b"one") + b"\x16\x03\x01\r\n")
        assert transport.closed
        assert transport.written == b""
        connection.connection_lost(None)

    run_virtual(main())


@each_case(
    "head, status",
    [
        ("GET /", 400),
        ("GET / HTTP/0.9", 400),
        ("GET / HTTP/2.0\r\nhost: x", 400),
        ("GET / HTTP/1.1", 400),
        ("GET / HTTP/1.1\r\nhost: x\r\nHost: x", 400),
        ("GET / HTTP/1.0\r\nhost: x\r\nhost: y", 400),
        ("GET / HTTP/1.0", 200),
        ("GET / HTTP/1.1\r\nhost:", 200),
        ("GET / HTTP/1.1\r\nhost: x\r\na: b\r\na: c", 200),
        ("GET / HTTP/1.1\r\nhost: x\r\na: b\r\n c", 400),
        ("POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked", 501),
        ("POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked, chunked", 400),
        (
            "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\ntransfer-encoding: chunked",
            501,
        ),
        (
            "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: "
            "chunked\r\ntransfer-encoding: chunked",
            400,
        ),
        ("POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip", 501),
        ("POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding:", 400),
        ("POST / HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked", 400),
        ("POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: Chunked", 200),
        ("POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ncontent-length: 5", 400),
        ("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked", 400),
        ("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 5", 400),
        ("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: +5", 400),
    ],
)
def test_ambiguous_headers_are_refused(head: str, status: int) -> None:
    async def main() -> None:
        connection, transport = await opened()
        connection.data_received(
            head.encode() + b"\r\n\r\n" + (b"0\r\n\r\n" if head.startswith("POST") else b"")
        )
        await asyncio.sleep(1)
        assert transport.written.startswith(b"HTTP/1.1 %d " % status)
        assert transport.closed or status == 200
        connection.connection_lost(None)

    run_virtual(main())


def test_the_number_of_pipelined_requests_is_limited() -> None:
    async def main() -> None:
        connection, transport = await opened(echoes)
        connection.data_received(post("/a", b"") * (3 * MAX_PIPELINED))
        assert len(connection.pipeline) == MAX_PIPELINED
        await asyncio.sleep(MAX_PIPELINED + 2)
        assert transport.written.count(b"HTTP/1.1 200 ") == MAX_PIPELINED + 1
        assert transport.written.count(b"HTTP/1.1 ") == MAX_PIPELINED + 1
        assert transport.closed
        connection.connection_lost(None)

    run_virtual(main())


def test_last_response_ends_despite_too_many_pipelined_requests() -> None:
    async def main() -> None:
        connection, transport = await opened(echoes)
        rest = post("/a", b"a" * 300) * (30 * MAX_PIPELINED)
        while not transport.closed:
            if not transport.reading_paused:
                connection.data_received(rest[:MAX_HEAD_BYTES])
                rest = rest[MAX_HEAD_BYTES:]
            await asyncio.sleep(0.1)
        assert transport.written.count(b"HTTP/1.1 200 ") == MAX_PIPELINED + 1
        connection.connection_lost(None)

    run_virtual(main())


def test_all_pipelined_requests_that_offer_upgrades_are_answered() -> None:
    async def main() -> None:
        connection, transport = await opened(echoes)
        connection.data_received(post("/a", b"one", *UPGRADE) * (MAX_PIPELINED + 1))
        await asyncio.sleep(MAX_PIPELINED + 2)
        assert transport.written.count(b"/a? one") == MAX_PIPELINED + 1
        assert not transport.closed
        connection.connection_lost(None)

    run_virtual(main())


def test_reading_pauses_while_pipelined_requests_wait() -> None:
    async def main() -> None:
        connection, transport = await opened(echoes)
        connection.data_received(post("/a", b"") * 3)
        await asyncio.sleep(0.5)
        for paused in (True, True, False, False):
            assert transport.reading_paused is paused
            await asyncio.sleep(1)
        connection.connection_lost(None)

    run_virtual(main())


def test_connection_accepted_during_shutdown_is_closed() -> None:
    """Otherwise it would stay open, and its requests would reach an application that is closed."""

    async def main() -> None:
        async def application(cycle: RequestCycle) -> None:
            raise AssertionError("it must not be asked")

        state = ServerState(first_request_s=5)
        state.ending = True
        transport = Transport()
        ServerConnection(application, state).connection_made(transport)
        assert transport.closed
        assert transport.written == b""

    run_virtual(main())
