"""Requests for ``/messages`` in OpenAI's form: what becomes what, what is left out, and what is
refused."""

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

PIXEL = {"type": "base64", "media_type": "image/png", "data": "AA=="}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
OWN_NAMES = {"max_tokens": 5, "temperature": 0.5, "top_p": 1, "top_k": 3}
MARK = {"cache_control": {"type": "ephemeral"}}


def call(**fields: Any) -> Call:
    """As the gateway makes it: the fields raw."""
    body = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}
    return Call(id="1", body=body, api_format="anthropic")


def chat(**fields: Any) -> dict[str, Any]:
    made = anthropic.to_chat(call(**{"messages": [{"role": "user", "content": "hi"}], **fields}))
    assert made.api_format == "openai"
    return dict(made.body)


def messages(*turns: Any, **fields: Any) -> Any:
    return chat(messages=list(turns), **fields)["messages"]


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def test_texts_become_chat_messages() -> None:
    assert messages(
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        },
        {"role": "assistant", "content": ""},
        user({"type": "text", "text": "c"}, {"type": "text", "text": "d"}),
        {"role": "system", "content": "Now be long."},
        system=[
            {"type": "text", "text": "Be brief.", **MARK},
            {"type": "text", "text": "Be kind."},
        ],
    ) == [
        {"role": "system", "content": "Be brief.\nBe kind."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "a\nb"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]},
        {"role": "system", "content": "Now be long."},
    ]


def test_tools_called_and_their_results() -> None:
    called = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "xx"},
            {"type": "redacted_thinking", "data": "yy"},
            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": [1.50, None]}},
            {"type": "tool_use", "id": "b", "name": "g", "input": {}},
        ],
    }
    results = user(
        {"type": "text", "text": "So?"},
        {"type": "tool_result", "tool_use_id": "a", "content": "one"},
        {
            "type": "tool_result",
            "tool_use_id": "b",
            "content": [{"type": "image", "source": PIXEL}],
        },
    )
    assert messages({"role": "user", "content": "hi"}, called, results)[1:] == [
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Hm.",
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"x":[1.5,null]}'},
                },
                {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": [IMAGE]},
        {"role": "user", "content": "So?"},
    ]


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "image", "source": PIXEL}, IMAGE),
        (
            {"type": "image", "source": {"type": "url", "url": "https://x/a.png"}},
            {"type": "image_url", "image_url": {"url": "https://x/a.png"}},
        ),
        (
            {
                "type": "document",
                "title": "a.pdf",
                "source": {**PIXEL, "media_type": "application/pdf"},
            },
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
            },
        ),
        (
            {
                "type": "document",
                "title": "T",
                "source": {"type": "text", "media_type": "text/plain", "data": "x"},
            },
            {"type": "text", "text": "T\nx"},
        ),
        (
            {
                "type": "document",
                "source": {"type": "content", "content": [{"type": "text", "text": "y"}]},
            },
            {"type": "text", "text": "y"},
        ),
    ],
)
def test_pictures_and_documents(block: Any, part: Any) -> None:
    (found,) = messages(user({"type": "text", "text": "a"}, block))
    assert found["content"] == [{"type": "text", "text": "a"}, part]


@each_case(
    "fields, made",
    [
        (OWN_NAMES, OWN_NAMES),
        ({"stop_sequences": ["a"]}, {"stop": ["a"]}),
        ({"stop_sequences": []}, {}),
        (
            {"output_config": {"effort": "max"}},
            {"reasoning": ReasoningRequest(name="effort", effort="max")},
        ),
        (
            {"thinking": {"type": "adaptive"}},
            {"reasoning": ReasoningRequest(name="thinking", on=True)},
        ),
        (
            {
                "thinking": {"type": "enabled", "budget_tokens": 2000},
                "output_config": {"effort": "low"},
            },
            {"reasoning": ReasoningRequest(name="thinking", budget=2000, effort="low")},
        ),
        ({"service_tier": "standard_only"}, {"service_tier": "default"}),
        ({"metadata": {"user_id": "u"}}, {"user": "u"}),
        (
            {"metadata": {"user_id": "u" * 65}},
            {"user": "f20e249d15fa4b9f44ba21d154f62e1efa76ddfdce5d25139a33a4787cee5a8b"},
        ),
        (
            {"output_format": {"type": "json_schema", "schema": {"type": "object"}}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
                }
            },
        ),
        ({"tools": [], "tool_choice": {"type": "auto"}}, {}),
    ],
)
def test_fields(fields: dict[str, Any], made: dict[str, Any]) -> None:
    found = chat(**fields)
    del found["messages"]
    assert found == made


@pytest.mark.parametrize(
    ("choice", "made"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
    ],
)
def test_tool_choice_of_anthropic_becomes_openais(choice: Any, made: Any) -> None:
    tool = {
        "name": "f",
        "description": "d",
        "input_schema": {"type": "object"},
        "strict": True,
        **MARK,
    }
    found = chat(tools=[tool], tool_choice={**choice, "disable_parallel_tool_use": True})
    function = {"name": "f", "parameters": {"type": "object"}, "description": "d", "strict": True}
    assert found["tools"] == [{"type": "function", "function": function}]
    assert found["tool_choice"] == made
    assert found["parallel_tool_calls"] is False


def test_dropped_fields_are_noted_once() -> None:
    asked = call(
        messages=[
            user({"type": "text", "text": "a", **MARK}),
            user({"type": "tool_result", "tool_use_id": "x", "is_error": True, "content": "no"}),
            user({"type": "tool_result", "tool_use_id": "y", "is_error": False, **MARK}),
        ],
        metadata={"other": "u"},
        output_config={"task_budget": {"total": 9}},
        service_tier=None,
        speed="fast",
        odd=[1],
    )
    made = anthropic.to_chat(asked)
    assert made.body.keys() == {"messages"}
    assert asked.notes.dropped == ["cache_control", "task_budget", "metadata", "speed", "odd"]


