"""A call in OpenAI's form becomes Gemini's request, or a fault that names what Gemini has not."""

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.cases import each_case

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.core.wire import gemini
from splitsecond.core.wire.api_format import Quirks

USER = {"role": "user", "content": "Hello"}


def sent(model: str = "gemini-2.5-flash", **body: Any) -> dict[str, Any]:
    body.setdefault("messages", [USER])
    fields: dict[str, Any] = json.loads(
        gemini.encode(Call(id="1", body=body), model, Quirks()).body
    )
    return fields


def contents(*messages: dict[str, Any], model: str = "gemini-2.5-flash") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sent(model, messages=list(messages))["contents"]
    return found


def parts(*given: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = contents({"role": "user", "content": list(given)})[0]["parts"]
    return found


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-2.5-flash", "/models/gemini-2.5-flash:streamGenerateContent?alt=sse"),
        ("models/gemini-2.5-flash", "/models/gemini-2.5-flash:streamGenerateContent?alt=sse"),
        ("tunedModels/mine", "/tunedModels/mine:streamGenerateContent?alt=sse"),
        ("gemini-2.5-flash@001", "/models/gemini-2.5-flash@001:streamGenerateContent?alt=sse"),
        ("a b?c", "/models/a%20b%3Fc:streamGenerateContent?alt=sse"),
    ],
)
def test_the_model_is_in_the_path(model: str, path: str) -> None:
    encoded = gemini.encode(Call(id="1", body={"messages": [USER]}), model, Quirks())
    assert encoded.path == path
    assert dict(encoded.headers) == {
        "content-type": "application/json",
        "accept": "text/event-stream",
    }
    assert json.loads(encoded.body) == {
        "contents": [{"role": "user", "parts": [{"text": "Hello"}]}]
    }


def test_raw_fields_are_read() -> None:
    body: dict[str, Any] = {
        "messages": Raw(b'[{"role":"user","content":"Hi"}]'),
        "max_tokens": Raw(b"5"),
        "stop": Raw(b"null"),
    }
    assert sent(**body) == {
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "generationConfig": {"maxOutputTokens": 5},
    }
    with pytest.raises(CallerFault, match="the request's field stop is not JSON"):
        sent(stop=Raw(b"{"))


def test_the_fields_of_generation_config() -> None:
    asked = sent(
        max_tokens=5, max_completion_tokens=6, temperature=0.5, top_p=0.9, top_k=40, seed=1,
        presence_penalty=0.1,
        frequency_penalty=0.2, n=2, stop="\n",
    )  # fmt: skip
    assert asked["generationConfig"] == {
        "maxOutputTokens": 6,
        "temperature": 0.5,
        "topP": 0.9,
        "topK": 40,
        "seed": 1,
        "presencePenalty": 0.1,
        "frequencyPenalty": 0.2,
        "candidateCount": 2,
        "stopSequences": ["\n"],
    }
    assert sent(stop=["a", "b"])["generationConfig"] == {"stopSequences": ["a", "b"]}


def test_system_messages_are_separate_and_equal_roles_merged() -> None:
    asked = sent(
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "a"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "b"}, {"type": "text", "text": ""}],
            },
            {"role": "assistant", "content": "c", "refusal": None},
            {"role": "assistant", "content": None, "refusal": "No."},
            {"role": "assistant", "content": ""},
            {"role": "developer", "content": [{"type": "text", "text": "In French."}]},
            {"role": "user", "content": "d", "name": "Ann"},
        ]
    )
    assert asked == {
        "systemInstruction": {"parts": [{"text": "Be brief."}, {"text": "In French."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "a"}, {"text": "b"}]},
            {"role": "model", "parts": [{"text": "c"}, {"text": "No."}]},
            {"role": "user", "parts": [{"text": "d"}]},
        ],
    }


@each_case(
    "given, part",
    [
        (
            {
                "type": "image_url",
                "image_url": {"url": "data:image/png;base64,iVBO/+==", "detail": "low"},
            },
            {"inlineData": {"mimeType": "image/png", "data": "iVBO/+=="}},
        ),
        (
            {"type": "image_url", "image_url": "https://x/cat.JPG?w=1"},
            {"fileData": {"fileUri": "https://x/cat.JPG?w=1", "mimeType": "image/jpeg"}},
        ),
        (
            {"type": "image_url", "image_url": {"url": "https://x/cat"}},
            {"fileData": {"fileUri": "https://x/cat"}},
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}},
        ),
        (
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"},
            },
            {"inlineData": {"mimeType": "application/pdf", "data": "JVBE"}},
        ),
        ({"type": "refusal", "refusal": "No."}, {"text": "No."}),
        (
            {"videoMetadata": {}, "fileData": {"fileUri": "u"}},
            {"videoMetadata": {}, "fileData": {"fileUri": "u"}},
        ),
    ],
)
def test_parts(given: dict[str, Any], part: dict[str, Any]) -> None:
    assert parts(given) == [part]


def call(identity: str, name: str, arguments: str, **more: Any) -> dict[str, Any]:
    return {
        "id": identity,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
        **more,
    }


