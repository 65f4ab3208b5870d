"""Whatever a provider sends, decoding it takes linear time and bounded memory, and raises
nothing."""

import json
from collections.abc import Callable

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

from splitsecond.core.errors import EXCERPT_BYTES, ProviderFault
from splitsecond.core.events import Broken, Done, Token
from splitsecond.core.service import Call
from splitsecond.core.wire import anthropic, cohere, gemini, ollama, openai, replicate, responses
from splitsecond.core.wire.openai.client_side import ChunkEncoder, without_logprobs
from splitsecond.core.wire.openai.decode import MAX_CHOICES
from splitsecond.core.wire.provider_errors import fault_from_response
from splitsecond.core.wire.responses.client_side import ResponseEncoder
from splitsecond.core.wire.sse import MAX_EVENT_BYTES, EventCutter, SseDecoder
from splitsecond.core.wire.streaming import Decoder
from splitsecond.routing.machinery.replies.delivered import DeliveredText, ReplayDiff

DECODERS: dict[str, Callable[[], Decoder]] = {
    "openai": lambda: openai.decoder("chat"),
    "embeddings": lambda: openai.decoder("embeddings"),
    "anthropic": lambda: anthropic.decoder("chat"),
    "gemini": lambda: gemini.decoder("chat"),
    "cohere": lambda: cohere.decoder("chat"),
    "ollama": lambda: ollama.decoder("chat"),
    "responses": lambda: responses.decoder("chat"),
    "replicate": lambda: replicate.decoder("chat"),
}
SMALL = 1 << 17
"""For readers that are slow, and kinds that many readers share."""
NONE: tuple[type[BaseException], ...] = ()


def event(data: bytes, name: bytes = b"") -> bytes:
    return (b"event: " + name + b"\n" if name else b"") + b"data: " + data + b"\n\n"


def reader(name: str, size: int = 1 << 16) -> Callable[[bytes], object]:
    def feed(text: bytes) -> None:
        decoder = DECODERS[name]()
        last = [event for piece in in_pieces(text, size) for event in decoder.feed(piece, 1)][-1:]
        last = decoder.close(2)[-1:] or last
        assert isinstance(last[0], Done | Broken)

    return feed


def inside(before: bytes, make: Make, after: bytes) -> Make:
    return lambda size: before + make(size) + after


WRAPPINGS = (
    b"%b",
    b"data: %b\n\n",
    b"event: error\ndata: %b\n\n",
    b"event: done\ndata: %b\n\n",
    b'{"error":%b}\n',
    b'data: {"error":{"message":%b}}\n\n',
    b'{"status":"succeeded","output":%b}',
    b'data: {"timings":%b,"choices":[{"delta":{"content":"a"}}]}\n\n',
)


@sampled_cases(16)
@each_case("wrapping", WRAPPINGS)
@each_case("name", DECODERS)
@each_case("kind", JSON_KINDS)
def test_decoding_hostile_json_takes_linear_time(kind: str, name: str, wrapping: bytes) -> None:
    before, after = wrapping.split(b"%b")
    check_linear(reader(name), inside(before, JSON_KINDS[kind], after), size=SMALL, allowed=NONE)


@sampled_cases(16)
@each_case("size", [1 << 16, 100])
@each_case("kind", LINE_KINDS)
@each_case("name", ["openai", "ollama"])
def test_decoding_hostile_lines_takes_linear_time(name: str, kind: str, size: int) -> None:
    check_linear(reader(name, size), LINE_KINDS[kind], size=1 << 17, allowed=NONE)


@sampled_cases(16)
@each_case("kind", LINE_KINDS)
@each_case("name", ["openai", "ollama"])
def test_lines_take_bounded_memory(name: str, kind: str) -> None:
    check_bounded(reader(name), LINE_KINDS[kind], size=1 << 17, allowed=NONE, bytes_per_byte=200)


INDEXED: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "choices": (
        "openai",
        lambda n: event(
            b'{"choices":[{"index":%d,"delta":{"content":"a"},"usage":{"completion_tokens":1}}]}'
            % n
        ),
    ),
    "tool calls": (
        "openai",
        lambda n: event(
            b'{"choices":[{"index":0,"delta":{"tool_calls":[{"index":%d,"function":{"name":"f"}}]}}]}'
            % n
        ),
    ),
    "blocks": (
        "anthropic",
        lambda n: event(
            b'{"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","name":"f"}}'
            % n
        ),
    ),
    "candidates": (
        "gemini",
        lambda n: event(
            b'{"candidates":[{"index":%d,"content":{"parts":[{"functionCall":{"name":"f"}}]}}]}' % n
        ),
    ),
    "items": (
        "responses",
        lambda n: event(
            b'{"type":"response.output_item.added","output_index":%d,"item":{"type":"function_call","name":"f"}}'
            % n
        ),
    ),
    "cohere's calls": (
        "cohere",
        lambda n: event(
            b'{"type":"tool-call-start","index":%d,"delta":{"message":{"tool_calls":{"function":{"name":"f"}}}}}'
            % n
        ),
    ),
}


@sampled_cases(10)
@each_case("order", ORDERS)
@each_case("kind", INDEXED)
def test_decoding_many_indexes_takes_linear_time(kind: str, order: str) -> None:
    name, item = INDEXED[kind]
    check_linear(reader(name), numbered(item, order), size=1 << 19, allowed=NONE)


