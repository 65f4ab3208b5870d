"""The server role of Cohere's api_format: requests read, and answers that our own decoder reads
back the same."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case
from tests.wire.conformance import without_quiet

from splitsecond.core.errors import CallerFault
from splitsecond.core.events import Broken, Done, Event, Finish, Token, TokenKind, ToolPart, Usage
from splitsecond.core.service import Call
from splitsecond.core.wire import cohere
from splitsecond.core.wire.api_format import Quirks, ServerAnswer
from splitsecond.core.wire.cohere import StreamWriter
from splitsecond.simulator.parsing import parse_cohere

TEXT = st.text(st.characters(codec="utf-8"), min_size=1)
USER = [{"role": "user", "content": "Hello"}]


def decoded(data: bytes) -> list[Event]:
    decoder = cohere.decoder("chat")
    return [*decoder.feed(data, 1), *decoder.close(1)]


def writer() -> StreamWriter:
    return StreamWriter("chat", "command", id='an "id"', created=1_795_000_000)


def payloads(data: bytes) -> list[dict[str, Any]]:
    return [
        json.loads(line.removeprefix(b"data: "))
        for line in data.splitlines()
        if line.startswith(b"data: ")
    ]


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


KINDS: dict[TokenKind, TokenKind] = {"text": "text", "reasoning": "reasoning", "refusal": "text"}


@given(st.lists(st.tuples(TEXT, st.sampled_from(sorted(KINDS))), min_size=1))
def test_any_tokens_read_back(parts: list[tuple[str, TokenKind]]) -> None:
    write = writer()
    data = write.opening() + b"".join(write.token(text, kind) for text, kind in parts)
    data += write.finish("length") + write.usage(Usage(0, 5, 2, 1, 3)) + write.done()
    tokens: list[Event] = [Token(1, text, KINDS[kind]) for text, kind in parts]
    assert without_quiet(decoded(data)) == [
        *tokens,
        Finish(1, "MAX_TOKENS"),
        Usage(1, 5, 2, None, 3),
        Done(1, True),
    ]


def test_blocks_begin_and_end() -> None:
    write = writer()
    data = write.opening() + write.token("Hm", "reasoning") + write.token("Yes") + write.token(".")
    data += write.tool_call("f", "c1") + write.token("{}", "tool") + write.tool_call("g", "c2")
    data += write.finish("tool_calls") + write.done()
    assert [(event["type"], event.get("index")) for event in payloads(data)] == [
        ("message-start", None),
        ("content-start", 0),
        ("content-delta", 0),
        ("content-end", 0),
        ("content-start", 1),
        ("content-delta", 1),
        ("content-delta", 1),
        ("content-end", 1),
        ("tool-call-start", 0),
        ("tool-call-delta", 0),
        ("tool-call-end", 0),
        ("tool-call-start", 1),
        ("tool-call-end", 1),
        ("message-end", None),
    ]
    parts = (ToolPart(0, "c1", "f"), ToolPart(0), ToolPart(1, "c2", "g"))
    tools: list[Event] = [
        Token(1, text, "tool", tool=part)
        for text, part in zip(("f", "{}", "g"), parts, strict=True)
    ]
    assert without_quiet(decoded(data))[3:] == [*tools, Finish(1, "TOOL_CALL"), Done(1, True)]


def test_an_event_looks_like_coheres() -> None:
    assert writer().token("a") == (
        b'event: content-start\ndata: {"type":"content-start","index":0,'
        b'"delta":{"message":{"content":{"type":"text","text":""}}}}\n\n'
        b'event: content-delta\ndata: {"type":"content-delta","index":0,'
        b'"delta":{"message":{"content":{"text":"a"}}}}\n\n'
    )


def test_an_error_inside_a_stream() -> None:
    write = writer()
    events = decoded(write.opening() + write.error("out of memory", "server_error", 500))
    assert isinstance(events[-1], Broken)
    assert events[-1].fault.kind == "in_band_error"
    assert events[-1].fault.message.endswith("out of memory")


def test_a_whole_answer_reads_back() -> None:
    answer = ServerAnswer(text="Yes", reasoning="Hm", finish="length")
    data = cohere.StreamWriter("chat", "m", id="x", created=1).whole([answer], Usage(0, 5, 2))
    tokens: list[Event] = [Token(1, "Hm", "reasoning"), Token(1, "Yes")]
    assert decoded(data) == [*tokens, Finish(1, "MAX_TOKENS"), Usage(1, 5, 2), Done(1, False)]


def test_a_whole_refusal() -> None:
    data = cohere.StreamWriter("chat", "m", id="x", created=1).whole(
        [ServerAnswer(refusal="No")], Usage(0)
    )
    assert decoded(data) == [Token(1, "No"), Finish(1, "COMPLETE"), Done(1, False)]


def test_error_body_is_read_back() -> None:
    data = cohere.error_body(404, "no such model", "not_found_error")
    assert data == b'{"message":"no such model"}'
    assert cohere.fault_from_response(404, {}, data).message == "HTTP 404: no such model"


def test_a_chat_request() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is"}, {"type": "image_url"}]},
        {"role": "assistant", "tool_calls": []},
    ]
    request = parse_cohere(
        "chat", body(model="m", messages=messages, stream=True, max_tokens=7, k=40)
    )
    assert (request.operation, request.model, request.stream, request.max_tokens) == (
        "chat",
        "m",
        True,
        7,
    )
    assert (request.n, request.include_usage, request.prompt_text) == (
        1,
        True,
        "Be brief.\nWhat is",
    )
    assert bytes(request.fields["k"]) == b"40"


def test_the_defaults() -> None:
    request = parse_cohere("chat", body(model="m", messages=USER))
    assert (request.stream, request.max_tokens) == (False, None)


def test_server_role_reads_what_the_client_role_sends() -> None:
    call = Call(id="1", body={"messages": USER, "max_tokens": 9})
    request = parse_cohere("chat", cohere.encode(call, "command", Quirks()).body)
    assert (request.model, request.stream, request.max_tokens, request.prompt_text) == (
        "command",
        True,
        9,
        "Hello",
    )


@each_case(
    "raw, words",
    [
        (b"{", "truncated"),
        (b'{"a":' * 100_000, "recursion|truncated"),
        (body(messages=USER), "`model`"),
        (body(model="m"), "`messages`"),
        (body(model="m", messages=[]), r"\$.messages"),
        (body(model="m", messages=[{"role": "user", "content": 7}]), r"\$.messages\[0\].content"),
        (body(model="m", messages=USER, max_tokens=0), r"\$.max_tokens"),
    ],
)
def test_invalid_request_is_refused_with_the_reason(raw: bytes, words: str) -> None:
    with pytest.raises(CallerFault, match=words):
        parse_cohere("chat", raw)


@given(st.binary())
def test_any_bytes_that_are_no_request_are_the_callers_fault(raw: bytes) -> None:
    with pytest.raises(CallerFault):
        parse_cohere("chat", raw)
