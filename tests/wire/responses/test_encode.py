"""A call in OpenAI's chat form as the Responses API takes it."""

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.cases import each_case

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.core.wire import responses
from splitsecond.core.wire.api_format import Quirks

USER = {"role": "user", "content": "Hi"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
CALLED = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1}'}
MADE = {"model": "gpt", "stream": True, "store": False}


def sent(**body: Any) -> dict[str, Any]:
    call = Call(id="1", body={"messages": [USER], **body})
    fields: dict[str, Any] = json.loads(responses.encode(call, "gpt", Quirks()).body)
    return fields


def test_a_request() -> None:
    call = Call(
        id="1",
        body={"model": Raw(b'"route"'), "messages": Raw(b'[{"role":"user","content":"Hi"}]')},
    )
    encoded = responses.encode(call, "gpt", Quirks())
    assert encoded.path == "/responses"
    assert dict(encoded.headers) == {
        "content-type": "application/json",
        "accept": "text/event-stream",
    }
    assert json.loads(encoded.body) == {**MADE, "input": [USER]}


@each_case(
    "body, fields",
    [
        ({"max_tokens": 5}, {"max_output_tokens": 5}),
        ({"max_tokens": 5, "max_completion_tokens": 6}, {"max_output_tokens": 6}),
        ({"temperature": 0, "top_p": 0.9}, {"temperature": 0, "top_p": 0.9}),
        ({"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}),
        (
            {"reasoning_effort": "low", "reasoning": {"effort": "high", "summary": "auto"}},
            {"reasoning": {"effort": "high", "summary": "auto"}},
        ),
        ({"reasoning": {"summary": "auto"}}, {"reasoning": {"summary": "auto"}}),
        ({"verbosity": "low"}, {"text": {"verbosity": "low"}}),
        (
            {"response_format": {"type": "json_object"}},
            {"text": {"format": {"type": "json_object"}}},
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": SCHEMA, "strict": True},
                }
            },
            {
                "text": {
                    "format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}
                }
            },
        ),
        (
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "f", "parameters": SCHEMA, "description": None},
                    }
                ]
            },
            {"tools": [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}]},
        ),
        (
            {
                "tools": [
                    {"type": "function", "function": {"name": "f", "strict": True}},
                    {"type": "web_search"},
                ]
            },
            {
                "tools": [
                    {"type": "function", "name": "f", "parameters": None, "strict": True},
                    {"type": "web_search"},
                ]
            },
        ),
        (
            {"tools": [{"type": "custom", "custom": {"name": "sql", "description": "x"}}]},
            {"tools": [{"type": "custom", "name": "sql", "description": "x"}]},
        ),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
        (
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
            {"tool_choice": {"type": "function", "name": "f"}},
        ),
        (
            {"tool_choice": {"type": "custom", "custom": {"name": "f"}}},
            {"tool_choice": {"type": "custom", "name": "f"}},
        ),
        ({"tool_choice": {"type": "web_search"}}, {"tool_choice": {"type": "web_search"}}),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {
                        "mode": "auto",
                        "tools": [{"type": "function", "function": {"name": "f"}}],
                    },
                }
            },
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "auto",
                    "tools": [{"type": "function", "name": "f"}],
                }
            },
        ),
        (
            {"parallel_tool_calls": False, "store": True},
            {"parallel_tool_calls": False, "store": True},
        ),
        (
            {"instructions": "Be brief.", "include": ["x"]},
            {"instructions": "Be brief.", "include": ["x"]},
        ),
        ({"user": "u", "metadata": {"a": "b"}}, {"user": "u", "metadata": {"a": "b"}}),
        (
            {
                "stream_options": {},
                "stream": False,
                "n": 1,
                "seed": 7,
                "stop": [],
                "presence_penalty": 0,
            },
            {},
        ),
        ({"logprobs": None, "prediction": {}}, {}),
    ],
)
def test_fields(body: dict[str, Any], fields: dict[str, Any]) -> None:
    assert sent(**body) == {**MADE, "input": [USER], **fields}


