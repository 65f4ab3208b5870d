"""Clients that leave a response unread, in virtual time."""

import asyncio
from collections.abc import Callable

from tests.cases import each_case
from tests.serving.test_connection import echoes, opened, post

from splitsecond.core.serving.connection import KEEP_ALIVE_S, ServerConnection
from splitsecond.core.serving.slow_reader import MIN_READ_BYTES, UNREAD_S
from splitsecond.testing.virtual_time import run_virtual

Act = Callable[[ServerConnection], None]


def keeps_alive(connection: ServerConnection) -> None:
    connection.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")


def closes(connection: ServerConnection) -> None:
    connection.data_received(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")


def is_refused(connection: ServerConnection) -> None:
    connection.data_received(b"GET / HTTP/1.1\r\n\r\n")


def leaves(connection: ServerConnection) -> None:
    keeps_alive(connection)
    connection.eof_received()


@each_case("act", [keeps_alive, closes, is_refused, leaves])
@each_case("unread", [1_000, 4 << 20])
def test_a_client_that_does_not_read_is_disconnected(act: Act, unread: int) -> None:
    async def main() -> None:
        connection, transport = await opened()
        transport.unread = unread
        act(connection)
        await asyncio.sleep(1)
        if unread > 65_536 and not transport.closed:
            connection.pause_writing()
        await asyncio.sleep(KEEP_ALIVE_S + UNREAD_S + 1)
        assert transport.aborted
        assert connection not in connection.state.connections

    run_virtual(main())


def test_a_slow_client_stays_connected_while_it_reads_enough() -> None:
    async def main() -> None:
        connection, transport = await opened()
        transport.unread = 10 * MIN_READ_BYTES
        closes(connection)
        await asyncio.sleep(1)
        connection.pause_writing()
        for _ in range(9):
            transport.unread -= MIN_READ_BYTES
            await asyncio.sleep(UNREAD_S)
            assert not transport.aborted
        transport.unread += 1
        await asyncio.sleep(UNREAD_S)
        assert transport.aborted

    run_virtual(main())


def test_a_client_that_has_read_everything_stays_connected() -> None:
    async def main() -> None:
        connection, transport = await opened(echoes)
        connection.data_received(post("/a", b""))
        transport.unread = 4 << 20
        connection.pause_writing()
        await asyncio.sleep(UNREAD_S - 1)
        transport.unread = 0
        connection.resume_writing()
        await asyncio.sleep(2)
        assert not transport.closed
        connection.connection_lost(None)

    run_virtual(main())
