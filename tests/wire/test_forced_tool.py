"""Which tool an answer must call, in the words of each dialect."""

import json
from typing import Any

import pytest
from msgspec import Raw

from splitsecond.wire import ollama
from splitsecond.wire.forced_tool import forced_tool

OPENAI = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
NATIVE = [{"type": "web_search"}, {"name": "f"}, {"name": "g"}]
GEMINI = [{"googleSearch": {}}, {"functionDeclarations": [{}, {"name": "f"}, {"name": "g"}]}]


def mode(*names: str) -> dict[str, Any]:
    allowed = {"allowedFunctionNames": list(names)} if names else {}
    return {"functionCallingConfig": {"mode": "ANY", **allowed}}


@pytest.mark.parametrize(
    ("fields", "tool"),
    [
        ({"tools": OPENAI}, ""),
        ({"tools": OPENAI, "tool_choice": "auto"}, ""),
        ({"tools": OPENAI, "tool_choice": "required"}, "f"),
        ({"tools": OPENAI, "tool_choice": {"type": "function", "function": {"name": "g"}}}, "g"),
        ({"tools": OPENAI, "tool_choice": "REQUIRED"}, "f"),
        ({"tools": NATIVE, "tool_choice": {"type": "any"}}, "f"),
        ({"tools": NATIVE, "tool_choice": {"type": "tool", "name": "g"}}, "g"),
        ({"tools": NATIVE, "tool_choice": {"type": "function", "name": "g"}}, "g"),
        ({"tools": GEMINI, "toolConfig": mode()}, "f"),
        ({"tools": GEMINI, "toolConfig": mode("g")}, "g"),
        ({"tools": GEMINI, "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}}, ""),
        ({"tool_choice": "required"}, ""),
        ({"tools": 7, "tool_choice": "required"}, ""),
    ],
)
def test_forms(fields: dict[str, Any], tool: str) -> None:
    assert forced_tool({name: Raw(json.dumps(value).encode()) for name, value in fields.items()}) == tool


def test_what_is_no_json_forces_nothing() -> None:
    assert forced_tool({"tools": Raw(b"["), "tool_choice": Raw(b'"required"')}) == ""


@pytest.mark.parametrize(("role", "tool"), [("user", "f"), ("tool", "")])
def test_ollama_calls_what_it_is_offered_until_the_result_is_there(role: str, tool: str) -> None:
    body = {"model": "m", "messages": [{"role": role, "content": "x"}], "tools": OPENAI}
    assert ollama.parse_request("chat", json.dumps(body).encode()).tool == tool
