"""Recorded responses of a real provider, with the time of each read: a proxy that records, and its
file.

The file has one JSON object for each exchange. It holds no headers of requests, so no keys, but
prompts and responses.
"""

import asyncio
import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Annotated, Any
from urllib.parse import parse_qsl, urlencode

import msgspec
from msgspec import Meta, Raw, Struct

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, Fault, content_faults, file_faults, say
from splitsecond.core.observation import ArrivalClock
from splitsecond.core.serving.connection import ServerConnection
from splitsecond.core.serving.request_cycle import ClientLeft, RequestCycle
from splitsecond.core.transport.client import Client
from splitsecond.core.transport.exchange import Exchange, Origin, Request
from splitsecond.simulator.endpoints import endpoint_at
from splitsecond.simulator.request import RejectedRequest
from splitsecond.simulator.response import send_error

MAX_REQUEST_BYTES = 32 << 20
_KEPT_BEGINNINGS = ("retry-after", "openai-", "x-groq-", "anthropic-")
_NOT_FORWARDED = frozenset(
    (
        b"host",
        b"connection",
        b"content-length",
        b"transfer-encoding",
        b"accept-encoding",
        b"expect",
        b"keep-alive",
    )
)

Milliseconds = Annotated[float, Meta(ge=-1e9, le=1e9)]
HeaderName = Annotated[str, Meta(pattern=r"\A[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")]
HeaderValue = Annotated[str, Meta(pattern=r"\A[\t\x20-\x7e\x80-\xff]*\Z")]


class TimedChunk(Struct, frozen=True, array_like=True):
    ms: Milliseconds
    data: str
    encoded: bool = False

    @staticmethod
    def of(ms: float, data: bytes) -> "TimedChunk":
        try:
            return TimedChunk(ms, data.decode())
        except UnicodeDecodeError:  # a read can end inside a character
            return TimedChunk(ms, base64.b64encode(data).decode(), encoded=True)

    def content(self) -> bytes:
        return base64.b64decode(self.data, validate=True) if self.encoded else self.data.encode()


class RecordedExchange(Struct, frozen=True, kw_only=True):
    method: str
    path: str
    request: Raw = Raw(b"null")
    status: Annotated[int, Meta(ge=200, le=599)]
    headers: dict[HeaderName, HeaderValue]
    head_ms: Milliseconds
    chunks: tuple[TimedChunk, ...] = ()
    end_ms: Milliseconds
    complete: bool = True

    @property
    def is_stream(self) -> bool:
        kind = self.headers.get("content-type", "")
        return kind.startswith(("text/event-stream", "application/x-ndjson"))


def load_recordings(path: Path) -> list[RecordedExchange]:
    with file_faults(f"cannot read the recording {path}", kind="bad_recording"):
        lines = path.read_bytes().splitlines()
    exchanges: list[RecordedExchange] = []
    for number, line in enumerate(lines, 1):
        with content_faults(f"{path}:{number}", kind="bad_recording"):
            exchanges.append(msgspec.json.decode(line, type=RecordedExchange))
            for chunk in exchanges[-1].chunks:
                chunk.content()
    if not exchanges:
        raise CallerFault(f"the recording {path} is empty", kind="bad_recording")
    return exchanges


def path_without_key(cycle: RequestCycle) -> str:
    query = [
        (name, value) for name, value in parse_qsl(cycle.query.decode("latin-1")) if name != "key"
    ]
    return cycle.path + (f"?{urlencode(query)}" if query else "")


def as_raw_json(body: bytes) -> Raw:
    try:
        value: Any = msgspec.json.decode(body) if body else None
    except (ValueError, RecursionError):
        value = body.decode("latin-1")
    return Raw(msgspec.json.encode(value, order="sorted"))


def _is_kept(name: str) -> bool:
    return (
        name == "content-type"
        or name.startswith(_KEPT_BEGINNINGS)
        or name.endswith("request-id")
        or "ratelimit" in name
    )


