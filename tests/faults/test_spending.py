"""A provider that ignores the request's output limit: what its answers cost a key with a limit in
dollars."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.faults.world import World, play
from tests.gateway.visitor import Visitor

from splitsecond.core.serving.request_cycle import RequestCycle
from splitsecond.core.upstream.attempt import METERED_BYTES

LIMIT_USD = 0.01
USD_PER_TOKEN = 1e-6
CALLS = 50
TOKENS = 4_000
WORD = b"word"
CHUNK = (
    b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}\n\n'
    % WORD
)
END = (
    b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":%d}}\n\ndata: [DONE]\n\n'
    % TOKENS
)
TOKENS_BEYOND = METERED_BYTES // len(CHUNK) + 30
"""Tokens of one answer that arrive before its meter is read again, with its prompt and those of one
read."""


def limited(text: str) -> str:
    """Give the client's key a limit."""
    return text.replace("key: env:CLIENT_KEY}", f"key: env:CLIENT_KEY, usd_per_day: {LIMIT_USD}}}")


async def talkative(cycle: RequestCycle) -> None:
    """Answer with `TOKENS` tokens, whatever the request says."""
    await cycle.body(1 << 20)
    cycle.begin_stream([], kind=b"text/event-stream")
    for _ in range(TOKENS // 10):
        await cycle.send(CHUNK * 10)
        await asyncio.sleep(0.1)
    await cycle.send(END, last=True)


def spent(folder: Path, calls: int, **fields: Any) -> tuple[float, list[Visitor]]:
    """Make so many calls at once. Return what they cost the key, and the answers."""
    found: list[float] = []
    visitors: list[Visitor] = []

    async def story(world: World) -> None:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(world.ask(max_tokens=1, **fields)) for _ in range(calls)]
        visitors.extend(each.result() for each in asked)
        await world.settled()
        limits = world.worker._limits
        assert limits.reserved_usd("web") == 0
        found.append(limits.spent_usd("web"))

    play('"a/m"', folder, story, edit=limited, a=talkative, b=talkative)
    return found[0], visitors


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_parallel_responses_end_when_the_budget_is_spent(tmp_path: Path, stream: bool) -> None:
    usd, visitors = spent(tmp_path, CALLS, stream=stream)
    assert LIMIT_USD <= usd <= LIMIT_USD + CALLS * TOKENS_BEYOND * USD_PER_TOKEN
    for each in visitors:
        error = json.loads(each.body.split(b"data: ")[-1]) if stream else each.json
        assert error["error"]["code"] == "insufficient_quota"
        assert "more than were reserved for it" in error["error"]["message"]
        assert each.status == (200 if stream else 429)


def test_response_beyond_its_limit_continues_within_the_budget(tmp_path: Path) -> None:
    usd, (visitor,) = spent(tmp_path, 1)
    assert b"[DONE]" in visitor.body
    assert usd == pytest.approx((20 + TOKENS) * USD_PER_TOKEN)
