"""Cohere's answers, read: streams as its documentation shows them, every split, every cut, every
corrupt byte."""

import json
from typing import Any

from tests.cases import each_case
from tests.wire import conformance
from tests.wire.conformance import (
    check_any_bytes,
    check_decoder,
    fault_of,
    plain,
    repeated_at_places,
    without_quiet,
)

from splitsecond.core.events import Done, Event, Finish, Quiet, Token, ToolPart, Usage
from splitsecond.core.wire import cohere
from splitsecond.core.wire.sse import MAX_EVENT_BYTES
from splitsecond.core.wire.streaming import Decoder

USAGE = {
    "billed_units": {"input_tokens": 5.0, "output_tokens": 2.0},
    "tokens": {"input_tokens": 71.0, "output_tokens": 4},
    "cached_tokens": 64,
}


def event(name: str, message: dict[str, Any] | None = None, **fields: Any) -> bytes:
    delta = {} if message is None else {"delta": {"message": message}}
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields, **delta})}\n\n".encode()


def end(reason: str = "COMPLETE", **fields: Any) -> bytes:
    return event("message-end", delta={"finish_reason": reason, **fields})


START = event(
    "message-start", {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": []}, id="x"
)
TEXT = (
    START
    + event("content-start", {"content": {"type": "text", "text": ""}}, index=0)
    + event("content-delta", {"content": {"text": "The"}}, index=0)
    + event("content-delta", {"content": {"text": " sky 😀"}}, index=0)
    + event(
        "citation-start",
        {"citations": {"start": 0, "end": 3, "text": "The", "sources": []}},
        index=0,
    )
    + event("citation-end", index=0)
    + event("content-end", index=0)
    + end(usage=USAGE)
)
TOOLS = (
    START
    + event("tool-plan-delta", {"tool_plan": "I will"})
    + event("tool-plan-delta", {"tool_plan": " look."})
    + event(
        "tool-call-start",
        {"tool_calls": {"id": "c", "function": {"name": "weather", "arguments": ""}}},
        index=0,
    )
    + event("tool-call-delta", {"tool_calls": {"function": {"arguments": '{"city"'}}}, index=0)
    + event("tool-call-delta", {"tool_calls": {"function": {"arguments": ": 7}"}}}, index=0)
    + event("tool-call-end", index=0)
    + end("TOOL_CALL", usage=USAGE)
)
THINKING = (
    START
    + event("content-start", {"content": {"type": "thinking", "thinking": ""}}, index=0)
    + event("content-delta", {"content": {"thinking": "Hm"}}, index=0)
    + event("content-end", index=0)
    + event("content-start", {"content": {"type": "text", "text": "Y"}}, index=1)
    + event("content-delta", {"content": {"text": "es"}}, index=1)
    + event("content-end", index=1)
    + end("MAX_TOKENS")
    + b"data: [DONE]\n\n"
)
FAILED = TEXT.partition(b"event: citation-start")[0] + end("ERROR", error="the model stopped")
WHOLE = json.dumps(
    {
        "id": "x",
        "finish_reason": "COMPLETE",
        "message": {
            "role": "assistant",
            "tool_plan": "I will look.",
            "content": [{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "Yes"}],
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}
            ],
        },
        "usage": USAGE,
    }
).encode()
BODIES = {"text": TEXT, "tools": TOOLS, "thinking": THINKING, "failed": FAILED, "whole": WHOLE}
COUNTED = Usage(0, 71, 4, None, 64)


def make() -> Decoder:
    return cohere.decoder("chat")


def events_of(*parts: bytes) -> list[Event]:
    return conformance.events_of(make, parts)


def test_a_streamed_chat() -> None:
    assert events_of(TEXT) == [
        Quiet(0, "message-start"),
        Quiet(0, "content-start"),
        Token(0, "The"),
        Token(0, " sky 😀"),
        Quiet(0, "citation-start"),
        Quiet(0, "citation-end"),
        Quiet(0, "content-end"),
        Finish(0, "COMPLETE"),
        COUNTED,
        Done(0, True),
    ]


