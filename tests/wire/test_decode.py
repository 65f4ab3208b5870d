"""Reading answers: what the corpus and the transcripts do not already show, and properties over all
of the corpus."""

import pytest
from tests.cases import each_case, sampled_cases
from tests.streams import Stream, load
from tests.wire import conformance
from tests.wire.conformance import check_any_bytes, check_decoder, fault_of, repeated_at_places

from splitsecond.core.events import Done, Event, Finish, Quiet, Token, ToolPart, Usage
from splitsecond.core.wire import openai
from splitsecond.core.wire.sse import MAX_EVENT_BYTES
from splitsecond.core.wire.streaming import Decoder

STREAMS = [
    stream for stream in load() if sum(len(packet.data) for packet in stream.packets) < 10_000
]
WHOLE = [stream for stream in STREAMS if stream.truth.outcome == "ok"]


def body(stream: Stream) -> bytes:
    return b"".join(packet.data for packet in stream.packets)


def make() -> Decoder:
    return openai.decoder("chat")


def events_of(parts: list[bytes]) -> list[Event]:
    return conformance.events_of(make, parts)


def summary(events: list[Event]) -> tuple[str, Usage | None]:
    texts = "".join(
        f"{event.index}{event.kind}{event.text}" for event in events if isinstance(event, Token)
    )
    usages = [event for event in events if isinstance(event, Usage)]
    return texts, usages[-1] if usages else None


def test_events_carry_the_time_of_the_read_that_completed_them() -> None:
    decoder = openai.decoder("chat")
    assert decoder.feed(b'data: {"choices":[{"delta":{"content":"a"}}]}\n', 1) == []
    assert decoder.feed(b'\ndata: {"choices":[{"delta":{"content":"b"}}]}\n\n', 2) == [
        Token(2, "a"),
        Token(2, "b"),
    ]
    assert decoder.feed(b'data: {"choices":[{"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n', 3) == [
        Finish(3, "stop"),
        Done(3, True),
    ]
    assert decoder.feed(b'data: {"choices":[{"delta":{"content":"c"}}]}\n\n', 4) == []
    assert decoder.close(5) == []


def test_plain_json_arrives_with_its_last_byte() -> None:
    decoder = openai.decoder("completions")
    assert decoder.feed(b' {"choices":[{"text":"a",', 1) == []
    assert decoder.feed(b'"finish_reason":"stop"}]}', 2) == []
    assert decoder.close(9) == [Token(2, "a"), Finish(2, "stop"), Done(9, False)]
    assert decoder.close(10) == []


def test_a_plain_answer_without_choices_is_empty() -> None:
    assert fault_of(events_of([b'{"choices":[]}'])).kind == "empty_answer"


def test_invalid_numbers_in_plain_json_are_repaired() -> None:
    assert events_of([b'{"choices":[{"text":"a","logprobs":NaN}]}']) == [
        Token(0, "a"),
        Done(0, False),
    ]


def test_a_plain_answer_is_bounded() -> None:
    decoder = openai.decoder("chat")
    assert decoder.feed(b"{" + b" " * (MAX_EVENT_BYTES - 1), 0) == []
    assert fault_of(decoder.feed(b" ", 0)).kind == "malformed"
    assert decoder.close(0) == []


