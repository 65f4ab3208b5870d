"""Reading answers of the Responses API: streams as OpenAI's client library types them, and what may
be wrong."""

import json
from typing import Any

import pytest
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
from splitsecond.core.wire import responses
from splitsecond.core.wire.sse import MAX_EVENT_BYTES
from splitsecond.core.wire.streaming import Decoder

USAGE = {
    "input_tokens": 12,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
    "output_tokens": 15,
    "output_tokens_details": {"reasoning_tokens": 6},
    "total_tokens": 27,
}
COUNTED = Usage(0, 12, 15, 6, 4, 2)


def event(kind: str, **fields: Any) -> bytes:
    data = json.dumps({"type": kind, **fields, "sequence_number": 1}, ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n".encode()


def response(status: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "status": status,
        "output": [],
        "error": None,
        **fields,
    }


def delta(kind: str, text: str, number: int = 0) -> bytes:
    return event(
        f"response.{kind}.delta", item_id="x", output_index=number, content_index=0, delta=text
    )


def added(item: dict[str, Any], number: int = 0) -> bytes:
    return event("response.output_item.added", output_index=number, item=item)


def ended(item: dict[str, Any], number: int = 0) -> bytes:
    return event("response.output_item.done", output_index=number, item=item)


def message(*parts: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": list(parts),
    }


def call(arguments: str, number: int = 1) -> dict[str, Any]:
    return {
        "id": f"fc_{number}",
        "type": "function_call",
        "call_id": f"c{number}",
        "name": "f",
        "arguments": arguments,
    }


SAID = message({"type": "output_text", "text": "Hello “you” 😀\n", "annotations": []})
THOUGHT = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Let me see"}],
}
CREATED = event("response.created", response=response("in_progress")) + event(
    "response.in_progress", response=response("in_progress")
)
OVER = event("response.completed", response=response("completed", usage=USAGE))

STREAMS: dict[str, list[bytes]] = {
    "text": [
        CREATED,
        added(message()),
        event("response.content_part.added", part={"type": "output_text", "text": ""}),
        delta("output_text", "Hello"),
        delta("output_text", " “you” 😀\n"),
        event("response.output_text.annotation.added", annotation={"type": "url_citation"}),
        event("response.output_text.done", text="Hello “you” 😀\n"),
        ended(SAID),
        OVER,
    ],
    "thinking": [
        CREATED,
        added({"id": "rs_1", "type": "reasoning", "summary": []}),
        delta("reasoning_summary_text", "Let me"),
        delta("reasoning_text", " see"),
        ended({**THOUGHT, "encrypted_content": "gAAA"}),
        delta("refusal", "No.", 1),
        event(
            "response.incomplete",
            response=response("incomplete", incomplete_details={"reason": "content_filter"}),
        ),
    ],
    "tools": [
        CREATED,
        added(call("")),
        delta("function_call_arguments", '{"city": "Gen'),
        delta("function_call_arguments", 'ève"}'),
        ended(call('{"city": "Genève"}')),
        added({"type": "custom_tool_call", "call_id": "c9", "name": "sql", "input": ""}, 1),
        delta("custom_tool_call_input", "select", 1),
        added({"type": "code_interpreter_call"}, 2),
        delta("code_interpreter_call_code", "2+2", 2),
        OVER,
    ],
    "no deltas": [
        CREATED,
        ended(THOUGHT),
        ended(SAID, 1),
        ended(call("{}"), 2),
        ended(call("[]", 2), 3),
        OVER,
    ],
    "only an end": [
        event("response.completed", response=response("completed", output=[SAID, call("{}")]))
    ],
    "image": [
        added({"type": "image_generation_call"}),
        ended({"type": "image_generation_call", "result": "iVBO", "output_format": "webp"}),
        ended({"type": "image_generation_call", "result": None}, 1),
        OVER,
    ],
    "plain": [
        json.dumps(
            response(
                "completed", output=[THOUGHT, SAID, call('{"a":1}'), {"type": "new"}], usage=USAGE
            )
        ).encode()
    ],
}
FAILURE = {"code": "server_error", "message": "The model failed"}
BROKEN: dict[str, list[bytes]] = {
    "failed": [
        *STREAMS["text"][:5],
        event("response.failed", response=response("failed", error=FAILURE)),
    ],
    "error": [
        *STREAMS["text"][:5],
        event("error", code="server_error", message="The model failed", param=None),
    ],
    "unfinished": STREAMS["text"][:8],
    "end mark alone": [*STREAMS["text"][:8], b"data: [DONE]\n\n"],
    "plain error": [b'{"error":{"message":"The model failed","code":"server_error"}}'],
}
ALL = STREAMS | BROKEN


