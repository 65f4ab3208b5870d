"""Which tool an answer must call, in the words of each API format."""

import json
from typing import Any

from msgspec import Raw
from tests.cases import each_case

from splitsecond.simulator.parsing import parse_ollama_generate, required_tool

OPENAI = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
NATIVE = [{"type": "web_search"}, {"name": "f"}, {"name": "g"}]
GEMINI = [{"googleSearch": {}}, {"functionDeclarations": [{}, {"name": "f"}, {"name": "g"}]}]


def mode(*names: str) -> dict[str, Any]:
    allowed = {"allowedFunctionNames": list(names)} if names else {}
    return {"functionCallingConfig": {"mode": "ANY", **allowed}}


@each_case(
    "fields, tool",
    [
        ({"tools": OPENAI}, ""),
        ({"tools": OPENAI, "tool_choice": "auto"}, ""),
        ({"tools": OPENAI, "tool_choice": "required"}, "f"),
        ({"tools": OPENAI, "tool_choice": {"type": "function", "function": {"name": "g"}}}, "g"),
        ({"tools": OPENAI, "tool_choice": "REQUIRED"}, "f"),
        ({"tools": NATIVE, "tool_choice": {"type": "any"}}, "f"),
        ({"tools": NATIVE, "tool_choice": {"type": "tool", "name": "g"}}, "g"),
        ({"tools": NATIVE, "tool_choice": {"type": "function", "name": "g"}}, "g"),
        (
            {
                "tools": [{"type": "namespace", "name": "n", "tools": []}, *NATIVE],
                "tool_choice": "required",
            },
            "f",
        ),
        ({"tools": NATIVE, "tool_choice": {"type": "custom", "name": "g"}}, "g"),
        ({"tools": GEMINI, "toolConfig": mode()}, "f"),
        ({"tools": GEMINI, "toolConfig": mode("g")}, "g"),
        ({"tools": GEMINI, "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}}, ""),
        ({"tool_choice": "required"}, ""),
        ({"tools": 7, "tool_choice": "required"}, ""),
    ],
)
def test_required_tool_is_found_in_each_api_format(fields: dict[str, Any], tool: str) -> None:
    assert (
        required_tool({name: Raw(json.dumps(value).encode()) for name, value in fields.items()})
        == tool
    )


def test_invalid_json_requires_no_tool() -> None:
    assert required_tool({"tools": Raw(b"["), "tool_choice": Raw(b'"required"')}) == ""


def test_ollama_generate_joins_system_and_prompt() -> None:
    body = {"model": "m", "prompt": "x", "system": "Be brief.", "options": {"num_predict": 5}}
    parsed = parse_ollama_generate("chat", json.dumps(body).encode())
    assert (parsed.prompt_text, parsed.max_tokens, parsed.stream) == ("Be brief.\nx", 5, True)
    unlimited = {"model": "m", "options": {"num_predict": -1}, "stream": False}
    parsed = parse_ollama_generate("chat", json.dumps(unlimited).encode())
    assert (parsed.max_tokens, parsed.stream) == (None, False)
