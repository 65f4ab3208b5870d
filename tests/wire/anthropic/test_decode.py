"""Reading Anthropic's answers: streams as its documentation and its client library's types describe
them, and properties over all of these."""

import json
from typing import Any

from tests.cases import each_case, sampled_cases
from tests.wire import conformance
from tests.wire.conformance import (
    check_any_bytes,
    check_decoder,
    fault_of,
    repeated_at_places,
    without_quiet,
)

from splitsecond.core.events import Done, Event, Finish, Quiet, Token, ToolPart, Usage
from splitsecond.core.wire import anthropic
from splitsecond.core.wire.sse import MAX_EVENT_BYTES
from splitsecond.core.wire.streaming import Decoder


def event(name: str, **fields: Any) -> bytes:
    return (
        f"event: {name}\ndata: {json.dumps({'type': name, **fields}, ensure_ascii=False)}\n\n"
    ).encode()


def start(**usage: Any) -> bytes:
    message: dict[str, Any] = {
        "model": "claude-haiku-4-5-20251001",
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 12,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 3,
            "service_tier": "standard",
            **usage,
        },
    }
    return event("message_start", message=message)


def block(index: int, **fields: Any) -> bytes:
    return event("content_block_start", index=index, content_block=fields)


def delta(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def stop(index: int) -> bytes:
    return event("content_block_stop", index=index)


def end(reason: str, **usage: Any) -> bytes:
    return event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=usage)


PING = event("ping")
OVER = event("message_stop")
OVERLOADED = event(
    "error", error={"type": "overloaded_error", "message": "Overloaded"}, request_id="req_01"
)

STREAMS: dict[str, list[bytes]] = {
    "text": [
        start(),
        block(0, type="text", text=""),
        PING,
        delta(0, "text_delta", text="Hello"),
        delta(0, "text_delta", text=" “you” 😀\n"),
        stop(0),
        end("end_turn", input_tokens=12, cache_read_input_tokens=0, output_tokens=15),
        OVER,
    ],
    "thinking": [
        start(input_tokens=4, cache_creation_input_tokens=100, cache_read_input_tokens=2000),
        block(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="Let me"),
        delta(0, "thinking_delta", thinking=" see"),
        delta(0, "signature_delta", signature="EqQBCgIYAhIM"),
        stop(0),
        block(1, type="redacted_thinking", data="EmwKAhgB"),
        stop(1),
        block(2, type="text", text=""),
        delta(2, "text_delta", text="27"),
        delta(
            2,
            "citations_delta",
            citation={"type": "char_location", "cited_text": "x", "document_index": 0},
        ),
        stop(2),
        end("end_turn", output_tokens=90, output_tokens_details={"thinking_tokens": 80}),
        OVER,
    ],
    "written for an hour": [
        start(
            input_tokens=4,
            cache_creation_input_tokens=100,
            cache_creation={"ephemeral_5m_input_tokens": 40, "ephemeral_1h_input_tokens": 60},
        ),
        block(0, type="text", text="Hi"),
        stop(0),
        end("end_turn", output_tokens=2),
        OVER,
    ],
    "tool": [
        start(),
        block(0, type="tool_use", id="toolu_01", name="weather", input={}),
        delta(0, "input_json_delta", partial_json=""),
        delta(0, "input_json_delta", partial_json='{"city": "Gen'),
        delta(0, "input_json_delta", partial_json='ève"}'),
        stop(0),
        end("tool_use", output_tokens=40),
        OVER,
    ],
    "server tool": [
        start(),
        block(0, type="server_tool_use", id="srvtoolu_01", name="web_search", input={}),
        delta(0, "input_json_delta", partial_json='{"query":"x"}'),
        stop(0),
        block(
            1,
            type="web_search_tool_result",
            tool_use_id="srvtoolu_01",
            content=[{"type": "web_search_result"}],
        ),
        stop(1),
        event("message_delta", delta={"stop_reason": None}, usage={"output_tokens": 20}),
        block(2, type="text", text="Found"),
        stop(2),
        end(
            "end_turn",
            input_tokens=5000,
            output_tokens=30,
            server_tool_use={"web_search_requests": 1},
        ),
        OVER,
    ],
    "refusal": [start(), end("refusal", output_tokens=1), OVER],
    "data alone": [
        b"data: "
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}\n\n',
        b'data: {"type":"message_delta","delta":{"stop_reason":"max_tokens"}}\n\n',
    ],
    "plain": [
        json.dumps(
            {
                "id": "msg_01",
                "type": "message",
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm", "signature": "Eq"},
                    {"type": "text", "text": "Yes."},
                    {"type": "tool_use", "id": "toolu_01", "name": "f", "input": {"a": 1}},
                ],
                "stop_reason": "tool_use",
                "usage": {"input_tokens": 5, "cache_read_input_tokens": 10, "output_tokens": 7},
            }
        ).encode()
    ],
}
BROKEN: dict[str, list[bytes]] = {
    "error": [*STREAMS["text"][:4], OVERLOADED],
    "unfinished": STREAMS["text"][:6],
    "end mark alone": [*STREAMS["text"][:6], OVER],
    "plain error": [
        b'{"type":"error","error":{"type":"api_error","message":"Internal server error"}}'
    ],
}
ALL = STREAMS | BROKEN


