"""Requests for ``/responses`` in OpenAI's chat form: what becomes what, what is left out, and what
is refused."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.core.wire import anthropic, cohere, gemini, ollama, openai, responses
from splitsecond.core.wire.api_format import Quirks
from splitsecond.core.wire.reasoning import ReasoningRequest
from splitsecond.core.wire.responses.tools import CarriedTool, carried_tools

URL = "data:image/png;base64,AA=="
CALLED = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "a",
    "name": "f",
    "arguments": '{"x":1}',
    "status": "x",
}
OWN_NAMES = {"temperature": 0.5, "top_p": 1}


def call(**fields: Any) -> Call:
    """As the gateway makes it: the fields raw."""
    body = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}
    return Call(id="1", body=body, api_format="responses")


def chat(**fields: Any) -> dict[str, Any]:
    made = responses.to_chat(call(**{"input": "hi", **fields}))
    assert made.api_format == "openai"
    return dict(made.body)


def test_texts_become_chat_messages() -> None:
    said = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "hi"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "a", "annotations": []}],
        },
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "b"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "c"}]},
    ]
    assert chat(instructions="Be brief.", input=said)["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "a\nb"},
        {"role": "user", "content": "c"},
    ]
    assert chat(input="hi")["messages"] == [{"role": "user", "content": "hi"}]


def test_reasoning_and_calls_of_a_turn_become_one_message() -> None:
    said = [
        {"role": "user", "content": "hi"},
        {
            "type": "reasoning",
            "id": "rs",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "content": None,
        },
        {"role": "assistant", "content": "Let me see."},
        CALLED,
        {**CALLED, "call_id": "b"},
        {"type": "function_call_output", "call_id": "a", "output": "one"},
        {
            "type": "function_call_output",
            "call_id": "b",
            "output": [
                {"type": "input_text", "text": "two"},
                {"type": "input_image", "image_url": URL},
            ],
        },
    ]
    assert chat(input=said)["messages"] == [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
                {"id": "b", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {
            "role": "tool",
            "tool_call_id": "b",
            "content": [
                {"type": "text", "text": "two"},
                {"type": "image_url", "image_url": {"url": URL}},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("part", "made"),
    [
        (
            {"type": "input_image", "image_url": URL, "detail": "low"},
            {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
        ),
        (
            {"type": "input_image", "image_url": "https://x/a.png", "detail": "auto"},
            {"type": "image_url", "image_url": {"url": "https://x/a.png"}},
        ),
        (
            {
                "type": "input_file",
                "filename": "a.pdf",
                "file_data": "data:application/pdf;base64,AA==",
            },
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
            },
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
            {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
        ),
    ],
)
def test_pictures_and_files(part: Any, made: Any) -> None:
    (found,) = chat(
        input=[{"role": "user", "content": [{"type": "input_text", "text": "a"}, part]}]
    )["messages"]
    assert found["content"] == [{"type": "text", "text": "a"}, made]


@each_case(
    "fields, made",
    [
        (OWN_NAMES, OWN_NAMES),
        ({"model": "x", "stream": True, "stream_options": {"include_obfuscation": False}}, {}),
        ({"max_output_tokens": 5}, {"max_completion_tokens": 5}),
        (
            {"reasoning": {"effort": "low"}},
            {"reasoning": ReasoningRequest(name="reasoning", effort="low")},
        ),
        (
            {"reasoning": {"summary": "auto"}},
            {"reasoning": ReasoningRequest(name="reasoning", shown=True)},
        ),
        ({"reasoning": {"effort": None}, "store": False, "truncation": "disabled"}, {}),
        ({"user": "u", "prompt_cache_key": "k"}, {"user": "u", "prompt_cache_key": "k"}),
        ({"text": {"verbosity": "low", "format": {"type": "text"}}}, {"verbosity": "low"}),
        (
            {"text": {"format": {"type": "json_object"}}},
            {"response_format": {"type": "json_object"}},
        ),
        (
            {
                "text": {
                    "format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True}
                }
            },
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {}, "strict": True},
                }
            },
        ),
        ({"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}, {}),
        (
            {
                "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": None}],
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "auto",
                    "tools": [{"type": "function", "name": "f"}],
                },
                "parallel_tool_calls": False,
            },
            {
                "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {
                        "mode": "auto",
                        "tools": [{"type": "function", "function": {"name": "f"}}],
                    },
                },
                "parallel_tool_calls": False,
            },
        ),
    ],
)
def test_fields(fields: dict[str, Any], made: dict[str, Any]) -> None:
    found = chat(**fields)
    del found["messages"]
    assert found == made


def test_dropped_fields_are_noted() -> None:
    asked = call(
        input="hi",
        store=True,
        metadata={"a": "b"},
        include=["x"],
        reasoning={"mode": "pro"},
        user=None,
        odd=[1],
    )
    assert responses.to_chat(asked).body.keys() == {"messages"}
    assert asked.notes.dropped == ["store", "metadata", "include", "mode", "odd"]


def test_unknown_fields_of_items_parts_and_tools_are_named() -> None:
    part = {"type": "input_text", "text": "a", "in_part": 1}
    inner = {"type": "function", "name": "f", "in_function": 1}
    asked = call(
        input=[
            {"role": "user", "content": [part], "in_item": 1},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
            {
                "type": "function_call",
                "call_id": "c",
                "name": "f",
                "arguments": "{}",
                "status": "completed",
            },
            {"type": "function_call_output", "call_id": "c", "output": [{**part, "in_output": 1}]},
        ],
        tools=[{"type": "namespace", "name": "n", "tools": [inner], "in_tool": 1}],
        text={"verbosity": "low", "in_text": 1},
    )
    responses.to_chat(asked)
    names = [
        "in_item",
        "in_part",
        "encrypted_content",
        "in_output",
        "in_tool",
        "in_function",
        "in_text",
    ]
    assert asked.notes.dropped == names


def test_items_of_unknown_types_are_left_out_and_named() -> None:
    asked = call(
        input=[{"type": "odd_item", "id": "x", "data": {}}, {"role": "user", "content": "hi"}]
    )
    assert responses.to_chat(asked).body["messages"] == [{"role": "user", "content": "hi"}]
    assert asked.notes.dropped == ["odd_item"]


def test_tools_in_the_input_are_tools_of_the_request() -> None:
    wait = {"type": "function", "name": "wait", "parameters": {"type": "object", "properties": {}}}
    more = {
        "type": "additional_tools",
        "role": "developer",
        "tools": [wait, {"type": "custom", "name": "exec"}],
    }
    asked = call(input=[more, {"role": "user", "content": "hi"}], tools=[wait])
    made: dict[str, Any] = dict(responses.to_chat(asked).body)
    assert [tool["function"]["name"] for tool in made["tools"]] == ["wait", "exec"]
    assert made["messages"] == [{"role": "user", "content": "hi"}]
    assert asked.notes.dropped == []
    assert carried_tools(asked.body) == {"exec": CarriedTool("exec", custom=True)}


def test_arguments_can_be_an_object() -> None:
    (message,) = chat(input=[{**CALLED, "arguments": {"x": 1}}])["messages"]
    assert message["tool_calls"][0]["function"]["arguments"] == '{"x":1}'


@pytest.mark.parametrize("tools", [[7], [{"type": "namespace", "name": "n", "tools": 7}]])
def test_tools_of_an_odd_form_are_refused(tools: Any) -> None:
    with pytest.raises(CallerFault, match="tools"):
        responses.to_chat(call(input="hi", tools=tools))


@each_case(
    "fields, words",
    [
        ({"input": []}, "input must be a text"),
        ({"input": 5}, "input must be a text"),
        ({"input": [5]}, r"input\[0\] must be an object"),
        ({"input": [{"role": "tool", "content": "x"}]}, "expected one of user"),
        ({"input": [{"type": "message", "role": "user"}]}, "not an item of type 'message'"),
        (
            {"input": [{"type": "function_call", "name": "f"}]},
            "not an item of type 'function_call'",
        ),
        (
            {"input": [{"type": "item_reference", "id": "x"}]},
            "'item_reference' cannot be translated",
        ),
        (
            {"input": [{"type": "custom_tool_call", "call_id": "x"}]},
            "not an item of type 'custom_tool_call'",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "Send the data itself",
        ),
        ({"input": [{"role": "user", "content": [5]}]}, "must be an object with a type"),
        (
            {
                "input": [
                    {"role": "assistant", "content": [{"type": "input_image", "image_url": URL}]}
                ]
            },
            "not all text",
        ),
        ({"instructions": 5}, "instructions must be a text"),
        ({"previous_response_id": "resp_1"}, "previous_response_id .* cannot"),
        ({"conversation": "c"}, "conversation"),
        ({"background": True}, "background"),
        ({"tools": [{"type": "web_search"}]}, "a tool of type 'web_search'"),
        ({"tools": [{"type": "custom"}]}, "a function with a name"),
        (
            {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}]},
            r"tools\[0\].tools\[0\], a tool",
        ),
        ({"tools": [{"type": "function"}]}, "a function with a name"),
        ({"tools": 5}, "tools must be a list"),
        (
            {"tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "mcp"}},
            "tool_choice",
        ),
        ({"text": 5}, "text must be an object"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"reasoning": "high"}, "reasoning must be an object"),
        ({"reasoning": {"effort": "huge"}}, 'reasoning.effort is "huge"'),
    ],
)
def test_invalid_or_untranslatable_fields_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(CallerFault, match=words):
        chat(**fields)


def test_chat_is_the_same_after_encoding_and_parsing() -> None:
    asked: dict[str, Any] = {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What?"},
                    {"type": "image_url", "image_url": {}},
                ],
            },
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": [
                    {
                        "id": "a",
                        "type": "function",
                        "function": {"name": "f", "arguments": '{"x":1}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "one"},
            {"role": "user", "content": "And?"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "f", "parameters": {"type": "object"}, "strict": True},
            }
        ],
        "tool_choice": "required",
        "max_completion_tokens": 5,
    }
    asked["messages"][1]["content"][1]["image_url"] = {"url": URL, "detail": "low"}
    there = responses.encode(Call(id="1", body=asked), "m", Quirks())
    again = dict(
        responses.to_chat(
            Call(id="1", body=msgspec.json.decode(there.body), api_format="responses")
        ).body
    )
    assert {name: again[name] for name in asked} == asked


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["text", "user", "function", "message", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "text",
                    "role",
                    "content",
                    "name",
                    "summary",
                    "output",
                    "call_id",
                    "arguments",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
FIELDS = [
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "text",
    "reasoning",
    "max_output_tokens",
    "include",
]
TYPES = ["message", "reasoning", "function_call", "function_call_output", "x"]


@given(
    st.dictionaries(st.sampled_from(FIELDS), JSON),
    st.lists(JSON, min_size=1, max_size=3),
    st.sampled_from(TYPES),
)
def test_any_request_is_translated_or_refused(
    fields: dict[str, Any], items: list[Any], kind: str
) -> None:
    typed = [{**item, "type": kind} if isinstance(item, dict) else item for item in items]
    for asked in (
        call(**fields),
        call(**{**fields, "input": items}),
        call(**{**fields, "input": typed}),
    ):
        try:
            made = responses.to_chat(asked)
        except CallerFault:
            continue
        for api_format in (openai, cohere, gemini, ollama, anthropic):
            try:
                api_format.encode(made, "m", Quirks())
            except CallerFault:
                continue
