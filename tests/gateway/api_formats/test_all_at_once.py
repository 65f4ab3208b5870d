"""One request with every kind of content, sent by each official library to targets of every API
format."""

from typing import Any

import anthropic
import openai
import pytest
from tests.gateway.api_formats.conftest import TARGETS, WITH_TOOLS
from tests.gateway.api_formats.test_messages import text_of
from tests.simulator.on_loopback import SAID_TO_SO

pytestmark = pytest.mark.system

PIXEL = "iVBORw0KGgo="
URL = f"data:image/png;base64,{PIXEL}"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": ""}
SOURCE = {"type": "base64", "media_type": "image/png", "data": PIXEL}


def calls(*names: str) -> list[dict[str, Any]]:
    return [
        {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        for name in names
    ]


MESSAGES: Any = [
    {
        "role": "user",
        "content": [{"type": "text", "text": "What?"}, {"type": "image", "source": SOURCE}],
    },
    {
        "role": "assistant",
        "content": [
            THOUGHT,
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "call_f", "name": "f", "input": {"city": "Bern"}},
            {"type": "tool_use", "id": "call_g", "name": "g", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "call_f",
                "is_error": True,
                "content": [{"type": "text", "text": "no"}, {"type": "image", "source": SOURCE}],
            },
            {"type": "tool_result", "tool_use_id": "call_g", "content": "two"},
            {"type": "text", "text": "So?"},
        ],
    },
]


@pytest.mark.parametrize("api_format", WITH_TOOLS)
@pytest.mark.parametrize("stream", [True, False])
def test_anthropics_messages(claude: anthropic.Anthropic, api_format: str, stream: bool) -> None:
    asked: dict[str, Any] = {
        "model": TARGETS[api_format],
        "max_tokens": 8,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": MESSAGES,
        "tools": [{"name": name, "input_schema": SCHEMA} for name in ("f", "g")],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "thinking": {"type": "adaptive"},
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
    }
    if stream:
        with claude.messages.stream(**asked) as events:
            message = events.get_final_message()
    else:
        message = claude.messages.create(**asked)
    assert text_of(message) == SAID_TO_SO
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 8


CHAT: Any = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What?"},
            {"type": "image_url", "image_url": {"url": URL}},
        ],
    },
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Hm.",
        "tool_calls": calls("f", "g"),
    },
    {"role": "tool", "tool_call_id": "call_f", "content": "one"},
    {"role": "tool", "tool_call_id": "call_g", "content": "two"},
    {"role": "user", "content": "So?"},
]


@pytest.mark.parametrize("api_format", WITH_TOOLS)
@pytest.mark.parametrize("stream", [True, False])
def test_openais_chats(gpt: openai.OpenAI, api_format: str, stream: bool) -> None:
    asked: dict[str, Any] = {
        "model": TARGETS[api_format],
        "max_completion_tokens": 8,
        "messages": CHAT,
        "tools": [
            {"type": "function", "function": {"name": name, "parameters": SCHEMA}}
            for name in ("f", "g")
        ],
        "tool_choice": "auto",
        "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        "safety_identifier": "u",
    }
    if stream:
        chunks = [chunk.choices[0] for chunk in gpt.chat.completions.create(stream=True, **asked)]
        text, reason = (
            "".join(choice.delta.content or "" for choice in chunks),
            chunks[-1].finish_reason,
        )
    else:
        choice = gpt.chat.completions.create(**asked).choices[0]
        text, reason = choice.message.content or "", choice.finish_reason
    assert (text, reason) == (SAID_TO_SO, "length")


ITEMS: Any = [
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "What?"},
            {"type": "input_image", "image_url": URL},
        ],
    },
    {
        "type": "reasoning",
        "id": "rs_resp_1_0",
        "summary": [{"type": "summary_text", "text": "Hm."}],
    },
    {"type": "function_call", "call_id": "call_f", "name": "f", "arguments": "{}"},
    {"type": "function_call", "call_id": "call_g", "name": "g", "arguments": "{}"},
    {
        "type": "function_call_output",
        "call_id": "call_f",
        "output": [{"type": "input_image", "image_url": URL}],
    },
    {"type": "function_call_output", "call_id": "call_g", "output": "two"},
    {"role": "user", "content": "So?"},
]


@pytest.mark.parametrize("api_format", WITH_TOOLS)
@pytest.mark.parametrize("stream", [True, False])
def test_openais_responses(gpt: openai.OpenAI, api_format: str, stream: bool) -> None:
    asked: dict[str, Any] = {
        "model": TARGETS[api_format],
        "max_output_tokens": 8,
        "instructions": "Be brief.",
        "input": ITEMS,
        "tools": [
            {"type": "function", "name": name, "parameters": SCHEMA, "strict": True}
            for name in ("f", "g")
        ],
        "parallel_tool_calls": False,
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}},
        "store": False,
        "prompt_cache_key": "k",
        "user": "u",
    }
    if stream:
        *_, last = gpt.responses.create(stream=True, **asked)
        assert last.type == "response.incomplete"
        found = last.response
    else:
        found = gpt.responses.create(**asked)
    assert found.output_text == SAID_TO_SO
    assert found.status == "incomplete"
    assert found.usage is not None
    assert found.usage.output_tokens == 8
