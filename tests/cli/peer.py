"""A provider in a thread of the test: it answers each request as the test says, byte for byte."""

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from ssl import SSLContext
from types import TracebackType
from typing import Any, Self

from msgspec import Struct
from tests.waiting import WITHIN_S

CHUNK = '{"choices": [{"index": 0, "delta": {"content": "word "}}]}'
STOP = '{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}'


class ReceivedRequest(Struct):
    """One request: its headers, its decoded body, and which one it is, from 0."""

    headers: dict[str, str]
    body: dict[str, Any]
    number: int

    @property
    def words(self) -> int:
        """How many words its messages hold: what this provider counts as input tokens."""
        return sum(len(message["content"].split()) for message in self.body["messages"])


def answer(status: int, body: str, content_type: str = "application/json") -> bytes:
    """A whole answer, after which the connection is closed."""
    head = f"HTTP/1.1 {status} Status\r\nContent-Type: {content_type}\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body.encode())}\r\n\r\n{body}".encode()


def stream(
    asked: ReceivedRequest,
    *,
    tokens: int | None = None,
    usage: bool = True,
    cached: int = 0,
    counts: Mapping[str, object] | None = None,
) -> bytes:
    """A streamed answer of as many tokens as were requested, unless `tokens` sets their number.

    `counts`: what is reported instead of the true counts.
    """
    tokens = asked.body["max_tokens"] if tokens is None else tokens
    events = [CHUNK] * tokens + [STOP]
    if usage:
        counted = {
            "prompt_tokens": asked.words,
            "completion_tokens": tokens,
            "total_tokens": asked.words + tokens,
        }
        details = {"prompt_tokens_details": {"cached_tokens": cached}}
        events.append(
            json.dumps({"choices": [], "usage": {**counted, **details, **(counts or {})}})
        )
    return answer(
        200, "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]), "text/event-stream"
    )


class Peer:
    """Serves on a free port of 127.0.0.1 while its context is open. `say` makes the bytes of each
    answer.

    `asked` are the requests it got. "" as the answer: the connection stays open, and nothing comes.
    """

    def __init__(
        self, say: Callable[[ReceivedRequest], bytes], tls: SSLContext | None = None
    ) -> None:
        self.asked: list[ReceivedRequest] = []
        self.port = 0
        self._say = say
        self._tls = tls
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="peer")

    @property
    def base_url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(WITHIN_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(60)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task
        self._task = task
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        server.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            fields = (line.partition(": ") for line in head[1:] if line)
            headers = {name.lower(): value for name, _, value in fields}
            if head[0].startswith("GET "):  # a request for the server's software
                writer.write(answer(404, "{}"))
                await writer.drain()
                writer.close()
                return
            body = await reader.readexactly(int(headers["content-length"]))
            asked = ReceivedRequest(headers, json.loads(body), len(self.asked))
            self.asked.append(asked)
            if said := self._say(asked):
                writer.write(said)
                await writer.drain()
            else:
                await reader.read()
        writer.close()
