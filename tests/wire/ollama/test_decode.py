"""Ollama's answers, read: examples of its documentation, every split, every cut, every corrupt
byte."""

import json
from typing import Any

import pytest
from tests.cases import each_case
from tests.wire import conformance
from tests.wire.conformance import check_any_bytes, check_decoder, fault_of, repeated_at_places

from splitsecond.core.events import Done, Event, Finish, Quiet, Token, ToolPart, Usage
from splitsecond.core.wire import ollama
from splitsecond.core.wire.sse import MAX_EVENT_BYTES
from splitsecond.core.wire.streaming import Decoder

HEAD = {"model": "llama3.2", "created_at": "2023-08-04T08:52:19.385406455-07:00"}
DURATIONS = {
    "total_duration": 4883583458,
    "load_duration": 1334875,
    "prompt_eval_duration": 342546000,
    "eval_duration": 4535599000,
}
COUNTS = {"prompt_eval_count": 26, "eval_count": 282}
LAST = {
    "message": {"role": "assistant", "content": ""},
    "done": True,
    "done_reason": "stop",
    **DURATIONS,
    **COUNTS,
}


def line(**fields: Any) -> bytes:
    return json.dumps({**HEAD, **fields}).encode() + b"\n"


def said(done: bool = False, **message: Any) -> bytes:
    return line(message={"role": "assistant", "content": "", **message}, done=done)


TEXT = said(content="The", images=None) + said(content=" sky 😀") + line(**LAST)
THINKING = (
    said(thinking="Hm") + said(thinking=", so", content="") + said(content="Yes") + line(**LAST)
)
TOOLS = (
    said(
        tool_calls=[
            {
                "id": "c1",
                "function": {"index": 0, "name": "weather", "arguments": {"city": "Paris"}},
            }
        ]
    )
    + said(
        tool_calls=[
            {"function": {"name": "now", "arguments": {}}},
            {"function": {"name": "", "arguments": None}},
        ]
    )
    + line(**LAST)
)
WHOLE = line(
    message={"role": "assistant", "content": "Hello!", "thinking": "Hm"},
    done=True,
    done_reason="length",
)
FAILED = said(content="The") + b'{"error":"an error was encountered while running the model"}\n'
BODIES = {
    "text": TEXT,
    "thinking": THINKING,
    "tools": TOOLS,
    "whole": WHOLE.rstrip(),
    "failed": FAILED,
}


def make() -> Decoder:
    return ollama.decoder("chat")


def events_of(*parts: bytes) -> list[Event]:
    return conformance.events_of(make, parts)


def test_a_streamed_chat() -> None:
    decoder = ollama.decoder("chat")
    first, second, last = TEXT.splitlines(keepends=True)
    assert decoder.feed(first, 1) == [Token(1, "The")]
    assert decoder.feed(second[:20], 2) == []
    assert decoder.feed(second[20:], 3) == [Token(3, " sky 😀")]
    assert decoder.feed(last, 4) == [Finish(4, "stop"), Usage(4, 26, 282), Done(4, True)]
    assert decoder.server_timings == DURATIONS
    assert decoder.feed(first, 5) == []
    assert decoder.close(5) == []


def test_a_last_line_of_the_older_form() -> None:
    assert events_of(said(content="a"), line(done=True, eval_count=1)) == [
        Token(0, "a"),
        Usage(0, None, 1),
        Done(0, True),
    ]


def test_thinking() -> None:
    tokens = [Token(0, "Hm", "reasoning"), Token(0, ", so", "reasoning"), Token(0, "Yes")]
    assert events_of(THINKING) == [*tokens, Finish(0, "stop"), Usage(0, 26, 282), Done(0, True)]


def test_a_tool_call_is_its_name_and_its_arguments() -> None:
    assert events_of(TOOLS)[:2] == [
        Token(0, 'weather{"city": "Paris"}', "tool", tool=ToolPart(0, "c1", "weather")),
        Token(0, "now{}", "tool", tool=ToolPart(1, "", "now")),
    ]


