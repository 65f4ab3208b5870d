"""The server role: requests read, and answers that our own decoder and OpenAI's own types read back
the same."""

import functools
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case
from tests.wire.conformance import check_decoder, repeated_at_places, without_quiet

from splitsecond.core.errors import CallerFault
from splitsecond.core.events import Broken, Done, Event, Finish, Token, TokenKind, ToolPart, Usage
from splitsecond.core.service import Call
from splitsecond.core.wire import responses
from splitsecond.core.wire.api_format import CalledTool, Quirks, ServerAnswer

if TYPE_CHECKING:
    from pydantic import TypeAdapter
from splitsecond.core.wire.responses import StreamWriter
from splitsecond.simulator.parsing import parse_responses

TEXT = st.text(st.characters(codec="utf-8"), min_size=1)
KINDS: tuple[TokenKind, ...] = ("text", "reasoning", "refusal")
USAGE = Usage(1, 9, 5, 2, 3, 1)


def decoded(data: bytes) -> list[Event]:
    decoder = responses.decoder("chat")
    return [*decoder.feed(data, 1), *decoder.close(1)]


def writer() -> StreamWriter:
    return StreamWriter("chat", 'a "model"', id="resp_1", created=1)


def fields_of(data: bytes) -> list[dict[str, Any]]:
    lines = [
        line.removeprefix(b"data: ") for line in data.splitlines() if line.startswith(b"data: ")
    ]
    return [json.loads(line) for line in lines]


def everything() -> bytes:
    write = writer()
    return b"".join(
        [
            write.opening(),
            write.token("Hm", "reasoning"),
            write.token('He said "hi"\n'),
            write.token(" 😀\0"),
            write.token("But no.", "refusal"),
            write.tool_call("f", "c1"),
            write.token('{"a":', "tool"),
            write.token("1}", "tool"),
            write.tool_call("g", "c2"),
            write.token("data:image/webp;base64,iVBO", "image"),
            write.finish("length"),
            write.usage(USAGE),
            write.done(),
        ]
    )


def test_a_streamed_answer_reads_back() -> None:
    assert without_quiet(decoded(everything())) == [
        Token(1, "Hm", "reasoning"),
        Token(1, 'He said "hi"\n'),
        Token(1, " 😀\0"),
        Token(1, "But no.", "refusal"),
        Token(1, "f", "tool", tool=ToolPart(0, "c1", "f")),
        Token(1, '{"a":', "tool", tool=ToolPart(0)),
        Token(1, "1}", "tool", tool=ToolPart(0)),
        Token(1, "g", "tool", tool=ToolPart(1, "c2", "g")),
        Token(1, "data:image/webp;base64,iVBO", "image"),
        Finish(1, "max_output_tokens"),
        USAGE,
        Done(1, True),
    ]


@functools.cache
def events_of_the_library() -> "TypeAdapter[Any]":
    """Return the type of all events. To import it takes a second, which fast tests do not have."""
    from openai.types.responses import ResponseStreamEvent
    from pydantic import TypeAdapter

    return TypeAdapter(ResponseStreamEvent)


@pytest.mark.system
def test_events_and_a_whole_answer_are_valid_for_openais_library() -> None:
    from openai.types.responses import Response

    for fields in fields_of(everything()):
        read = events_of_the_library().validate_python(fields, strict=True)
        assert (read.type, read.sequence_number) == (fields["type"], fields["sequence_number"])
        assert not read.model_extra, read.type
    data = writer().opening() + writer().error("broken", "server_error")
    assert events_of_the_library().validate_python(fields_of(data)[-1]).code == "server_error"
    answer = Response.model_validate(json.loads(whole_answer()), strict=True)
    assert (answer.output_text, answer.status) == ("Yes", "incomplete")


def test_events_are_numbered_and_in_order() -> None:
    found = fields_of(everything())
    assert [fields["sequence_number"] for fields in found] == list(range(len(found)))
    names = [fields["type"].removeprefix("response.") for fields in found]
    item, part, summary = "output_item", "content_part", "reasoning_summary_part"
    assert names[:15] == [
        "created",
        "in_progress",
        *(f"{item}.added", f"{summary}.added", "reasoning_summary_text.delta"),
        *("reasoning_summary_text.done", f"{summary}.done", f"{item}.done"),
        *(f"{item}.added", f"{part}.added", "output_text.delta", "output_text.delta"),
        *("output_text.done", f"{part}.done", f"{item}.done"),
    ]
    assert names[-1] == "incomplete"


