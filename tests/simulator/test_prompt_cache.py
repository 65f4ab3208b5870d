"""The simulated prompt cache: which beginnings it finds, for how long, and by how much they shorten
TTFT."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulator.in_virtual_time import Client, Exchange

from splitsecond.core import clock
from splitsecond.simulator.profile import EngineSpec, Profile, PromptCacheSpec, Quantiles, TableRow
from splitsecond.simulator.prompt_cache import PromptCache, automatic_prefixes, marked_prefixes
from splitsecond.simulator.truth import TruthRecord
from splitsecond.testing.virtual_time import run_virtual

MS = clock.NS_PER_MS
SECOND = clock.NS_PER_S
ROWS = (TableRow(concurrency=1, ttft_ms=Quantiles(100, 100), tps=Quantiles(100, 100)),)
SPEC = PromptCacheSpec(from_tokens=16, block_tokens=8, ttl_s=60, saves=0.5)
BLOCK = 8 * 4
"""Characters."""
TEMPLATE = 11
LONG = "x" * (10 * BLOCK)
OTHER = LONG[: 6 * BLOCK] + "y" * (4 * BLOCK)


def cached(**changes: Any) -> Profile:
    given = {
        "name": "p",
        "title": "t",
        "model": "m",
        "table": ROWS,
        "output_tokens": 5,
        "prompt_cache": SPEC,
    }
    return Profile(**{**given, **changes})


def one_after_another(
    profile: Profile, *prompts: str, pause_s: float = 0.0, **fields: Any
) -> list[tuple[Exchange, TruthRecord]]:
    """Send the prompts one after another; return their results."""

    async def play() -> list[tuple[Exchange, TruthRecord]]:
        client = Client(profile)
        seen = []
        for prompt in prompts:
            exchange = await client.send(messages=[{"role": "user", "content": prompt}], **fields)
            seen.append((exchange, client.truth()[-1]))
            await asyncio.sleep(pause_s)
        return seen

    return run_virtual(play())


def ttft_ms(record: TruthRecord) -> float:
    return (record.planned_ns[0] - record.arrived_ns) / MS


def test_shared_beginning_is_cached_in_whole_blocks() -> None:
    seen = one_after_another(cached(), LONG, LONG, OTHER, LONG[:BLOCK], "z" + LONG)
    assert [record.cached_tokens for _, record in seen] == [0, 80, 48, 0, 0]
    assert [exchange.json["usage"]["prompt_tokens_details"] for exchange, _ in seen] == [
        {"cached_tokens": count} for count in (0, 80, 48, 0, 0)
    ]
    assert {record.prompt_tokens for _, record in seen[:3]} == {80 + TEMPLATE}


def test_cached_tokens_shorten_ttft_in_proportion() -> None:
    times = [ttft_ms(record) for _, record in one_after_another(cached(), LONG, LONG, OTHER)]
    assert times == pytest.approx(
        [100, 100 * (1 - 0.5 * 80 / 91), 100 * (1 - 0.5 * 48 / 91)], abs=1e-5
    )


def test_engine_does_not_prefill_cached_tokens_again() -> None:
    engine = EngineSpec(
        slots=1,
        prefill_tokens_per_s=1000,
        prefill_chunk_tokens=512,
        step_base_ms=10,
        step_per_sequence_ms=0,
    )
    remembers = cached(
        table=(), engine=engine, prompt_cache=PromptCacheSpec(from_tokens=16, block_tokens=8)
    )
    times = [ttft_ms(record) for _, record in one_after_another(remembers, LONG, LONG, OTHER)]
    assert times == pytest.approx([10 + 91, 10 + 91 - 80, 10 + 91 - 48])


@pytest.mark.parametrize(("pause_s", "found"), [(59.8, 80), (60.1, 0)])
def test_cached_prompt_expires_without_use(pause_s: float, found: int) -> None:
    first, *later = one_after_another(cached(), LONG, LONG, LONG, pause_s=pause_s)
    assert first[1].cached_tokens == 0
    assert [record.cached_tokens for _, record in later] == [found, found]


def test_prompt_is_cached_from_the_first_token_on() -> None:
    async def play() -> list[int]:
        client = Client(cached(output_tokens=100))
        async with asyncio.TaskGroup() as tasks:
            for at_ms in (0, 99, 101):
                tasks.create_task(late(client, at_ms))
        return [
            record.cached_tokens
            for record in sorted(client.truth(), key=lambda record: record.arrived_ns)
        ]

    async def late(client: Client, at_ms: float) -> None:
        await asyncio.sleep(at_ms / 1000)
        await client.send(messages=[{"role": "user", "content": LONG}])

    assert run_virtual(play()) == [0, 0, 80]


def test_provider_without_a_cache_reports_no_cached_tokens() -> None:
    ((exchange, record), _) = one_after_another(cached(prompt_cache=None), LONG, LONG)
    assert "prompt_tokens_details" not in exchange.json["usage"]
    assert record.cached_tokens == 0


def marked(text: str, mark: bool = True) -> dict[str, Any]:
    return {"type": "text", "text": text} | (
        {"cache_control": {"type": "ephemeral"}} if mark else {}
    )


def messages(*requests: dict[str, Any]) -> list[tuple[dict[str, int], TruthRecord]]:
    """What Anthropic's API format counts of each."""

    async def play() -> list[tuple[dict[str, int], TruthRecord]]:
        client = Client(cached())
        seen = []
        for request in requests:
            exchange = await client.send(path="/v1/messages", max_tokens=3, **request)
            seen.append((exchange.json["usage"], client.truth()[-1]))
        return seen

    return run_virtual(play())


