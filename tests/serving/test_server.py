"""A server on real sockets: what it sends at once, how it shuts down, and what a second call to
`end` does."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from splitsecond.core.serving.connection import ServerConnection
from splitsecond.core.serving.request_cycle import RequestCycle
from splitsecond.core.serving.server import HttpServer, Listener

TIMEOUT_S = 60.0
REQUEST = b"GET /%s HTTP/1.1\r\nhost: x\r\n\r\n"


class Running:
    """A running server of one application, and a client of it."""

    def __init__(self, drain_s: float = TIMEOUT_S) -> None:
        self.made: list[ServerConnection] = []
        self.ends = 0
        self.go_on = asyncio.Event()
        self.began = asyncio.Event()
        self.cancelled = False
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = self.listening.getsockname()
        listener = Listener(self.listening, self.application, self.made.append)
        self.server = HttpServer([listener], drain_s=drain_s, on_end=self.on_end)

    def on_end(self) -> None:
        self.ends += 1

    async def application(self, cycle: RequestCycle) -> None:
        self.began.set()
        try:
            if cycle.path == "/slow":
                await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        await cycle.answer(200, b"{}")


def run(
    play: Callable[[Running], Coroutine[Any, Any, None]], drain_s: float = TIMEOUT_S
) -> Running:
    """Run `play` with a server that accepts connections, and wait for the end of the server."""

    async def main() -> Running:
        running = Running(drain_s)
        async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
            ready = asyncio.Event()
            tasks.create_task(running.server.serve(ready.set))
            await ready.wait()
            await play(running)
        return running

    return asyncio.run(main())


def test_accepted_sockets_have_tcp_nodelay() -> None:
    delays: list[int] = []

    async def play(running: Running) -> None:
        reader, writer = await asyncio.open_connection(*running.address)
        writer.write(REQUEST % b"")
        assert b" 200 " in await reader.readline()
        accepted = running.made[0].transport.get_extra_info("socket")
        delays.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()
        running.server.end()

    run(play)
    assert delays == [1]


def test_first_end_closes_idle_connections_and_drains_the_rest() -> None:
    async def play(running: Running) -> None:
        idle, idle_writer = await asyncio.open_connection(*running.address)
        reader, writer = await asyncio.open_connection(*running.address)
        writer.write(REQUEST % b"slow")
        await running.began.wait()
        running.server.end()
        assert await idle.read() == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*running.address)
        running.go_on.set()
        response = await reader.read()
        assert response.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nconnection: close\r\n" in response
        writer.close()
        idle_writer.close()

    running = run(play)
    assert (running.ends, running.cancelled) == (1, False)


@pytest.mark.parametrize(("calls", "drain_s"), [(2, TIMEOUT_S), (1, 0.0)])
def test_second_end_or_a_late_response_cancels_requests(
    calls: int, drain_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(running: Running) -> None:
        reader, writer = await asyncio.open_connection(*running.address)
        writer.write(REQUEST % b"slow")
        await running.began.wait()
        for _ in range(calls):
            running.server.end()
        assert b" 503 " in await reader.readline()
        writer.close()

    running = run(play, drain_s)
    assert (running.ends, running.cancelled) == (calls, True)
    assert caplog.text == ""