def test_the_text_of_a_required_call_is_its_arguments() -> None:
    decoder = make()
    decoder.as_tool = "now"
    data = said(thinking="Hm") + said(content='{"a":') + said(content="1}") + said(done=True)
    events = [*decoder.feed(data, 1), *decoder.close(1)]
    tokens = [event for event in events if isinstance(event, Token)]
    assert [(token.kind, token.arguments) for token in tokens] == [
        ("reasoning", "Hm"),
        ("tool", '{"a":'),
        ("tool", "1}"),
    ]
    assert [token.tool for token in tokens] == [None, ToolPart(0, "", "now"), ToolPart(0)]


def test_a_plain_answer_arrives_with_its_last_byte() -> None:
    decoder = ollama.decoder("chat")
    body = WHOLE.rstrip()
    assert decoder.feed(body[:50], 1) == decoder.feed(body[50:], 2) == []
    tokens = [Token(2, "Hm", "reasoning"), Token(2, "Hello!")]
    assert decoder.close(9) == [*tokens, Finish(2, "length"), Done(2, True)]


@pytest.mark.parametrize(
    ("data", "quiet"),
    [
        (said(), Quiet(0, "empty")),
        (line(message={}), Quiet(0, "empty")),
        (b"\r\n", Quiet(0, "empty")),
        (line(status="loading"), Quiet(0, "no message")),
    ],
)
def test_lines_without_content_are_quiet(data: bytes, quiet: Quiet) -> None:
    assert events_of(data, TEXT) == [quiet, *events_of(TEXT)]


def test_an_error_line() -> None:
    fault = fault_of(events_of(FAILED))
    assert (fault.kind, fault.phase, fault.status) == ("in_band_error", "between tokens", 200)
    assert "while running the model" in fault.message


@each_case(
    "body, kind, words",
    [
        (b"", "empty_answer", "answer is empty"),
        (b"\n \n", "empty_answer", "answer is empty"),
        (said(content="a"), "truncated", "without done after 1 content"),
        (said(content="a")[:-9], "truncated", "inside a line after 0"),
        (said(content="a") + b'{"model"', "truncated", "inside a line after 1"),
        (b'{"detail":"Not Found"}', "malformed", "not a chat answer"),
        (b"<html>", "malformed", "not the JSON"),
        (b"[]\n", "malformed", "Expected `object`"),
        (b'{"message":7}\n', "malformed", "message"),
        (b'{"a":' * 100_000 + b"\n", "malformed", "not the JSON"),
        (b'{"a":' * 100_000, "truncated", "inside a line"),
        (b"data: {}\n\n", "malformed", "not the JSON"),
    ],
)
def test_broken_answers(body: bytes, kind: str, words: str) -> None:
    fault = fault_of(events_of(body))
    assert fault.kind == kind
    assert words in fault.message


def test_a_web_page_gets_a_hint() -> None:
    assert "base URL" in fault_of(events_of(b"<!DOCTYPE html>\n")).hint


def test_lenient_json() -> None:
    assert events_of(b'{"message":{"content":"\\ude00"}}\n')[0] == Token(0, "?")
    assert events_of(b'{"message":{"content":"\xff"},"x":NaN}')[0] == Token(0, "\ufffd")


def test_a_line_is_bounded() -> None:
    decoder = ollama.decoder("chat")
    assert decoder.feed(b"{" + b" " * (MAX_EVENT_BYTES - 1), 0) == []
    assert fault_of(decoder.feed(b" ", 0)).kind == "malformed"
    assert decoder.close(0) == []
    assert "longer" in fault_of(events_of(b" " * MAX_EVENT_BYTES + b"{}\n")).message


@repeated_at_places
@each_case("name", BODIES)
def test_decoder_handles_any_split_cut_or_wrong_byte(name: str, repeats: int) -> None:
    check_decoder(
        make, BODIES[name].splitlines(keepends=True), whole=name != "failed", places=repeats
    )


def test_any_bytes_end_once() -> None:
    check_any_bytes(make)