def test_decoding_many_usage_events_takes_linear_time() -> None:
    two = event(
        b'{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"a"}}]}'
    )
    make = repeated(event(b'{"choices":[],"usage":{"completion_tokens":1}}'), two)
    check_linear(reader("openai"), make, allowed=NONE)


def test_more_choices_than_any_answer_has_break_it() -> None:
    decoder = DECODERS["openai"]()
    one = b'{"choices":[{"index":%d,"delta":{"content":"a"}}]}'
    events = [
        each for index in range(MAX_CHOICES + 1) for each in decoder.feed(event(one % index), 1)
    ]
    assert all(isinstance(each, Token) for each in events[:-1])
    assert isinstance(events[-1], Broken)
    assert str(MAX_CHOICES) in events[-1].fault.message


def test_an_event_that_holds_its_text_many_times() -> None:
    first = event(b'{"choices":[{"delta":{"content":"a"}}]}')
    make = repeated(
        b'"a",', first + b'data: {"x":[', b'1],"choices":[{"delta":{"content":"a"}}]}\n\n'
    )
    check_linear(reader("openai"), make, allowed=NONE)


def test_timings_are_few_and_finite() -> None:
    timings = {f"t{number}" * 20: 1 for number in range(100)}
    for each in (timings, {"big": 10**400}, {"bigger": -(10**400)}):
        decoder = DECODERS["openai"]()
        decoder.feed(event(json.dumps({"choices": [], "timings": each}).encode()), 1)
        assert len(decoder.server_timings) <= 32
        assert all(len(name) <= 64 for name in decoder.server_timings)


@each_case("field", ["message", "code", "type", "status"])
def test_an_error_of_any_length_is_a_short_message(field: str) -> None:
    def feed(text: bytes) -> None:
        body = b'{"error":{"%s":"%s"}}' % (field.encode(), text)
        assert len(fault_from_response(500, {}, body).message) < 2 * EXCERPT_BYTES
        events = DECODERS["openai"]().feed(event(body), 1)
        assert isinstance(events[-1], Broken)
        assert len(events[-1].fault.message) < 2 * EXCERPT_BYTES

    check_linear(feed, repeated(b"a "), allowed=NONE)


@sampled_cases(16)
@each_case("kind", JSON_KINDS)
def test_a_refusal(kind: str) -> None:
    def feed(body: bytes) -> None:
        for status in (400, 403, 429, 500):
            fault_from_response(status, {}, body)

    make = JSON_KINDS[kind]
    for each in (
        make,
        inside(b'{"error":', make, b"}"),
        inside(b'{"error":{"details":', make, b"}}"),
    ):
        check_linear(feed, each, size=SMALL, allowed=NONE)


@sampled_cases(8)
@each_case("kind", LINE_KINDS)
@each_case("size", [7, 1_400])
def test_events_are_read_from_small_pieces(kind: str, size: int) -> None:
    def feed(text: bytes) -> None:
        decoder = SseDecoder()
        for piece in in_pieces(text, size):
            decoder.feed(piece)

    check_linear(feed, LINE_KINDS[kind], size=1 << 17, allowed=NONE)


@sampled_cases(4)
@each_case("size", [20, 1_400])
@each_case("kind", LINE_KINDS)
def test_events_are_cut_from_small_pieces(kind: str, size: int) -> None:
    def feed(text: bytes) -> None:
        cutter = EventCutter()
        assert (
            b"".join([cutter.feed(piece) for piece in in_pieces(text, size)]) + cutter.rest()
            == text
        )

    check_linear(feed, LINE_KINDS[kind], allowed=NONE)


def test_event_above_the_maximum_length_is_refused() -> None:
    cutter = EventCutter()
    cutter.feed(b"a" * MAX_EVENT_BYTES)
    with pytest.raises(ProviderFault, match="longer"):
        cutter.feed(b"a")


def test_continuation_encoder_cuts_a_long_event_in_linear_time() -> None:
    def feed(text: bytes) -> None:
        encoder = ChunkEncoder("chat")
        for piece in in_pieces(text, 20):
            encoder.cut(piece)

    check_linear(feed, LINE_KINDS["one long field"], allowed=NONE)


def test_many_parts_of_one_item_take_linear_time() -> None:
    begin = event(
        b'{"type":"response.output_item.added","output_index":0,"item":{"type":"message","content":[]}}'
    )
    part = event(
        b'{"type":"response.content_part.done","output_index":0,"part":{"type":"output_text","text":""}}'
    )

    def feed(text: bytes) -> None:
        encoder = ResponseEncoder(Call(id="c", operation="chat", body={}, api_format="responses"))
        for piece in in_pieces(text, 1 << 16):
            encoder.decode(encoder.cut(piece), 1)

    check_linear(feed, repeated(part, begin), allowed=NONE)


def test_replay_of_many_choices_takes_linear_time() -> None:
    def feed(text: bytes) -> None:
        count = len(text) // 100
        delivered_text = DeliveredText()
        delivered_text.add([Token(1, "ab", index=index) for index in range(count)])
        again = ReplayDiff(delivered_text)
        for index in range(count):
            again.take([Token(1, "ab", index=index)])
        assert again.caught_up
        for index in range(count):
            again.take([Token(1, "ab", index=index)])

    check_linear(feed, repeated(b"a"), allowed=NONE)


@each_case("depth", range(100, 2_000, 100))
def test_log_probabilities_of_any_depth_are_left_out_or_kept(depth: int) -> None:
    body = b'{"choices":[{"logprobs":{}}],"deep":' + b"[" * depth + b"]" * depth + b"}"
    assert without_logprobs(body)
