"""The bytes of a response: headers and body in one write, framed for the client's version of
HTTP."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.serving.fake_client import ReceivedResponse, Transport, connected

from splitsecond.core.serving.request_cycle import ClientLeft, RequestCycle
from splitsecond.testing.virtual_time import run_virtual

Act = Callable[[RequestCycle], Awaitable[None]]
A = [(b"x-a", b"b")]


class Until(Transport):
    """The transport of a client that disconnects after the response. `hung_up`: the server closed
    it before."""

    hung_up = False


async def answered(act: Act, head: str = "GET / HTTP/1.1") -> Until:
    async def app(cycle: RequestCycle) -> None:
        await act(cycle)

    transport = Until()
    connection = connected(app, transport)
    connection.data_received(f"{head}\r\nhost: x\r\n\r\n".encode())
    await asyncio.wait(connection.state.tasks)
    transport.hung_up = transport.closed
    connection.connection_lost(None)
    return transport


async def streams(cycle: RequestCycle) -> None:
    cycle.begin_stream(A)
    for part in (b"one", b"", b"two"):
        await cycle.send(part)
    await cycle.send(b"", last=True)


async def sends_hi(cycle: RequestCycle) -> None:
    await cycle.answer(200, b"hi", A)


def test_a_whole_response_is_one_write() -> None:
    async def main() -> None:
        transport = await answered(sends_hi)
        (data,) = transport.writes
        answer = ReceivedResponse(data)
        assert (answer.status, answer.body, answer.complete) == (200, b"hi", True)
        assert (answer.headers["date"], answer.headers["x-a"]) == ("today", "b")
        assert not transport.hung_up

    run_virtual(main())


@pytest.mark.parametrize("status", [200, 404, 498, 529, 599])
def test_unregistered_status_codes_are_sent(status: int) -> None:
    async def refuses(cycle: RequestCycle) -> None:
        await cycle.answer(status, b"{}", A)

    async def main() -> None:
        answer = ReceivedResponse((await answered(refuses)).written)
        assert (answer.status, answer.body, answer.complete) == (status, b"{}", True)

    run_virtual(main())


def test_stream_parts_are_one_write_each_headers_with_the_first() -> None:
    async def main() -> None:
        transport = await answered(streams)
        assert len(transport.writes) == 3
        answer = ReceivedResponse(transport.writes[0])
        assert (answer.headers["transfer-encoding"], answer.headers["x-a"]) == ("chunked", "b")
        assert (answer.body, answer.complete) == (b"one", False)
        assert transport.writes[1:] == [b"3\r\ntwo\r\n", b"0\r\n\r\n"]
        assert ReceivedResponse(transport.written).complete

    run_virtual(main())


def test_the_end_of_the_connection_ends_a_stream_in_http_1_0() -> None:
    async def main() -> None:
        transport = await answered(streams, "GET / HTTP/1.0")
        head, _, rest = transport.written.partition(b"\r\n\r\n")
        assert rest == b"onetwo"
        assert b"transfer-encoding" not in head
        assert b"\r\nconnection: close" in head
        assert transport.hung_up

    run_virtual(main())


@pytest.mark.parametrize(
    ("request_head", "status"), [("HEAD / HTTP/1.1", 200), ("GET / HTTP/1.1", 204)]
)
def test_responses_to_head_and_204_have_no_body(request_head: str, status: int) -> None:
    async def act(cycle: RequestCycle) -> None:
        await cycle.answer(status, b"hi" if status == 200 else b"")

    async def main() -> None:
        written = (await answered(act, request_head)).written
        assert written.endswith(b"\r\n\r\n")
        assert written.startswith(b"HTTP/1.1 %d " % status)
        assert (b"content-length: 2" in written) is (status == 200)
        assert b"transfer-encoding" not in written

    run_virtual(main())


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b=c", b"a\nb", b"a\rb"])
@pytest.mark.usefixtures("error_counts")
def test_a_header_with_a_line_break_is_an_error(value: bytes) -> None:
    async def act(cycle: RequestCycle) -> None:
        with pytest.raises(RuntimeError, match="line break"):
            await cycle.answer(200, b"", [(b"x-a", value)])

    async def main() -> None:
        written = (await answered(act)).written
        assert b"set-cookie" not in written
        assert written.startswith(b"HTTP/1.1 500 ")

    run_virtual(main())


async def nothing(cycle: RequestCycle) -> None:
    """Return without a response."""


@pytest.mark.parametrize(
    ("first", "then"), [(sends_hi, sends_hi), (streams, sends_hi), (sends_hi, streams)]
)
def test_a_request_cannot_be_answered_twice(first: Act, then: Act) -> None:
    async def act(cycle: RequestCycle) -> None:
        await first(cycle)
        with pytest.raises(RuntimeError, match="already"):
            await then(cycle)
        with pytest.raises(RuntimeError, match="already"):
            await cycle.send(b"more")

    async def main() -> None:
        once, twice = await answered(first), await answered(act)
        assert twice.written == once.written

    run_virtual(main())


async def breaks(cycle: RequestCycle) -> None:
    raise ZeroDivisionError


async def breaks_off(cycle: RequestCycle) -> None:
    cycle.begin_stream(A)
    await cycle.send(b"one")
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("act", "status", "body", "complete"),
    [(nothing, 500, b"Internal Server Error", True), (breaks, 500, b"Internal Server Error", True),
     (breaks_off, 200, b"one", False)],
)  # fmt: skip
@pytest.mark.usefixtures("error_counts")
def test_an_exception_is_status_500_or_closes_the_connection(
    act: Act, status: int, body: bytes, complete: bool
) -> None:
    async def main() -> None:
        transport = await answered(act)
        answer = ReceivedResponse(transport.written)
        assert (answer.status, answer.body, answer.complete) == (status, body, complete)
        assert transport.hung_up

    run_virtual(main())


@pytest.mark.usefixtures("error_counts")
def test_exception_after_a_response_does_not_affect_the_next() -> None:
    async def app(cycle: RequestCycle) -> None:
        if cycle.path == "/fails-late":
            await cycle.answer(200, b"first")
            await asyncio.sleep(1)
            raise ZeroDivisionError
        await asyncio.sleep(2)
        await cycle.answer(200, b"second")

    async def main() -> None:
        transport = Transport()
        connection = connected(app, transport)
        for path in ("/fails-late", "/next"):
            connection.data_received(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        await asyncio.sleep(3)
        assert transport.written.endswith(b"second")
        assert not transport.closed
        connection.connection_lost(None)

    run_virtual(main())


async def is_cancelled(cycle: RequestCycle) -> None:
    cycle._task.cancel()
    await asyncio.sleep(1)


async def cancels_itself(cycle: RequestCycle) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(("act", "status"), [(is_cancelled, 503), (cancels_itself, 500)])
@pytest.mark.usefixtures("error_counts")
def test_request_cancelled_by_the_shutdown_gets_503(act: Act, status: int) -> None:
    async def main() -> None:
        assert ReceivedResponse((await answered(act)).written).status == status

    run_virtual(main())


def test_nothing_more_is_written_once_a_write_has_failed() -> None:
    lost: list[bool] = []

    async def app(cycle: RequestCycle) -> None:
        cycle.begin_stream(())
        cycle.on_lost = lambda: lost.append(True)
        cycle.send_now(b"one")
        # as asyncio's transport does, which calls `connection_lost` in the next iteration
        transport.closed = True
        assert cycle.send_now(b"more") == 0
        with pytest.raises(ClientLeft):
            cycle.send_now(b"still more")
        await asyncio.sleep(1)

    transport = Transport()

    async def main() -> None:
        connection = connected(app, transport)
        connection.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await asyncio.wait(connection.state.tasks)
        connection.connection_lost(None)

    run_virtual(main())
    assert lost == [True]
    assert len(transport.writes) == 1
