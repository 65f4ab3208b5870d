"""Assembling an answer from a hostile stream takes linear time, and raises only faults."""

from collections.abc import Callable
from contextlib import suppress

import msgspec
import pytest
from tests.cases import each_case, sampled_cases
from tests.worst_case import (
    JSON_KINDS,
    LINE_KINDS,
    ORDERS,
    Make,
    check_bounded,
    check_linear,
    in_pieces,
    numbered,
    repeated,
)

from splitsecond.core.errors import ProviderFault
from splitsecond.core.wire.anthropic.client_side import MessageAssembly
from splitsecond.core.wire.assembly import MAX_INDEXES, Assembly
from splitsecond.core.wire.openai.client_side import ChunkAssembly, chunks
from splitsecond.core.wire.responses.client_side import ResponseAssembly
from splitsecond.core.wire.sse import MAX_EVENT_BYTES

ASSEMBLIES: dict[str, Callable[[], Assembly]] = {
    "chat": ChunkAssembly,
    "messages": MessageAssembly,
    "responses": ResponseAssembly,
}


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def reader(make: Callable[[], Assembly], size: int) -> Callable[[bytes], object]:
    def feed(text: bytes) -> None:
        assembly = make()
        for piece in in_pieces(text, size):
            assembly.feed(piece)
        list(chunks(assembly.answer(), usage=True))

    return feed


def inside(before: bytes, make: Make, after: bytes) -> Make:
    return lambda size: before + make(size) + after


INDEXED: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "choices": (
        "chat",
        lambda index: event(b'{"choices":[{"index":%d,"delta":{"content":"a"}}]}' % index),
    ),
    "tool calls": (
        "chat",
        lambda index: event(
            b'{"choices":[{"index":0,"delta":{"tool_calls":[{"index":%d,"function":{"arguments":"a"}}]}}]}'
            % index
        ),
    ),
    "own fields": ("chat", lambda index: event(b'{"other":[{"index":%d,"text":"a"}]}' % index)),
    "blocks": (
        "messages",
        lambda index: event(
            b'{"type":"content_block_start","index":%d,"content_block":{"type":"text"}}' % index
        ),
    ),
    "deltas": (
        "messages",
        lambda index: event(
            b'{"type":"content_block_delta","index":%d,"delta":{"text":"a"}}' % index
        ),
    ),
}


@sampled_cases(10)
@each_case("order", ORDERS)
@each_case("kind", INDEXED)
def test_assembly_of_many_indexes_takes_linear_time(kind: str, order: str) -> None:
    name, item = INDEXED[kind]
    make = numbered(item, order)
    check_linear(reader(ASSEMBLIES[name], 1 << 16), make, size=1 << 18)


def test_more_indexes_than_any_answer_has_are_refused() -> None:
    assembly, one = ChunkAssembly(), b'{"choices":[{"index":%d,"delta":{"content":"a"}}]}'
    for index in range(MAX_INDEXES):
        assembly.feed(event(one % index))
    with pytest.raises(ProviderFault, match="16,384") as refused:
        assembly.feed(event(one % MAX_INDEXES))
    assert refused.value.kind == "too_long"


@sampled_cases(8)
@each_case("kind", LINE_KINDS)
def test_hostile_lines(kind: str) -> None:
    check_linear(reader(ChunkAssembly, 1 << 16), LINE_KINDS[kind], size=1 << 18)


@sampled_cases(12)
@each_case("name", ASSEMBLIES)
@each_case("kind", JSON_KINDS)
def test_hostile_json(kind: str, name: str) -> None:
    make, feed = JSON_KINDS[kind], reader(ASSEMBLIES[name], 1 << 16)
    # Python 3.14 reads 25,000 levels of nesting. So much of the stack leaves the caches, so a level
    # costs more there.
    size = 1 << (16 if kind.startswith("nested") else 18)
    check_linear(feed, make, size=size)
    check_linear(feed, inside(b"data: ", make, b"\n\n"), size=size)
    check_linear(feed, inside(b'data: {"choices":', make, b"}\n\n"), size=size)


