"""Requests that other people's software sends, and that the vendor of the target's API format would
reject if they were passed on as they are."""

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.cases import each_case

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.core.upstream.target import API_FORMATS
from splitsecond.core.upstream.transcoding import request
from splitsecond.core.wire.api_format import Quirks
from splitsecond.core.wire.client_format import GEMINI, OLLAMA_CHAT, OPENAI_CHAT, ClientFormat

USER = {"role": "user", "content": "hi"}
OTHERS = [name for name in API_FORMATS if name not in ("openai", "replicate")]
Body = dict[str, Any]


def sent(target: str, client: ClientFormat = OPENAI_CHAT, **fields: Any) -> tuple[Body, list[str]]:
    """Return the request that a target gets, and the names of what was left out."""
    call = Call(
        id="1",
        body={name: Raw(json.dumps(value).encode()) for name, value in fields.items()},
        api_format=client.name,
    )
    call = client.incoming(call) if client.incoming else call
    encoded = request(call, target, API_FORMATS[target].encode, "m", Quirks(), target=target)
    return json.loads(encoded.body), call.notes.left_out.get(target, [])


@each_case("target", OTHERS)
def test_fields_of_another_provider_are_left_out_and_named(target: str) -> None:
    answer: Body = {
        "role": "assistant",
        "content": "a",
        "refusal": None,
        "annotations": [],
        "parsed": None,
        "reasoning_details": [{"type": "reasoning.text", "text": "t"}],
        "provider_specific_fields": {"citations": []},
    }
    body, left_out = sent(target, messages=[{**USER, "name": "bob"}, answer, USER])
    text = json.dumps(body)
    assert "reasoning_details" not in text
    assert "provider_specific_fields" not in text
    assert "parsed" not in text
    assert {"name", "reasoning_details", "provider_specific_fields"} <= {*left_out}
    assert "parsed" not in left_out


@each_case(
    ("target", "field", "value"),
    [
        ("cohere", "citations", [{"start": 0}]),
        ("ollama", "images", ["iVBORw0K"]),
        ("responses", "phase", "commentary"),
    ],
)
def test_fields_of_the_targets_own_format_in_a_message_pass(
    target: str, field: str, value: Any
) -> None:
    body, left_out = sent(target, messages=[{**USER, field: value}])
    (message,) = body.get("messages") or body["input"]
    assert message[field] == value
    assert not left_out


@each_case("target", OTHERS)
def test_chosen_resolution_of_an_image_passes_or_is_named(target: str) -> None:
    image = {"url": "data:image/png;base64,AA==", "detail": "high"}
    part = {"type": "image_url", "image_url": image}
    body, left_out = sent(target, messages=[{"role": "user", "content": [part]}])
    assert ('"high"' in json.dumps(body)) != ("detail" in left_out)
    part["image_url"] = {**image, "detail": "auto"}
    assert not sent(target, messages=[{"role": "user", "content": [part]}])[1]


@each_case("target", ["anthropic", "gemini"])
def test_a_system_prompt_alone_is_a_users_message(target: str) -> None:
    system = [{"role": "system", "content": text} for text in ("one", "two")]
    body, _ = sent(target, messages=system)
    (turn,) = body["messages" if target == "anthropic" else "contents"]
    assert turn["role"] == "user"
    assert "two" in json.dumps(turn)
    rest = json.dumps(body["system" if target == "anthropic" else "systemInstruction"])
    assert "one" in rest
    assert "two" not in rest


def test_anthropic_gets_no_text_of_whitespace_alone() -> None:
    function = {"name": "f", "arguments": "{}"}
    called = {
        "role": "assistant",
        "content": "\n\n",
        "tool_calls": [{"id": "a", "type": "function", "function": function}],
    }
    result = {"role": "tool", "tool_call_id": "a", "content": " "}
    body, _ = sent("anthropic", messages=[USER, called, result])
    _, assistant, answered = body["messages"]
    assert [block["type"] for block in assistant["content"]] == ["tool_use"]
    assert answered["content"][0]["content"] == []


