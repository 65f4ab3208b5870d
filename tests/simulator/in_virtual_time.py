"""A simulated provider in virtual time: its ASGI application called directly, with a connection that takes notes."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from splitsecond import clock
from splitsecond.pacing import Pacer
from splitsecond.simulator.app import SimulatedProvider
from splitsecond.simulator.connection import EXTENSION
from splitsecond.simulator.profile import Profile
from splitsecond.simulator.truth import Record, Truth


class NotedConnection:
    """Stands for `connection.Connection`: what was written in which moment, and how it ended."""

    def __init__(self) -> None:
        self.written: list[tuple[int, bytes]] = []
        self.how = ""
        self.on_lost: Callable[[], None] | None = None
        self.reads = True
        self.transport = self

    def write_chunk(self, data: bytes) -> bool:
        self.written.append((clock.now_ns(), data))
        return self.reads

    def close(self) -> None:
        self.how = "closed"

    def reset(self) -> None:
        self.how = "reset"

    def is_closing(self) -> bool:
        return bool(self.how)


class Exchange:
    """One request, and what came of it. Times are of the virtual clock."""

    def __init__(self) -> None:
        self.connection = NotedConnection()
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.head_ns = 0
        self.finished = False

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.connection.written)

    @property
    def events(self) -> list[bytes]:
        return [event.removeprefix(b"data: ") for event in self.body.split(b"\n\n") if event]

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def text(self) -> str:
        """The content of a stream, of the events that are JSON and have one."""
        return "".join(
            msgspec.json.decode(event)["choices"][0]["delta"].get("content", "")
            for event in self.events
            if b'"delta"' in event and event.endswith(b"}")
        )


class Client:
    """Sends requests to one simulated provider."""

    def __init__(self, profile: Profile, *, seed: int = 0) -> None:
        self.pacer = Pacer(asyncio.get_running_loop())
        self._records = Truth()
        self.provider = SimulatedProvider(profile, seed=seed, pacer=self.pacer, truth=self._records)

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
        """One request; `fields` are those of its JSON body, beside a model and a message."""
        exchange = exchange or Exchange()
        asked = {"model": self.provider.profile.model, "messages": [{"role": "user", "content": "hello"}], **fields}
        path, _, query = path.partition("?")
        waiting = [{"type": "http.request", "body": body or msgspec.json.encode(asked), "more_body": False}]

        async def receive() -> Any:
            return waiting.pop() if waiting else {"type": "http.disconnect"}

        async def take(message: Any) -> None:
            if message["type"] == "http.response.start":
                exchange.status, exchange.head_ns = message["status"], clock.now_ns()
                exchange.headers = dict(message["headers"])
                return
            if message["body"]:
                exchange.connection.written.append((clock.now_ns(), message["body"]))
            exchange.finished = not message.get("more_body", False)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
            "extensions": {EXTENSION: {"connection": exchange.connection, "arrived_ns": clock.now_ns()}},
        }
        await self.provider(scope, receive, take)
        return exchange

    def truth(self) -> list[Record]:
        """The records so far."""
        return self._records.kept()