TOOL_TURNS: list[dict[str, Any]] = [
    USER,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [call("1", "f", '{"x": 1}'), call("2", "g", "")],
    },
    {"role": "tool", "tool_call_id": "1", "content": '{"y": 2}'},
    {"role": "tool", "tool_call_id": "2", "content": [{"type": "text", "text": "fine"}]},
]


def test_tool_calls_and_their_results() -> None:
    _, called, answered = contents(*TOOL_TURNS)
    assert called == {
        "role": "model",
        "parts": [
            {"functionCall": {"id": "1", "name": "f", "args": {"x": 1}}},
            {"functionCall": {"id": "2", "name": "g", "args": {}}},
        ],
    }
    assert answered == {
        "role": "user",
        "parts": [
            {"functionResponse": {"id": "1", "name": "f", "response": {"y": 2}}},
            {"functionResponse": {"id": "2", "name": "g", "response": {"output": "fine"}}},
        ],
    }


@pytest.mark.parametrize(
    ("model", "signature"),
    [
        ("gemini-2.5-pro", None),
        ("gemini-3-pro-preview", "skip_thought_signature_validator"),
        ("gemini-flash-latest", "skip_thought_signature_validator"),
        ("gemma-3-27b-it", None),
    ],
)
def test_first_parallel_call_is_signed_for_newer_models(model: str, signature: str | None) -> None:
    first, second = contents(*TOOL_TURNS, model=model)[1]["parts"]
    assert first.get("thoughtSignature") == signature
    assert "thoughtSignature" not in second


def test_signature_kept_by_the_client_is_sent_back() -> None:
    signed = call("1", "f", "{}", extra_content={"google": {"thought_signature": "Qw=="}})
    (part,) = contents(USER, {"role": "assistant", "tool_calls": [signed]}, model="gemini-3-flash")[
        1
    ]["parts"]
    assert part["thoughtSignature"] == "Qw=="


FUNCTION = {
    "name": "f",
    "description": "d",
    "parameters": {"type": "object", "additionalProperties": False},
}


def test_tools() -> None:
    function = {"type": "function", "function": {**FUNCTION, "strict": True}}
    bare = {"type": "function", "function": {"name": "g"}}
    assert sent(tools=[function, {"googleSearch": {}}, bare])["tools"] == [
        {
            "functionDeclarations": [
                {"name": "f", "description": "d", "parametersJsonSchema": FUNCTION["parameters"]},
                {"name": "g"},
            ]
        },
        {"googleSearch": {}},
    ]
    assert sent(tools=[{"googleSearch": {}}])["tools"] == [{"googleSearch": {}}]
    assert "tools" not in sent(tools=[])


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        (
            {"type": "function", "function": {"name": "f"}},
            {"mode": "ANY", "allowedFunctionNames": ["f"]},
        ),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "f"}}],
                },
            },
            {"mode": "ANY", "allowedFunctionNames": ["f"]},
        ),
    ],
)
def test_tool_choice(choice: Any, config: dict[str, Any]) -> None:
    assert sent(tool_choice=choice)["toolConfig"] == {"functionCallingConfig": config}


def test_response_format() -> None:
    assert "generationConfig" not in sent(response_format={"type": "text"})
    assert sent(response_format={"type": "json_object"})["generationConfig"] == {
        "responseMimeType": "application/json"
    }
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": schema}}
    assert sent(response_format=wanted)["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": schema,
    }


def test_reasoning_effort_is_a_budget_or_a_level() -> None:
    assert sent(reasoning_effort="none")["generationConfig"] == {
        "thinkingConfig": {"thinkingBudget": 0}
    }
    assert sent(reasoning_effort="high")["generationConfig"] == {
        "thinkingConfig": {"thinkingBudget": 24576}
    }
    newer = sent("gemini-3.8-flash", reasoning_effort="low")
    assert newer["generationConfig"] == {"thinkingConfig": {"thinkingLevel": "LOW"}}
    never = sent("gemini-3.8-flash", reasoning_effort="none")  # which always reasons
    assert never["generationConfig"] == {"thinkingConfig": {"thinkingLevel": "LOW"}}


def test_service_tier() -> None:
    assert "serviceTier" not in sent(service_tier="auto")
    assert sent(service_tier="default")["serviceTier"] == "standard"
    assert sent(service_tier="priority")["serviceTier"] == "priority"


def test_native_gemini_fields_override_translated_ones() -> None:
    own: dict[str, Any] = {
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
        "cachedContent": "cachedContents/x",
        "systemInstruction": {"parts": [{"text": "Own."}]},
    }
    thinking = {"includeThoughts": True}
    asked = sent(
        messages=[{"role": "system", "content": "Not this."}, USER],
        max_tokens=5,
        temperature=1,
        generationConfig={"temperature": 0, "thinkingConfig": thinking},
        **own,
    )
    assert {name: asked[name] for name in own} == own
    assert asked["generationConfig"] == {
        "maxOutputTokens": 5,
        "temperature": 0,
        "thinkingConfig": thinking,
    }


