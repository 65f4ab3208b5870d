"""A client of the gateway without sockets: its connection is fed by hand, in virtual time."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from tests.serving.fake_client import ReceivedResponse, Transport, connected

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Service
from splitsecond.core.serving.connection import ServerConnection
from splitsecond.gateway.http.app import Gateway
from splitsecond.routing.construction.expression import Expression, TargetName
from splitsecond.routing.router.routing_preferences import RoutingPreferences
from splitsecond.routing.router.settings import ClientKey


class OneRoute:
    """Fake of `Routes` with a single model, "fast"."""

    takes_credentials = False

    def __init__(self, service: Service) -> None:
        self._service = service

    def names(self, key: ClientKey | None) -> list[str]:
        return ["fast"]

    def serving_name(self, model: str, vendor: str, *, subscribed: bool = False) -> str:
        return model

    def service(
        self,
        model: str,
        key: ClientKey | None = None,
        preferences: RoutingPreferences | None = None,
    ) -> Service:
        if model not in ("fast", "fake/model"):
            raise CallerFault("no such model", kind="model_not_found", status=404)
        return self._service

    def expression(self, model: str) -> Expression:
        return TargetName("fake/model")

    def context_tokens(self, model: str) -> int | None:
        return 32_000


def head(method: str, path: str, headers: Mapping[str, str]) -> bytes:
    """Return the request line and headers of a request."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()


class Visitor:
    """A client that sends one request, on a connection of its own."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.transport = Transport()
        self.connection: ServerConnection | None = None

    @property
    def answer(self) -> ReceivedResponse:
        return ReceivedResponse(self.transport.written)

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
        """The times at which the pieces of the response were sent."""
        return self.transport.times

    def connect(self) -> ServerConnection:
        self.connection = connected(self.gateway, self.transport)
        return self.connection

    def leave(self) -> None:
        """Disconnect."""
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
        """Send a request, and disconnect when the gateway has answered it."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        size = -(-len(data) // parts) or 1
        given = {
            "host": "127.0.0.1:8800",
            "content-type": "application/json",
            "content-length": str(len(data)),
        }
        connection = self.connect()
        connection.data_received(head(method, path, given | dict(headers or {})))
        for at in range(0, len(data), size):
            connection.data_received(data[at : at + size])
            await asyncio.sleep(0)
        while connection.state.tasks:
            await asyncio.wait(connection.state.tasks)
        self.leave()
        return self


def visitor(service: Service, *keys: ClientKey, **settings: Any) -> Visitor:
    """A client of a gateway with the one route "fast"."""
    routes: Any = OneRoute(service)
    return visits(serving(routes, keys, **settings))


PARTS = ("tracker", "metrics", "dashboard", "owners", "sessions", "conversations", "access_log")


def serving(routes: Any, keys: tuple[ClientKey, ...] = (), **settings: Any) -> Gateway:
    """A gateway with these parts and settings."""
    gateway = Gateway(**{name: settings.pop(name) for name in PARTS if name in settings})
    gateway.use(routes, keys, **settings)
    return gateway


def visits(gateway: Gateway) -> Visitor:
    """A client of `gateway`, before its request."""
    return Visitor(gateway)


CHAT = {"model": "fast", "messages": [{"role": "user", "content": "hi"}]}
STREAM = CHAT | {"stream": True}
