"""Sessions at a simulated provider: TTFT of growing prompts, reported cached tokens, and where
eviction begins."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.simulator.in_virtual_time import Client

from splitsecond.core import clock
from splitsecond.simulator.profile import (
    EngineSpec,
    Profile,
    PromptCacheSpec,
    Quantiles,
    TableRow,
    load,
)
from splitsecond.simulator.truth import TruthRecord
from splitsecond.testing.virtual_time import run_virtual

MS = clock.NS_PER_MS
ROWS = (TableRow(concurrency=1, ttft_ms=Quantiles(100, 100), tps=Quantiles(100, 100)),)
TEMPLATE = 11
"""Tokens that a chat has beside its text."""


def provider(**changes: Any) -> Profile:
    fields = {"name": "p", "title": "t", "model": "m", "table": ROWS, "output_tokens": 2}
    return Profile(**{**fields, **changes})


def cache(**changes: Any) -> PromptCacheSpec:
    return PromptCacheSpec(**{"from_tokens": 16, "block_tokens": 8, **changes})


def texts(turns: int, session: int = 0, tokens: int = 50) -> list[str]:
    """Return the messages of a session. Each has `tokens`, including the line feed before it."""
    return [f"{session} {turn} ".ljust(4 * tokens - 1, "x") for turn in range(turns)]


def chat(messages: list[str]) -> dict[str, Any]:
    return {
        "messages": [
            {"role": ("user", "assistant")[n % 2], "content": text}
            for n, text in enumerate(messages)
        ]
    }


def ttft_ms(record: TruthRecord) -> float:
    return (record.planned_ns[0] - record.arrived_ns) / MS


def test_a_session_of_100_growing_turns() -> None:
    async def play() -> list[TruthRecord]:
        client = Client(provider(prompt_cache=cache(capacity_tokens=100 * 50)))
        for turn in range(100):
            await client.send(headers={"x-session-id": "s"}, **chat(texts(turn + 1)))
        return client.truth()

    records = run_virtual(play())
    assert [record.prompt_tokens for record in records] == [
        50 * turn + TEMPLATE for turn in range(1, 101)
    ]
    for turn, record in enumerate(records):
        characters = max(200 * turn - 1, 0)  # the first message has no line feed before it
        assert record.cached_tokens == characters // 32 * 8
        assert record.new_tokens == record.prompt_tokens - record.cached_tokens
    assert {(record.session, record.replica, record.evicted_tokens) for record in records} == {
        ("s", 0, 0)
    }


def test_ttft_is_fixed_plus_new_plus_cached_tokens_of_a_table() -> None:
    async def play() -> list[TruthRecord]:
        client = Client(
            provider(prefill_tokens_per_s=1000, prompt_cache=cache(cached_tokens_per_s=20_000))
        )
        for turn in (1, 2, 5, 20):
            await client.send(**chat(texts(turn)))
        return client.truth()

    records = run_virtual(play())
    assert [record.cached_tokens for record in records] == [0, 48, 96, 248]
    for record in records:
        assert ttft_ms(record) == pytest.approx(
            100 + 1.0 * record.new_tokens + 0.05 * record.cached_tokens, abs=1e-5
        )


def test_ttft_is_fixed_plus_new_plus_cached_tokens_of_an_engine() -> None:
    engine = EngineSpec(
        slots=4,
        prefill_tokens_per_s=1000,
        prefill_chunk_tokens=10_000,
        step_base_ms=10,
        step_per_sequence_ms=2,
    )

    async def play() -> list[TruthRecord]:
        client = Client(
            provider(table=(), engine=engine, prompt_cache=cache(cached_tokens_per_s=20_000))
        )
        for turn in (1, 2, 5, 20):
            await client.send(**chat(texts(turn)))
        return client.truth()

    for record in run_virtual(play()):
        assert ttft_ms(record) == pytest.approx(
            12 + 1.0 * record.new_tokens + 0.05 * record.cached_tokens, abs=1e-5
        )


def test_eviction_begins_at_the_capacity() -> None:
    async def play() -> list[TruthRecord]:
        client = Client(provider(prompt_cache=cache(capacity_tokens=5 * 48)))
        for session in (0, 1, 2, 3, 4, 5, 0, 5):
            await client.send(**chat(texts(1, session)))
        return client.truth()

    records = run_virtual(play())
    assert [record.evicted_tokens for record in records] == [0, 0, 0, 0, 0, 48, 48, 0]
    assert [record.cached_tokens for record in records] == [0, 0, 0, 0, 0, 0, 0, 48]


def test_the_knee_of_concurrent_sessions_is_eviction() -> None:
    """Each session has 420 tokens at the end, and a prompt of that length takes 42 ms."""
    engine = EngineSpec(
        slots=64,
        prefill_tokens_per_s=10_000,
        prefill_chunk_tokens=2048,
        step_base_ms=5,
        step_per_sequence_ms=0.1,
    )

    def run(sessions: int, capacity_tokens: int | None) -> tuple[float, int]:
        """Return the 95th percentile of TTFT and the evicted tokens."""
        profile = provider(
            table=(), engine=engine, prompt_cache=cache(capacity_tokens=capacity_tokens)
        )

        async def one(client: Client, session: int) -> None:
            messages = texts(21, session, tokens=20)
            await asyncio.sleep(session * 0.0123)
            for turn in range(1, 22, 2):
                await client.send(headers={"x-session-id": str(session)}, **chat(messages[:turn]))
                await asyncio.sleep(0.5)

        async def play() -> list[TruthRecord]:
            client = Client(profile)
            await asyncio.gather(*(one(client, session) for session in range(sessions)))
            return client.truth()

        records = run_virtual(play())
        times = sorted(map(ttft_ms, records))
        return times[len(times) * 95 // 100], sum(record.evicted_tokens for record in records)

    capacity = 8 * 420
    few, evicted = run(8, capacity)
    assert evicted == 0
    many, evicted = run(16, capacity)
    assert evicted > 0
    assert many > 3 * few
    roomy, evicted = run(16, None)
    assert evicted == 0
    assert roomy < 1.5 * few


def anthropic(messages: list[str]) -> dict[str, Any]:
    return {**chat(messages), "max_tokens": 2, "cache_control": {"type": "ephemeral"}}


FORMATS: dict[str, tuple[Callable[[list[str]], dict[str, Any]], list[str]]] = {
    "/v1/chat/completions": (chat, ["usage", "prompt_tokens_details", "cached_tokens"]),
    "/v1/completions": (
        lambda messages: {"prompt": "\n".join(messages)},
        ["usage", "prompt_tokens_details", "cached_tokens"],
    ),
    "/v1/responses": (
        lambda messages: {"input": chat(messages)["messages"]},
        ["usage", "input_tokens_details", "cached_tokens"],
    ),
    "/v1/messages": (anthropic, ["usage", "cache_read_input_tokens"]),
    "/v2/chat": (chat, ["usage", "cached_tokens"]),
    "/v1beta/models/m:generateContent": (
        lambda messages: {
            "contents": [{"role": "user", "parts": [{"text": text}]} for text in messages]
        },
        ["usageMetadata", "cachedContentTokenCount"],
    ),
}


@pytest.mark.parametrize("path", FORMATS)
def test_each_api_format_reports_the_cached_tokens_of_a_session(path: str) -> None:
    body, place = FORMATS[path]

    async def play() -> list[tuple[dict[str, Any], TruthRecord]]:
        client = Client(provider(prompt_cache=cache(capacity_tokens=5 * 50)))
        turns = (1, 3, 5, 7)  # the last one does not fit
        return [
            ((await client.send(path=path, **body(texts(turn)))).json, client.truth()[-1])
            for turn in turns
        ]

    seen = run_virtual(play())
    for json, record in seen:
        reported: Any = json
        for name in place:
            reported = reported[name]
        assert reported == record.cached_tokens
        if path == "/v1/messages":
            usage = json["usage"]
            assert usage["cache_creation_input_tokens"] == record.cache_write_tokens
            parts = (
                usage["input_tokens"],
                usage["cache_creation_input_tokens"],
                usage["cache_read_input_tokens"],
            )
            assert sum(parts) == record.prompt_tokens
    exact = [0, 50, 150, 250] if path == "/v1/messages" else [0, 48, 144, 248]
    assert [record.cached_tokens for _, record in seen] == exact
    assert [record.evicted_tokens > 0 for _, record in seen] == [False, False, False, True]


def test_the_shipped_agents_reuse_a_session() -> None:
    for name in ("agent-cloud", "agent-vllm-h100"):

        async def play(name: str) -> list[TruthRecord]:
            client = Client(load(name))
            for turn in (1, 2):
                await client.send(headers={"x-session-id": "s"}, **chat(texts(turn, tokens=12_800)))
            return client.truth()

        first, second = run_virtual(play(name))
        assert (first.cached_tokens, second.cached_tokens) == (0, 12_800 - 128)
        assert second.replica == first.replica
