"""Writing requests: OpenAI's fields and messages in Anthropic's format."""

import re
from typing import Any

import httpx2
import msgspec
import pytest
from tests.cases import each_case

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.core.wire import anthropic
from splitsecond.core.wire.anthropic.encode import DEFAULT_MAX_TOKENS
from splitsecond.core.wire.api_format import Quirks

BROKEN_CALL = {"id": "c", "function": {"name": "f", "arguments": "["}}
HELLO = [{"role": "user", "content": "Hello"}]
PNG = "data:image/png;base64,iVBORw0K"
FUNCTION = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
MARK = {"type": "ephemeral"}


def encoded(model: str = "claude-haiku-4-5", /, **fields: Any) -> dict[str, Any]:
    body = {"messages": HELLO, **fields}
    request = anthropic.encode(Call(id="c", body=body), model, Quirks())
    return msgspec.json.decode(request.body, type=dict[str, Any])


def turns(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return list(encoded(messages=list(messages))["messages"])


def user(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    (turn,) = turns({"role": "user", "content": list(parts)})
    return list(turn["content"])


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def refused(**fields: Any) -> str:
    with pytest.raises(CallerFault) as caught:
        encoded(**fields)
    assert caught.value.kind == "not_translatable"
    return str(caught.value)


def test_a_request() -> None:
    request = anthropic.encode(
        Call(id="c", body={"messages": HELLO, "max_tokens": 5}), "claude-x", Quirks()
    )
    assert request.path == "/messages"
    assert dict(request.headers)["anthropic-version"] == "2023-06-01"
    assert msgspec.json.decode(request.body) == {
        "model": "claude-x",
        "stream": True,
        "max_tokens": 5,
        "messages": [{"role": "user", "content": [text("Hello")]}],
    }


@pytest.mark.system
@pytest.mark.parametrize("stream", [True, False])
def test_vertex_request_equals_that_of_anthropics_library(stream: bool) -> None:
    """Which is asked for the same, and stopped before it sends anything."""
    # takes seconds, which fast tests do not have
    from anthropic import AnthropicVertex, APIStatusError
    from anthropic.types import MessageParam

    sent: list[httpx2.Request] = []

    def stop(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(418)

    library = AnthropicVertex(
        region="us-east5",
        project_id="p",
        access_token="t",
        max_retries=0,
        http_client=httpx2.Client(transport=httpx2.MockTransport(stop)),
    )
    model = "claude-haiku-4-5@20251001"
    said: MessageParam = {"role": "user", "content": "Hello"}
    with pytest.raises(APIStatusError):
        library.messages.create(model=model, max_tokens=5, messages=[said], stream=stream)
    quirks = Quirks(on_vertex=True, stream_whole=False)
    ours = anthropic.encode(
        Call(id="c", body={"messages": HELLO, "max_tokens": 5}, stream=stream), model, quirks
    )
    theirs = msgspec.json.decode(sent[0].content)
    theirs["messages"][0]["content"] = [text("Hello")]
    theirs["anthropic_version"] = "vertex-2023-10-16"  # newer ones change what comes back
    assert msgspec.json.decode(ours.body) == {"stream": stream} | theirs
    assert str(sent[0].url).endswith(f"/locations/us-east5/publishers/anthropic{ours.path}")
    assert "anthropic-version" not in dict(ours.headers)


def test_raw_values_are_decoded_and_null_is_ignored() -> None:
    raw: dict[str, Any] = {
        "messages": msgspec.Raw(msgspec.json.encode(HELLO)),
        "temperature": msgspec.Raw(b"null"),
        "n": None,
    }
    assert encoded(**raw) == encoded()
    with pytest.raises(CallerFault, match="messages is not JSON"):
        encoded(messages=msgspec.Raw(b"["))


@each_case(
    "fields, native",
    [
        ({"max_tokens": 9}, {"max_tokens": 9}),
        ({"max_tokens": 9, "max_completion_tokens": 8}, {"max_tokens": 8}),
        ({"temperature": 1, "top_p": 0.5}, {"temperature": 1, "top_p": 0.5}),
        ({"stop": "a"}, {"stop_sequences": ["a"]}),
        ({"stop": ["a", "b"]}, {"stop_sequences": ["a", "b"]}),
        ({"service_tier": "priority"}, {"service_tier": "auto"}),
        ({"service_tier": "default"}, {"service_tier": "standard_only"}),
        (
            {"top_k": 4, "thinking": {"type": "adaptive"}},
            {"top_k": 4, "thinking": {"type": "adaptive"}},
        ),
        ({"system": "native"}, {"system": "native"}),
        ({"cache_control": MARK, "speed": "fast"}, {"cache_control": MARK, "speed": "fast"}),
        ({"user": "u"}, {"metadata": {"user_id": "u"}}),
        ({"user": "u", "safety_identifier": "v"}, {"metadata": {"user_id": "v"}}),
        ({"seed": 1, "stream_options": {}, "store": True, "metadata": {}, "logit_bias": {}}, {}),
        ({"presence_penalty": 0, "frequency_penalty": 0.0, "n": 1, "logprobs": False}, {}),
        (
            {
                "stream": False,
                "model": "other",
                "parallel_tool_calls": False,
                "tool_choice": "auto",
            },
            {},
        ),
        ({"response_format": {"type": "text"}}, {}),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"type": "object"}},
                }
            },
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
        ),
    ],
)
def test_fields(fields: dict[str, Any], native: dict[str, Any]) -> None:
    assert encoded(**fields) == {**encoded(), **native}