def test_events_carry_the_time_of_the_read_that_completed_them() -> None:
    decoder = cohere.decoder("chat")
    delta = event("content-delta", {"content": {"text": "a"}})
    assert decoder.feed(START + delta[:30], 1) == [Quiet(1, "message-start")]
    assert decoder.feed(delta[30:], 2) == [Token(2, "a")]
    assert decoder.feed(delta, 3) == [Token(3, "a")]
    assert decoder.feed(end(), 4) == [Finish(4, "COMPLETE"), Done(4, True)]
    assert decoder.feed(delta, 5) == []
    assert decoder.close(5) == []


def test_tool_plan_is_reasoning_and_tool_call_is_tool() -> None:
    tokens: list[Event] = [
        Token(0, "I will", "reasoning"),
        Token(0, " look.", "reasoning"),
        Token(0, "weather", "tool", tool=ToolPart(0, "c", "weather")),
        Token(0, '{"city"', "tool", tool=ToolPart(0)),
        Token(0, ": 7}", "tool", tool=ToolPart(0)),
    ]
    assert without_quiet(events_of(TOOLS)) == [
        *tokens,
        Finish(0, "TOOL_CALL"),
        COUNTED,
        Done(0, True),
    ]


def test_thinking() -> None:
    tokens: list[Event] = [Token(0, "Hm", "reasoning"), Token(0, "Y"), Token(0, "es")]
    assert without_quiet(events_of(THINKING)) == [*tokens, Finish(0, "MAX_TOKENS"), Done(0, True)]


def test_an_event_with_two_pieces() -> None:
    both = event("content-delta", {"content": {"thinking": "Hm", "text": "Yes"}})
    assert events_of(both, both, end())[2:4] == [Token(0, "Hm", "reasoning"), Token(0, "Yes")]


def test_tool_calls_may_come_in_a_list() -> None:
    calls = {"tool_calls": [{"function": {"name": "now", "arguments": "{}"}}, {}]}
    token = without_quiet(events_of(event("tool-call-start", calls), end()))[0]
    assert token == Token(0, "now{}", "tool", tool=ToolPart(0, "", "now"))


def test_a_plain_answer_arrives_with_its_last_byte() -> None:
    decoder = cohere.decoder("chat")
    assert decoder.feed(WHOLE[:50], 1) == decoder.feed(WHOLE[50:], 2) == []
    tokens: list[Event] = [
        Token(2, "I will look.", "reasoning"),
        Token(2, "Hm", "reasoning"),
        Token(2, "Yes"),
        Token(2, "now{}", "tool", tool=ToolPart(0, "c", "now")),
    ]
    assert decoder.close(9) == [
        *tokens,
        Finish(2, "COMPLETE"),
        Usage(2, 71, 4, None, 64),
        Done(2, False),
    ]
    assert decoder.close(9) == []


def test_billed_units_are_used_without_other_counts() -> None:
    billed = {"billed_units": {"input_tokens": 5, "output_tokens": 2, "search_units": 1}}
    assert Usage(0, 5, 2) in events_of(START, end(usage=billed))
    assert not any(
        isinstance(event, Usage) for event in events_of(START, end(usage={"tokens": {}}))
    )


@each_case(
    "data, what",
    [
        (b": ping\n\n", "comment"),
        (b"data: \n\n", "empty"),
        (b"data: {}\n\n", "empty"),
        (event("debug", prompt="x"), "debug"),
        (event("content-delta", {"content": {"text": ""}}), "content-delta"),
        (event("content-delta", {"content": "", "tool_calls": None}), "content-delta"),
        (event("content-end"), "content-end"),
    ],
)
def test_events_without_content_are_quiet(data: bytes, what: str) -> None:
    assert events_of(START, data, TEXT)[1] == Quiet(0, what)


@each_case(
    "last, words",
    [
        (end("ERROR", error="the model stopped"), "the model stopped"),
        (end("ERROR"), "finish_reason is ERROR"),
        (end("ERROR_TOXIC"), "finish_reason is ERROR_TOXIC"),
        (end("TIMEOUT"), "finish_reason is TIMEOUT"),
        (b'event: error\ndata: {"message":"internal server error"}\n\n', "internal server error"),
        (b"event: error\ndata: oh no\n\n", "oh no"),
        (b'data: {"type":"error","message":"no"}\n\n', "no"),
        (b'data: {"message":"too many requests"}\n\n', "too many requests"),
        (b'data: {"error":{"message":"broken"}}\n\n', "broken"),
    ],
)
def test_errors_inside_a_stream(last: bytes, words: str) -> None:
    fault = fault_of(events_of(event("content-delta", {"content": {"text": "a"}}), last))
    assert (fault.kind, fault.phase, fault.status) == ("in_band_error", "between tokens", 200)
    assert fault.message.endswith(words)


