"""A simulated provider in virtual time, behind a connection with a fake transport."""

import asyncio
import socket
import struct
from typing import Any

import httptools
import msgspec
from tests.serving.fake_client import Transport, connected

from splitsecond.core import clock
from splitsecond.core.pacing import Pacer
from splitsecond.core.serving.connection import ServerConnection
from splitsecond.core.serving.request_cycle import Application
from splitsecond.simulator.app import SimulatedProvider
from splitsecond.simulator.profile import Profile
from splitsecond.simulator.truth import TruthLog, TruthRecord


class Exchange:
    """One request and its response, with times of the virtual clock.

    `written`: when each part of the body was written. `how`: how the server ended the connection.
    `reads`: the client reads the response.
    """

    def __init__(self, *, reads: bool = True) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.head_ns = 0
        self.written: list[tuple[int, bytes]] = []
        self.finished = False
        self.transport = Wire(self, reads=reads)
        self.parser = httptools.HttpResponseParser(self)
        self.connection: ServerConnection | None = None

    @property
    def how(self) -> str:
        return self.transport.how

    def leave(self) -> None:
        """Disconnect."""
        if self.connection is not None:
            self.connection.connection_lost(None)
            self.connection = None

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name] = value

    def on_headers_complete(self) -> None:
        self.status, self.head_ns = self.parser.get_status_code(), clock.now_ns()

    def on_body(self, data: bytes) -> None:
        self.written.append((clock.now_ns(), data))

    def on_message_complete(self) -> None:
        self.finished = True

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.written)

    @property
    def events(self) -> list[bytes]:
        return [event.removeprefix(b"data: ") for event in self.body.split(b"\n\n") if event]

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def text(self) -> str:
        """The text of a stream: the content of all events that are JSON and have one."""
        return "".join(
            msgspec.json.decode(event)["choices"][0]["delta"].get("content", "")
            for event in self.events
            if b'"delta"' in event and event.endswith(b"}")
        )


class Wire(Transport):
    """The transport of an exchange, whose socket takes SO_LINGER, by which a connection is
    reset."""

    def __init__(self, exchange: Exchange, *, reads: bool) -> None:
        super().__init__()
        self.how = ""
        self.unread = 0 if reads else 1 << 30
        self._exchange = exchange

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self if name == "socket" else super().get_extra_info(name, default)

    def fileno(self) -> int:
        return -1

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        assert (level, option, value) == (
            socket.SOL_SOCKET,
            socket.SO_LINGER,
            struct.pack("ii", 1, 0),
        )
        self.how = "reset"

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        self._exchange.parser.feed_data(data)

    def close(self) -> None:
        self.how = self.how or "closed"
        super().close()


class Client:
    """Sends requests to one simulated provider."""

    def __init__(self, profile: Profile, *, seed: int = 0) -> None:
        self.pacer = Pacer(asyncio.get_running_loop())
        self._records = TruthLog()
        self.provider = SimulatedProvider(profile, seed=seed, pacer=self.pacer, truth=self._records)
        self.application: Application = self.provider

    async def send(
        self,
        exchange: Exchange | None = None,
        *,
        method: str = "POST",
        path: str = "/v1/chat/completions",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
        **fields: Any,
    ) -> Exchange:
        """Send a request; `fields` are added to the model and the message of its JSON body."""
        exchange = exchange or Exchange()
        asked = {
            "model": self.provider.profile.model,
            "messages": [{"role": "user", "content": "hello"}],
            **fields,
        }
        data = msgspec.json.encode(asked) if body is None else body
        lines = {"host": "localhost", "content-length": str(len(data)), **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        connection = exchange.connection = connected(self.application, exchange.transport)
        connection.data_received(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + data)
        tasks = list(connection.state.tasks)
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise
        finally:
            exchange.leave()
        return exchange

    def truth(self) -> list[TruthRecord]:
        """Return the records so far."""
        return self._records.records()