def test_a_json_object_is_requested_by_an_instruction() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "JSON, please"},
    ]
    call = Call(id="c", body={"messages": messages, "response_format": {"type": "json_object"}})
    body = msgspec.json.decode(anthropic.encode(call, "m", Quirks()).body)
    assert body["system"][0]["text"] == "Be brief."
    assert "one JSON object" in body["system"][1]["text"]
    assert "output_config" not in body
    assert call.notes.dropped == ["response_format"]


@each_case(
    "fields, words",
    [
        ({"n": 2}, "n 2"),
        ({"logprobs": True}, "logprobs true"),
        ({"presence_penalty": 0.5}, "presence_penalty 0.5"),
        ({"temperature": 1.5}, "temperature 1.5.*0 to 1"),
        ({"service_tier": "scale"}, 'service_tier "scale"'),
        ({"tools": [FUNCTION], "tool_choice": "any"}, 'tool_choice "any"'),
        ({"tools": [{"type": "custom", "custom": {"name": "sql"}}]}, "the tool"),
        ({"tools": [{"type": "function", "function": {}}]}, "the tool"),
        ({"reasoning_effort": "extreme"}, "reasoning_effort.*Possible: none, minimal, low"),
        ({"modalities": ["audio"]}, "modalities"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}
                ]
            },
            "input_audio",
        ),
        (
            {"messages": [{"role": "user", "content": [{"text": "x"}]}]},
            r"messages\[0\].content\[0\].type None",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}
                ]
            },
            "file_data",
        ),
        ({"messages": [{"role": "function", "content": "x"}]}, "Use tools"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "custom"}]}]},
            "'custom'",
        ),
    ],
)
def test_untranslatable_field_is_named(fields: dict[str, Any], words: str) -> None:
    assert re.search(words, refused(**fields))


def test_completions_are_refused() -> None:
    with pytest.raises(CallerFault, match="completions"):
        anthropic.encode(Call(id="c", operation="completions", body={"prompt": "x"}), "m", Quirks())


