"""A call in OpenAI's form as Cohere takes it, and what Cohere says when it refuses one."""

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.cases import each_case

from splitsecond.core.errors import CallerFault, ProviderFault
from splitsecond.core.service import Call
from splitsecond.core.wire import cohere
from splitsecond.core.wire.api_format import Quirks

USER = {"role": "user", "content": "Hi"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
LINK = {"type": "image_url", "image_url": {"url": "https://x.test/y.png", "detail": "low"}}


def tool(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": SCHEMA, **function}}


def sent(**body: Any) -> dict[str, Any]:
    call = Call(id="1", body={"messages": [USER], **body})
    fields: dict[str, Any] = json.loads(cohere.encode(call, "command", Quirks()).body)
    return fields


def test_a_request() -> None:
    call = Call(
        id="1",
        body={"model": Raw(b'"route"'), "messages": Raw(b'[{"role":"user","content":"Hi"}]')},
    )
    encoded = cohere.encode(call, "command", Quirks())
    assert encoded.path == "/chat"
    assert dict(encoded.headers) == {
        "content-type": "application/json",
        "accept": "text/event-stream",
    }
    assert json.loads(encoded.body) == {"model": "command", "stream": True, "messages": [USER]}


@each_case(
    "body, fields",
    [
        ({"max_tokens": 5}, {"max_tokens": 5}),
        ({"max_tokens": 5, "max_completion_tokens": 6}, {"max_tokens": 6}),
        (
            {"temperature": 0, "top_p": 0.9, "top_k": 40, "seed": 7},
            {"temperature": 0, "p": 0.9, "k": 40, "seed": 7},
        ),
        ({"top_p": 0.9, "p": 0.5}, {"p": 0.5}),
        (
            {"frequency_penalty": 1, "presence_penalty": 0},
            {"frequency_penalty": 1, "presence_penalty": 0},
        ),
        ({"stop": "a"}, {"stop_sequences": ["a"]}),
        ({"stop": ["a", "b"]}, {"stop_sequences": ["a", "b"]}),
        ({"tools": [tool()]}, {"tools": [tool()]}),
        ({"tools": [tool(strict=False, description=None)]}, {"tools": [tool()]}),
        ({"tools": [tool(strict=True)]}, {"tools": [tool()], "strict_tools": True}),
        (
            {"tools": [{"type": "function", "function": {"name": "f"}}]},
            {"tools": [tool(parameters={"type": "object", "properties": {}})]},
        ),
        ({"tool_choice": "auto"}, {}),
        ({"tool_choice": "required"}, {"tool_choice": "REQUIRED"}),
        ({"tool_choice": "none"}, {"tool_choice": "NONE"}),
        ({"tool_choice": "NONE"}, {"tool_choice": "NONE"}),
        (
            {
                "tools": [tool(), tool(name="g")],
                "tool_choice": {"type": "function", "function": {"name": "g"}},
            },
            {"tools": [tool(name="g")], "tool_choice": "REQUIRED"},
        ),
        ({"response_format": {"type": "text"}}, {"response_format": {"type": "text"}}),
        (
            {"response_format": {"type": "json_object", "json_schema": SCHEMA}},
            {"response_format": {"type": "json_object", "json_schema": SCHEMA}},
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": SCHEMA},
                }
            },
            {"response_format": {"type": "json_object", "json_schema": SCHEMA}},
        ),
        ({"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}),
        ({"reasoning_effort": "high"}, {"thinking": {"type": "enabled"}}),
        ({"reasoning_effort": "low"}, {"thinking": {"type": "enabled", "token_budget": 1024}}),
        (
            {"thinking": {"type": "enabled", "token_budget": 7}},
            {"thinking": {"type": "enabled", "token_budget": 7}},
        ),
        (
            {"safety_mode": "STRICT", "documents": ["a"]},
            {"safety_mode": "STRICT", "documents": ["a"]},
        ),
        (
            {
                "user": "u",
                "stream_options": {},
                "store": True,
                "stream": False,
                "n": 1,
                "logprobs": None,
            },
            {},
        ),
    ],
)
def test_fields(body: dict[str, Any], fields: dict[str, Any]) -> None:
    assert sent(**body) == {"model": "command", "stream": True, "messages": [USER], **fields}


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}


@each_case(
    "message, translated",
    [
        ({"role": "developer", "content": "Be brief."}, {"role": "system", "content": "Be brief."}),
        ({"role": "user", "content": "Hi", "name": "Ann"}, {"role": "user", "content": "Hi"}),
        (
            {"role": "user", "content": [{"type": "text", "text": "What?"}, LINK]},
            {"role": "user", "content": [{"type": "text", "text": "What?"}, LINK]},
        ),
        (
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": "data:image/png;base64,aGk="}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
                ],
            },
        ),
        ({"role": "assistant", "refusal": "No."}, {"role": "assistant", "content": "No."}),
        (
            {"role": "assistant", "content": "Yes.", "reasoning": "Hm"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm"},
                    {"type": "text", "text": "Yes."},
                ],
            },
        ),
        (
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [CALL],
                "reasoning_content": "I will look.",
            },
            {"role": "assistant", "tool_calls": [CALL], "tool_plan": "I will look."},
        ),
        (
            {
                "role": "assistant",
                "content": "a",
                "tool_calls": [{"id": "c", "function": {"name": "f"}}],
            },
            {
                "role": "assistant",
                "content": "a",
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                ],
            },
        ),
        (
            {"role": "assistant", "tool_plan": "I will look.", "tool_calls": [CALL]},
            {"role": "assistant", "tool_plan": "I will look.", "tool_calls": [CALL]},
        ),
        (
            {
                "role": "tool",
                "tool_call_id": "c",
                "content": [{"type": "document", "document": {"data": "x"}}],
            },
            {
                "role": "tool",
                "tool_call_id": "c",
                "content": [{"type": "document", "document": {"data": "x"}}],
            },
        ),
    ],
)
def test_messages(message: dict[str, Any], translated: dict[str, Any]) -> None:
    assert sent(messages=[USER, message])["messages"] == [USER, translated]