def test_a_prefill_ends_without_whitespace_at_anthropic() -> None:
    begun = {"role": "assistant", "content": "Sure: \n"}
    body, _ = sent("anthropic", messages=[USER, begun])
    assert body["messages"][-1]["content"] == [{"type": "text", "text": "Sure:"}]
    body, _ = sent("anthropic", messages=[USER, begun, USER])
    assert body["messages"][1]["content"] == [{"type": "text", "text": "Sure: \n"}]


def test_a_stop_sequence_of_whitespace_is_refused_for_anthropic() -> None:
    with pytest.raises(CallerFault, match=r'stop "\\n" cannot be translated for Anthropic'):
        sent("anthropic", messages=[USER], stop=["END", "\n"])


@each_case("schema", [{"properties": {"a": {}}}, {}, None])
def test_the_schema_of_a_tool_has_a_type_at_anthropic(schema: Any) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    body, _ = sent("anthropic", messages=[USER], tools=[tool])
    typed = {"type": "object", "properties": (schema or {}).get("properties", {})}
    assert body["tools"] == [{"name": "f", "input_schema": typed}]


def test_a_schema_that_is_no_object_is_anthropics_to_refuse() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": 1}}
    body, _ = sent("anthropic", messages=[USER], tools=[tool])
    assert body["tools"] == [{"name": "f", "input_schema": 1}]


def test_unknown_fields_of_a_text_are_left_out_at_anthropic() -> None:
    text = {"type": "text", "text": "t", "index": 0, "annotations": []}
    body, _ = sent("anthropic", messages=[{"role": "user", "content": [text]}])
    assert body["messages"][0]["content"] == [{"type": "text", "text": "t"}]


def test_google_takes_an_object_in_the_place_of_a_list() -> None:
    one = {"parts": {"text": "hi"}}
    declared = {"functionDeclarations": [{"name": "f"}]}
    short = sent("anthropic", GEMINI, contents=one, system_instruction=one, tools=declared)
    long = sent(
        "anthropic",
        GEMINI,
        contents=[{"parts": [{"text": "hi"}]}],
        systemInstruction={"parts": [{"text": "hi"}]},
        tools=[declared],
    )
    assert short == long


def test_a_choice_among_words_is_refused() -> None:
    config = {
        "responseMimeType": "text/x.enum",
        "responseSchema": {"type": "STRING", "enum": ["a"]},
    }
    with pytest.raises(CallerFault, match=r'responseMimeType "text/x.enum" cannot be translated'):
        sent("openai", GEMINI, contents=[{"parts": [{"text": "hi"}]}], generationConfig=config)


def test_a_message_of_ollama_may_lack_its_content() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}
    url = "data:image/png;base64,iVBORw0K"
    asked = [{"role": "user", "images": ["iVBORw0K", url]}, call, {"role": "tool"}]
    body, _ = sent("openai", OLLAMA_CHAT, messages=asked)
    user, _, result = body["messages"]
    images = [part["image_url"]["url"] for part in user["content"] if "image_url" in part]
    assert images == [url, url]
    assert result["content"] == ""


def test_a_tool_that_is_no_function_is_refused_for_ollama() -> None:
    function = {"type": "function", "function": {"name": "f", "strict": True}}
    assert sent("ollama", messages=[USER], tools=[function])[1] == ["strict"]
    custom = {"type": "custom", "custom": {"name": "f"}}
    with pytest.raises(CallerFault, match=r"the tool .* cannot be translated for Ollama"):
        sent("ollama", messages=[USER], tools=[function, custom])


@each_case(
    ("field", "value", "hint"),
    [
        ("n", 2, "Leave it out."),
        ("logprobs", True, "Leave it out."),
        ("functions", [{"name": "f"}], "Use tools and tool_choice."),
    ],
)
def test_a_refusal_says_what_to_do(field: str, value: Any, hint: str) -> None:
    with pytest.raises(CallerFault) as raised:
        sent("anthropic", messages=[USER], **{field: value})
    assert raised.value.hint == hint