def counts(usage: dict[str, int]) -> tuple[int, int, int]:
    return (
        usage["input_tokens"],
        usage["cache_creation_input_tokens"],
        usage["cache_read_input_tokens"],
    )


def test_anthropic_caches_only_marked_content() -> None:
    plain = {"messages": [{"role": "user", "content": LONG}]}
    with_mark = {
        "messages": [{"role": "user", "content": [marked(LONG), marked("and so on", mark=False)]}]
    }
    seen = messages(plain, plain, with_mark, with_mark)
    rest = TEMPLATE + 3
    assert [counts(usage) for usage, _ in seen] == [
        (91, 0, 0),
        (91, 0, 0),
        (rest, 80, 0),
        (rest, 0, 80),
    ]
    assert [(record.cached_tokens, record.cache_write_tokens) for _, record in seen[2:]] == [
        (0, 80),
        (80, 0),
    ]
    assert ttft_ms(seen[2][1]) == pytest.approx(100)
    assert ttft_ms(seen[3][1]) == pytest.approx(100 * (1 - 0.5 * 80 / 94), abs=1e-5)


def test_growing_conversation_is_cached_although_its_mark_moves() -> None:
    turns = ["question " * 20, "answer " * 20, "another question " * 10]
    first = {"messages": [{"role": "user", "content": [marked(turns[0])]}]}
    second = {
        "system": [marked("short")],
        "messages": [{"role": "user", "content": turns[0]}],
    }
    third = {
        "messages": [
            {"role": "user", "content": turns[0]},
            {"role": "assistant", "content": turns[1]},
            {"role": "user", "content": [marked(turns[2])]},
        ]
    }
    (_, written, read), too_short, grown = (
        counts(usage) for usage, _ in messages(first, second, third)
    )
    assert (written, read) == (45, 0)
    assert too_short[1:] == (0, 0)
    assert grown[2] == 45
    assert grown[1] == -(-len("\n".join(turns)) // 4) - 45


def test_mark_on_the_request_marks_its_end() -> None:
    request = {
        "messages": [{"role": "user", "content": LONG}],
        "cache_control": {"type": "ephemeral"},
    }
    assert [counts(usage) for usage, _ in messages(request, request)] == [
        (TEMPLATE, 80, 0),
        (TEMPLATE, 0, 80),
    ]


def test_a_marked_cache_counts_each_part_of_a_conversation_once() -> None:
    spec = PromptCacheSpec(from_tokens=1, capacity_tokens=100)
    cache = PromptCache(spec)
    evicted = []
    for turn in range(1, 12):
        text = "\n".join(f"{part:0>39}" for part in range(turn))
        found = cache.look_up(marked_prefixes(spec, text, (len(text),)), turn)
        assert found.read_tokens == (10 * (turn - 1) if turn > 1 else 0)
        assert found.written_tokens == 10
        cache.use(found)
        evicted.append(cache.store(found.prefixes, turn))
    assert evicted == [0] * 10 + [10]
    assert cache.tokens == 100


@given(st.lists(st.sets(st.sampled_from(range(8, 49, 8)), max_size=4), max_size=20))
def test_a_full_marked_cache_keeps_the_parent_of_each_prefix(requests: list[set[int]]) -> None:
    spec = PromptCacheSpec(from_tokens=1, capacity_tokens=12, ttl_s=10e-9)
    cache = PromptCache(spec)
    for now_ns, marks in enumerate(requests):
        found = cache.look_up(marked_prefixes(spec, "x" * 48, tuple(sorted(marks))), now_ns)
        cache.use(found)
        cache.store(found.prefixes, now_ns)
        order = list(cache._entries)
        assert cache.tokens == sum(entry.tokens for entry in cache._entries.values()) <= 12
        parents = [
            (key, entry.parent) for key, entry in cache._entries.items() if entry.parent is not None
        ]
        assert all(order.index(key) < order.index(parent) for key, parent in parents)


GEMINI = "/v1beta/models/m:generateContent"
WAYS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "/v1/chat/completions": ({}, ["usage", "prompt_tokens_details", "cached_tokens"]),
    "/v1/completions": ({"prompt": LONG}, ["usage", "prompt_tokens_details", "cached_tokens"]),
    "/v1/responses": ({"input": LONG}, ["usage", "input_tokens_details", "cached_tokens"]),
    "/v2/chat": ({}, ["usage", "cached_tokens"]),
    GEMINI: (
        {"contents": [{"parts": [{"text": LONG}]}]},
        ["usageMetadata", "cachedContentTokenCount"],
    ),
}


