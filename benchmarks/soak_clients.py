"""Clients for `soak`: they ask, read what comes, and some of them leave in the middle. They keep count."""

import asyncio
from collections import Counter
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from splitsecond.simulator.words import token_text

TOKENS = (5, 20, 60)
"""What the clients ask for at most, in turn."""
TEXTS = {tokens: "".join(map(token_text, range(tokens))) for tokens in TOKENS}
LEAVES = 0.15
"""The share of calls whose client leaves."""
LEAVES_WITHIN_S = (0.05, 1.0)
PATIENCE_S = 60.0
PAUSE_S = 0.2


class Asked(Struct):
    """What became of all calls so far. `ids`: those that the gateway gave to the calls whose clients saw a head."""

    calls: int = 0
    left_unanswered: int = 0
    ids: list[str] = []
    ended: Counter[str] = msgspec.field(default_factory=Counter)
    wrong: list[str] = []


class Client:
    """One after another, on one connection as long as that holds."""

    def __init__(self, port: int, key: str, routes: list[str], asked: Asked, chance: Random) -> None:
        self._port = port
        self._key = key
        self._routes = routes
        self._asked = asked
        self._chance = chance
        self._answered = False
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def run(self, until_s: float) -> None:
        """Asks until that moment of the loop's clock."""
        loop = asyncio.get_running_loop()
        try:
            while loop.time() < until_s:
                await self._ask()
                await asyncio.sleep(self._chance.uniform(0, PAUSE_S))
        finally:
            self._hang_up()

    async def _ask(self) -> None:
        chance, asked = self._chance, self._asked
        leaves = chance.random() < LEAVES
        tokens = chance.choice(TOKENS)
        self._answered = False
        try:
            async with asyncio.timeout(chance.uniform(*LEAVES_WITHIN_S) if leaves else PATIENCE_S):
                await self._exchange(chance.choice(self._routes), tokens, stream=chance.random() < 0.7)
        except TimeoutError:
            asked.ended["left" if leaves else "never ended"] += 1
            asked.left_unanswered += not self._answered
            self._hang_up()
        except (OSError, EOFError) as error:
            asked.ended["connection lost"] += 1
            asked.wrong.append(f"the gateway closed the connection: {error!r}")
            self._hang_up()

    async def _exchange(self, route: str, tokens: int, *, stream: bool) -> None:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._reader, self._writer
        if reader is None:
            raise RuntimeError("a connection has two sides")
        question = f"question {self._chance.randrange(1000)}"
        fields = {"model": route, "max_tokens": tokens, "stream": stream}
        body = msgspec.json.encode(fields | {"messages": [{"role": "user", "content": question}]})
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: soak\r\nauthorization: Bearer {self._key}\r\n"
        writer.write(f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        self._asked.calls += 1
        status, headers = await _head(reader)
        self._answered = True
        self._asked.ids.append(headers.get("x-request-id", ""))
        data = await _body(reader, headers)
        self._note(route, status, _said(status, data, stream=stream), TEXTS[tokens])

    def _note(self, route: str, status: int, said: str | None, expected: str) -> None:
        if status != 200:
            self._asked.ended[f"refused {status}"] += 1
        elif said is None:
            self._asked.ended["broken, and said so"] += 1
        else:
            self._asked.ended["answered"] += 1
            if said != expected:
                self._asked.wrong.append(f"{route}: an answer looks whole and says {said[-40:]!r}")

    def _hang_up(self) -> None:
        if self._writer is not None:
            if self._chance.random() < 0.5:
                self._writer.transport.abort()
            self._writer.close()
        self._reader = self._writer = None


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    pairs = (line.partition(": ") for line in lines[1:] if line)
    return int(lines[0].split()[1]), {name: value for name, _, value in pairs}


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    parts: list[bytes] = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(parts)


def _said(status: int, data: bytes, *, stream: bool) -> str | None:
    """The text of an answer that looks whole; None: it says itself that it is not."""
    if status != 200:
        return None
    if not stream:
        return str(msgspec.json.decode(data)["choices"][0]["message"]["content"])
    *events, last, _ = data.split(b"\n\n")
    if last != b"data: [DONE]":
        return None
    chunks: list[Any] = [msgspec.json.decode(event.removeprefix(b"data: ")) for event in events]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
