"""Clients of the soak test: they send requests, check the responses, and sometimes disconnect in
the middle."""

import asyncio
from collections import Counter
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from splitsecond.simulator.content.tokens import token_text

TOKENS = (5, 20, 60)
"""Output limits of the requests, chosen at random."""
TEXTS = {tokens: "".join(map(token_text, range(tokens))) for tokens in TOKENS}
LEAVES = 0.15
"""Share of calls whose client disconnects."""
LEAVES_WITHIN_S = (0.05, 1.0)
PATIENCE_S = 60.0
PAUSE_S = 0.2


class ClientTotals(Struct):
    """Totals of all calls so far. `ids`: the gateway's ids of calls whose client received headers.

    `left_early`: calls whose client left before the headers. `ended`: calls by how they ended.
    `wrong`: violations.
    """

    calls: int = 0
    left_early: int = 0
    ids: list[str] = []
    ended: Counter[str] = msgspec.field(default_factory=Counter)
    wrong: list[str] = []


class Client:
    """Sends one request after another, on one connection while it stays open."""

    def __init__(
        self, port: int, key: str, routes: list[str], totals: ClientTotals, chance: Random
    ) -> None:
        self._port = port
        self._key = key
        self._routes = routes
        self._totals = totals
        self._chance = chance
        self._responded = False
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def run(self, until_s: float) -> None:
        """Send requests until `until_s` on the loop's clock."""
        loop = asyncio.get_running_loop()
        try:
            while loop.time() < until_s:
                await self._send()
                await asyncio.sleep(self._chance.uniform(0, PAUSE_S))
        finally:
            self._hang_up()

    async def _send(self) -> None:
        chance, totals = self._chance, self._totals
        leaves = chance.random() < LEAVES
        tokens = chance.choice(TOKENS)
        self._responded = False
        try:
            async with asyncio.timeout(chance.uniform(*LEAVES_WITHIN_S) if leaves else PATIENCE_S):
                await self._exchange(
                    chance.choice(self._routes), tokens, stream=chance.random() < 0.7
                )
        except TimeoutError:
            totals.ended["client left" if leaves else "never ended"] += 1
            totals.left_early += not self._responded
            self._hang_up()
        except (OSError, EOFError) as error:
            totals.ended["connection lost"] += 1
            totals.wrong.append(f"the gateway closed the connection: {error!r}")
            self._hang_up()

    async def _exchange(self, route: str, tokens: int, *, stream: bool) -> None:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._reader, self._writer
        if reader is None:
            raise RuntimeError("a connection has a reader and a writer")
        question = f"question {self._chance.randrange(1000)}"
        fields = {"model": route, "max_tokens": tokens, "stream": stream}
        body = msgspec.json.encode(fields | {"messages": [{"role": "user", "content": question}]})
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: soak\r\nauthorization: Bearer "
            f"{self._key}\r\n"
        )
        writer.write(
            f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        self._totals.calls += 1
        status, headers = await read_head(reader)
        self._responded = True
        self._totals.ids.append(headers.get("x-request-id", ""))
        data = await read_body(reader, headers)
        self._note(route, status, complete_text(status, data, stream=stream), TEXTS[tokens])

    def _note(self, route: str, status: int, text: str | None, expected: str) -> None:
        if status != 200:
            self._totals.ended[f"refused {status}"] += 1
        elif text is None:
            self._totals.ended["reported as broken"] += 1
        else:
            self._totals.ended["complete"] += 1
            if text != expected:
                self._totals.wrong.append(
                    f"{route}: a response looks complete but ends with {text[-40:]!r}"
                )

    def _hang_up(self) -> None:
        if self._writer is not None:
            if self._chance.random() < 0.5:
                self._writer.transport.abort()
            self._writer.close()
        self._reader = self._writer = None


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Read the status and the headers of a response."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    pairs = (line.partition(": ") for line in lines[1:] if line)
    return int(lines[0].split()[1]), {name: value for name, _, value in pairs}


async def read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    """Read the body of a response."""
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    parts: list[bytes] = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(parts)


def complete_text(status: int, data: bytes, *, stream: bool) -> str | None:
    """Return the text of a response that looks complete; None if the response reports that it is
    not."""
    if status != 200:
        return None
    if not stream:
        return str(msgspec.json.decode(data)["choices"][0]["message"]["content"])
    *events, last, _ = data.split(b"\n\n")
    if last != b"data: [DONE]":
        return None
    chunks: list[Any] = [msgspec.json.decode(event.removeprefix(b"data: ")) for event in events]
    return "".join(
        choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]
    )