@each_case(
    "body, kind, words",
    [
        (b"", "empty_answer", "answer is empty"),
        (START, "truncated", "without message-end after 0 content"),
        (START + b"data: [DONE]\n\n", "truncated", "without message-end"),
        (TEXT[:-40], "truncated", "inside an event after 2 content"),
        (b"<html>hello</html>", "malformed", "neither"),
        (b"data: {\n\n", "malformed", "not the JSON"),
        (b'data: {"delta":7}\n\n', "malformed", "delta"),
        (b"data: " + b'{"a":' * 100_000 + b"\n\n", "malformed", "not the JSON"),
        (b"{}", "malformed", "without a message"),
        (b'{"message":', "truncated", "not the JSON"),
        (b'{"message":7}', "malformed", "message"),
        (b'{"message":"invalid request"}', "in_band_error", "invalid request"),
        (b'{"message":{"content":[]},"finish_reason":"ERROR"}', "in_band_error", "ERROR"),
    ],
)
def test_broken_answers(body: bytes, kind: str, words: str) -> None:
    fault = fault_of(events_of(body))
    assert fault.kind == kind
    assert words in fault.message


def test_a_web_page_gets_a_hint() -> None:
    assert "/v2" in fault_of(events_of(b"<!DOCTYPE html>\n")).hint


def test_lenient_json() -> None:
    half = b'data: {"delta":{"message":{"content":{"text":"\\ude00"}}}}\n\n'
    assert events_of(half, half)[:2] == [Token(0, "?"), Token(0, "?")]
    broken = (
        b"event: content-delta\ndata: "
        b'{"type":"content-delta","delta":{"message":{"content":{"text":"\xff"}}}}\n\n'
    )
    assert events_of(broken, broken)[:2] == [Token(0, "\ufffd"), Token(0, "\ufffd")]
    assert events_of(b'{"message":{"content":"\xff"},"x":NaN}')[0] == Token(0, "\ufffd")


def test_bodies_are_bounded() -> None:
    for start in (b"{", b"data: "):
        decoder = cohere.decoder("chat")
        assert decoder.feed(start + b" " * (MAX_EVENT_BYTES - len(start)), 0) == []
        assert fault_of(decoder.feed(b" ", 0)).kind == "malformed"
        assert decoder.close(0) == []


@each_case(
    "fields",
    [
        b'{"type":"content-delta"}',
        b'{"type":"content-delta","delta":{"message":null}}',
        b'{"type":"content-end","index":0}',
        b'{"type":"content-delta","error":"no"}',
        b'{"type":"content-delta","delta":{"message":{},"error":"no","finish_reason":"ERROR"}}',
        b'{"type":"content-delta","message":"no","delta":{"message":{}}}',
        b'{"type":"content-delta","delta":{"message":{"content":{"text":"a"},"tool_plan":"b"}}}',
        b'{"type":"content-delta","delta":{"message":{"content":"a"}}}',
        b'{"type":"content-delta","delta":{"message":{"content":{"text":""}}}}',
        b"[DONE]",
        b"{",
    ],
)
def test_odd_event_gives_the_same_alone_and_among_others(fields: bytes) -> None:
    token = event("content-delta", {"content": {"text": "a"}})
    odd = b"event: content-delta\ndata: " + fields + b"\n\n"
    alone, together = (
        events_of(token, odd, token + token, end()),
        events_of(token + odd + token + token + end()),
    )
    assert plain(alone) == plain(together)


@repeated_at_places
@each_case("name", BODIES)
def test_decoder_handles_any_split_cut_or_wrong_byte(name: str, repeats: int) -> None:
    events = [part + b"\n\n" for part in BODIES[name].split(b"\n\n")[:-1]] or [BODIES[name]]
    check_decoder(make, events, whole=name != "failed", places=repeats)


def test_any_bytes_end_once() -> None:
    check_any_bytes(make)