def test_last_event_has_the_complete_response() -> None:
    last = fields_of(everything())[-1]["response"]
    assert [item["type"] for item in last["output"]] == [
        "reasoning",
        "message",
        "message",
        "function_call",
        "function_call",
        "image_generation_call",
    ]
    assert last["output"][1]["content"][0]["text"] == 'He said "hi"\n 😀\0'
    assert last["output"][3]["arguments"] == '{"a":1}'
    assert {item["status"] for item in last["output"]} == {"completed"}
    assert last["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["usage"]["total_tokens"] == 14


@repeated_at_places
def test_a_written_stream_may_be_split_cut_and_broken_anywhere(repeats: int) -> None:
    events = [part + b"\n\n" for part in everything().split(b"\n\n")[:-1]]
    check_decoder(lambda: responses.decoder("chat"), events, whole=True, places=repeats)


@given(st.lists(st.tuples(TEXT, st.sampled_from(KINDS))))
def test_any_tokens_read_back(parts: list[tuple[str, TokenKind]]) -> None:
    write = writer()
    data = (
        b"".join(write.token(text, kind) for text, kind in parts)
        + write.finish("stop")
        + write.done()
    )
    tokens: list[Event] = [Token(1, text, kind) for text, kind in parts]
    assert without_quiet(decoded(data)) == [*tokens, Finish(1, "completed"), Done(1, True)]


def test_an_error_inside_a_stream() -> None:
    write = writer()
    data = write.opening() + write.error("broken", "server_error")
    end = decoded(data)[-1]
    assert isinstance(end, Broken)
    assert end.fault.message.endswith("broken")
    assert fields_of(data)[-1]["code"] == "server_error"


def whole_answer() -> bytes:
    answer = ServerAnswer(
        reasoning="Hm",
        text="Yes",
        refusal="No",
        calls=(CalledTool("c1", "f", '{"a":1}'),),
        finish="length",
    )
    return responses.StreamWriter("chat", "m", id="resp_1", created=1).whole([answer], USAGE)


def test_a_whole_answer_reads_back() -> None:
    assert without_quiet(decoded(whole_answer())) == [
        Token(1, "Hm", "reasoning"),
        Token(1, "Yes"),
        Token(1, "No", "refusal"),
        Token(1, "f", "tool", tool=ToolPart(0, "c1", "f")),
        Token(1, '{"a":1}', "tool", tool=ToolPart(0)),
        Finish(1, "max_output_tokens"),
        USAGE,
        Done(1, False),
    ]


def test_error_body_is_read_back() -> None:
    body = responses.error_body(404, "no such model", "not_found_error")
    assert responses.fault_from_response(404, {}, body).message == "HTTP 404: no such model"


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "input": "Hi", **fields}).encode()


def test_a_request() -> None:
    items = [
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "What is"}, {"type": "input_image"}],
        },
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "this?"},
        {
            "type": "function_call_output",
            "call_id": "d",
            "output": [{"type": "input_text", "text": "That?"}],
        },
    ]
    request = parse_responses(
        "chat",
        body(input=items, instructions="Be brief.", stream=True, max_output_tokens=7, include=[]),
    )
    assert (request.operation, request.model, request.stream, request.max_tokens) == (
        "chat",
        "m",
        True,
        7,
    )
    assert (request.include_usage, request.n) == (True, 1)
    assert request.prompt_text == "Be brief.\nWhat is\nthis?\nThat?"
    assert bytes(request.fields["include"]) == b"[]"
    assert parse_responses("chat", body()).prompt_text == "Hi"


def test_encoded_requests_can_be_parsed() -> None:
    asked = {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    }
    request = parse_responses(
        "chat", responses.encode(Call(id="c", body=asked), "m", Quirks()).body
    )
    assert (request.model, request.stream, request.prompt_text) == ("m", True, "Be brief.\nHi")


@each_case(
    "raw, words",
    [
        (b"", "truncated"),
        (b"[]", "Expected `object`"),
        (b'{"a":' * 100_000, "recursion|truncated"),
        (b'{"model":"m"}', "`input`"),
        (body(model=None), r"\$.model"),
        (body(input=7), r"\$.input"),
        (body(max_output_tokens=0), r"\$.max_output_tokens"),
    ],
)
def test_invalid_request_is_refused_with_the_reason(raw: bytes, words: str) -> None:
    with pytest.raises(CallerFault, match=words) as caught:
        parse_responses("chat", raw)
    assert (caught.value.kind, caught.value.status) == ("bad_request", 400)


@given(st.binary())
def test_any_bytes_that_are_no_request_are_the_callers_fault(raw: bytes) -> None:
    with pytest.raises(CallerFault):
        parse_responses("chat", raw)
