"""Requests for ``generateContent`` as chats: what becomes what, what is left out, and what is
refused."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.core.wire import gemini
from splitsecond.core.wire.gemini.to_chat import json_schema
from splitsecond.core.wire.reasoning import FIELD, ReasoningRequest

THOUGHT = {"text": "Hm.", "thought": True}
HI = {"role": "user", "parts": [{"text": "hi"}]}


def call(**fields: Any) -> Call:
    """As the gateway makes it: the fields raw."""
    body = {"contents": [HI], **fields}
    return Call(
        id="c", body={name: msgspec.Raw(msgspec.json.encode(value)) for name, value in body.items()}
    )


def chat(**fields: Any) -> dict[str, Any]:
    return dict(gemini.to_chat(call(**fields)).body)


@each_case(
    "fields, made",
    [
        ({"generation_config": {"max_output_tokens": 5}}, {"max_completion_tokens": 5}),
        ({"generationConfig": {"topP": 0.5, "candidateCount": 2}}, {"top_p": 0.5, "n": 2}),
        (
            {"generationConfig": {"responseMimeType": "application/json"}},
            {"response_format": {"type": "json_object"}},
        ),
        (
            {
                "generationConfig": {
                    "responseMimeType": "text/plain",
                    "responseModalities": ["TEXT"],
                }
            },
            {},
        ),
        ({"tools": []}, {}),
        *(
            (
                {"generationConfig": {"thinkingConfig": config}},
                {FIELD: ReasoningRequest(name="thinkingConfig", **wish)},
            )
            for config, wish in (
                ({"thinkingBudget": 0}, {"budget": 0}),
                ({"thinkingBudget": -1}, {"on": True}),
                (
                    {"thinkingBudget": 2000, "includeThoughts": True},
                    {"budget": 2000, "shown": True},
                ),
                ({"thinking_level": "low"}, {"effort": "low"}),
            )
        ),
    ],
)
def test_fields(fields: dict[str, Any], made: dict[str, Any]) -> None:
    assert chat(**fields) == {"messages": [{"role": "user", "content": "hi"}]} | made


def test_a_conversation_with_calls_without_ids() -> None:
    def called(name: str, **args: Any) -> dict[str, Any]:
        return {"functionCall": {"name": name, "args": args}, "thoughtSignature": "AA=="}

    def answered(name: str, response: Any) -> dict[str, Any]:
        return {"functionResponse": {"name": name, "response": response}}

    asked = call(
        systemInstruction="Be brief.",
        contents=[
            HI,
            {
                "role": "model",
                "parts": [
                    {"text": "Hm.", "thought": True},
                    {"text": "So."},
                    called("f", x=1),
                    called("f"),
                ],
            },
            {
                "parts": [
                    answered("f", {"output": "one"}),
                    answered("f", {"a": [2]}),
                    {"text": "And?"},
                ]
            },
        ],
    )
    messages: Any = gemini.to_chat(asked).body["messages"]
    system, user, assistant, first, second, last = messages
    assert system == {"role": "system", "content": "Be brief."}
    assert (user["content"], last["content"]) == ("hi", "And?")
    assert (assistant["content"], assistant["reasoning_content"]) == ("So.", "Hm.")
    assert [each["function"]["arguments"] for each in assistant["tool_calls"]] == ['{"x":1}', "{}"]
    assert [each["id"] for each in assistant["tool_calls"]] == [
        first["tool_call_id"],
        second["tool_call_id"],
    ]
    assert (first["content"], second["content"]) == ("one", '{"a":[2]}')
    assert asked.notes.dropped == ["thoughtSignature"]


@pytest.mark.parametrize(
    ("config", "choice"),
    [
        ({}, None),
        ({"mode": "AUTO"}, None),
        ({"mode": "NONE"}, "none"),
        ({"mode": "ANY"}, "required"),
        (
            {"mode": "ANY", "allowedFunctionNames": ["f"]},
            {"type": "function", "function": {"name": "f"}},
        ),
    ],
)
def test_function_calling_config_becomes_tool_choice(config: dict[str, Any], choice: Any) -> None:
    tools = [{"function_declarations": [{"name": "f", "parameters": {"type": "OBJECT"}}]}]
    found = chat(tools=tools, toolConfig={"functionCallingConfig": config})
    assert found["tools"] == [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    ]
    assert found.get("tool_choice") == choice


def test_a_schema() -> None:
    given = {
        "type": "OBJECT",
        "properties": {
            "type": {"type": "STRING", "nullable": True},
            "n": {"type": "ARRAY", "items": {"type": "INTEGER"}},
        },
        "propertyOrdering": ["n"],
        "anyOf": [{"type": "NUMBER"}],
    }
    assert json_schema(given) == {
        "type": "object",
        "properties": {
            "type": {"type": ["string", "null"]},
            "n": {"type": "array", "items": {"type": "integer"}},
        },
        "anyOf": [{"type": "number"}],
    }


def test_dropped_fields_are_noted() -> None:
    asked = call(safetySettings=[], labels={"a": "b"}, generationConfig={"speechConfig": {}})
    assert gemini.to_chat(asked).body.keys() == {"messages"}
    assert asked.notes.dropped == ["speechConfig", "safetySettings", "labels"]


@each_case(
    "fields, words",
    [
        ({"contents": []}, "at least one turn"),
        ({"contents": "hi"}, "at least one turn"),
        ({"contents": [{"role": "system", "parts": []}]}, "expected user or model"),
        ({"contents": [{"role": "user"}]}, r"contents\[0\] must be an object with parts"),
        (
            {
                "contents": [
                    {"parts": [{"fileData": {"fileUri": "gs://x", "mimeType": "video/mp4"}}]}
                ]
            },
            "fileData",
        ),
        ({"contents": [{"role": "model", "parts": [{"executableCode": {}}]}]}, "executableCode"),
        ({"contents": [{"parts": [{"functionResponse": {"name": "f"}}]}]}, "answers no call"),
        ({"tools": [{"googleSearch": {}}]}, "Google's own tool"),
        ({"tools": [{"functionDeclarations": [{}]}]}, "with names"),
        ({"cachedContent": "cachedContents/x"}, "cachedContent"),
        ({"generationConfig": {"responseModalities": ["AUDIO"]}}, "responseModalities"),
        ({"generationConfig": {"responseMimeType": "text/x.enum"}}, "responseMimeType"),
        ({"generationConfig": 5}, "generationConfig must be an object"),
    ],
)
def test_invalid_or_untranslatable_fields_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(CallerFault, match=words):
        chat(**fields)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "text", "ANY", "user"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["text", "parts", "role", "functionCall", "name", "args", "mode"]),
            inner,
            max_size=3,
        )
    ),
)


@given(
    JSON,
    st.sampled_from(["contents", "systemInstruction", "tools", "toolConfig", "generationConfig"]),
)
@example(True, "tools")
def test_any_request_is_read_or_refused(value: Any, name: str) -> None:
    with contextlib.suppress(CallerFault):
        chat(**{name: value})


@pytest.mark.parametrize("mode", [[], {}, 1, "SOMETIMES"])
def test_unknown_function_calling_mode_is_refused(mode: Any) -> None:
    with pytest.raises(CallerFault, match="toolConfig"):
        chat(
            tools=[{"functionDeclarations": [{"name": "f"}]}],
            toolConfig={"functionCallingConfig": {"mode": mode}},
        )