@each_case(
    "message, items",
    [
        (
            {"role": "developer", "content": "Be brief."},
            [{"role": "system", "content": "Be brief."}],
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What?"},
                    {"type": "input_file", "file_id": "x"},
                ],
            },
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "What?"},
                        {"type": "input_file", "file_id": "x"},
                    ],
                }
            ],
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "https://x.test/y", "detail": "low"}}
                ],
            },
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_image", "image_url": "https://x.test/y", "detail": "low"}
                    ],
                }
            ],
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": "https://x.test/y"}]},
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_image", "image_url": "https://x.test/y", "detail": "auto"}
                    ],
                }
            ],
        ),
        (
            {
                "role": "user",
                "content": [{"type": "file", "file": {"filename": "a", "file_data": "data:x"}}],
            },
            [
                {
                    "role": "user",
                    "content": [{"type": "input_file", "filename": "a", "file_data": "data:x"}],
                }
            ],
        ),
        (
            {"role": "assistant", "content": [{"type": "text", "text": "Yes"}], "reasoning": "Hm"},
            [{"role": "assistant", "content": [{"type": "output_text", "text": "Yes"}]}],
        ),
        ({"role": "assistant", "refusal": "No."}, [{"role": "assistant", "content": "No."}]),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, [CALLED]),
        (
            {"role": "assistant", "content": "a", "tool_calls": [CALL]},
            [{"role": "assistant", "content": "a"}, CALLED],
        ),
        (
            {"role": "tool", "tool_call_id": "c", "content": "warm"},
            [{"type": "function_call_output", "call_id": "c", "output": "warm"}],
        ),
        (
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "warm"}]},
            [
                {
                    "type": "function_call_output",
                    "call_id": "c",
                    "output": [{"type": "input_text", "text": "warm"}],
                }
            ],
        ),
    ],
)
def test_messages(message: dict[str, Any], items: list[dict[str, Any]]) -> None:
    assert sent(messages=[message])["input"] == items


def test_input_items_may_replace_messages() -> None:
    encoded = responses.encode(Call(id="1", body={"input": [CALLED]}), "gpt", Quirks())
    assert json.loads(encoded.body)["input"] == [CALLED]


@each_case(
    "body, words",
    [
        ({"stop": "a"}, 'stop "a" cannot'),
        ({"frequency_penalty": 1}, "frequency_penalty 1"),
        ({"n": 2}, "n 2"),
        ({"logit_bias": {"1": 2}}, "logit_bias"),
        ({"response_format": {"type": "grammar"}}, "response_format"),
        ({"tool_choice": 7}, "tool_choice 7"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}
                ]
            },
            "'input_audio'",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "custom"}]}]},
            "tool_calls[0].type 'custom'",
        ),
    ],
)
def test_untranslatable_field_is_named(body: dict[str, Any], words: str) -> None:
    with pytest.raises(CallerFault, match="cannot be translated for Responses") as caught:
        sent(**body)
    assert caught.value.kind == "not_translatable"
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"tools": [7]}, "a tool must be an object"),
        ({"text": 7}, "text must be an object, got 7"),
        (
            {"messages": [{"role": "tool", "content": "x"}]},
            r"messages\[0\].tool_call_id is missing",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "is not a part of type 'image_url'",
        ),
        ({"messages": []}, "no messages"),
    ],
)
def test_invalid_request_is_refused_with_the_reason(body: dict[str, Any], words: str) -> None:
    with pytest.raises(CallerFault, match=words):
        sent(**body)


def test_completions_are_refused() -> None:
    with pytest.raises(CallerFault, match="a call of completions"):
        responses.encode(
            Call(id="1", operation="completions", body={"prompt": "Hi"}), "gpt", Quirks()
        )
