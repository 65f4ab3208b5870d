"""A relay between the clients and the gateway that notes what the gateway answers, whatever a
client makes of it."""

import asyncio
import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

CELL = re.compile(
    rb"\b(?:to|slow|fails)-(openai|responses|anthropic|gemini|ollama|cohere)(?:/|%2F)m-([a-z0-9-]+)"
)
"""The model's name, which names the target's API format and the feature."""
_LEFT_OUT = re.compile(rb"x-splitsecond-dropped: ([^\r]*)\r", re.IGNORECASE)
_ESTIMATED = re.compile(rb"x-splitsecond-estimated: [^\r]*message_start", re.IGNORECASE)
MAX_KEPT_BYTES = 20_000
REST_OF_REQUEST_S = 0.05


@dataclass
class Exchange:
    """What the gateway answered to the requests of one cell: raw bytes, and the fields that it left
    out.

    `estimated`: a stream begins with an estimate of the input tokens.
    """

    response: bytearray = field(default_factory=bytearray)
    left_out: str = ""
    estimated: bool = False


class Relay:
    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self.exchanges: dict[tuple[str, str], Exchange] = defaultdict(Exchange)
        """By target and feature."""
        self.address = ""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(self._host, self._port)
        current = Exchange()
        request = bytearray()

        async def forward() -> None:
            nonlocal current
            while data := await reader.read(65536):
                request.extend(data)
                if found := CELL.search(request):
                    current = self.exchanges[found[1].decode(), found[2].decode()]
                    request.clear()
                up_writer.write(data)
                await up_writer.drain()

        async def back() -> None:
            while data := await up_reader.read(65536):
                if request:  # refused before its body, which names the cell, has come
                    await asyncio.sleep(REST_OF_REQUEST_S)
                request.clear()
                if len(current.response) < MAX_KEPT_BYTES:
                    current.response.extend(data)
                if left_out := _LEFT_OUT.search(data):
                    current.left_out = left_out[1].decode("latin-1")
                current.estimated = current.estimated or _ESTIMATED.search(data) is not None
                writer.write(data)
                await writer.drain()

        tasks = [asyncio.create_task(forward()), asyncio.create_task(back())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in (writer, up_writer):
            each.close()


@contextmanager
def relaying(host: str, port: int) -> Iterator[Relay]:
    """Run a relay to `host` and `port` in a thread."""
    relay = Relay(host, port)
    loop = asyncio.new_event_loop()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(relay, "127.0.0.1", 0)

    server = loop.run_until_complete(start())
    relay.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