def make() -> Decoder:
    return anthropic.decoder("chat")


def events_of(parts: list[bytes]) -> list[Event]:
    return conformance.events_of(make, parts)


def said(name: str) -> list[Event]:
    decoder = anthropic.decoder("chat")
    return [
        event for at, part in enumerate(STREAMS[name]) for event in decoder.feed(part, at)
    ] + decoder.close(99)


def test_tokens_written_for_an_hour() -> None:
    usages = [event for event in said("written for an hour") if isinstance(event, Usage)]
    assert [
        (each.input_tokens, each.cache_write_tokens, each.cache_write_1h_tokens) for each in usages
    ] == [
        (104, 100, 60),
        (104, 100, 60),
    ]


def test_text() -> None:
    assert said("text") == [
        Quiet(0, "message_start"),
        Usage(0, 12, None, None, 0, 0),
        Quiet(1, "content_block_start"),
        Quiet(2, "ping"),
        Token(3, "Hello"),
        Token(4, " “you” 😀\n"),
        Quiet(5, "content_block_stop"),
        Finish(6, "end_turn"),
        Usage(6, 12, 15, None, 0, 0),
        Done(7, True),
    ]


def test_thinking_is_reasoning_and_input_includes_cached_tokens() -> None:
    assert without_quiet(said("thinking")) == [
        Usage(0, 2104, None, None, 2000, 100),
        Token(2, "Let me", "reasoning"),
        Token(3, " see", "reasoning"),
        Token(9, "27"),
        Finish(12, "end_turn"),
        Usage(12, 2104, 90, 80, 2000, 100),
        Done(13, True),
    ]


def test_signatures_and_redacted_thinking_are_kept() -> None:
    assert [event for event in said("thinking") if isinstance(event, Quiet) and event.data] == [
        Quiet(4, "signature", "EqQBCgIYAhIM"),
        Quiet(6, "redacted_thinking", "EmwKAhgB"),
    ]


def test_a_tool_call_is_its_name_and_its_arguments() -> None:
    assert [event for event in said("tool") if isinstance(event, Token)] == [
        Token(1, "weather", "tool", tool=ToolPart(0, "toolu_01", "weather")),
        Token(3, '{"city": "Gen', "tool", tool=ToolPart(0)),
        Token(4, 'ève"}', "tool", tool=ToolPart(0)),
    ]
    assert said("tool")[3] == Quiet(2, "content_block_delta")


def test_results_of_server_tools_are_no_content() -> None:
    assert without_quiet(said("server tool"))[1:] == [
        Token(1, "web_search", "tool"),
        Token(2, '{"query":"x"}', "tool"),
        Usage(6, 12, 20, None, 0, 0),
        Token(7, "Found"),
        Finish(9, "end_turn"),
        Usage(9, 5000, 30, None, 0, 0),
        Done(10, True),
    ]


def test_refusal_is_an_empty_response_that_ended() -> None:
    assert without_quiet(said("refusal"))[1:] == [
        Finish(1, "refusal"),
        Usage(1, 12, 1, None, 0, 0),
        Done(2, True),
    ]


def test_events_without_names_and_without_an_end_mark() -> None:
    assert said("data alone") == [Token(0, "a"), Finish(1, "max_tokens"), Done(99, False)]


def test_event_name_replaces_a_missing_type() -> None:
    feed = anthropic.decoder("chat").feed
    assert feed(b'event: content_block_delta\ndata: {"delta":{"text":"a"}}\n\n', 1) == [
        Token(1, "a")
    ]


def test_a_plain_answer_arrives_with_its_last_byte() -> None:
    assert said("plain") == [
        Token(0, "Hm", "reasoning"),
        Quiet(0, "signature", "Eq"),
        Token(0, "Yes.", "text"),
        Token(0, "f", "tool", tool=ToolPart(0, "toolu_01", "f")),
        Token(0, '{"a": 1}', "tool", tool=ToolPart(0)),
        Finish(0, "tool_use"),
        Usage(0, 15, 7, None, 10),
        Done(99, False),
    ]
    decoder = anthropic.decoder("chat")
    assert decoder.feed(b' {"content":[]', 1) == decoder.feed(b"}", 2) == []
    assert decoder.close(3) == [Done(3, False)]