def make() -> Decoder:
    return responses.decoder("chat")


def events_of(*parts: bytes) -> list[Event]:
    return conformance.events_of(make, parts)


def test_text() -> None:
    decoder = make()
    assert [
        event for at, part in enumerate(STREAMS["text"]) for event in decoder.feed(part, at)
    ] == [
        Quiet(0, "response.created"),
        Quiet(0, "response.in_progress"),
        Quiet(1, "response.output_item.added"),
        Quiet(2, "response.content_part.added"),
        Token(3, "Hello"),
        Token(4, " “you” 😀\n"),
        Quiet(5, "response.output_text.annotation.added"),
        Quiet(6, "response.output_text.done"),
        Quiet(7, "response.output_item.done"),
        Finish(8, "completed"),
        Usage(8, 12, 15, 6, 4, 2),
        Done(8, True),
    ]
    assert decoder.feed(OVER, 9) == decoder.close(9) == []


def test_reasoning_summaries_and_refusals_are_decoded() -> None:
    assert without_quiet(events_of(*STREAMS["thinking"])) == [
        Token(0, "Let me", "reasoning"),
        Token(0, " see", "reasoning"),
        Token(0, "No.", "refusal"),
        Finish(0, "content_filter"),
        Done(0, True),
    ]
    assert Quiet(0, "signature", "gAAA") in events_of(*STREAMS["thinking"])


def test_tool_calls_of_the_client_and_of_the_provider() -> None:
    assert without_quiet(events_of(*STREAMS["tools"])) == [
        Token(0, "f", "tool", tool=ToolPart(0, "c1", "f")),
        Token(0, '{"city": "Gen', "tool", tool=ToolPart(0)),
        Token(0, 'ève"}', "tool", tool=ToolPart(0)),
        Token(0, "sql", "tool", tool=ToolPart(1, "c9", "sql")),
        Token(0, "select", "tool", tool=ToolPart(1)),
        Token(0, "2+2", "tool"),
        Finish(0, "completed"),
        COUNTED,
        Done(0, True),
    ]


def test_end_of_an_item_supplies_missing_deltas() -> None:
    assert without_quiet(events_of(*STREAMS["no deltas"]))[:6] == [
        Token(0, "Let me see", "reasoning"),
        Token(0, "Hello “you” 😀\n"),
        Token(0, "f", "tool", tool=ToolPart(0, "c1", "f")),
        Token(0, "{}", "tool", tool=ToolPart(0)),
        Token(0, "f", "tool", tool=ToolPart(1, "c2", "f")),
        Token(0, "[]", "tool", tool=ToolPart(1)),
    ]
    assert [
        token.text
        for token in without_quiet(events_of(*STREAMS["only an end"]))
        if isinstance(token, Token)
    ] == [
        "Hello “you” 😀\n",
        "f",
        "{}",
    ]


def test_image_is_decoded_as_a_data_url() -> None:
    assert without_quiet(events_of(*STREAMS["image"]))[:2] == [
        Token(0, "data:image/webp;base64,iVBO", "image"),
        Finish(0, "completed"),
    ]


def test_a_plain_answer_arrives_with_its_last_byte() -> None:
    decoder = responses.decoder("chat")
    (body,) = STREAMS["plain"]
    assert decoder.feed(body[:50], 1) == decoder.feed(body[50:], 2) == []
    assert decoder.close(9) == [
        Token(2, "Let me see", "reasoning"),
        Token(2, "Hello “you” 😀\n"),
        Token(2, "f", "tool", tool=ToolPart(0, "c1", "f")),
        Token(2, '{"a":1}', "tool", tool=ToolPart(0)),
        Finish(2, "completed"),
        Usage(2, 12, 15, 6, 4, 2),
        Done(2, False),
    ]