@pytest.mark.parametrize("path", WAYS)
def test_each_api_format_reports_cached_tokens_in_its_own_field(path: str) -> None:
    fields, place = WAYS[path]

    async def play() -> list[Any]:
        client = Client(cached())
        asked = {"messages": [{"role": "user", "content": LONG}], **fields}
        bodies = [(await client.send(path=path, **asked)).json for _ in range(2)]
        for name in place:
            bodies = [body[name] for body in bodies]
        return bodies

    assert run_virtual(play()) == [0, 80]


@pytest.mark.parametrize("path", ["/api/chat", "/v1/models/simulated/m/predictions"])
def test_api_format_without_a_cache_field_still_answers_faster(path: str) -> None:
    async def play() -> tuple[list[float], bytes]:
        client = Client(cached())
        asked: dict[str, Any] = {
            "messages": [{"role": "user", "content": LONG}],
            "input": {"prompt": LONG},
        }
        exchanges = [await client.send(path=path, stream=False, **asked) for _ in range(2)]
        return [ttft_ms(record) for record in client.truth()], exchanges[1].body

    (first, second), body = run_virtual(play())
    assert second < first == 100
    assert b"cache" not in body


def read_tokens(cache: PromptCache, spec: PromptCacheSpec, text: str, now_ns: int) -> int:
    return cache.look_up(automatic_prefixes(spec, text), now_ns).read_tokens


def store(cache: PromptCache, spec: PromptCacheSpec, text: str, now_ns: int) -> int:
    """Store a prompt; return how many tokens were evicted."""
    return cache.store(automatic_prefixes(spec, text).prefixes, now_ns)


def test_full_cache_drops_the_least_recent_longest_prefix() -> None:
    cache = PromptCache(SPEC, most=20)
    texts = [letter * (10 * BLOCK) for letter in "abc"]
    for now, text in enumerate(texts):
        store(cache, SPEC, text, now)
    assert [read_tokens(cache, SPEC, text, 3) for text in texts] == [24, 80, 80]


@given(st.lists(st.text("ab", max_size=200), max_size=8))
def test_cache_finds_the_longest_stored_beginning(texts: list[str]) -> None:
    spec = PromptCacheSpec(from_tokens=3, block_tokens=2)
    cache = PromptCache(spec)
    for number, text in enumerate(texts):
        shared = max((_common(text, earlier) for earlier in texts[:number]), default=0) // 8 * 2
        assert read_tokens(cache, spec, text, number) == (shared if shared >= 3 else 0)
        store(cache, spec, text, number)


@given(
    st.lists(st.tuples(st.booleans(), st.text("ab", max_size=60), st.integers(0, 3)), max_size=30)
)
def test_least_recently_used_prefixes_are_dropped_as_in_a_list(
    steps: list[tuple[bool, str, int]],
) -> None:
    """The model is a list of texts, the least recently used first, with the time of the last store
    of each."""
    spec = PromptCacheSpec(from_tokens=3, block_tokens=2, capacity_tokens=20, ttl_s=10e-9)
    cache = PromptCache(spec)
    order: list[str] = []
    stored_ns: dict[str, int] = {}
    now_ns = 0
    for stores, text, pause_ns in steps:
        now_ns += pause_ns
        prefixes = [text[:end] for end in range(16, len(text) + 1, 8)]
        known = [one for one in prefixes if one in order and now_ns - stored_ns[one] <= 10]
        found = cache.look_up(automatic_prefixes(spec, text), now_ns)
        assert found.read_tokens == max((len(one) // 4 for one in known), default=0)
        cache.use(found)
        order = [one for one in order if one not in known] + known[::-1]
        if stores:
            stored_ns |= dict.fromkeys(prefixes, now_ns)
            order = [one for one in order if one not in prefixes] + prefixes[::-1]
            while order and now_ns - stored_ns[order[0]] > 10:
                del order[0]
            before = _sum(order)
            while _sum(order) > 20:
                del order[0]
            assert store(cache, spec, text, now_ns) == before - _sum(order)
        assert cache.tokens == _sum(order) <= 20


def _sum(prefixes: list[str]) -> int:
    """Return the tokens that the prefixes take: the shortest ones have four, and each longer one
    adds two."""
    return sum(4 if len(one) == 16 else 2 for one in prefixes)


def _common(one: str, other: str) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


def test_truth_contains_the_cached_tokens() -> None:
    async def play() -> Any:
        client = Client(cached())
        await client.send(messages=[{"role": "user", "content": LONG}])
        return msgspec.json.decode((await client.send(method="GET", path="/truth")).body)

    (record,) = run_virtual(play())
    assert (record["prompt_tokens"], record["cached_tokens"], record["cache_write_tokens"]) == (
        91,
        0,
        0,
    )