@each_case(
    "body, kind",
    [
        (b"{}", "malformed"),
        (b'{"content":7}', "malformed"),
        (b'{"content":[', "truncated"),
        (b'{"type":"error"}', "in_band_error"),
        (b'{"error":"no"}', "in_band_error"),
        (b"<html>hello</html>", "malformed"),
        (b"", "empty_answer"),
        (b": ping\n\n", "empty_answer"),
        (b'data: {"type":', "truncated"),
        (b'data: {"delta":7}\n\n', "malformed"),
        (b"event: error\ndata: no\n\n", "in_band_error"),
        (b'event: error\ndata: {"type":"error"}\n\n', "in_band_error"),
        (start(), "truncated"),
        (OVER, "truncated"),
    ],
)
def test_invalid_bodies_give_a_fault(body: bytes, kind: str) -> None:
    assert fault_of(events_of([body])).kind == kind


def test_an_error_in_the_middle() -> None:
    fault = fault_of(events_of(BROKEN["error"]))
    assert (fault.kind, fault.phase, fault.status) == ("in_band_error", "between tokens", 200)
    assert fault.message.endswith("Overloaded")
    assert "overloaded_error" in fault.excerpt
    assert fault_of(events_of([OVERLOADED])).phase == "first token"


def test_end_mark_without_a_stop_reason_is_truncated() -> None:
    fault = fault_of(events_of(BROKEN["end mark alone"]))
    assert fault.kind == "truncated"
    assert "without a stop_reason after 2 content events and message_stop" in fault.message
    assert "base URL" in fault_of(events_of([b"<html>hello</html>"])).hint


def test_token_counts_never_decrease() -> None:
    usages = [
        event
        for event in events_of(
            [start(input_tokens=0), end("end_turn", input_tokens=7, output_tokens=2)]
        )
        if isinstance(event, Usage)
    ]
    assert usages == [Usage(0, 7, 2, None, 0, 0)]
    usages = [
        event
        for event in events_of([start(), end("end_turn", input_tokens=0)])
        if isinstance(event, Usage)
    ]
    assert usages[-1] == Usage(0, 12, None, None, 0, 0)
    assert anthropic.decoder("chat").feed(event("message_delta", delta={}, usage={}), 1) == [
        Quiet(1, "message_delta")
    ]


@each_case(
    "fields, events",
    [
        (
            b'{"type":"content_block_start","content_block":{"type":"text","text":"a"}}',
            [Token(5, "a")],
        ),
        (
            b'{"type":"content_block_start","content_block":{"type":"thinking","thinking":null}}',
            None,
        ),
        (b'{"type":"content_block_start","content_block":{"type":"tool_use","name":""}}', None),
        (b'{"type":"content_block_start","content_block":{"type":"tool_use","input":null}}', None),
        (b'{"type":"content_block_delta","delta":{"type":"text_delta","text":""}}', None),
        (b'{"type":"content_block_delta","delta":{"type":"compaction_delta","content":"x"}}', None),
        (b'{"type":"content_block_delta"}', None),
        (b'{"type":"content_block_delta","error":null,"delta":{"text":"a"}}', [Token(5, "a")]),
        (b'{"type":"something_new","index":{"a":[]}}', None),
        (b"{}", [Quiet(5, "empty")]),
        (b" ", [Quiet(5, "empty")]),
        (b"[DONE]", [Quiet(5, "empty")]),
    ],
)
def test_single_events(fields: bytes, events: list[Event] | None) -> None:
    got = anthropic.decoder("chat").feed(b"data: " + fields + b"\n\n", 5)
    assert got == (events if events is not None else [Quiet(5, json.loads(fields)["type"])])


def test_comments_are_quiet() -> None:
    assert anthropic.decoder("chat").feed(b": hello\n\n", 5) == [Quiet(5, "comment")]


def test_lenient_json_is_read() -> None:
    broken = b'data: {"type":"content_block_delta","delta":{"text":"\\ude00"},"x":NaN}\n\n'
    assert anthropic.decoder("chat").feed(broken, 1) == [Token(1, "?")]
    assert events_of([b'{"content":[{"type":"text","text":"a\xff"}]}'])[0] == Token(0, "a�")


def test_nothing_grows_without_bound() -> None:
    for begin in (b"{", b"data: "):
        decoder = anthropic.decoder("chat")
        assert decoder.feed(begin + b" " * (MAX_EVENT_BYTES - len(begin)), 0) == []
        assert fault_of(decoder.feed(b" ", 0)).kind == "malformed"
        assert decoder.feed(b"x", 0) == []
        assert decoder.close(0) == []


def test_json_nested_without_end() -> None:
    assert fault_of(events_of([b"data: " + b'{"a":' * 100_000 + b"\n\n"])).kind == "malformed"
    assert fault_of(events_of([b'{"a":' * 100_000])).kind == "truncated"
    assert (
        fault_of(events_of([b"event: error\ndata: " + b"[" * 100_000 + b"\n\n"])).kind
        == "in_band_error"
    )


@repeated_at_places
@sampled_cases(8)
@each_case("name", ALL)
def test_decoder_handles_any_split_cut_or_wrong_byte(name: str, repeats: int) -> None:
    check_decoder(make, ALL[name], whole=name in STREAMS, places=repeats)


def test_any_bytes_end_once() -> None:
    check_any_bytes(make)
