"""`cache`: which answers are kept, and for which clients; identical requests in flight are sent
once."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.cases import each_case
from tests.policies.branches import a_call, fails, play, scripted, status
from tests.policies.test_cascade import read_all, shown

from splitsecond.core.errors import CallerFault, NetworkFault, ProviderFault, TimedOut
from splitsecond.core.events import Done, Token
from splitsecond.core.service import Call, Operation, Service
from splitsecond.routing.machinery.replies.shared_reply import RecordedChunk
from splitsecond.routing.machinery.settings import MemorySize, flag
from splitsecond.routing.policies.cache import CHUNK_BYTES, Cache, _in_large_chunks, _key, cache
from splitsecond.testing.fake_service import FakeService, Script

MESSAGES = [{"role": "user", "content": "Hi"}]


def asks(
    text: str = "Hi",
    *,
    within_ms: int | None = None,
    stream: bool = True,
    cache: str = "",
    client: str = "",
    **more: object,
) -> Call:
    fields = {"messages": [{"role": "user", "content": text}], "temperature": 0, **more}
    body = {name: Raw(msgspec.json.encode(value)) for name, value in fields.items()}
    hints = {"cache": cache} if cache else {}
    call = a_call(within_ms=within_ms)
    return msgspec.structs.replace(call, body=body, stream=stream, client=client, hints=hints)


async def cache_states(service: Service, *calls: Call) -> list[str]:
    """Read the answers to calls one after the other; return `Notes.cache` of each."""
    for call in calls:
        await shown(service, call)
    return [call.notes.cache for call in calls]


def numbered() -> FakeService:
    """A script that answers with the number of the call."""
    fake: FakeService = FakeService(
        script=lambda call: Script(ttft=0.2, tokens=2, texts=(f"{len(fake.calls)}",))
    )
    return fake


def test_a_hit_is_the_same_answer_at_once_without_a_request() -> None:
    fake = numbered()

    async def main() -> None:
        service = cache(fake)
        first, second = asks(), asks(stream=False)
        assert (
            await shown(service, first) == await shown(service, second) == ("fake/model", "1word")
        )
        assert (first.notes.cache, second.notes.cache) == ("miss", "hit")
        assert len(fake.calls) == 1
        async with await service(asks()) as reply:
            events = [event async for event in reply]
        assert [event.text for event in events if isinstance(event, Token)] == ["1", "word"]
        assert isinstance(events[-1], Done)
        assert all(event.at == events[0].at for event in events)

    play(main, [fake])


SAME: list[dict[str, Any]] = [
    {"user": "me"},
    {"metadata": {"a": "b"}},
    {"stream": True, "stream_options": {"include_usage": True}},
    {"top_p": None},
]
OTHER: list[dict[str, Any]] = [
    {"top_p": 0.5},
    {"model": "b"},
    {"messages": []},
    {"temperature": 0.0001, "seed": 1},
    {"own": [1, 2]},
]


def test_fields_that_affect_the_response_are_in_the_cache_key() -> None:
    base = _key(asks(), sampled=False)
    assert base is not None
    for more in SAME:
        assert _key(asks(**more), sampled=False) == base, more
    for more in OTHER:
        assert _key(asks(**more), sampled=False) not in (base, None), more
    turned = msgspec.structs.replace(asks(), body=dict(reversed(list(asks().body.items()))))
    assert _key(turned, sampled=False) == base
    deep = [asks(tools=[{"a": 1, "b": 2}]), asks(tools=[{"b": 2, "a": 1}])]
    assert _key(deep[0], sampled=False) == _key(deep[1], sampled=False)
    assert _key(msgspec.structs.replace(asks(), operation="completions"), sampled=False) != base
    assert _key(asks(client="a"), sampled=False) != _key(asks(client="b"), sampled=False)
    plain = msgspec.structs.replace(asks(), body={"messages": MESSAGES, "temperature": 0})
    assert _key(plain, sampled=False) == base


NOT_KEPT: list[dict[str, Any]] = [
    {"temperature": 1},
    {"temperature": None},
    {"store": True},
    {"web_search_options": {}, "background": True},
    {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}],
            }
        ]
    },
    {"messages": "x" * (2 << 20)},
]


@each_case("more", NOT_KEPT)
def test_unrepeatable_or_large_requests_are_not_cached(more: dict[str, Any]) -> None:
    fake = numbered()

    async def main() -> None:
        assert await cache_states(cache(fake), asks(**more), asks(**more)) == ["", ""]
        assert len(fake.calls) == 2
        assert not fake.calls[0].call.watched

    play(main, [fake])


@pytest.mark.parametrize(
    ("more", "sampled", "operation", "kept"),
    [
        ({"temperature": 1}, True, "chat", True),
        ({"temperature": 1, "seed": 7}, False, "chat", True),
        ({"temperature": None}, False, "embeddings", True),
        ({"temperature": 1}, False, "chat", False),
    ],
)
def test_repeatable_answers_are_kept(
    more: dict[str, Any], sampled: bool, operation: Operation, kept: bool
) -> None:
    call = msgspec.structs.replace(asks(**more), operation=operation)
    assert (_key(call, sampled=sampled) is not None) == kept


def _image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


@each_case(
    ("part", "kept"),
    [
        (_image("HTTPS://x/a.png"), False),
        (_image("gs://bucket/a.png"), False),
        (_image("s3://bucket/a.png"), False),
        (_image("data:image/png;base64,aa=="), True),
        (_image("DATA:image/png;base64,aa=="), True),
        ({"type": "image_url", "image_url": "Http://x/a.png"}, False),
        ({"type": "video_url", "video_url": {"url": "ftp://x/a.mp4"}}, False),
        ({"type": "file", "file": {"file_id": "file-1"}}, False),
        ({"type": "file", "file": {"file_data": "https://x/a.pdf"}}, False),
        (
            {
                "type": "file",
                "file": {"file_data": "data:application/pdf;base64,aa==", "filename": "a"},
            },
            True,
        ),
        ({"type": "input_image", "file_id": "file-1"}, False),
        ({"type": "document", "source": {"type": "file", "file_id": "file_1"}}, False),
        ({"fileData": {"fileUri": "gs://bucket/a.png"}}, False),
        ({"type": "text", "text": 'the field "url":"https://x" of a "file_id":"a"'}, True),
        ({"type": "function", "parameters": {"properties": {"url": {"type": "string"}}}}, True),
    ],
)
def test_requests_with_references_are_not_cached(part: dict[str, Any], kept: bool) -> None:
    messages = Raw(msgspec.json.encode([{"role": "user", "content": [part]}]))
    call = msgspec.structs.replace(asks(), body={"messages": messages, "temperature": Raw(b"0")})
    assert (_key(call, sampled=False) is not None) == kept


@each_case(
    "field",
    [
        {"conversation": {"id": "conv_1"}},
        {"conversation": "conv_1"},
        {"prompt": {"id": "pmpt_1"}},
        {"container": "cntr_1"},
        {"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]},
        {"tools": [{"type": "mcp", "server_url": "https://x"}]},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
    ],
)
def test_requests_that_use_stored_state_are_not_cached(field: dict[str, Any]) -> None:
    assert _key(asks(**field), sampled=True) is None


def test_a_field_that_is_no_json_is_not_kept() -> None:
    call = msgspec.structs.replace(asks(), body={"temperature": 0, "messages": Raw(b"[" * 100_000)})
    assert _key(call, sampled=True) is None


def test_clients_never_share_answers() -> None:
    fake = numbered()

    async def main() -> None:
        service = cache(fake)
        assert await cache_states(
            service, asks(client="a"), asks(client="b"), asks(client="a")
        ) == [
            "miss",
            "miss",
            "hit",
        ]

    play(main, [fake])


@pytest.mark.parametrize(
    "script",
    [
        Script(tokens=0),
        Script(fault=NetworkFault("cut", kind="reset", phase="between tokens"), breaks_after=2),
    ],
)
def test_only_complete_answers_are_kept(script: Script) -> None:
    fake = scripted(script)

    async def main() -> None:
        service = cache(fake)
        for _ in range(2):
            async with await service(asks()) as reply:
                assert len([event async for event in reply]) > 0
        assert len(fake.calls) == 2

    play(main, [fake])


def test_a_closed_answer_is_not_kept() -> None:
    fake = numbered()

    async def main() -> None:
        service = cache(fake)
        await (await service(asks())).aclose()
        assert await cache_states(service, asks()) == ["miss"]

    play(main, [fake])


def test_answers_expire_and_clients_can_request_fresh_ones() -> None:
    fake = numbered()

    async def main() -> None:
        service = cache(fake, ttl="10s")
        assert await cache_states(
            service, asks(), asks(cache="no-store"), asks(cache="max-age=60")
        ) == [
            "miss",
            "",
            "hit",
        ]
        assert await cache_states(service, asks(cache="private, No-Cache")) == ["miss"]
        assert await shown(service, asks()) == ("fake/model", "3word")  # the fresh one is kept
        await asyncio.sleep(5)
        assert await cache_states(service, asks(cache="max-age=4"), asks(cache="max-age=x")) == [
            "miss",
            "hit",
        ]
        await asyncio.sleep(10)
        assert await cache_states(service, asks()) == ["miss"]

    play(main, [fake])


def test_full_cache_drops_the_least_recently_used_response() -> None:
    long = "x" * 150_000
    fake: FakeService = scripted(Script(ttft=0, tokens=1, texts=(long,)))

    async def main() -> None:
        service = cache(fake, size="1MB")
        assert isinstance(service, Cache)
        for name in ("a", "b", "c", "d", "e", "f"):
            await cache_states(service, asks(name))
        assert await cache_states(service, asks("a")) == ["hit"]
        await cache_states(service, asks("g"))
        assert service._bytes <= 1_000_000
        assert await cache_states(service, asks("a"), asks("b")) == ["hit", "miss"]

    play(main, [fake])


def test_an_answer_too_large_for_the_cache_is_not_kept() -> None:
    fake = scripted(Script(ttft=0, tokens=1, texts=("x" * 400_000,)))

    async def main() -> None:
        assert await cache_states(cache(fake, size="1MB"), asks(), asks()) == ["miss", "miss"]

    play(main, [fake])


def test_chunks_are_merged_in_order() -> None:
    pieces = [RecordedChunk(b"%04d" % number, (Token(number, "x"),)) for number in range(5000)]
    joined = _in_large_chunks(deque(pieces))
    assert b"".join(piece.data for piece in joined) == b"".join(piece.data for piece in pieces)
    assert [event.at for piece in joined for event in piece.events] == list(range(5000))
    assert len(joined) == -(-20_000 // CHUNK_BYTES)


# Identical requests in flight.


def test_identical_requests_are_sent_once_and_read_as_they_come() -> None:
    fake = numbered()

    async def main() -> None:
        service, calls = cache(fake), [asks(), asks(stream=False), asks()]
        async with asyncio.TaskGroup() as group:
            answers = [group.create_task(shown(service, call)) for call in calls]
        assert {answer.result()[1] for answer in answers} == {"1word"}
        assert [call.notes.cache for call in calls] == ["miss", "shared", "shared"]
        assert len(fake.calls) == 1
        leader = await service(asks("live"))
        follower = await service(asks("live"))
        assert await follower.read()
        assert fake.calls[1].observation is None  # it reads before the answer has ended
        await leader.aclose()
        await follower.aclose()

    play(main, [fake])


def test_followers_continue_when_the_leader_leaves_a_stream() -> None:
    fake = scripted(Script(ttft=0.2, tokens=5))

    async def main() -> None:
        service = cache(fake)
        leader = await service(asks())
        followers = [await service(asks()) for _ in range(2)]
        await leader.read()
        await leader.aclose()
        for follower in followers:
            assert (
                sum(isinstance(event, Token) for event in [event async for event in follower]) == 5
            )
            await follower.aclose()
        assert await cache_states(service, asks()) == ["hit"]
        assert len(fake.calls) == 1

    play(main, [fake])


def test_other_readers_continue_when_one_is_cancelled() -> None:
    fake = scripted(Script(ttft=0.2, tokens=5, tps=10))

    async def main() -> None:
        service = cache(fake)
        tasks = [asyncio.create_task(shown(service, asks())) for _ in range(3)]
        await asyncio.sleep(0.25)
        tasks[0].cancel()
        await asyncio.sleep(0.1)
        tasks[1].cancel()
        assert (await tasks[2])[1] == "word" * 5
        assert len(fake.calls) == 1

    play(main, [fake])


def test_the_request_is_closed_when_all_readers_have_left() -> None:
    fake = scripted(Script(ttft=0.2, tokens=5))

    async def main() -> None:
        service = cache(fake)
        replies = [await service(asks()) for _ in range(3)]
        for reply in replies:
            assert fake.left_open == 1
            await reply.aclose()
        assert fake.left_open == 0
        assert await cache_states(service, asks()) == ["miss"]

    play(main, [fake])


def test_follower_takes_over_if_the_leader_leaves_before_a_token() -> None:
    fake = scripted(Script(ttft=0.2, tokens=2))

    async def main() -> None:
        service = cache(fake)
        tasks = [asyncio.create_task(shown(service, asks())) for _ in range(3)]
        await asyncio.sleep(0.1)
        tasks[0].cancel()
        assert (await tasks[1])[1] == (await tasks[2])[1] == "wordword"
        assert len(fake.calls) == 2

    play(main, [fake])


def test_all_readers_get_a_failure_before_the_first_token() -> None:
    fake = scripted(fails(status(503)), Script())

    async def main() -> None:
        service = cache(fake)
        tasks = [asyncio.create_task(shown(service, asks())) for _ in range(3)]
        await asyncio.wait(tasks)
        assert all(isinstance(task.exception(), ProviderFault) for task in tasks)
        assert len(fake.calls) == 1
        assert await cache_states(service, asks()) == ["miss"]

    play(main, [fake])


def test_followers_keep_their_own_deadline() -> None:
    fake = scripted(Script(ttft=0.5, tokens=10, tps=10))

    async def main() -> None:
        service = cache(fake)
        leader = asyncio.create_task(shown(service, asks(within_ms=9000)))
        await asyncio.sleep(0)
        early, late = asks(within_ms=200), asks(within_ms=700)
        with pytest.raises(TimedOut, match="identical request"):
            await shown(service, early)
        async with await service(late) as reply:
            with pytest.raises(TimedOut, match="shared with another"):
                await read_all(reply)
        assert (await leader)[1] == "word" * 10
        assert len(fake.calls) == 1

    play(main, [fake])


def test_a_call_with_a_later_deadline_or_a_stream_is_sent_alone() -> None:
    fake = scripted(Script(ttft=0.2, tokens=2))

    async def main() -> None:
        service = cache(fake)
        calls = [
            asks(within_ms=1000),
            asks(within_ms=2000),
            asks("other", stream=False),
            asks("other", stream=True),
        ]
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(shown(service, call))
        assert [call.notes.cache for call in calls] == ["miss"] * 4

    play(main, [fake])


def test_only_a_reader_far_behind_gets_an_error() -> None:
    fake = scripted(Script(ttft=0.2, tokens=40, tps=100, texts=("x" * 400_000,) * 40))

    async def main() -> None:
        service = cache(fake, size="1GB")
        slow, fast = await service(asks()), await service(asks())
        total = 0
        while data := await fast.read():
            total += len(data)
        assert total > 16_000_000
        with pytest.raises(Exception, match="faster than it was read"):
            await slow.read()
        await slow.aclose()
        await fast.aclose()

    play(main, [fake])


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 150, 200, 230, 400]),
            st.none() | st.sampled_from([0, 100, 199, 200, 220, 300]),
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(
        [
            Script(ttft=0.2, tokens=5),
            fails(status(503), 0.2),
            Script(ttft=0.2, breaks_after=2, fault=status(500)),
        ]
    ),
)
def test_callers_join_and_leave_at_any_time(
    callers: Sequence[tuple[int, int | None]], script: Script
) -> None:
    fake = scripted(script)

    async def main() -> None:
        service = cache(fake)

        async def caller(starts_ms: int, leaves_ms: int | None) -> None:
            await asyncio.sleep(starts_ms / 1000)
            task = asyncio.create_task(shown(service, asks()))
            if leaves_ms is not None:
                asyncio.get_running_loop().call_later(leaves_ms / 1000, task.cancel)
            await asyncio.wait([task])
            if not task.cancelled() and task.exception() is None:
                assert task.result()[1] == "word" * 5

        async with asyncio.TaskGroup() as group:
            for each in callers:
                group.create_task(caller(*each))
        assert isinstance(service, Cache)
        assert not service._flights

    play(main, [fake])


def test_settings_are_read_and_invalid_ones_refused() -> None:
    assert [MemorySize.parse("size", text).size for text in ("64MB", "2GB")] == [
        64_000_000,
        2_000_000_000,
    ]
    assert flag("sampled", True)
    for wrong in ("0MB", "65GB", "64", 64, "1.5GB"):
        with pytest.raises(CallerFault, match="size is"):
            MemorySize.parse("size", wrong)
    with pytest.raises(CallerFault, match="sampled is"):
        flag("sampled", 1)
