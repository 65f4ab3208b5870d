"""A client's connection, as the event loop makes it."""

import asyncio
import socket

import uvicorn
from uvicorn.server import ServerState

from splitsecond.simulator.connection import Connection


class Door:
    """The application, as far as a new connection is concerned; it keeps what it is asked."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self.asked = asyncio.Event()

    def refuses_connection(self, port: int) -> bool:
        self.ports.append(port)
        self.asked.set()
        return False


def test_what_is_written_leaves_at_once() -> None:
    async def play() -> tuple[int, list[int], int]:
        door = Door()
        config = uvicorn.Config(door, ws="none", lifespan="off", log_config=None)  # type: ignore[arg-type]
        config.load()
        config.loaded_app = door
        made: list[Connection] = []

        def connection() -> Connection:
            made.append(Connection(config, ServerState(), {}))
            return made[-1]

        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        server = await asyncio.get_running_loop().create_server(connection, sock=listening)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await door.asked.wait()
        accepted = made[0].transport.get_extra_info("socket")
        delay_free = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
        made[0].transport.abort()
        server.close()
        await server.wait_closed()
        return delay_free, door.ports, port

    delay_free, ports, port = asyncio.run(play())
    assert delay_free
    assert ports == [port]