@sampled_cases(10)
@each_case("kind", JSON_KINDS)
def test_assembly_of_hostile_json_takes_bounded_memory(kind: str) -> None:
    check_bounded(
        reader(ChunkAssembly, 1 << 16), inside(b"data: ", JSON_KINDS[kind], b"\n\n"), size=1 << 18
    )


def test_many_citations() -> None:
    one = event(
        b'{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{}}}'
    )
    check_linear(reader(MessageAssembly, 1 << 16), repeated(one))


def test_many_pieces_of_a_text() -> None:
    one = event(b'{"choices":[{"index":0,"delta":{"content":"a"}}]}')
    check_linear(reader(ChunkAssembly, 100), repeated(one), size=1 << 19)


@each_case("depth", [*range(100, 1000, 50), 5_000])
@each_case("place", ["other", "choices"])
def test_an_event_of_any_depth_is_merged_or_refused(place: str, depth: int) -> None:
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}"), (b'[{"index":0,"a":', b"}]")):
        text = (
            b'data: {"%s":' % place.encode() + opening * depth + b"1" + closing * depth + b"}\n\n"
        )
        with suppress(ProviderFault):
            reader(ChunkAssembly, 1 << 16)(text)
        with suppress(ProviderFault):
            reader(ChunkAssembly, 1 << 16)(text[6:])


@each_case(
    "value",
    [b"null", b"1", b'"a"', b"[]", b"{}", b"[1]", b'["a"]', b"[null]", b"[[]]", b"[{}]", b"true"],
)
@each_case(
    "around",
    [
        b"%s",
        b'{"choices":%s}',
        b'{"object":%s}',
        b'{"usage":%s}',
        b'{"choices":[{"index":%s,"delta":{}}]}',
        b'{"choices":[{"index":0,"delta":%s}]}',
        b'{"choices":[{"index":0,"message":%s,"delta":{}}]}',
        b'{"choices":[{"index":0,"delta":{"tool_calls":%s}}]}',
        b'{"choices":[{"index":0,"message":{"tool_calls":%s}}]}',
        b'{"choices":[{"index":0,"delta":{"content":%s}}]}',
        b'{"type":"message_start","message":%s}',
        b'{"type":"content_block_start","index":%s,"content_block":{}}',
        b'{"type":"content_block_start","index":0,"content_block":%s}',
        b'{"type":"content_block_delta","index":0,"delta":%s}',
        b'{"type":"content_block_delta","index":0,"delta":{"text":%s}}',
        b'{"type":"message_delta","delta":%s,"usage":%s}',
        b'{"type":"response.completed","response":%s}',
    ],
)
def test_values_of_other_types(around: bytes, value: bytes) -> None:
    body = around.replace(b"%s", value)
    twice = event(body) + event(b'{"choices":[{"index":0,"delta":{"content":"a"}}]}') + event(body)
    for make in ASSEMBLIES.values():
        for text in (event(body), twice, body):
            with suppress(ProviderFault):
                reader(make, 1 << 16)(text)


def test_an_event_that_is_too_long_is_not_left_out_silently() -> None:
    assembly = ChunkAssembly()
    assembly.feed(b"data: " + b"a" * (MAX_EVENT_BYTES - 6))
    with pytest.raises(ProviderFault, match="longer"):
        assembly.feed(b"a")


def test_calls_of_one_choice_are_merged_by_their_index() -> None:
    assembly = ChunkAssembly()
    for index in (1, 0, 1, 0):
        assembly.feed(
            event(
                b'{"choices":[{"delta":{"tool_calls":[{"index":%d,"function":{"name":"f","arguments":"a"}}]}}]}'
                % index
            )
        )
    calls = msgspec.json.decode(assembly.answer())["choices"][0]["message"]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == ["aa", "aa"]


def test_a_call_that_is_never_named_is_no_answer() -> None:
    assembly = ChunkAssembly()
    assembly.feed(
        event(
            b'{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"arguments":"a"}}]}}]}'
        )
    )
    with pytest.raises(ProviderFault, match="has no name"):
        assembly.answer()
