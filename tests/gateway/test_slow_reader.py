"""A client that does not read its answer, over real sockets: its connection is aborted, and its
provider's too."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvloop
from tests.gateway.visitor import OneRoute, serving

from splitsecond.core.events import Event
from splitsecond.core.service import Call, Reply, ReplyBase
from splitsecond.core.serving import slow_reader
from splitsecond.core.serving.connection import HEAD_S, ServerConnection
from splitsecond.core.serving.request_cycle import RequestCycle, ServerState
from splitsecond.log.store.call_record import CallRecord
from splitsecond.routing.router.call_tracker import CallTracker

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % (b"x" * 60_000)
REQUEST = b'{"model":"fast","stream":true}'
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: "
    b"application/json\r\ncontent-length: %d\r\n\r\n"
)
ANSWER = b"x" * (16 << 20)
TIMEOUT_S = 60.0


class Endless(ReplyBase):
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

    async def __anext__(self) -> Event:
        raise StopAsyncIteration


async def _rest(client: socket.socket) -> bytes:
    """The last of what the client can still read."""
    last = b""
    try:
        while data := await asyncio.get_running_loop().sock_recv(client, 1 << 20):
            last = data
    except ConnectionResetError:
        pass  # it depends on what was left in the kernel
    return last


@contextlib.asynccontextmanager
async def _served(app: Any) -> AsyncIterator[tuple[ServerState, socket.socket]]:
    """Serve `app` to a client with a small buffer."""
    state = ServerState(first_request_s=HEAD_S)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ServerConnection(app, state), "127.0.0.1", 0)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await loop.sock_connect(client, server.sockets[0].getsockname())
        yield state, client
    server.close()
    for each in list(state.connections):
        each.transport.abort()


@pytest.mark.parametrize("headers", [b"", b"connection: close\r\n"])
@pytest.mark.parametrize("leaves", [False, True])
def test_client_that_stops_reading_a_response_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, headers: bytes, leaves: bool
) -> None:
    monkeypatch.setattr(slow_reader, "UNREAD_S", 0.2)
    answered = asyncio.Event()

    async def answers(cycle: RequestCycle) -> None:
        await cycle.answer(200, ANSWER)
        answered.set()

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), _served(answers) as (state, client):
            await asyncio.get_running_loop().sock_sendall(
                client, b"GET / HTTP/1.1\r\nhost: x\r\n%b\r\n" % headers
            )
            await answered.wait()
            if leaves:
                client.shutdown(socket.SHUT_WR)
            while state.connections:  # noqa: ASYNC110 # there is no event for it
                await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_client_that_stops_reading_a_stream_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(slow_reader, "UNREAD_S", 0.2)
    records: list[CallRecord] = []

    async def main() -> bytes:
        service, recorded = Endless(), asyncio.Event()

        def keep(record: CallRecord) -> None:
            records.append(record)
            recorded.set()

        routes: Any = OneRoute(service)
        async with (
            asyncio.timeout(TIMEOUT_S),
            _served(serving(routes, tracker=CallTracker(keep))) as (_, client),
        ):
            await asyncio.get_running_loop().sock_sendall(client, HEAD % len(REQUEST) + REQUEST)
            await service.closed.wait()
            await recorded.wait()
            return await _rest(client)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        last = runner.run(main())
    (record,) = records
    assert not last.endswith(b"0\r\n\r\n")  # the end of a stream that is whole
    assert (record.status, record.outcome) == (499, "cancelled")
    assert caplog.text == ""