@each_case(
    "fields, words",
    [
        ({"messages": []}, "no messages"),
        ({"messages": "x"}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "'robot'"),
        ({"tools": "x"}, "tools must be a list"),
        ({"tools": ["x"]}, "a tool must be an object"),
        ({"output_config": "x"}, "output_config must be an object"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "not a part of type 'text'",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": 7}]}]},
            "not a part of type 'text'",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": 7}]}]},
            "'image_url'",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": 7}}]}
                ]
            },
            "'image_url'",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "file", "file": {"file_data": 7}}]}
                ]
            },
            "'file'",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": "data:,x"}]}
                ]
            },
            "not a data URL",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [BROKEN_CALL]}]},
            r"tool_calls\[0\].function.arguments is not",
        ),
    ],
)
def test_invalid_request_is_refused_with_the_reason(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(CallerFault, match=words) as caught:
        encoded(**fields)
    assert caught.value.kind == "bad_request"


def test_system_messages_become_the_system_prompt() -> None:
    body = encoded(
        messages=[
            {"role": "system", "content": "Be brief."},
            *HELLO,
            {"role": "developer", "content": [text("Be kind.", cache_control=MARK)]},
        ]
    )
    assert body["system"] == [text("Be brief."), text("Be kind.", cache_control=MARK)]
    assert body["messages"] == [{"role": "user", "content": [text("Hello")]}]


def test_parts() -> None:
    assert user(
        text("a", cache_control=MARK),
        text(""),
        {"type": "image_url", "image_url": {"url": PNG, "detail": "high"}, "cache_control": MARK},
        {"type": "image_url", "image_url": "https://x/cat.png"},
        {
            "type": "file",
            "file": {"file_data": "data:application/pdf;base64,JVBE", "filename": "a.pdf"},
        },
        {"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}},
    ) == [
        text("a", cache_control=MARK),
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0K"},
            "cache_control": MARK,
        },
        {"type": "image", "source": {"type": "url", "url": "https://x/cat.png"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"},
            "title": "a.pdf",
        },
        {"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}},
    ]


def test_tool_calls_and_their_results() -> None:
    calls = [
        {
            "id": "functions.f:0",
            "type": "function",
            "function": {"name": "f", "arguments": '{"a":1}'},
        },
        {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": ""}},
    ]
    assert turns(
        *HELLO,
        {"role": "assistant", "content": "", "tool_calls": calls, "reasoning_content": "Hm"},
        {"role": "tool", "tool_call_id": "functions.f:0", "content": "warm"},
        {"role": "tool", "tool_call_id": "call_2", "content": [text("cold")]},
        {"role": "user", "content": "And?"},
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "assistant", "content": ""},
    ) == [
        {"role": "user", "content": [text("Hello")]},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "functions_f_0", "name": "f", "input": {"a": 1}},
                {"type": "tool_use", "id": "call_2", "name": "g", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "functions_f_0", "content": [text("warm")]},
                {"type": "tool_result", "tool_use_id": "call_2", "content": [text("cold")]},
                text("And?"),
            ],
        },
        {"role": "assistant", "content": [text("No.")]},
    ]


def test_a_cache_mark_on_a_message_goes_to_its_last_block() -> None:
    assert turns({"role": "user", "content": "Hello", "name": "ann", "cache_control": MARK}) == [
        {"role": "user", "content": [text("Hello", cache_control=MARK)]}
    ]
    thought = {"type": "thinking", "thinking": "Hm", "signature": "Eq"}
    assert turns({"role": "assistant", "content": [thought, text("Yes")]})[0]["content"] == [
        thought,
        text("Yes"),
    ]


def test_tools() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    described = {"name": "f", "description": "d", "strict": True, "parameters": None}
    body = encoded(
        tools=[FUNCTION, {"type": "function", "function": described, "cache_control": MARK}, search]
    )
    assert body["tools"] == [
        {"name": "weather", "input_schema": {"type": "object"}},
        {
            "name": "f",
            "description": "d",
            "strict": True,
            "input_schema": {"type": "object", "properties": {}},
            "cache_control": MARK,
        },
        search,
    ]
    assert "tool_choice" not in body


@each_case(
    "fields, choice",
    [
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
        ({"tool_choice": "required"}, {"type": "any"}),
        (
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
            {"type": "tool", "name": "f"},
        ),
        ({"tool_choice": {"type": "tool", "name": "f"}}, {"type": "tool", "name": "f"}),
        ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
        (
            {"tool_choice": "required", "parallel_tool_calls": False},
            {"type": "any", "disable_parallel_tool_use": True},
        ),
    ],
)
def test_tool_choices(fields: dict[str, Any], choice: dict[str, Any]) -> None:
    assert encoded(tools=[FUNCTION], **fields)["tool_choice"] == choice