def test_unknown_fields_at_any_depth_are_noted() -> None:
    asked = call(
        messages=[
            {**user({"type": "text", "text": "a", "in_text": 1, "citations": None}), "in_turn": 1},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "x", "name": "f", "input": {}, "in_use": 1}],
            },
            user(
                {
                    "type": "tool_result",
                    "tool_use_id": "x",
                    "content": [{"type": "text", "text": "b", "inner": 1}],
                }
            ),
        ],
        tools=[
            {"name": "f", "input_schema": {"type": "object"}, "in_tool": 1, "defer_loading": False}
        ],
    )
    anthropic.to_chat(asked)
    assert asked.notes.dropped == ["in_turn", "in_text", "in_use", "inner", "in_tool"]


@pytest.mark.parametrize(
    "thread", [{"type": "new"}, {"type": "continue", "previous_message_id": "msg_1"}]
)
def test_thread_is_refused_by_targets_without_threads(thread: Any) -> None:
    asked = call(messages=[user({"type": "text", "text": "hi"})], thread=thread)
    with pytest.raises(CallerFault, match="thread cannot be translated") as translated:
        anthropic.to_chat(asked)
    with pytest.raises(CallerFault, match="thread cannot be translated") as passed:
        anthropic.pass_on(asked, "m", Quirks())
    for refused in (translated.value, passed.value):
        assert (refused.kind, refused.code) == ("not_translatable", "thread_unsupported_request")
    own = anthropic.pass_on(asked, "m", Quirks(threads=True))
    assert msgspec.json.decode(own.body)["thread"] == thread
    assert (
        "thread"
        not in anthropic.to_chat(
            call(messages=[user({"type": "text", "text": "hi"})], thread=None)
        ).body
    )


@each_case(
    "fields, words",
    [
        ({"messages": []}, "at least one message"),
        ({"messages": "x"}, "must be a list"),
        ({"messages": [1]}, r"messages\[0\] must have a role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, r"messages\[0\] must have a role"),
        ({"messages": [user(1)]}, "a list of objects"),
        ({"messages": [user({"type": "text"})]}, "is not a block of type 'text'"),
        ({"messages": [user({"type": "tool_result"})]}, "tool_use_id must be a text"),
        ({"system": [{"type": "image"}]}, r"system\[0\].type 'image' cannot be translated"),
        ({"messages": [user({"type": "search_result"})]}, "'search_result' cannot be translated"),
        (
            {"messages": [user({"type": "image", "source": {"type": "file", "file_id": "f"}})]},
            "not a block of type",
        ),
        (
            {"messages": [user({"type": "document", "source": {"type": "url", "url": "u"}})]},
            "source of type 'url' cannot be translated",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "server_tool_use"}]}]},
            "'server_tool_use' cannot",
        ),
        (
            {"tools": [{"type": "bash_20250124", "name": "bash"}]},
            "Anthropic's own tool 'bash_20250124'",
        ),
        ({"tools": [{"name": "f"}]}, "a name and an input_schema"),
        ({"tools": {"a": 1}}, "tools must be a list"),
        ({"tools": [{"name": "f", "input_schema": {}}], "tool_choice": 5}, "tool_choice 5 cannot"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers .* cannot be translated"),
        ({"output_config": 5}, "output_config must be an object"),
        ({"output_config": {"effort": "huge"}}, 'effort is "huge"'),
        ({"thinking": {"type": "enabled"}, "output_config": {"effort": 5}}, "effort is 5"),
        (
            {"thinking": {"type": "enabled", "budget_tokens": "many"}},
            "expected the type enabled, adaptive or disabled",
        ),
        ({"service_tier": "fast"}, "expected one of auto, standard_only"),
        ({"output_config": {"format": {"type": "grammar"}}}, "output_config.format"),
    ],
)
def test_invalid_or_untranslatable_fields_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(CallerFault, match=words):
        chat(**fields)


def test_chat_is_the_same_after_encoding_and_parsing() -> None:
    asked: dict[str, Any] = {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "What?"}, IMAGE]},
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
            {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        ],
        "tool_choice": "required",
        "max_tokens": 5,
        "stop": ["END"],
    }
    there = anthropic.encode(Call(id="1", body=asked), "m", Quirks())
    fields = msgspec.json.decode(there.body)
    again = dict(anthropic.to_chat(Call(id="1", body=fields, api_format="anthropic")).body)
    assert {name: again[name] for name in asked} == asked


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["text", "user", "image", "x", "auto", "base64"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "text",
                    "content",
                    "source",
                    "name",
                    "input",
                    "id",
                    "input_schema",
                    "data",
                    "effort",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
FIELDS = [
    "messages",
    "system",
    "tools",
    "tool_choice",
    "output_config",
    "thinking",
    "stop_sequences",
    "max_tokens",
]


@given(st.dictionaries(st.sampled_from(FIELDS), JSON), st.lists(JSON, min_size=1, max_size=3))
def test_any_request_is_translated_or_refused(fields: dict[str, Any], contents: list[Any]) -> None:
    turns = [{"role": "user", "content": content} for content in contents]
    for asked in (call(**fields), call(**{**fields, "messages": turns})):
        try:
            made = anthropic.to_chat(asked)
        except CallerFault:
            continue
        for api_format in (openai, cohere, gemini, ollama, responses):
            try:
                api_format.encode(made, "m", Quirks())
            except CallerFault:
                continue
