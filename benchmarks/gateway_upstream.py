"""A provider without any work of its own, for benchmarks: `python -m benchmarks.gateway_upstream
PORT [PACE]`.

A request that contains ``"stream":true`` gets a stream of `EVENTS` events, each written on its own
and at once. The PACE "apart" adds a pause before each, so that each is read on its own; with
"together" all are written as one, so that they are read together. Any other request, also one for
the provider's health, gets a whole answer.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from typing import cast

import uvloop

from splitsecond.core.events import Usage
from splitsecond.core.wire import openai
from splitsecond.core.wire.api_format import ServerAnswer

EVENTS = 64
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n%s\r\n\r\n"
_LENGTH = b"Content-Length: "
_USAGE = Usage(0, input_tokens=100, output_tokens=EVENTS)


def whole_answer() -> bytes:
    """Return the body of an answer that is not streamed."""
    return openai.StreamWriter("chat", "m", id="chatcmpl-1", created=0).whole(
        [ServerAnswer(text="word " * EVENTS)], _USAGE
    )


def stream_events() -> list[bytes]:
    """Return the events of a streamed answer: the role, `EVENTS` tokens, the end with the usage."""
    writer = openai.StreamWriter("chat", "m", id="chatcmpl-1", created=0)
    tokens = [writer.token(f"word{number} ") for number in range(EVENTS)]
    return [writer.opening(), *tokens, writer.finish("stop") + writer.usage(_USAGE) + writer.done()]


_WHOLE = whole_answer()
_RESPONSE = _HEAD % (b"application/json", _LENGTH + b"%d" % len(_WHOLE)) + _WHOLE
_PAUSE_S = 0.004
_STREAM = (
    _HEAD % (b"text/event-stream", b"Transfer-Encoding: chunked"),
    *(b"%x\r\n%s\r\n" % (len(event), event) for event in stream_events()),
    b"0\r\n\r\n",
)


class _Provider(asyncio.Protocol):
    """One connection. It writes events to the socket itself, so that each is a system call and a
    packet."""

    def __init__(self, pace: str) -> None:
        self._pace = pace
        self._writing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._received = b""
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._descriptor = sock.fileno()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end].lower()
            length = int(head.partition(_LENGTH.lower())[2].partition(b"\r\n")[0] or 0)
            if len(self._received) < end + 4 + length:
                return
            body = self._received[end + 4 : end + 4 + length]
            self._received = self._received[end + 4 + length :]
            if b'"stream":true' in body:
                self._write_stream()
            else:
                self._transport.write(_RESPONSE)

    def _write_stream(self) -> None:
        head, first, *events, end = _STREAM
        pieces = (head + first, *events[:-1], events[-1] + end)
        if self._pace == "apart":
            self._writing = asyncio.create_task(self._write_slowly(pieces))
        else:
            for piece in (b"".join(pieces),) if self._pace == "together" else pieces:
                os.write(self._descriptor, piece)

    async def _write_slowly(self, pieces: Sequence[bytes]) -> None:
        for piece in pieces:
            await asyncio.sleep(_PAUSE_S)
            os.write(self._descriptor, piece)


async def _serve(port: int, pace: str = "") -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: _Provider(pace), "127.0.0.1", port
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), *sys.argv[2:]))
