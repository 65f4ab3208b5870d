"""A hostile client and a hostile provider for the soak test, in a separate process.

Their traffic is bounded and stays on this machine. They are active in every second window of
`WINDOW_S`; the latency of honest probes in those windows is compared with that of the calm windows
between them. The process has the lowest priority, so that it costs the gateway only the gateway's
own work for it.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from random import Random

import msgspec
import numpy as np

from benchmarks.soak_clients import ClientTotals, read_head
from splitsecond.log.statistics.summary import percentile

WINDOW_S = 15.0
KEY = "a-key-of-a-hostile-client"
MB = 1 << 20
CLIENTS = 4
LARGE_BODIES = 4
"""Bodies of 31 MiB that one client sends at once."""
PROBE_PAUSE_S = 0.05
GIVE_UP_S = 20.0
"""How long one hostile act may take before its connection is closed."""
MAX_RATIO = 2.0
"""Largest p99 of the honest probes in hostile windows, as a multiple of the p99 in calm windows."""
HEAD = "POST {path} HTTP/1.1\r\nhost: soak\r\ncontent-type: application/json\r\n"


class Probes(msgspec.Struct):
    """Latencies of the honest probes in seconds, in calm and in hostile windows."""

    calm: list[float] = []
    hostile: list[float] = []
    failed: Counter[str] = msgspec.field(default_factory=Counter)

    def judged(self) -> str:
        """Print both percentiles; return the failed check, or ""."""
        if min(len(self.calm), len(self.hostile)) < 100:
            return "too few probes to compare: let the soak run for two minutes or more"
        calm, hostile = (
            percentile(np.sort(each), 0.99) * 1000 for each in (self.calm, self.hostile)
        )
        print(
            f"Honest probes, p99: {calm:.1f} ms in calm windows ({len(self.calm)}), {hostile:.1f} "
            f"ms in hostile ones "
            f"({len(self.hostile)}); largest {max(self.calm) * 1000:.0f} and "
            f"{max(self.hostile) * 1000:.0f} ms."
        )
        if self.failed:
            return f"honest probes failed: {dict(self.failed)}"
        return (
            f"honest probes wait {hostile / calm:.1f} times as long"
            if hostile > MAX_RATIO * calm
            else ""
        )


def is_hostile(now_s: float, began_s: float) -> bool:
    """Return whether the hostile client is active at this moment of the loop's clock."""
    return int((now_s - began_s) / WINDOW_S) % 2 == 1


class Hostile:
    """Handle of the hostile process. `port`: the port of its provider."""

    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self._process = process
        self.port = port

    def begin(self, gateway_port: int, began_s: float, until_s: float) -> None:
        """Start the client, whose windows count from `began_s` (monotonic clock)."""
        if self._process.stdin is None:
            raise RuntimeError("the hostile process has no standard input")
        self._process.stdin.write(f"{gateway_port} {began_s} {until_s}\n")
        self._process.stdin.flush()

    def acts(self) -> str:
        """Return what the client did, after it has ended."""
        return self._process.stdout.read().strip() if self._process.stdout else ""


