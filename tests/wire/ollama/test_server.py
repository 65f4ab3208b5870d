"""The server role of Ollama's api_format: requests read, and answers that our own decoder reads
back the same."""

import json
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core.errors import CallerFault
from splitsecond.core.events import Broken, Done, Event, Finish, Token, TokenKind, ToolPart, Usage
from splitsecond.core.service import Call
from splitsecond.core.wire import ollama
from splitsecond.core.wire.api_format import Quirks, ServerAnswer, ServerTimes
from splitsecond.core.wire.ollama import StreamWriter
from splitsecond.simulator.parsing import parse_ollama

TEXT = st.text(st.characters(codec="utf-8"), min_size=1)
TOOK = ServerTimes(1, 3, 5)
USER = [{"role": "user", "content": "Hello"}]


def decoded(data: bytes) -> list[Event]:
    decoder = ollama.decoder("chat")
    return [*decoder.feed(data, 1), *decoder.close(1)]


def writer() -> StreamWriter:
    return StreamWriter("chat", 'a "model"', id="x", created=1_795_000_000)


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


KINDS: dict[TokenKind, TokenKind] = {"text": "text", "reasoning": "reasoning", "refusal": "text"}


@given(st.lists(st.tuples(TEXT, st.sampled_from(sorted(KINDS))), min_size=1))
def test_any_tokens_read_back(parts: list[tuple[str, TokenKind]]) -> None:
    write = writer()
    data = write.opening() + b"".join(write.token(text, kind) for text, kind in parts)
    write.report_times(TOOK, None)
    data += write.finish("length") + write.usage(Usage(0, 5, 2, 1, 3)) + write.done()
    tokens: list[Event] = [Token(1, text, KINDS[kind]) for text, kind in parts]
    assert decoded(data) == [*tokens, Finish(1, "length"), Usage(1, 5, 2), Done(1, True)]


def test_a_line_ends_nowhere_else_for_python() -> None:
    """Ollama's own library reads a stream with `splitlines`."""
    ends = "".join(chr(code) for code in range(0x3000) if len(f"a{chr(code)}b".splitlines()) > 1)
    assert len(ends) == 10
    write = writer()
    text = f"a{ends}b"
    data = write.token(text) + write.token(text, "reasoning") + write.tool_call("f", "c")
    data += write.token(json.dumps({"x": text}, ensure_ascii=False), "tool")
    data += write.finish("stop") + write.done() + write.error(text, "error")
    lines = [json.loads(line) for line in data.decode().splitlines()]
    assert len(lines) == 5
    assert lines[0]["message"]["content"] == lines[1]["message"]["thinking"] == text
    assert lines[2]["message"]["tool_calls"][0]["function"]["arguments"] == {"x": text}


def test_durations_are_in_the_last_line() -> None:
    decoder, write = ollama.decoder("chat"), writer()
    write.report_times(TOOK, None)
    decoder.feed(write.done(), 1)
    assert decoder.server_timings == {
        "total_duration": 9,
        "load_duration": 1,
        "prompt_eval_duration": 3,
        "eval_duration": 5,
    }


def test_tool_calls_are_written_whole() -> None:
    write = writer()
    assert (
        write.tool_call("weather", "call_1")
        + write.token('{"city":', "tool")
        + write.token("7}", "tool")
        == b""
    )
    data = write.tool_call("now", "call_2") + write.finish("tool_calls") + write.done()
    assert decoded(data) == [
        Token(1, 'weather{"city":7}', "tool", tool=ToolPart(0, "call_1", "weather")),
        Token(1, "now{}", "tool", tool=ToolPart(1, "call_2", "now")),
        Finish(1, "stop"),
        Done(1, True),
    ]


def test_text_after_a_tool_call() -> None:
    write = writer()
    data = write.tool_call("now", "call_1") + write.token("a") + write.finish("stop") + write.done()
    assert [key for key, _ in groupby(type(event) for event in decoded(data))] == [
        Token,
        Finish,
        Done,
    ]


def test_an_error_inside_a_stream() -> None:
    write = writer()
    token, broken = decoded(write.token("a") + write.error("out of memory", "server_error", 500))
    assert token == Token(1, "a")
    assert isinstance(broken, Broken)
    assert (broken.fault.kind, broken.fault.message[-13:]) == ("in_band_error", "out of memory")


def test_a_line_looks_like_ollamas() -> None:
    assert json.loads(writer().token("a")) == {
        "model": 'a "model"',
        "created_at": "2026-11-18T11:06:40+00:00",
        "message": {"role": "assistant", "content": "a"},
        "done": False,
    }


def test_a_whole_answer_reads_back() -> None:
    answer = ServerAnswer(text="Yes", reasoning="Hm", finish="length")
    write = writer()
    write.report_times(TOOK, None)
    data = write.whole([answer], Usage(0, 5, 2))
    tokens: list[Event] = [Token(1, "Hm", "reasoning"), Token(1, "Yes")]
    assert decoded(data) == [*tokens, Finish(1, "length"), Usage(1, 5, 2), Done(1, True)]


def test_a_whole_refusal() -> None:
    data = ollama.StreamWriter("chat", "m", id="x", created=1).whole(
        [ServerAnswer(refusal="No")], Usage(0)
    )
    assert decoded(data) == [Token(1, "No"), Finish(1, "stop"), Done(1, True)]


def test_error_body_is_read_back() -> None:
    data = ollama.error_body(404, "model 'x' not found", "not_found_error")
    assert data == b'{"error":"model \'x\' not found"}'
    assert ollama.fault_from_response(404, {}, data).message == "HTTP 404: model 'x' not found"


def test_a_chat_request() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        *USER,
        {"role": "assistant", "tool_calls": []},
    ]
    request = parse_ollama(
        "chat", body(model="m", messages=messages, options={"num_predict": 7}, think=True)
    )
    assert (request.operation, request.model, request.stream, request.max_tokens) == (
        "chat",
        "m",
        True,
        7,
    )
    assert (request.n, request.include_usage, request.prompt_text) == (1, True, "Be brief.\nHello")
    assert bytes(request.fields["think"]) == b"true"


@pytest.mark.parametrize("options", [None, {}, {"num_predict": -1}, {"num_predict": None}])
def test_request_without_num_predict_has_no_output_limit(options: Any) -> None:
    assert parse_ollama("chat", body(model="m", messages=USER, options=options)).max_tokens is None


def test_not_streamed() -> None:
    assert not parse_ollama("chat", body(model="m", messages=USER, stream=False)).stream


def test_server_role_reads_what_the_client_role_sends() -> None:
    call = Call(id="1", body={"messages": USER, "max_tokens": 9})
    request = parse_ollama("chat", ollama.encode(call, "m:7b", Quirks()).body)
    assert (request.model, request.stream, request.max_tokens, request.prompt_text) == (
        "m:7b",
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
        (body(model="", messages=USER), r"\$.model"),
        (body(model="m"), "`messages`"),
        (body(model="m", messages=[]), r"\$.messages"),
        (
            body(model="m", messages=[{"role": "user", "content": [{}]}]),
            r"\$.messages\[0\].content",
        ),
        (body(model="m", messages=USER, options={"num_predict": "x"}), "num_predict"),
    ],
)
def test_invalid_request_is_refused_with_the_reason(raw: bytes, words: str) -> None:
    with pytest.raises(CallerFault, match=words):
        parse_ollama("chat", raw)


@given(st.binary())
def test_any_bytes_that_are_no_request_are_the_callers_fault(raw: bytes) -> None:
    with pytest.raises(CallerFault):
        parse_ollama("chat", raw)
