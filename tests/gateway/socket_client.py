"""A client of Responses over a WebSocket, without sockets: `websockets` on its side, in virtual time."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from tests.gateway.visitor import head
from tests.serving.fake_client import ReceivedResponse, Transport, connected
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from splitsecond.gateway.app import Gateway

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
HANDSHAKE = {
    "host": "127.0.0.1:8800",
    "connection": "keep-alive, Upgrade",
    "upgrade": "websocket",
    "sec-websocket-key": KEY,
    "sec-websocket-version": "13",
}


class SocketClient:
    """A WebSocket to `gateway`. `frames`: what has come; `events`: the messages among it."""

    def __init__(self, gateway: Gateway, path: str = "/v1/responses", headers: Mapping[str, str] | None = None) -> None:
        self.transport = Transport()
        self.connection = connected(gateway, self.transport)
        self.protocol = ClientProtocol(parse_uri("ws://x"), state=State.OPEN)
        self.frames: list[Frame] = []
        self.events: list[Any] = []
        self._read = 0
        self.connection.data_received(head("GET", path, HANDSHAKE | dict(headers or {})))

    async def opened(self) -> "SocketClient":
        """Return this client after the handshake, which must succeed."""
        await asyncio.sleep(0.1)
        answer, end, _ = self.transport.written.partition(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 101 "), answer
        assert b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in answer
        assert b"connection: close" not in answer
        self._read = len(answer + end)
        return self

    @property
    def refusal(self) -> ReceivedResponse:
        """The answer to a handshake that failed."""
        return ReceivedResponse(self.transport.written)

    def sends(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.connection.data_received(data)

    def says(self, message: Any) -> None:
        """Send a message."""
        self.protocol.send_text(message if isinstance(message, bytes) else json.dumps(message).encode())
        self.flush()

    def flush(self) -> None:
        """Send what the protocol has to say."""
        for data in self.protocol.data_to_send():
            if data and not self.transport.closed:
                self.connection.data_received(data)

    async def hears(self, seconds: float = 5) -> list[Any]:
        """Return the events of the next `seconds`."""
        before = len(self.events)
        await asyncio.sleep(seconds)
        self.reads()
        return self.events[before:]

    def reads(self) -> None:
        """Read what has been written."""
        data = self.transport.written[self._read :]
        self._read += len(data)
        self.protocol.receive_data(data)
        for frame in self.protocol.events_received():
            assert isinstance(frame, Frame)
            self.frames.append(frame)
            if frame.opcode is Opcode.TEXT:
                self.events.append(json.loads(bytes(frame.data)))
        self.flush()

    async def asks(self, seconds: float = 5, **fields: Any) -> list[Any]:
        """Request a response, and return its events."""
        self.says({"type": "response.create", "model": "fast", "input": "hi", **fields})
        return await self.hears(seconds)

    @property
    def close_code(self) -> int | None:
        """The code with which the server has closed the WebSocket; None if it has not."""
        self.reads()
        return None if self.protocol.close_rcvd is None else int(self.protocol.close_rcvd.code)

    async def leaves(self) -> None:
        """Disconnect, and wait until the gateway is done."""
        self.connection.connection_lost(None)
        await asyncio.sleep(0.1)
        assert not self.connection.state.tasks
        assert not self.connection.state.connections