@pytest.mark.parametrize("name", ["failed", "error"])
def test_an_error_after_the_stream_began(name: str) -> None:
    fault = fault_of(events_of(*BROKEN[name]))
    assert (fault.kind, fault.phase, fault.status) == ("in_band_error", "between tokens", 200)
    assert fault.message.endswith("The model failed")


@each_case(
    "body, kind, words",
    [
        (b"", "empty_answer", "answer is empty"),
        (b": ping\n\n", "empty_answer", "answer is empty"),
        (CREATED, "truncated", "without response.completed after 0 content"),
        (CREATED + b"data: [DONE]\n\n", "truncated", "and [DONE]"),
        (b'data: {"type":', "truncated", "inside an event"),
        (b"<html>hello</html>", "malformed", "neither"),
        (b"data: {\n\n", "malformed", "not the JSON"),
        (b'data: {"item":7}\n\n', "malformed", "item"),
        (b"event: error\ndata: oh no\n\n", "in_band_error", "oh no"),
        (b'event: error\ndata: {"error":{"message":"oh no"}}\n\n', "in_band_error", "oh no"),
        (b'data: {"error":"oh no"}\n\n', "in_band_error", "oh no"),
        (b'data: {"type":"error"}\n\n', "in_band_error", "error"),
        (
            event("response.failed", response=response("failed")),
            "in_band_error",
            "finish_reason is failed",
        ),
        (
            event("response.cancelled", response=response("cancelled")),
            "in_band_error",
            "finish_reason is cancelled",
        ),
        (b"{}", "malformed", "without any output"),
        (b'{"output":7}', "malformed", "output"),
        (b'{"output":[', "truncated", "not the JSON"),
        (b'{"output":[],"status":"queued"}', "truncated", "its status is queued"),
        (b'{"output":[],"status":"failed","error":{"code":"x"}}', "in_band_error", "x"),
        (b"data: " + b'{"a":' * 100_000 + b"\n\n", "malformed", "not the JSON"),
    ],
)
def test_invalid_bodies_give_a_fault(body: bytes, kind: str, words: str) -> None:
    fault = fault_of(events_of(body))
    assert fault.kind == kind
    assert words in fault.message


@each_case(
    "data, events",
    [
        (b": hello\n\n", [Quiet(5, "comment")]),
        (b"event: ping\ndata: \n\n", [Quiet(5, "ping")]),
        (b"data: {}\n\n", [Quiet(5, "empty")]),
        (
            b'data: {"type":"something.new","delta":{"a":1},"output_index":"x"}\n\n',
            [Quiet(5, "something.new")],
        ),
        (delta("output_text", ""), [Quiet(5, "response.output_text.delta")]),
        (b'event: response.output_text.delta\ndata: {"delta":"a"}\n\n', [Token(5, "a")]),
        (b'data: {"type":"response.audio.delta","delta":"AAAA"}\n\n', [Token(5, "AAAA", "audio")]),
        (
            b'data: {"type":"response.output_text.delta","delta":"\\ude00","x":NaN}\n\n',
            [Token(5, "?")],
        ),
    ],
)
def test_single_events(data: bytes, events: list[Event]) -> None:
    assert make().feed(data, 5) == events


def test_lenient_json_is_read() -> None:
    part = b'{"type":"message","content":[{"type":"output_text","text":"a\xff"}]}'
    assert events_of(b'{"status":"completed","output":[' + part + b"]}")[0] == Token(0, "a�")


def test_an_answer_without_counts() -> None:
    done = event("response.completed", response=response("completed", usage={"total_tokens": 3}))
    assert events_of(done) == [Finish(0, "completed"), Done(0, True)]


def test_nothing_grows_without_bound() -> None:
    for begin in (b"{", b"data: "):
        decoder = make()
        assert decoder.feed(begin + b" " * (MAX_EVENT_BYTES - len(begin)), 0) == []
        assert fault_of(decoder.feed(b" ", 0)).kind == "malformed"
        assert decoder.close(0) == []


@repeated_at_places
@sampled_cases(8)
@each_case("name", ALL)
def test_decoder_handles_any_split_cut_or_wrong_byte(name: str, repeats: int) -> None:
    check_decoder(make, ALL[name], whole=name in STREAMS, places=repeats)


def test_any_bytes_end_once() -> None:
    check_any_bytes(make)