@each_case(
    "body, named",
    [
        ({"n": 2}, "n 2"),
        ({"logprobs": True}, "logprobs true"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        (
            {
                "tool_choice": {"type": "function", "function": {"name": "f"}},
                "tools": [{"function": "f"}],
            },
            "the tool",
        ),
        ({"tools": [tool(strict=True), tool()]}, "strict for some tools"),
        ({"tools": [{"type": "web_search"}]}, "the tool"),
        ({"response_format": {"type": "grammar"}}, "response_format"),
        (
            {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
            r"messages\[0\].content\[0\].type 'input_audio'",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"type": "custom"}]}]},
            "type 'custom'",
        ),
    ],
)
def test_untranslatable_field_is_named(body: dict[str, Any], named: str) -> None:
    with pytest.raises(CallerFault, match=named + ".* cannot be translated for Cohere") as caught:
        sent(**body)
    assert caught.value.kind == "not_translatable"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"messages": []}, "no messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "not a part of type 'text'",
        ),
        (
            {"messages": [{"role": "tool", "content": "x"}]},
            r"messages\[0\].tool_call_id is missing",
        ),
    ],
)
def test_wrong_requests_are_the_callers_fault(body: dict[str, Any], words: str) -> None:
    with pytest.raises(CallerFault, match=words) as caught:
        sent(**body)
    assert caught.value.kind == "bad_request"


def test_a_prompt_too_long() -> None:
    body = (
        b'{"id":"x","message":"too many tokens: size limit exceeded by 1234 tokens. Try using '
        b'shorter inputs."}'
    )
    fault = cohere.fault_from_response(400, {}, body)
    assert isinstance(fault, CallerFault)
    assert fault.kind == "context_length_exceeded"


@pytest.mark.parametrize(
    ("status", "body", "hint"),
    [
        (401, b'{"message":"invalid api token"}', "key"),
        (
            404,
            b'{"message":"model \'x\' not found, make sure the correct model ID was used"}',
            "/v2",
        ),
        (
            429,
            b'{"message":"You are using a Trial key, which is limited to 20 API calls / minute."}',
            "Rate limited",
        ),
        (498, b'{"message":"blocked output"}', ""),
    ],
)
def test_refusals(status: int, body: bytes, hint: str) -> None:
    fault = cohere.fault_from_response(status, {}, body)
    assert isinstance(fault, ProviderFault)
    assert fault.message == f"HTTP {status}: {json.loads(body)['message']}"
    assert hint in fault.hint