@pytest.mark.parametrize(
    "model",
    [
        "claude-haiku-4-5-20251001",
        "claude-sonnet-4-20250514",
        "claude-3-7-sonnet-20250219",
        "deepseek-chat",
    ],
)
def test_effort_is_a_budget_within_max_tokens_for_older_models(model: str) -> None:
    body = encoded(model, reasoning_effort="medium")
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 8192}
    assert body["max_tokens"] == 8192 + DEFAULT_MAX_TOKENS
    body = encoded(model, reasoning_effort="high", max_completion_tokens=4000)
    assert (body["thinking"]["budget_tokens"], body["max_tokens"]) == (3999, 4000)
    assert "output_config" not in body


def limited(default: int | None, **fields: Any) -> tuple[int, str]:
    """The limit of a request without one, and the note about it. `default`: the model's maximum."""
    call = Call(id="c", body={"messages": HELLO, **fields})
    request = anthropic.encode(call, "claude-haiku-4-5", Quirks(default_max_tokens=default))
    return msgspec.json.decode(request.body)["max_tokens"], call.notes.added.get("", "")


def test_a_chat_without_a_limit_gets_the_models_maximum() -> None:
    assert limited(64_000) == (64_000, "max_tokens=64000")
    assert limited(None) == (DEFAULT_MAX_TOKENS, f"max_tokens={DEFAULT_MAX_TOKENS}")
    assert limited(64_000, max_tokens=5) == limited(64_000, max_completion_tokens=5) == (5, "")


def test_a_budget_of_reasoning_is_below_the_limit() -> None:
    thinking = {"type": "enabled", "budget_tokens": 24_576}
    assert limited(32_000, thinking=thinking)[0] == 32_000
    assert (
        limited(16_000, thinking=thinking)[0]
        == limited(None, thinking=thinking)[0]
        == 24_576 + DEFAULT_MAX_TOKENS
    )


@pytest.mark.parametrize(
    "model", ["claude-opus-4-6", "claude-opus-4.7", "claude-opus-5", "claude-mythos-preview"]
)
def test_effort_is_a_level_for_newer_models(model: str) -> None:
    schema = {"format": {"type": "json_schema", "schema": {}}}
    body = encoded(model, reasoning_effort="minimal", output_config=schema)
    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == {"effort": "low", **schema}
    assert body["max_tokens"] == DEFAULT_MAX_TOKENS
    assert encoded(model, reasoning_effort="none")["thinking"] == {"type": "disabled"}


def test_native_thinking_budget_raises_the_default_limit() -> None:
    body = encoded(thinking={"type": "enabled", "budget_tokens": 10_000})
    assert body["max_tokens"] == 10_000 + DEFAULT_MAX_TOKENS


@pytest.mark.parametrize("system", [True, False])
def test_cache_mark_is_at_the_end_of_the_lasting_prompt(system: bool) -> None:
    said = [{"role": "user", "content": [text("a"), text("b")]}]
    if system:
        said.insert(0, {"role": "system", "content": [text("s"), text("t")]})
    call = Call(id="c", body={"messages": said}, hints={"prompt_cache": "mark"})
    body = msgspec.json.decode(anthropic.encode(call, "claude-x", Quirks()).body)
    marked, plain = (["t"], ["s", "a", "b"]) if system else (["b"], ["a"])
    blocks = [*body.get("system", ()), *body["messages"][0]["content"]]
    assert [b["text"] for b in blocks if b.get("cache_control") == MARK] == marked
    assert [b["text"] for b in blocks if "cache_control" not in b] == plain


def test_cache_mark_of_a_session_is_at_the_end_of_the_prompt() -> None:
    said = [
        {"role": "system", "content": [text("s")]},
        {"role": "user", "content": [text("a"), text("b")]},
    ]
    call = Call(id="c", body={"messages": said}, hints={"prompt_cache": "end"})
    body = msgspec.json.decode(anthropic.encode(call, "claude-x", Quirks()).body)
    blocks = [*body["system"], *body["messages"][0]["content"]]
    assert [b["text"] for b in blocks if b.get("cache_control") == MARK] == ["b"]


def test_empty_prompt_gets_no_cache_mark() -> None:
    call = Call(
        id="c",
        body={"messages": [{"role": "system", "content": ""}]},
        hints={"prompt_cache": "mark"},
    )
    assert b"cache_control" not in anthropic.encode(call, "claude-x", Quirks()).body
