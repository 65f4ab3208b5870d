"""A client of the gateway without sockets: its connection is fed by hand, in virtual time."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httptools
import uvicorn
from uvicorn.server import ServerState

from splitsecond import clock
from splitsecond.errors import CallerFault
from splitsecond.gateway.app import Gateway
from splitsecond.gateway.configuration.settings import ClientKey
from splitsecond.gateway.connection import Connection
from splitsecond.gateway.visit import Application
from splitsecond.gateway.wishes import Wishes
from splitsecond.service import Service


class OneRoute:
    """Stands for `Routes`: a single model, "fast"."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def names(self, key: ClientKey | None) -> list[str]:
        return ["fast"]

    def service(self, model: str, key: ClientKey | None, wishes: Wishes | None = None) -> Service:
        if model != "fast":
            raise CallerFault("no such model", kind="model_not_found", status=404)
        return self._service

    def asked_for(self, model: str) -> list[str]:
        return ["fake/model"]


class Transport(asyncio.Transport):
    """Stands for the socket of a client, which comes from `peer`: keeps what is written, and when.

    `closed`: the gateway closed the connection; `aborted`: and threw away what was not sent yet.
    """

    def __init__(self, peer: str = "127.0.0.1") -> None:
        super().__init__({"peername": (peer, 5000)})
        self.writes: list[bytes] = []
        self.times: list[int] = []
        self.closed = False
        self.aborted = False

    @property
    def written(self) -> bytes:
        return b"".join(self.writes)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.writes.append(bytes(data))
        self.times.append(clock.now_ns())

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """Nothing is read anyway."""

    def resume_reading(self) -> None:
        """Nothing is read anyway."""


class Answer:
    """An answer as another parser reads it. `pairs`: its headers; `headers`: the last of each name."""

    def __init__(self, data: bytes) -> None:
        self.body = b""
        self.pairs: list[tuple[str, str]] = []
        self.complete = False
        self.parser = httptools.HttpResponseParser(self)
        self.parser.feed_data(data)
        self.status: int = self.parser.get_status_code()

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.pairs)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.pairs.append((name.decode().lower(), value.decode()))

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.complete = True


def connected(app: Application, transport: Transport) -> Connection:
    """A client's new connection to `app`."""
    given: Any = app
    config = uvicorn.Config(given, lifespan="off", ws="none", log_config=None, interface="asgi3", proxy_headers=False)
    config.load()
    state = ServerState()
    state.default_headers = [(b"date", b"today")]
    connection = Connection(config, state, {})
    connection.connection_made(transport)
    return connection


def head(method: str, path: str, headers: Mapping[str, str]) -> bytes:
    """That of a request."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()


class Visitor:
    """A client that asks once, on a connection of its own."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.transport = Transport()
        self.connection: Connection | None = None

    @property
    def answer(self) -> Answer:
        return Answer(self.transport.written)

    @property
    def status(self) -> int:
        return self.answer.status

    @property
    def headers(self) -> dict[str, str]:
        return self.answer.headers

    @property
    def body(self) -> bytes:
        return self.answer.body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def times(self) -> list[int]:
        """When each piece was sent."""
        return self.transport.times

    def connect(self) -> Connection:
        self.connection = connected(self.gateway, self.transport)
        return self.connection

    def leave(self) -> None:
        """Its connection is lost."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.connection_lost(None)

    async def asks(
        self,
        body: Any = None,
        *,
        path: str = "/v1/chat/completions",
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        parts: int = 1,
    ) -> "Visitor":
        """Send it, and leave when the gateway is done with it."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        size = -(-len(data) // parts) or 1
        given = {"host": "127.0.0.1:8800", "content-type": "application/json", "content-length": str(len(data))}
        connection = self.connect()
        connection.data_received(head(method, path, given | dict(headers or {})))
        for at in range(0, len(data), size):
            connection.data_received(data[at : at + size])
            await asyncio.sleep(0)
        while connection.tasks:
            await asyncio.wait(connection.tasks)
        self.leave()
        return self


def visitor(service: Service, *keys: ClientKey, max_body_bytes: int = 1 << 20, **settings: Any) -> Visitor:
    """A client of a gateway with the one route "fast"."""
    routes: Any = OneRoute(service)
    return visits(Gateway(routes, keys, max_body_bytes=max_body_bytes, **settings))


def visits(gateway: Gateway) -> Visitor:
    """A client of `gateway`, before its request."""
    return Visitor(gateway)


CHAT = {"model": "fast", "messages": [{"role": "user", "content": "hi"}]}
STREAM = CHAT | {"stream": True}