@contextlib.contextmanager
def hostile() -> Iterator[Hostile]:
    """Start the process, and kill it at the end."""
    command = [sys.executable, "-m", "benchmarks.soak_hostile"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Hostile(process, int(process.stdout.readline() if process.stdout else 0))
        finally:
            process.kill()


async def _main() -> None:
    """Serve the provider, read the gateway's port, and run the client."""
    os.nice(19)
    server = await HostileProvider().serve()
    print(server.sockets[0].getsockname()[1], flush=True)
    port, began_s, until_s = (await asyncio.to_thread(sys.stdin.readline)).split()
    client = HostileClient(int(port), Random(0))
    await asyncio.gather(*(client.run(float(began_s), float(until_s)) for _ in range(CLIENTS)))
    print(", ".join(f"{count} {name}" for name, count in client.acts.most_common()), flush=True)
    server.close()


async def probe(
    port: int,
    key: str,
    route: str,
    probes: Probes,
    totals: ClientTotals,
    began_s: float,
    until_s: float,
) -> None:
    """Send one small request after another over one connection, and record in `probes` how long
    each takes."""
    loop = asyncio.get_running_loop()
    body = json.dumps(
        {"model": route, "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}
    ).encode()
    head = (
        HEAD.format(path="/v1/chat/completions")
        + f"authorization: Bearer {key}\r\ncontent-length: {len(body)}\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while (sent_s := loop.time()) < until_s:
            writer.write(head.encode() + b"\r\n" + body)
            totals.calls += 1
            status, headers = await read_head(reader)
            totals.ids.append(headers.get("x-request-id", ""))
            await reader.readexactly(int(headers["content-length"]))
            if status != 200:
                probes.failed[str(status)] += 1
            active = is_hostile(sent_s, began_s)
            (probes.hostile if active else probes.calm).append(loop.time() - sent_s)
            await asyncio.sleep(PROBE_PAUSE_S)
    finally:
        writer.close()


class HostileClient:
    """Sends requests that cost time or memory, one after another, in the hostile windows."""

    def __init__(self, port: int, chance: Random) -> None:
        self.acts: Counter[str] = Counter()
        self._port = port
        self._chance = chance
        self._acts: list[Callable[[], Awaitable[None]]] = [
            self.many_trailers, self.long_trailer, self.base64_body, self.count_base64,
            self.deep_body, self.wrong_keys,
            self.half_a_request, self.unread_response, self.invented_names, self.hostile_response,
            self.tiny_chunks,
            self.too_dear, self.large_bodies,
        ]  # fmt: skip

    async def run(self, began_s: float, until_s: float) -> None:
        """Act until `until_s` on the loop's clock."""
        loop = asyncio.get_running_loop()
        while loop.time() < until_s:
            if not is_hostile(loop.time(), began_s):
                await asyncio.sleep(0.2)
                continue
            act = self._chance.choice(self._acts)
            self.acts[act.__name__] += 1
            # the gateway may refuse, close or delay it
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                async with asyncio.timeout(GIVE_UP_S):
                    await act()
            await asyncio.sleep(self._chance.uniform(0, 0.3))

    async def many_trailers(self) -> None:
        """8 MB of short trailers, without a key."""
        await self._send(
            self._chunked(b"".join(b"a%d: b\r\n" % n for n in range(100_000)) * 6), wait=True
        )

    async def long_trailer(self) -> None:
        """One trailer of 8 MB, without a key."""
        await self._send(self._chunked(b"a: " + b"b" * (8 * MB) + b"\r\n"), wait=True)

    async def tiny_chunks(self) -> None:
        """A body of many chunks of one byte, each with an extension."""
        head = HEAD.format(path="/v1/chat/completions") + "transfer-encoding: chunked\r\n\r\n"
        await self._send(head.encode() + b"1;a=b\r\n \r\n" * 200_000, wait=True)

    async def base64_body(self) -> None:
        """8 MB of base64 in a message, with a key."""
        await self._ask("/v1/chat/completions", "hostile/m", "iVBORw0KGgo" * (8 * MB // 11))

    async def count_base64(self) -> None:
        """8 MB of base64 to the token counter, with a key."""
        await self._ask("/v1/messages/count_tokens", "hostile/m", "iVBORw0KGgo" * (8 * MB // 11))

    async def deep_body(self) -> None:
        """2 MB of nested lists."""
        await self._post(
            "/v1/chat/completions", b'{"model": "hostile/m", "messages": ' + b"[" * (2 * MB)
        )

    async def wrong_keys(self) -> None:
        """Ten wrong keys, one connection each."""
        for n in range(10):
            await self._post(
                "/v1/chat/completions", b"{}", key=f"wrong-{n}-{self._chance.random()}"
            )

    async def half_a_request(self) -> None:
        """A request that stops in the middle of its headers and keeps the connection open."""
        await self._send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: soak\r\nx: ", wait=False)
        await asyncio.sleep(2)

    async def unread_response(self) -> None:
        """A response of several megabytes that is never read."""
        body = json.dumps(
            {"model": "hostile/m", "messages": [{"role": "user", "content": "act 0"}]}
        ).encode()
        async with self._connection() as (_, writer):
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # the transport of a socket has it
            writer.write(self._request("/v1/chat/completions", body, KEY))
            await writer.drain()
            await asyncio.sleep(5)

    async def invented_names(self) -> None:
        """Models that do not exist, with control characters and quotes."""
        for name in ("a\0b", 'x"y\n', "\\", "é" * 5000, f"nobody/{self._chance.random()}"):
            await self._ask("/v1/chat/completions", name, "Hi")

    async def hostile_response(self) -> None:
        """A request to the hostile provider, with text that a provider may quote."""
        await self._ask(
            "/v1/chat/completions",
            "hostile/m",
            f"act {self._chance.randrange(8)} my api key invalid_api_key",
        )

    async def too_dear(self) -> None:
        """A request that is answered with 402, because its output limit is larger than the
        account's credit."""
        await self._ask("/v1/chat/completions", "counting/credit", "Hi", max_tokens=1_000_000)

    async def large_bodies(self) -> None:
        """Bodies of 31 MiB at once, with a key, which stop before their end and keep their
        connections open."""
        body = b'{"model": "hostile/m", "messages": "' + b"a" * (31 * MB)
        await asyncio.gather(
            *(self._unfinished(body) for _ in range(LARGE_BODIES)), return_exceptions=True
        )

    async def _unfinished(self, body: bytes) -> None:
        async with self._connection() as (_, writer):
            writer.write(self._request("/v1/chat/completions", body, KEY)[:-MB])
            await writer.drain()
            await asyncio.sleep(2)

    async def _ask(self, path: str, model: str, text: str, max_tokens: int = 50) -> None:
        fields = {
            "model": model,
            "max_tokens": max_tokens,
            "messages": [{"role": "user", "content": text}],
        }
        await self._post(path, msgspec.json.encode(fields))

    async def _post(self, path: str, body: bytes, key: str = KEY) -> None:
        await self._send(self._request(path, body, key), wait=True)

    def _request(self, path: str, body: bytes, key: str) -> bytes:
        head = (
            HEAD.format(path=path)
            + f"authorization: Bearer {key}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def _chunked(self, trailers: bytes) -> bytes:
        head = HEAD.format(path="/v1/chat/completions") + "transfer-encoding: chunked\r\n\r\n0\r\n"
        return head.encode() + trailers + b"\r\n"

    async def _send(self, data: bytes, *, wait: bool) -> None:
        async with self._connection() as (reader, writer):
            writer.write(data)
            await writer.drain()
            if wait:
                await reader.read(1)

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


class HostileProvider:
    """Sends responses that cost their reader time or memory. The client's text selects one;
    otherwise they rotate."""

    def __init__(self) -> None:
        self._turn = 0
        self._acts = [
            self.large_response, self.many_indexes, self.deep_events, self.quoting_refusal,
            self.endless_line,
            self.many_headers, self.huge_numbers, self.many_tiny_events,
        ]  # fmt: skip

    async def serve(self) -> asyncio.Server:
        """Start a server on a free port of this machine."""
        return await asyncio.start_server(self._respond, "127.0.0.1", 0)

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            async with asyncio.timeout(GIVE_UP_S):
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                _, found, rest = body.partition(b'"act ')
                self._turn += 1
                number = int(rest[:1]) if found and rest[:1].isdigit() else self._turn
                writer.write(self._acts[number % len(self._acts)](body))
                await writer.drain()
        writer.close()

    def large_response(self, _: bytes) -> bytes:
        """A well-formed response of 4 MB."""
        delta = {
            "choices": [{"index": 0, "delta": {"content": "word " * 1000}, "finish_reason": None}]
        }
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        return _stream([_event(delta)] * 800 + [_event(end), b"data: [DONE]\n\n"])

    def many_indexes(self, _: bytes) -> bytes:
        """Choices and tool calls, each with a new index."""
        return _stream(
            _event(
                {
                    "choices": [
                        {
                            "index": n,
                            "delta": {"tool_calls": [{"index": n, "function": {"arguments": "x"}}]},
                        }
                    ]
                }
            )
            for n in range(8000)
        )

    def deep_events(self, _: bytes) -> bytes:
        """Events of nested lists."""
        return _stream([b'data: {"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n\n"] * 5)

    def quoting_refusal(self, body: bytes) -> bytes:
        """A 400 whose message quotes the client."""
        text = json.dumps(
            {
                "error": {
                    "message": f"invalid role: {body[-200:].decode(errors='replace')} my api key"
                }
            }
        )
        return (
            f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: "
            f"{len(text)}\r\n\r\n{text}"
        ).encode()

    def endless_line(self, _: bytes) -> bytes:
        """One line of 8 MB without an end."""
        return _stream([b"data: " + b"x" * (8 * MB)])

    def many_headers(self, _: bytes) -> bytes:
        """4 MB of headers."""
        return (
            b"HTTP/1.1 200 OK\r\n" + b"".join(b"x-%d: y\r\n" % n for n in range(300_000)) + b"\r\n"
        )

    def huge_numbers(self, _: bytes) -> bytes:
        """Counts of a million digits."""
        return _stream(
            [b'data: {"choices": [], "usage": {"prompt_tokens": ' + b"9" * MB + b"}}\n\n"]
        )

    def many_tiny_events(self, _: bytes) -> bytes:
        """Very many comments and empty events."""
        return _stream([b": x\n\n\ndata:\n\n"] * 200_000)


def _event(fields: object) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def _stream(events: Iterable[bytes]) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    return head + b"".join(events)


if __name__ == "__main__":
    asyncio.run(_main())
