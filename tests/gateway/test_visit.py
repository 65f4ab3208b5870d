"""The way out: head and body in one write, in the form that the client's version of HTTP takes."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.gateway.visitor import Answer, Transport, connected

from splitsecond.gateway.visit import Visit
from splitsecond.testing.virtual_time import run_virtual

Act = Callable[[Visit], Awaitable[None]]
A = [(b"x-a", b"b")]


class Until(Transport):
    """That of a client which leaves after the answer. `hung_up`: we closed it before."""

    hung_up = False


async def answered(act: Act, head: str = "GET / HTTP/1.1") -> Until:
    async def app(visit: Visit) -> None:
        await act(visit)

    transport = Until()
    connection = connected(app, transport)
    connection.data_received(f"{head}\r\nhost: x\r\n\r\n".encode())
    await asyncio.wait(connection.tasks)
    transport.hung_up = transport.closed
    connection.connection_lost(None)
    return transport


async def streams(visit: Visit) -> None:
    visit.begin_stream(A)
    for part in (b"one", b"", b"two"):
        await visit.send(part)
    await visit.send(b"", last=True)


async def says_hi(visit: Visit) -> None:
    await visit.answer(200, b"hi", A)


def test_a_whole_answer_is_one_write() -> None:
    async def main() -> None:
        transport = await answered(says_hi)
        (data,) = transport.writes
        answer = Answer(data)
        assert (answer.status, answer.body, answer.complete) == (200, b"hi", True)
        assert (answer.headers["date"], answer.headers["x-a"]) == ("today", "b")
        assert not transport.hung_up

    run_virtual(main())


@pytest.mark.parametrize("status", [200, 404, 498, 529, 599])
def test_a_status_that_http_does_not_list_is_told_all_the_same(status: int) -> None:
    async def refuses(visit: Visit) -> None:
        await visit.answer(status, b"{}", A)

    async def main() -> None:
        answer = Answer((await answered(refuses)).written)
        assert (answer.status, answer.body, answer.complete) == (status, b"{}", True)

    run_virtual(main())


def test_a_stream_is_one_write_for_each_part_and_its_head_goes_with_the_first() -> None:
    async def main() -> None:
        transport = await answered(streams)
        assert len(transport.writes) == 3
        answer = Answer(transport.writes[0])
        assert (answer.headers["transfer-encoding"], answer.headers["x-a"]) == ("chunked", "b")
        assert (answer.body, answer.complete) == (b"one", False)
        assert transport.writes[1:] == [b"3\r\ntwo\r\n", b"0\r\n\r\n"]
        assert Answer(transport.written).complete

    run_virtual(main())


def test_a_client_of_http_1_0_reads_to_the_end_of_the_connection() -> None:
    async def main() -> None:
        transport = await answered(streams, "GET / HTTP/1.0")
        head, _, rest = transport.written.partition(b"\r\n\r\n")
        assert rest == b"onetwo"
        assert b"transfer-encoding" not in head
        assert b"\r\nconnection: close" in head
        assert transport.hung_up

    run_virtual(main())


@pytest.mark.parametrize(("request_head", "status"), [("HEAD / HTTP/1.1", 200), ("GET / HTTP/1.1", 204)])
def test_some_answers_have_no_body(request_head: str, status: int) -> None:
    async def act(visit: Visit) -> None:
        await visit.answer(status, b"hi" if status == 200 else b"")

    async def main() -> None:
        written = (await answered(act, request_head)).written
        assert written.endswith(b"\r\n\r\n")
        assert written.startswith(b"HTTP/1.1 %d " % status)
        assert (b"content-length: 2" in written) is (status == 200)
        assert b"transfer-encoding" not in written

    run_virtual(main())


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b=c", b"a\nb", b"a\rb"])
def test_no_header_holds_a_line_break(value: bytes) -> None:
    async def act(visit: Visit) -> None:
        with pytest.raises(RuntimeError, match="line break"):
            await visit.answer(200, b"", [(b"x-a", value)])

    async def main() -> None:
        written = (await answered(act)).written
        assert b"set-cookie" not in written
        assert written.startswith(b"HTTP/1.1 500 ")

    run_virtual(main())


async def nothing(visit: Visit) -> None:
    """Says nothing."""


@pytest.mark.parametrize(("first", "then"), [(says_hi, says_hi), (streams, says_hi), (says_hi, streams)])
def test_nothing_is_answered_twice(first: Act, then: Act) -> None:
    async def act(visit: Visit) -> None:
        await first(visit)
        with pytest.raises(RuntimeError, match="already"):
            await then(visit)
        with pytest.raises(RuntimeError, match="already"):
            await visit.send(b"more")

    async def main() -> None:
        once, twice = await answered(first), await answered(act)
        assert twice.written == once.written

    run_virtual(main())


async def breaks(visit: Visit) -> None:
    raise ZeroDivisionError


async def breaks_off(visit: Visit) -> None:
    visit.begin_stream(A)
    await visit.send(b"one")
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("act", "status", "body", "complete"),
    [(nothing, 500, b"Internal Server Error", True), (breaks, 500, b"Internal Server Error", True),
     (breaks_off, 200, b"one", False)],
)  # fmt: skip
def test_where_a_bug_is_the_client_is_told_or_hung_up_on(act: Act, status: int, body: bytes, complete: bool) -> None:
    async def main() -> None:
        transport = await answered(act)
        answer = Answer(transport.written)
        assert (answer.status, answer.body, answer.complete) == (status, body, complete)
        assert transport.hung_up

    run_virtual(main())
