"""The server role: requests read, and answers that our own decoder reads back the same."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core.errors import CallerFault
from splitsecond.core.events import (
    Broken,
    Done,
    Event,
    Finish,
    Quiet,
    Token,
    TokenKind,
    ToolPart,
    Usage,
)
from splitsecond.core.service import Operation
from splitsecond.core.wire import openai, responses
from splitsecond.core.wire.api_format import ServerAnswer
from splitsecond.core.wire.openai import StreamWriter
from splitsecond.core.wire.openai.plain_stream import plain_answer
from splitsecond.simulator.parsing import parse_openai

OPERATIONS: tuple[Operation, ...] = ("chat", "completions")
TEXT = st.text(st.characters(codec="utf-8"), min_size=1)


def decoded(operation: Operation, data: bytes) -> list[Event]:
    decoder = openai.decoder(operation)
    return [*decoder.feed(data, 1), *decoder.close(1)]


def writer(operation: Operation) -> StreamWriter:
    return StreamWriter(operation, 'a "model"', id="x-1", created=1_795_000_000)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_streamed_answer_reads_back(operation: Operation) -> None:
    write = writer(operation)
    usage = Usage(1, 5, 2, 0, 3)
    data = b"".join(
        [
            write.opening(),
            write.token('He said "hi"\n'),
            write.token(" 😀\0"),
            write.finish("stop"),
            write.usage(usage),
            write.done(),
        ]
    )
    quiet: list[Event] = [Quiet(1, "role")] if operation == "chat" else []
    tokens: list[Event] = [Token(1, 'He said "hi"\n'), Token(1, " 😀\0")]
    assert decoded(operation, data) == [*quiet, *tokens, Finish(1, "stop"), usage, Done(1, True)]


KINDS: tuple[TokenKind, ...] = ("text", "reasoning", "refusal", "tool", "audio", "image")


@given(st.lists(st.tuples(TEXT, st.sampled_from(KINDS), st.integers(0, 3)), min_size=1))
def test_any_tokens_read_back(parts: list[tuple[str, TokenKind, int]]) -> None:
    write = writer("chat")
    tokens = [
        Token(1, text, kind, index, tool=ToolPart(0) if kind == "tool" else None)
        for text, kind, index in parts
    ]
    data = b"".join(write.token(token.text, token.kind, token.index) for token in tokens)
    finishes = [Finish(1, "length", index) for index in sorted({token.index for token in tokens})]
    data += (
        b"".join(write.finish(finish.reason, finish.index) for finish in finishes) + write.done()
    )
    assert decoded("chat", data) == [*tokens, *finishes, Done(1, True)]


def test_a_tool_call_begins_with_its_name() -> None:
    write = writer("chat")
    data = write.tool_call("weather", "call_1") + write.token("{}", "tool")
    data += (
        write.tool_call("now", "call_2") + write.token("{}", "tool") + write.finish("tool_calls")
    )
    assert decoded("chat", data) == [
        Token(1, "weather", "tool", tool=ToolPart(0, "call_1", "weather")),
        Token(1, "{}", "tool", tool=ToolPart(0)),
        Token(1, "now", "tool", tool=ToolPart(1, "call_2", "now")),
        Token(1, "{}", "tool", tool=ToolPart(1)),
        Finish(1, "tool_calls"),
        Done(1, False),
    ]


def test_an_error_inside_a_stream() -> None:
    write = writer("chat")
    events = decoded(
        "chat", write.opening() + write.error("broken", "server_error", 500) + write.done()
    )
    assert events[0] == Quiet(1, "role")
    assert isinstance(events[1], Broken)
    assert events[1].fault.kind == "in_band_error"
    assert len(events) == 2


def test_a_chunk_looks_like_openais() -> None:
    (line,) = writer("chat").token("a").splitlines()[:1]
    assert json.loads(line.removeprefix(b"data: ")) == {
        "id": "x-1",
        "object": "chat.completion.chunk",
        "created": 1_795_000_000,
        "model": 'a "model"',
        "choices": [
            {"index": 0, "delta": {"content": "a"}, "logprobs": None, "finish_reason": None}
        ],
    }


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_whole_answer_reads_back(operation: Operation) -> None:
    answers = [ServerAnswer(text="Yes"), ServerAnswer(text="No", finish="length")]
    data = openai.StreamWriter(operation, "m", id="x", created=1).whole(answers, Usage(0, 5, 2))
    assert decoded(operation, data) == [
        Token(1, "Yes"),
        Finish(1, "stop"),
        Token(1, "No", index=1),
        Finish(1, "length", 1),
        Usage(1, 5, 2),
        Done(1, False),
    ]


def test_a_whole_answer_with_reasoning_and_a_refusal() -> None:
    answer = ServerAnswer(reasoning="Hm", refusal="I will not")
    events = decoded(
        "chat", openai.StreamWriter("chat", "m", id="x", created=1).whole([answer], Usage(0))
    )
    assert events == [
        Token(1, "Hm", "reasoning"),
        Token(1, "I will not", "refusal"),
        Finish(1, "stop"),
        Usage(1, 0, 0),  # a client requires numbers
        Done(1, False),
    ]


def test_error_body_is_read_back() -> None:
    body = openai.error_body(404, "no such model", "not_found_error", param="model")
    assert json.loads(body)["error"] == {
        "message": "no such model",
        "type": "not_found_error",
        "param": "model",
        "code": 404,
    }
    assert openai.fault_from_response(404, {}, body).message == "HTTP 404: no such model"
    assert json.loads(openai.error_body(400, "m", "t", code="bad"))["error"]["code"] == "bad"


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


USER = [{"role": "user", "content": "Hello"}]


def test_a_chat_request() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is"},
                {"type": "image_url"},
                {"text": "this?"},
            ],
        },
        {"role": "assistant", "content": None, "tool_calls": []},
    ]
    options = {"include_usage": True}
    raw = body(
        model="m",
        messages=messages,
        stream=True,
        stream_options=options,
        max_tokens=7,
        n=2,
        top_k=40,
    )
    request = parse_openai("chat", raw)
    assert (request.operation, request.model, request.stream, request.max_tokens, request.n) == (
        "chat",
        "m",
        True,
        7,
        2,
    )
    assert request.include_usage
    assert request.prompt_text == "Be brief.\nWhat is\nthis?"
    assert bytes(request.fields["top_k"]) == b"40"


def test_the_defaults() -> None:
    request = parse_openai(
        "chat", body(model="m", messages=USER, stream=None, max_tokens=None, n=None)
    )
    assert (request.stream, request.max_tokens, request.include_usage, request.n) == (
        False,
        None,
        False,
        1,
    )


def test_the_newer_limit_wins() -> None:
    request = parse_openai(
        "chat", body(model="m", messages=USER, max_tokens=5, max_completion_tokens=6)
    )
    assert request.max_tokens == 6


@pytest.mark.parametrize(
    ("prompt", "text"),
    [("a b", "a b"), (["a", "b"], "a b"), ([1, 2, 3], "1 2 3"), ([[1, 2], [3]], "1 2 3")],
)
def test_a_completion_request(prompt: Any, text: str) -> None:
    request = parse_openai("completions", body(model="m", prompt=prompt, max_tokens=3))
    assert (request.operation, request.prompt_text, request.max_tokens) == ("completions", text, 3)


@each_case(
    "operation, raw, words",
    [
        ("chat", b"", "truncated"),
        ("chat", b"{", "truncated"),
        ("chat", b"[]", "Expected `object`"),
        ("chat", b'{"a":' * 100_000, "recursion|truncated"),
        ("chat", body(messages=USER), "`model`"),
        ("chat", body(model="m"), "`messages`"),
        ("chat", body(model="m", messages=[]), r"\$.messages"),
        (
            "chat",
            body(model="m", messages=[{"role": "user", "content": 7}]),
            r"\$.messages\[0\].content",
        ),
        ("chat", body(model="m", messages=USER, max_tokens=-5), r"\$.max_tokens"),
        ("chat", body(model="m", messages=USER, max_tokens="x"), r"\$.max_tokens"),
        ("chat", body(model="m", messages=USER, n=0), r"\$.n"),
        ("chat", body(model="m", messages=USER, stream="yes"), r"\$.stream"),
        ("completions", body(model="m"), "`prompt`"),
        ("completions", body(model=7, prompt="x"), r"\$.model"),
    ],
)
def test_invalid_request_is_refused_with_the_reason(
    operation: Operation, raw: bytes, words: str
) -> None:
    with pytest.raises(CallerFault, match=words) as caught:
        parse_openai(operation, raw)
    assert (caught.value.kind, caught.value.status) == ("bad_request", 400)


@given(st.sampled_from(OPERATIONS), st.binary())
def test_any_bytes_that_are_no_request_are_the_callers_fault(
    operation: Operation, raw: bytes
) -> None:
    with pytest.raises(CallerFault):
        parse_openai(operation, raw)


@given(st.lists(TEXT, min_size=1), st.lists(st.integers(0, 500)))
def test_a_written_stream_may_be_split_anywhere(texts: list[str], cuts: list[int]) -> None:
    write = writer("chat")
    data = (
        write.opening()
        + b"".join(write.token(text) for text in texts)
        + write.finish("stop")
        + write.done()
    )
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    decoder = openai.decoder("chat")
    events = [event for start, end in pairwise(edges) for event in decoder.feed(data[start:end], 1)]
    assert [event.text for event in events if isinstance(event, Token)] == texts
    assert events[-1] == Done(1, True)


def test_reasoning_has_both_names_that_clients_read() -> None:
    write = writer("chat")
    event = json.loads(write.token("Hm", "reasoning").removeprefix(b"data: "))
    assert event["choices"][0]["delta"] == {"reasoning_content": "Hm", "reasoning": "Hm"}
    whole = json.loads(write.whole([ServerAnswer(text="a", reasoning="Hm")], Usage(1, 5, 2)))
    message = whole["choices"][0]["message"]
    assert (message["reasoning_content"], message["reasoning"]) == ("Hm", "Hm")


def test_openrouters_client_gets_null_only_where_it_takes_it() -> None:
    write = writer("chat")
    opening = json.loads(write.opening().removeprefix(b"data: "))
    whole = json.loads(write.whole([ServerAnswer(text="a")], Usage(1, 5, 2)))
    assert "system_fingerprint" not in opening
    assert whole["system_fingerprint"] is None
    joined = plain_answer(write.opening() + write.token("a") + write.end("stop", Usage(1, 5, 2)))
    assert joined is not None
    assert json.loads(joined)["system_fingerprint"] is None
    response = json.loads(
        responses.StreamWriter("chat", "m", id="r", created=1).whole([ServerAnswer()], Usage(1))
    )
    assert isinstance(response.pop("completed_at"), int)
    required = (
        "frequency_penalty",
        "presence_penalty",
        "error",
        "incomplete_details",
        "instructions",
    )
    assert {response[name] for name in required} == {None}
