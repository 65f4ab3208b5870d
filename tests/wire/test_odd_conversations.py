"""Arguments of earlier tool calls are read as JSON and as the object itself, in each client's and
target's format."""

import json
import re
from typing import Any

import msgspec
import pytest

from splitsecond.core.service import Call
from splitsecond.core.wire import anthropic, cohere, gemini, ollama, responses
from splitsecond.core.wire.api_format import Quirks

ARGUMENTS = {"city": "Oslo"}
FORMS = pytest.mark.parametrize(
    "arguments", [ARGUMENTS, json.dumps(ARGUMENTS)], ids=["object", "text"]
)


def conversation(arguments: Any) -> list[dict[str, Any]]:
    function = {"name": "weather", "arguments": arguments}
    return [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "cold"},
    ]


@FORMS
@pytest.mark.parametrize(
    "target", [anthropic, cohere, gemini, ollama, responses], ids=lambda each: each.__name__[-9:]
)
def test_each_target_gets_the_arguments(target: Any, arguments: Any) -> None:
    call = Call(id="1", body={"messages": conversation(arguments)})
    body = target.encode(call, "m", Quirks()).body.decode().replace("\\", "").replace(" ", "")
    assert '{"city":"Oslo"}' in body


@pytest.mark.parametrize("arguments", ["", "null", None])
@pytest.mark.parametrize("target", [anthropic, gemini, ollama])
def test_a_tool_may_be_called_without_arguments(target: Any, arguments: Any) -> None:
    call = Call(id="1", body={"messages": conversation(arguments)})
    body = target.encode(call, "m", Quirks()).body.decode()
    assert re.search(r'"(input|args|arguments)":\{\}', body)


CLIENTS: dict[str, tuple[Any, Any]] = {
    "anthropic": (anthropic.to_chat, lambda given: {"messages": [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [
        {"type": "tool_use", "id": "a", "name": "weather", "input": given}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a",
        "content": "cold"}]},
    ]}),
    "gemini": (gemini.to_chat, lambda given: {"contents": [
        {"role": "user", "parts": [{"text": "q"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": given}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "weather",
        "response": {"output": "cold"}}}]},
    ]}),
    "ollama": (ollama.chat_to_chat, lambda given: {"messages": [
        {"role": "user", "content": "q"},
        {"role": "assistant", "tool_calls": [
        {"function": {"name": "weather", "arguments": given}}]},
        {"role": "tool", "tool_name": "weather", "content": "cold"},
    ]}),
    "responses": (responses.to_chat, lambda given: {"input": [
        {"role": "user", "content": "q"},
        {"type": "function_call", "call_id": "a", "name": "weather", "arguments": given},
        {"type": "function_call_output", "call_id": "a", "output": "cold"},
    ]}),
}  # fmt: skip


@FORMS
@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_may_send_the_arguments_in_both_forms(client: str, arguments: Any) -> None:
    to_chat, request = CLIENTS[client]
    body = {"max_tokens": 5} if client == "anthropic" else {}
    body |= request(arguments)
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in body.items()}
    made = to_chat(Call(id="1", body=raw))
    (called,) = [
        message["tool_calls"] for message in made.body["messages"] if message.get("tool_calls")
    ]
    assert json.loads(called[0]["function"]["arguments"]) == ARGUMENTS
