"""Refusals name fields and messages as the client wrote them, not as the common chat form has
them."""

from typing import Any

import msgspec
import pytest
from tests.cases import each_case

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Spoken
from splitsecond.core.upstream import transcoding
from splitsecond.core.upstream.target import API_FORMATS
from splitsecond.core.wire.api_format import Quirks

HI = {"role": "user", "content": "hi"}
PDF = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
}
LINKED = {"type": "image", "source": {"type": "url", "url": "https://e.test/a.png"}}
CALLED = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}],
}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "four"}
FILE = {
    "type": "input_file",
    "filename": "a.pdf",
    "file_data": "data:application/pdf;base64,JVBERi0=",
}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "four"}


def turn(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks]}


@each_case(
    "client, body, api_format, words",
    [
        (
            "anthropic",
            {"messages": [HI], "stop_sequences": ["END"]},
            "responses",
            'stop_sequences ["END"] cannot',
        ),
        (
            "anthropic",
            {"messages": [turn(PDF)]},
            "cohere",
            "messages[0], a part of type 'document', cannot",
        ),
        (
            "anthropic",
            {"system": "S", "messages": [turn(PDF)]},
            "cohere",
            "messages[0], a part of type 'document', ",
        ),
        (
            "anthropic",
            # the result is a message of its own
            {"system": "S", "messages": [HI, CALLED, turn(RESULT, PDF)]},
            "cohere",
            "messages[2], a part of type 'document', cannot",
        ),
        (
            "anthropic",
            {"messages": [HI, turn(LINKED)]},
            "ollama",
            "messages[1], a part of type 'image', by its link, ",
        ),
        (
            "anthropic",
            {"system": "S", "messages": [HI, {"role": "assistant", "content": "Once"}]},
            "gemini",
            "messages[1], the beginning of the answer, cannot",
        ),
        (
            "responses",
            {"input": [turn(FILE)], "instructions": "S"},
            "ollama",
            "input[0], a part of type 'input_file', ",
        ),
        (
            "responses",
            {"input": [HI, CALL, OUTPUT, turn(FILE)]},
            "cohere",
            "input[3], a part of type 'input_file', ",
        ),
        (
            "responses",
            {"input": "hi", "text": {"format": {"type": "json_object"}}},
            "replicate",
            'text.format {"type":"json_object"} cannot',
        ),
        ("openai", {"messages": [HI], "stop": ["END"]}, "responses", 'stop ["END"] cannot'),
    ],
)
@each_case("raw", [True, False])
def test_refusal_names_the_field_as_the_client_wrote_it(
    client: Spoken, body: dict[str, Any], api_format: str, words: str, raw: bool
) -> None:
    given = (
        {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in body.items()}
        if raw
        else body
    )
    call = Call(id="c", body=given, api_format=client)
    with pytest.raises(CallerFault) as no:
        transcoding.request(call, api_format, API_FORMATS[api_format].encode, "m", Quirks())
    assert no.value.message.startswith(words)
    assert not call.notes.dropped