class _Tap:
    def __init__(self, cycle: RequestCycle) -> None:
        self.cycle = cycle
        self.status = 0
        self.headers: dict[str, str] = {}
        self.head_ns = 0
        self.end_ns = 0
        self.chunks: list[tuple[int, bytes]] = []
        self.fault: Fault | None = None
        self.over = asyncio.Event()

    def head_received(self, at: int, status: int, headers: Mapping[str, str]) -> None:
        self.head_ns, self.status = at, status
        self.headers = {name: value for name, value in headers.items() if _is_kept(name)}
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in self.headers.items()]
        try:
            self.cycle.begin(status, encoded)
            self.cycle.flush()
        except ClientLeft:
            self.over.set()

    def body_received(self, at: int, lag: int, source: ArrivalClock, data: bytes) -> None:
        self.chunks.append((at, data))
        try:
            self.cycle.send_now(data)
        except ClientLeft:
            self.over.set()

    def ended(self, at: int) -> None:
        self.end_ns = at
        self.over.set()

    def failed(self, at: int, fault: Fault) -> None:
        self.end_ns, self.fault = at, fault
        self.over.set()


class RecordingProxy:
    """Application that forwards each request to `url`, and appends each exchange to the file `out`.

    Raises `CallerFault` for an unusable URL, and for a file that cannot be written.
    """

    def __init__(self, url: str, out: Path) -> None:
        self._origin, prefix = Origin.parse(url)
        self._prefix = prefix.rstrip("/")
        self._client = Client()
        with file_faults(f"cannot write {out}", kind="unwritable_recording"):
            # Readable by its owner only: it contains prompts and answers.
            descriptor = os.open(out, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._file: IO[bytes] = os.fdopen(descriptor, "ab", buffering=0)

    def on_connect(self, connection: ServerConnection) -> None:
        """Accept every connection."""

    def abandon(self) -> None:
        self._client.close()

    def close(self) -> None:
        self._file.close()

    async def __call__(self, cycle: RequestCycle) -> None:
        cycle.keep_alive = False
        try:
            body = await cycle.body(MAX_REQUEST_BYTES)
            tap = _Tap(cycle)
            exchange = await self._client.send(self._origin, self._forwarded(cycle, body), tap)
        except Fault as fault:
            status = 400 if isinstance(fault, CallerFault) else 502
            rejected = RejectedRequest(status, str(fault), code=fault.kind)
            await send_error(cycle, rejected, endpoint_at(cycle.path))
            return
        cycle.on_lost = exchange.close
        try:
            await tap.over.wait()
        finally:
            exchange.close()
        await self._finish(cycle, tap, exchange, body)

    def _forwarded(self, cycle: RequestCycle, body: bytes) -> Request:
        headers = tuple(
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in cycle.headers.items()
            if name not in _NOT_FORWARDED
        )
        path = cycle.path
        if self._prefix.endswith("/v1") and path.startswith("/v1/"):
            path = path.removeprefix("/v1")
        query = cycle.query.decode("latin-1")
        return Request(
            cycle.method,
            self._prefix + path + (f"?{query}" if query else ""),
            fresh=headers,
            body=body,
        )

    async def _finish(
        self, cycle: RequestCycle, tap: _Tap, exchange: Exchange, body: bytes
    ) -> None:
        if not tap.status:
            message = str(tap.fault) if tap.fault is not None else "the client disconnected"
            await send_error(
                cycle, RejectedRequest(502, message, code="upstream"), endpoint_at(cycle.path)
            )
            return
        if tap.fault is not None:
            cycle.cut()
        elif tap.end_ns:
            await cycle.send(b"", last=True)
        else:
            return

        def ms(at: int) -> float:
            return round((at - exchange.sent_ns) / clock.NS_PER_MS, 3)

        recording = RecordedExchange(
            method=cycle.method,
            path=path_without_key(cycle),
            request=as_raw_json(body),
            status=tap.status,
            headers=tap.headers,
            head_ms=ms(tap.head_ns),
            chunks=tuple(TimedChunk.of(ms(at), data) for at, data in tap.chunks),
            end_ms=ms(tap.end_ns),
            complete=tap.fault is None,
        )
        try:
            self._file.write(msgspec.json.encode(recording) + b"\n")
        except OSError as error:
            say(
                f"The exchange {recording.method} {recording.path} is not recorded: "
                f"{error.strerror}."
            )
