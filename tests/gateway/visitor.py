"""A client of the gateway without sockets: the ASGI application is called directly, in virtual time."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from splitsecond import clock
from splitsecond.errors import CallerFault
from splitsecond.gateway.app import Gateway
from splitsecond.gateway.configuration.settings import ClientKey
from splitsecond.gateway.connection import LINE
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


class Line:
    """Stands for the client's connection. `close`: the client leaves. `aborted`: the gateway did."""

    def __init__(self) -> None:
        self.on_lost: Callable[[], None] | None = None
        self.lost = asyncio.Event()
        self.aborted = False

    def close(self) -> None:
        self.lost.set()
        if self.on_lost is not None:
            self.on_lost()

    def abort(self) -> None:
        self.aborted = True
        asyncio.get_running_loop().call_soon(self.close)


def scope(
    line: Line,
    *,
    method: str = "POST",
    path: str = "/v1/chat/completions",
    headers: dict[str, str] | None = None,
    peer: str = "127.0.0.1",
) -> dict[str, Any]:
    """What a server tells of a request."""
    given = {"content-type": "application/json"} | (headers or {})
    pairs = [(name.encode(), value.encode()) for name, value in given.items()]
    return {
        "type": "http",
        "method": method,
        "path": path,
        "headers": pairs,
        "client": (peer, 5000),
        "extensions": {LINE: line},
    }


class Visitor(Struct):
    """One request: what was sent back, and when."""

    gateway: Gateway
    sent: list[dict[str, Any]]
    times: list[int]
    line: Line

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    async def asks(
        self,
        body: Any = None,
        *,
        path: str = "/v1/chat/completions",
        method: str = "POST",
        headers: dict[str, str] | None = None,
        parts: int = 1,
        peer: str = "127.0.0.1",
    ) -> "Visitor":
        """Send it, and return when the gateway is done with it."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        size = -(-len(data) // parts) or 1
        incoming = [data[at : at + size] for at in range(0, len(data), size)] or [b""]

        async def receive() -> dict[str, Any]:
            if incoming:
                return {"type": "http.request", "body": incoming.pop(0), "more_body": bool(incoming)}
            await self.line.lost.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            self.sent.append(message)
            self.times.append(clock.now_ns())

        given = scope(self.line, method=method, path=path, headers=headers, peer=peer)
        await self.gateway(given, receive, send)
        return self


def visitor(service: Service, *keys: ClientKey, max_body_bytes: int = 1 << 20, **settings: Any) -> Visitor:
    """A client of a gateway with the one route "fast"."""
    routes: Any = OneRoute(service)
    return visits(Gateway(routes, keys, max_body_bytes=max_body_bytes, **settings))


def visits(gateway: Gateway) -> Visitor:
    """A client of `gateway`, before its request."""
    return Visitor(gateway, [], [], Line())


CHAT = {"model": "fast", "messages": [{"role": "user", "content": "hi"}]}
STREAM = CHAT | {"stream": True}