def test_contents_may_replace_messages() -> None:
    own = [{"role": "user", "parts": [{"text": "Hi"}]}]
    encoded = gemini.encode(Call(id="1", body={"contents": own}), "gemini-2.5-flash", Quirks())
    assert json.loads(encoded.body) == {"contents": own}


def test_fields_without_effect_are_dropped() -> None:
    assert sent(
        model="x", stream=False, stream_options={"include_usage": True}, user="u", metadata={},
        store=True,
        prediction={}, safety_identifier="s", prompt_cache_key="k", logprobs=False, top_logprobs=0,
        logit_bias={},
        parallel_tool_calls=True, modalities=["text"], functions=[], verbosity="medium",
        temperature=None,
    ).keys() == {"contents"}  # fmt: skip


def test_marks_of_a_prompt_cache_are_named_as_left_out() -> None:
    marked = {"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}
    for content, dropped in ([marked], ["cache_control"]), ('the word "cache_control"', []):
        messages = Raw(json.dumps([{"role": "user", "content": content}]).encode())
        call = Call(id="1", body={"messages": messages})
        gemini.encode(call, "gemini-2.5-flash", Quirks())
        assert call.notes.dropped == dropped


def says(**body: Any) -> str:
    with pytest.raises(CallerFault) as caught:
        sent(**body)
    assert (caught.value.status, caught.value.phase) == (400, "queue")
    return f"{caught.value.kind}: {caught.value.message}"


@each_case(
    "body, words",
    [
        ({"logprobs": True}, "logprobs true cannot be translated for Gemini"),
        ({"logit_bias": {"1": -100}}, 'logit_bias {"1":-100}'),
        ({"modalities": ["text", "audio"]}, 'modalities ["text","audio"]'),
        ({"functions": [FUNCTION]}, "functions [{"),
        ({"web_search_options": {}}, "web_search_options {}"),
        ({"response_format": {"type": "grammar"}}, 'response_format {"type":"grammar"}'),
        ({"tools": [{"type": "custom", "custom": {}}]}, 'the tool {"type":"custom"'),
        ({"tools": "x"}, 'the tool "x"'),
        ({"tool_choice": "some"}, 'tool_choice "some"'),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "required", "tools": [7]},
                }
            },
            "in tool_choice, the tool 7",
        ),
        ({"reasoning_effort": 3}, "reasoning_effort 3"),
        ({"service_tier": "scale"}, 'service_tier "scale"'),
        (
            {"messages": [{"role": "function", "name": "f", "content": "x"}]},
            "messages[0], with the function calls that tools replaced",
        ),
        (
            {"messages": [{"role": "assistant", "function_call": {}}]},
            "messages[0], with the function calls that tools replaced",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "video_url"}]}]},
            "messages[0].content[0].type",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}
                ]
            },
            "without file_data",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"type": "custom"}]}]},
            "tool_calls[0].type 'custom'",
        ),
        (
            {
                "messages": [
                    *TOOL_TURNS[:2],
                    {
                        "role": "tool",
                        "tool_call_id": "1",
                        "content": [{"inlineData": {"mimeType": "image/png", "data": "iVBO"}}],
                    },
                ]
            },
            "messages[2].content with anything but text",
        ),
        (
            {
                "messages": [
                    *TOOL_TURNS[:2],
                    {
                        "role": "tool",
                        "tool_call_id": "1",
                        "content": [{"text": None}],
                    },
                ]
            },
            "messages[2].content with anything but text",
        ),
    ],
)
def test_untranslatable_field_is_named(body: dict[str, Any], words: str) -> None:
    said = says(**body)
    assert said.startswith("not_translatable: ")
    assert words in said


def test_gemini_has_no_completions() -> None:
    call = Call(id="1", operation="completions", body={"prompt": "Hi"})
    with pytest.raises(CallerFault, match="a call of completions cannot be translated"):
        gemini.encode(call, "gemini-2.5-flash", Quirks())


@each_case(
    "body, words",
    [
        ({"messages": None}, "no messages"),
        ({"messages": "Hi"}, "messages: Expected `array`"),
        ({"messages": [{"content": "Hi"}]}, r"`role`"),
        ({"messages": [{"role": "user", "content": 7}]}, "$[0].content"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role is 'robot'"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content[0] is not a part of type 'text'",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": 7}]}]},
            "is not a part of type 'image_url'",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": 7}]}]},
            "messages[0].content[0] is not a part of type 'text'",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": "data:image/png,x"}],
                    }
                ]
            },
            "image_url is not a data URL in base64",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [call("1", "f", "[1]")]}]},
            "is not the JSON of an object",
        ),
        (
            {"messages": [{"role": "tool", "tool_call_id": "9", "content": "x"}]},
            "tool_call_id is '9'",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "tool_call_id is None"),
        ({"generationConfig": 7}, "generationConfig must be an object, got 7"),
    ],
)
def test_invalid_request_is_refused_with_the_reason(body: dict[str, Any], words: str) -> None:
    said = says(**body)
    assert said.startswith("bad_request: ")
    assert words in said