def test_faults_have_an_excerpt_and_a_phase() -> None:
    fault = fault_of(
        events_of([b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: {"choices":7}\n\n'])
    )
    assert (fault.kind, fault.phase, fault.status) == ("malformed", "between tokens", 200)
    assert fault.excerpt == '{"choices":7}'
    assert "$.choices" in fault.message
    fault = fault_of(events_of([b'data: {"error":{"message":"out of memory","code":1013}}\n\n']))
    assert (fault.kind, fault.phase) == ("in_band_error", "first token")
    assert "out of memory" in fault.message
    assert "1013" in fault.excerpt


def test_a_web_page_gets_a_hint() -> None:
    assert "base URL" in fault_of(events_of([b"<html>hello</html>"])).hint


@each_case(
    "chunk",
    [
        b'{"error":null,"choices":[{"delta":{"content":"a"}}]}',
        b'{"error":{},"choices":[{"delta":{"content":"a"}}]}',
        b'{"base_resp":{"status_code":0},"choices":[{"delta":{"content":"a"}}]}',
        b'{"x_groq":{"id":"r"},"choices":[{"delta":{"content":"a"}}]}',
        b'{"usage":{},"choices":[{"delta":{"content":"a"}}]}',
        b'{"x_groq":{"usage":{"total_tokens":3}},"choices":[{"delta":{"content":"a"},"usage":{}}]}',
        b'{"choices":[{"delta":{"content":"a","tool_calls":[],"audio":{}}}]}',
        b'{"choices":[{"delta":{"content":"a","tool_calls":[{"index":0},{"function":{"name":""}}]}}]}',
    ],
)
def test_empty_fields_give_no_events(chunk: bytes) -> None:
    decoder = openai.decoder("chat")
    assert decoder.feed(b"data: " + chunk + b"\n\n", 5) == [Token(5, "a")]


@each_case(
    "chunk, what",
    [
        (b"{}", "no choices"),
        (b'{"choices":[]}', "no choices"),
        (b'{"choices":[],"usage":{}}', "no choices"),
        (b'{"choices":[{}]}', "empty"),
        (b'{"choices":[{"text":""}]}', "empty"),
        (b'{"choices":[{"delta":{"role":"assistant"}}]}', "role"),
        (b" ", "empty"),
    ],
)
def test_quiet_chunks(chunk: bytes, what: str) -> None:
    assert openai.decoder("chat").feed(b"data: " + chunk + b"\n\n", 5) == [Quiet(5, what)]


def test_a_custom_tool_is_content() -> None:
    chunk = (
        b"data: "
        b'{"choices":[{"delta":{"tool_calls":[{"custom":{"name":"sql","input":"select"}}]}}]}\n\n'
    )
    assert openai.decoder("chat").feed(chunk, 1) == [
        Token(1, "sqlselect", "tool", tool=ToolPart(0, "", "sql"))
    ]


def test_an_image_is_content() -> None:
    image = (
        b'{"choices":[{"delta":{"images":[{"image_url":{"url":"data:image/png;base64,iV"}},'
        b'{"image_url":{}},{}]}}]}'
    )
    events = openai.decoder("chat").feed(b"data: " + image + b"\n\n", 1)
    assert events == [Token(1, "data:image/png;base64,iV", "image")]


def test_cache_write_tokens_are_read() -> None:
    usage = (
        b"data: "
        b'{"choices":[],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cache_write_tokens":7}}}\n\n'
    )
    assert openai.decoder("chat").feed(usage, 1) == [Usage(1, 9, None, None, None, 7)]


def test_litellms_cache_writes_for_an_hour_are_read() -> None:
    details = (
        b'{"cache_creation_tokens":7,'
        b'"cache_creation_token_details":{"ephemeral_1h_input_tokens":4}}'
    )
    usage = (
        b'data: {"choices":[],"usage":{"prompt_tokens":9,"prompt_tokens_details":%b}}\n\n' % details
    )
    assert openai.decoder("chat").feed(usage, 1) == [Usage(1, 9, None, None, None, 7, 4)]


def test_groqs_error_inside_a_stream() -> None:
    assert (
        fault_of(events_of([b'data: {"x_groq":{"error":"over capacity"}}\n\n'])).kind
        == "in_band_error"
    )


def test_cerebras_time_info() -> None:
    decoder = openai.decoder("chat")
    decoder.feed(
        b"data: "
        b'{"choices":[],"time_info":{"queue_time":0.1,"created":1,"note":"x","hot":true}}\n\n',
        1,
    )
    assert decoder.server_timings == {"queue_time": 0.1}


def test_an_error_event_in_json() -> None:
    fault = fault_of(events_of([b'event: error\ndata: {"error":{"message":"overloaded"}}\n\n']))
    assert fault.message.endswith("overloaded")


def test_usage_before_the_first_token_does_not_end_the_stream() -> None:
    opening = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":0}}\n\n'
    assert fault_of(events_of([opening])).kind == "truncated"
    token = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
    closing = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1}}\n\n'
    assert isinstance(events_of([opening, token, closing])[-1], Done)
    assert fault_of(events_of([opening, token, closing, token])).kind == "truncated"


def test_reasoning_above_the_output_is_added_to_it() -> None:
    usage = (
        b"data: "
        b'{"choices":[],"usage":{"completion_tokens":2,"completion_tokens_details":{"reasoning_tokens":9}}}\n\n'
    )
    assert openai.decoder("chat").feed(usage, 1) == [Usage(1, None, 11, 9, None)]


@pytest.mark.parametrize("last", [b": bye", b"id: 7\n", b"\n", b"event: end"])
def test_incomplete_last_event_after_the_end_breaks_it(last: bytes) -> None:
    end = b'data: {"choices":[{"index":0,"finish_reason":"stop"}]}\n\n'
    events = events_of([end, last])
    assert isinstance(events[-1], Done) == (last != b"event: end")


def test_json_nested_without_end_is_malformed() -> None:
    assert fault_of(events_of([b"data: " + b'{"a":' * 100_000 + b"\n\n"])).kind == "malformed"
    assert fault_of(events_of([b"data: " + b'{"a":' * 100_000])).kind == "truncated"
    assert (
        fault_of(events_of([b"event: error\ndata: " + b"[" * 100_000 + b"\n\n"])).kind
        == "in_band_error"
    )


@repeated_at_places
@sampled_cases(8)
@each_case("stream", STREAMS, ids=lambda stream: stream.name)
def test_decoder_handles_any_split_cut_or_wrong_byte(stream: Stream, repeats: int) -> None:
    check_decoder(
        make,
        [packet.data for packet in stream.packets],
        whole=stream.truth.outcome == "ok",
        places=repeats,
    )


def test_any_bytes_end_once() -> None:
    check_any_bytes(make)
