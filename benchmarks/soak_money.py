"""Money in the soak test: a provider with absurd token counts, and clients that try to spend more
than their limit.

The provider keeps what it received, and bills what its models cost. Its models:

  - `absurd` answers correctly and reports token counts that cannot be true
  - `credit` answers 402 if the request's output limit is large, as providers do whose account has
    little credit
  - `exact` bills long prompts and pictures correctly
"""

import asyncio
import contextlib
import json
import socket
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from random import Random
from typing import Any

import msgspec

from benchmarks.soak_clients import ClientTotals, complete_text, read_body, read_head

KEY, SPENDER_KEY = "a-key-with-a-high-limit", "a-key-that-overspends"
DAILY_USD = 2.0
"""Limit of the client that tries to spend more."""
USD_PER_M = 10.0
CREDIT_TOKENS = 1000
PICTURE_TOKENS = 5_000
TEXT_BYTES = 200_000
"""Base64 letters in the arguments of a tool: a token for each four bytes."""
DEAREST_USD = (TEXT_BYTES // 4 + 1000) * USD_PER_M / 1e6
"""The most that one call of the spender is billed."""
ANSWER = "one two three four five six seven"
PARALLEL = 30
BURST_S = 5.0
PAUSE_S = 0.2
BILLING_S = 0.2
PATIENCE_S = 60.0
ABSURD = (
    '{"prompt_tokens": 1000000000000000, "completion_tokens": 1000000000000000, "total_tokens": '
    "2000000000000000}",
    '{"prompt_tokens": 7, "completion_tokens": 1000000000000000}',
    '{"prompt_tokens": 9223372036854775808, "completion_tokens": 7}',
    '{"prompt_tokens": -1, "completion_tokens": 7}',
    '{"prompt_tokens": 7, "completion_tokens": -9223372036854775809}',
    '{"prompt_tokens": 12.5, "completion_tokens": 1e300}',
    '{"prompt_tokens": "many", "completion_tokens": "7"}',
    f'{{"prompt_tokens": {"9" * 400}, "completion_tokens": {"9" * 400}}}',
    '{"prompt_tokens": 7, "completion_tokens": 7, '
    '"prompt_tokens_details": {"cached_tokens": 5000}}',
    '{"prompt_tokens": 7, "completion_tokens": 7, "completion_tokens_details": '
    '{"reasoning_tokens": 500000}}',
    '{"prompt_tokens": [7], "completion_tokens": {"a": 7}}',
)


class CountingProvider:
    """The provider. `received`: the ids of its requests."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self._connections: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}
        self._turn = 0

    @contextlib.asynccontextmanager
    async def serving(self, listening: socket.socket) -> AsyncIterator[None]:
        """Serve on a socket, and close all connections at the end."""
        async with await asyncio.start_server(self._respond, sock=listening):
            yield
            for writer in self._connections.values():
                writer.close()
            await asyncio.gather(*filter(None, self._connections))

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._connections[task] = writer
        with contextlib.suppress(OSError, EOFError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
                headers = dict(line.split(": ", 1) for line in head[1:] if line)
                body = await reader.readexactly(int(headers["content-length"]))
                self.received.append(headers.get("x-client-request-id", ""))
                request = msgspec.json.decode(body)
                if request["model"] == "exact":
                    await asyncio.sleep(BILLING_S)
                writer.write(self._response(request, body))
                await writer.drain()
        writer.close()
        del self._connections[task]

    def _response(self, request: Mapping[str, Any], body: bytes) -> bytes:
        model = request["model"]
        limit = max(request.get(name) or 0 for name in ("max_tokens", "max_completion_tokens"))
        if model == "credit" and limit > CREDIT_TOKENS:
            words = (
                f"This request requires more credits. You requested up to {limit} tokens, but "
                f"can only afford 900."
            )
            return _whole(402, json.dumps({"error": {"message": words, "code": 402}}))
        usage = json.dumps({"prompt_tokens": _billed(body), "completion_tokens": 7})
        if model == "absurd":
            self._turn += 1
            usage = ABSURD[self._turn % len(ABSURD)]
        if not request.get("stream"):
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": ANSWER},
                "finish_reason": "stop",
            }
            return _whole(
                200,
                f'{{"id": "c", "model": "m", "choices": [{json.dumps(choice)}], "usage": {usage}}}',
            )
        deltas = [{"content": word} for word in ANSWER.replace(" ", " |").split("|")]
        ends = [None] * len(deltas) + ["stop"]
        choices = [
            {"index": 0, "delta": delta, "finish_reason": end}
            for delta, end in zip([*deltas, {}], ends, strict=True)
        ]
        events = [
            f"data: {json.dumps({'id': 'c', 'model': 'm', 'choices': [choice]})}\n\n"
            for choice in choices
        ]
        events += [
            f'data: {{"id": "c", "model": "m", "choices": [], "usage": {usage}}}\n\n',
            "data: [DONE]\n\n",
        ]
        text = "".join(events)
        head = (
            f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: "
            f"{len(text)}\r\n\r\n"
        )
        return (head + text).encode()


def _billed(body: bytes) -> int:
    return PICTURE_TOKENS * body.count(b'"image_url":') + len(body) // 4


def _whole(status: int, text: str) -> bytes:
    head = (
        f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: "
        f"{len(text)}\r\n\r\n"
    )
    return (head + text).encode()


class MoneyClients:
    """Clients of the provider. `spender`: how the calls of the one ended that tries to spend more
    than its limit."""

    def __init__(self, port: int, totals: ClientTotals, chance: Random) -> None:
        self.spender: Counter[int] = Counter()
        self._port = port
        self._totals = totals
        self._chance = chance

    async def metered(self, until_s: float) -> None:
        """Send small requests to `absurd` and `credit`. Each must get the whole answer."""
        loop, totals = asyncio.get_running_loop(), self._totals
        while loop.time() < until_s:
            stream = self._chance.random() < 0.5
            model = self._chance.choice(("counting/absurd", "counting/absurd", "counting/credit"))
            question = [{"role": "user", "content": f"question {self._chance.random()}"}]
            totals.calls += 1
            fields = {"model": model, "max_tokens": 50, "stream": stream, "messages": question}
            try:
                status, identity, data = await self._ask("/v1/chat/completions", KEY, fields)
            except (OSError, EOFError) as error:
                totals.wrong.append(f"{model}: no response: {error!r}")
                continue
            totals.ids.append(identity)
            text = complete_text(status, data, stream=stream)
            totals.ended["complete" if text == ANSWER else f"metered {status}"] += 1
            if text != ANSWER:
                totals.wrong.append(f"{model}: a small request got {status} {data[-200:]!r}")
            await asyncio.sleep(self._chance.uniform(0, PAUSE_S))

    async def overspend(self, until_s: float) -> None:
        """Send `PARALLEL` dear requests at once, again and again."""
        loop = asyncio.get_running_loop()
        while loop.time() < until_s:
            await asyncio.gather(*(self._spend(number % 2 == 0) for number in range(PARALLEL)))
            await asyncio.sleep(BURST_S)

    async def _spend(self, picture: bool) -> None:
        fields: dict[str, Any] = {"model": "counting/exact", "max_tokens": 10}
        path = "/v1/chat/completions" if picture else "/v1/messages"
        if picture:
            part = {
                "type": "image_url",
                "image_url": {"url": f"https://example.com/{self._chance.random()}.png"},
            }
            fields["messages"] = [{"role": "user", "content": [part]}]
        else:
            use = {
                "type": "tool_use",
                "id": "t",
                "name": "draw",
                "input": {"data": "iVBORw0KGgo" * (TEXT_BYTES // 11)},
            }
            done = {"type": "tool_result", "tool_use_id": "t", "content": "ok"}
            fields["tools"] = [{"name": "draw", "input_schema": {"type": "object"}}]
            fields["messages"] = [
                {"role": "user", "content": f"draw {self._chance.random()}"},
                {"role": "assistant", "content": [use]},
                {"role": "user", "content": [done]},
            ]
        try:
            status, _, data = await self._ask(path, SPENDER_KEY, fields)
        except (OSError, EOFError) as error:
            self._totals.wrong.append(f"the spender got no response: {error!r}")
            return
        self.spender[status] += 1
        if status not in (200, 429):
            self._totals.wrong.append(f"the spender got {status} {data[:200]!r}")

    async def _ask(self, path: str, key: str, fields: Mapping[str, Any]) -> tuple[int, str, bytes]:
        body = msgspec.json.encode(fields)
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                head = f"POST {path} HTTP/1.1\r\nhost: soak\r\nauthorization: Bearer {key}\r\n"
                head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                status, headers = await read_head(reader)
                return status, headers.get("x-request-id", ""), await read_body(reader, headers)
            finally:
                writer.close()


def money_faults(
    database: sqlite3.Connection, charged: Mapping[tuple[str, str], float], lost: int, workers: int
) -> Iterator[str]:
    """Return charges that are wrong. `charged`: US dollars by client and target, by the gateway's
    metrics.

    `lost`: calls that the log counts as lost, whose cost only the metrics have.
    """
    query = (
        "select client, target, count(*), sum(input_tokens), sum(output_tokens), "
        "max(input_tokens), "
        "max(output_tokens), min(input_tokens), min(output_tokens), sum(token_source = "
        "'estimate') from attempts "
        "where target like 'counting/%' and outcome = 'ok' group by client, target"
    )
    spent = 0.0
    for (
        client,
        target,
        rows,
        *sums,
        most_in,
        most_out,
        least_in,
        least_out,
        estimated,
    ) in database.execute(query):
        usd = sum(sums) * USD_PER_M / 1e6
        gap = charged.get((client, target), 0.0) - usd
        print(
            f"Money: {client} at {target}: {rows:,} answers in the log cost {usd:.6f} USD, "
            f"{gap:+.6f} were charged."
        )
        if not -1e-6 <= gap <= lost * DEAREST_USD + 1e-6:
            yield f"{target}: {usd + gap:.6f} USD charged, {usd:.6f} in the log"
        if client == "spender":
            spent = usd + gap
        if target == "counting/absurd":
            if estimated != rows:
                yield f"{rows - estimated} absurd reports were used"
            if not (1 <= least_in <= most_in <= 300 and 1 <= least_out <= most_out <= len(ANSWER)):
                yield (
                    f"absurd reports: {least_in} to {most_in} input and {least_out} to "
                    f"{most_out} output tokens"
                )
    (days,) = database.execute("select count(distinct came_us / 86400000000) from calls").fetchone()
    bound = days * (DAILY_USD + workers * DEAREST_USD)
    print(
        f"Money: the spender spent {spent:.4f} USD in {days} days of {DAILY_USD:g} USD, of at "
        f"most {bound:.4f}."
    )
    if spent > bound:
        yield f"the spender spent {spent:.4f} USD, more than {bound:.4f}"
    if spent < DAILY_USD / 2:
        yield "the spender spent next to nothing, so its limit was not tested"
