"""The server role: requests read, and answers that our own decoder reads back the same."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case
from tests.wire.conformance import without_quiet

from splitsecond.core.errors import CallerFault
from splitsecond.core.events import Broken, Done, Event, Finish, Token, TokenKind, ToolPart, Usage
from splitsecond.core.service import Call
from splitsecond.core.wire import anthropic
from splitsecond.core.wire.anthropic import StreamWriter
from splitsecond.core.wire.api_format import Quirks, ServerAnswer
from splitsecond.simulator.parsing import parse_anthropic, parse_anthropic_count

TEXT = st.text(st.characters(codec="utf-8"), min_size=1)
KINDS: tuple[TokenKind, ...] = ("text", "reasoning", "tool")


def decoded(data: bytes) -> list[Event]:
    decoder = anthropic.decoder("chat")
    return [*decoder.feed(data, 1), *decoder.close(1)]


def writer() -> StreamWriter:
    return StreamWriter("chat", 'a "model"', id="msg_1", created=1)


def names(data: bytes) -> list[str]:
    return [
        line.removeprefix("event: ")
        for line in data.decode().splitlines()
        if line.startswith("event: ")
    ]


def test_a_streamed_answer_reads_back() -> None:
    write = writer()
    usage = Usage(1, 9, 5, 2, 3)
    data = b"".join(
        [
            write.opening(usage=Usage(0, 6)),
            write.token("Hm", "reasoning"),
            write.token('He said "hi"\n'),
            write.token(" 😀\0"),
            write.tool_call("f", "toolu_1"),
            write.token('{"a":', "tool"),
            write.token("1}", "tool"),
            write.tool_call("g", "toolu_2"),
            write.finish("tool_calls"),
            write.usage(usage),
            write.done(),
        ]
    )
    assert without_quiet(decoded(data)) == [
        Usage(1, 6),
        Token(1, "Hm", "reasoning"),
        Token(1, 'He said "hi"\n'),
        Token(1, " 😀\0"),
        Token(1, "f", "tool", tool=ToolPart(0, "toolu_1", "f")),
        Token(1, '{"a":', "tool", tool=ToolPart(0)),
        Token(1, "1}", "tool", tool=ToolPart(0)),
        Token(1, "g", "tool", tool=ToolPart(1, "toolu_2", "g")),
        Finish(1, "tool_use"),
        usage,
        Done(1, True),
    ]
    start, change, stop = "content_block_start", "content_block_delta", "content_block_stop"
    assert names(data) == [
        "message_start",
        *(start, change, stop),
        *(start, change, change, stop),
        *(start, change, change, stop),
        *(start, stop),
        "message_delta",
        "message_stop",
    ]


def test_response_without_usage_has_its_finish_reason() -> None:
    write = writer()
    data = (
        write.opening()
        + write.token("a", "refusal")
        + write.finish("content_filter")
        + write.done()
    )
    assert without_quiet(decoded(data)) == [
        Token(1, "a"),
        Finish(1, "refusal"),
        Usage(1, None, 0),
        Done(1, True),
    ]


@pytest.mark.parametrize(("finish", "reason"), [("stop", "refusal"), ("length", "max_tokens")])
def test_a_refusal_is_a_stop_reason(finish: str, reason: str) -> None:
    write = writer()
    data = (
        write.token("No", "text")
        + write.token("I cannot.", "refusal")
        + write.finish(finish)
        + write.done()
    )
    assert Finish(1, reason) in decoded(data)


@given(st.lists(st.tuples(TEXT, st.sampled_from(KINDS))))
def test_any_tokens_read_back(parts: list[tuple[str, TokenKind]]) -> None:
    write = writer()
    data = (
        b"".join(write.token(text, kind) for text, kind in parts)
        + write.finish("length")
        + write.done()
    )
    tokens: list[Event] = [Token(1, text, kind) for text, kind in parts]
    assert without_quiet(decoded(data)) == [
        *tokens,
        Finish(1, "max_tokens"),
        Usage(1, None, 0),
        Done(1, True),
    ]


@given(st.lists(TEXT, min_size=1), st.lists(st.integers(0, 900)))
def test_a_written_stream_may_be_split_anywhere(texts: list[str], cuts: list[int]) -> None:
    write = writer()
    data = (
        write.opening()
        + b"".join(write.token(text) for text in texts)
        + write.finish("stop")
        + write.done()
    )
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    decoder = anthropic.decoder("chat")
    events = [event for start, end in pairwise(edges) for event in decoder.feed(data[start:end], 1)]
    assert [event.text for event in events if isinstance(event, Token)] == texts
    assert events[-1] == Done(1, True)


def test_an_error_inside_a_stream() -> None:
    write = writer()
    error = write.error("broken", "server_error", 529)
    assert names(error) == ["error"]
    assert b'"overloaded_error"' in error
    assert b'"api_error"' in write.error("broken", "server_error", "simulated")
    end = decoded(write.opening() + error)[-1]
    assert isinstance(end, Broken)
    assert (end.fault.kind, end.fault.message) == (
        "in_band_error",
        "the provider put an error inside a 200: broken",
    )


def test_a_whole_answer_reads_back() -> None:
    answer = ServerAnswer(reasoning="Hm", text="Yes", finish="length")
    data = anthropic.StreamWriter("chat", "m", id="msg_1", created=1).whole(
        [answer], Usage(0, 5, 2, 1, 0)
    )
    assert decoded(data) == [
        Token(1, "Hm", "reasoning"),
        Token(1, "Yes"),
        Finish(1, "max_tokens"),
        Usage(1, 5, 2, 1, 0),
        Done(1, False),
    ]
    refusal = anthropic.StreamWriter("chat", "m", id="msg_1", created=1).whole(
        [ServerAnswer(refusal="No")], Usage(0)
    )
    assert json.loads(refusal)["content"] == [{"type": "text", "text": "No"}]
    assert json.loads(refusal)["stop_reason"] == "refusal"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (404, "not_found_error"),
        (422, "invalid_request_error"),
        (503, "api_error"),
    ],
)
def test_error_body_is_read_back(status: int, kind: str) -> None:
    body = anthropic.error_body(status, "no such thing", "whatever", code="x", param="y")
    assert json.loads(body) == {
        "type": "error",
        "error": {"type": kind, "message": "no such thing"},
    }
    assert (
        anthropic.fault_from_response(status, {}, body).message == f"HTTP {status}: no such thing"
    )


def body(**fields: Any) -> bytes:
    return json.dumps(
        {"model": "m", "max_tokens": 7, "messages": [{"role": "user", "content": "Hi"}], **fields}
    ).encode()


def test_a_request() -> None:
    messages = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is"},
                {"type": "image", "source": {"text": "no"}},
            ],
        },
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"text": "no"}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "content": [{"type": "text", "text": "this?"}],
                },
                {"type": "tool_result", "tool_use_id": "u", "content": "That?"},
                {"type": "tool_result", "tool_use_id": "v"},
            ],
        },
    ]
    request = parse_anthropic(
        "chat",
        body(
            messages=messages, system=[{"type": "text", "text": "Be brief."}], stream=True, top_k=40
        ),
    )
    assert (request.operation, request.model, request.stream, request.max_tokens) == (
        "chat",
        "m",
        True,
        7,
    )
    assert (request.include_usage, request.n) == (True, 1)
    assert request.prompt_text == "Be brief.\nWhat is\nthis?\nThat?"
    assert bytes(request.fields["top_k"]) == b"40"
    assert parse_anthropic("chat", body(system="Be kind.")).prompt_text == "Be kind.\nHi"


MARK = {"cache_control": {"type": "ephemeral"}}
SAID = {"type": "text", "text": "four"}


@each_case(
    "fields, marks",
    [
        ({"messages": [{"role": "user", "content": "four"}]}, ()),
        ({"messages": [{"role": "user", "content": [SAID | MARK, SAID]}]}, (4,)),
        (
            {
                "system": [SAID | MARK],
                "messages": [{"role": "user", "content": [SAID, SAID | MARK]}],
            },
            (4, 14),
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [SAID, {"type": "tool_result", "content": [SAID], **MARK}],
                    }
                ]
            },
            (9,),
        ),
        (
            {"messages": [{"role": "user", "content": [SAID, {"type": "image", **MARK}, SAID]}]},
            (4,),
        ),
        ({"messages": [{"role": "user", "content": [{"type": "image", **MARK}]}]}, ()),
        ({"messages": [{"role": "user", "content": [SAID, SAID]}], **MARK}, (9,)),
        ({"messages": [{"role": "user", "content": [SAID | {"cache_control": None}]}]}, ()),
    ],
)
def test_cache_marks_are_read_from_the_request(
    fields: dict[str, Any], marks: tuple[int, ...]
) -> None:
    request = parse_anthropic(
        "chat", json.dumps({"model": "m", "max_tokens": 1, **fields}).encode()
    )
    assert request.cache_marks == marks
    counted = parse_anthropic_count(json.dumps({"model": "m", **fields}).encode())
    assert (counted.max_tokens, counted.prompt_text, counted.cache_marks) == (
        None,
        request.prompt_text,
        marks,
    )


def test_encoded_requests_can_be_parsed() -> None:
    asked = {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    }
    encoded = anthropic.encode(Call(id="c", body=asked), "m", Quirks())
    request = parse_anthropic("chat", encoded.body)
    assert (request.model, request.stream, request.prompt_text) == ("m", True, "Be brief.\nHi")


@each_case(
    "raw, words",
    [
        (b"", "truncated"),
        (b"[]", "Expected `object`"),
        (b'{"a":' * 100_000, "recursion|truncated"),
        (b'{"model":"m","messages":[{"role":"user","content":"x"}]}', "`max_tokens`"),
        (body(model=None), r"\$.model"),
        (body(messages=[]), r"\$.messages"),
        (body(messages=[{"role": "user"}]), "`content`"),
        (body(messages=[{"role": "user", "content": 7}]), r"\$.messages\[0\].content"),
        (body(max_tokens=0), r"\$.max_tokens"),
        (body(stream="yes"), r"\$.stream"),
    ],
)
def test_invalid_request_is_refused_with_the_reason(raw: bytes, words: str) -> None:
    with pytest.raises(CallerFault, match=words) as caught:
        parse_anthropic("chat", raw)
    assert (caught.value.kind, caught.value.status) == ("bad_request", 400)


@given(st.binary())
def test_any_bytes_that_are_no_request_are_the_callers_fault(raw: bytes) -> None:
    with pytest.raises(CallerFault):
        parse_anthropic("chat", raw)


def test_ids_of_tool_calls_get_characters_anthropic_accepts() -> None:
    write = writer()
    data = (
        write.opening()
        + write.tool_call("f", "functions.f:0")
        + write.finish("tool_calls")
        + write.done()
    )
    (call,) = (event for event in without_quiet(decoded(data)) if isinstance(event, Token))
    assert call.tool == ToolPart(0, "functions_f_0", "f")
