"""A call in OpenAI's form as Ollama takes it, and what Ollama says when it refuses one."""

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.cases import each_case

from splitsecond.core.errors import CallerFault, ProviderFault
from splitsecond.core.service import Call
from splitsecond.core.wire import ollama
from splitsecond.core.wire.api_format import Quirks

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
OTHER = {"type": "function", "function": {"name": "then"}}
NAMED = {"type": "function", "function": {"name": "now"}}
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def sent(**body: Any) -> dict[str, Any]:
    call = Call(id="1", body={"messages": [USER], **body})
    fields: dict[str, Any] = json.loads(ollama.encode(call, "m:7b", Quirks()).body)
    return fields


def test_a_request() -> None:
    call = Call(
        id="1",
        body={"model": Raw(b'"route"'), "messages": Raw(b'[{"role":"user","content":"Hi"}]')},
    )
    encoded = ollama.encode(call, "m:7b", Quirks())
    assert encoded.path == "/api/chat"
    assert dict(encoded.headers) == {
        "content-type": "application/json",
        "accept": "application/x-ndjson",
    }
    assert json.loads(encoded.body) == {"model": "m:7b", "stream": True, "messages": [USER]}


@each_case(
    "body, options",
    [
        ({"max_tokens": 5}, {"num_predict": 5}),
        ({"max_tokens": 5, "max_completion_tokens": 6}, {"num_predict": 6}),
        ({"temperature": 0, "top_p": 0.9, "seed": 7}, {"temperature": 0, "top_p": 0.9, "seed": 7}),
        (
            {"frequency_penalty": 1, "presence_penalty": 2},
            {"frequency_penalty": 1, "presence_penalty": 2},
        ),
        ({"top_k": 40, "min_p": 0.1}, {"top_k": 40, "min_p": 0.1}),
        ({"stop": "a"}, {"stop": ["a"]}),
        ({"stop": ["a", "b"]}, {"stop": ["a", "b"]}),
        (
            {"temperature": 1, "options": {"temperature": 0, "num_ctx": 8192}},
            {"temperature": 0, "num_ctx": 8192},
        ),
    ],
)
def test_options(body: dict[str, Any], options: dict[str, Any]) -> None:
    assert sent(**body)["options"] == options


@each_case(
    "body, fields",
    [
        ({"response_format": {"type": "text"}}, {}),
        ({"response_format": {"type": "json_object"}}, {"format": "json"}),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"type": "object"}},
                }
            },
            {"format": {"type": "object"}},
        ),
        ({"reasoning_effort": "none"}, {"think": False}),
        ({"reasoning_effort": "high"}, {"think": "high"}),
        ({"reasoning_effort": "high", "think": True}, {"think": True}),
        ({"keep_alive": "5m", "format": "json"}, {"keep_alive": "5m", "format": "json"}),
        ({"tools": [TOOL]}, {"tools": [TOOL]}),
        ({"tools": [TOOL], "tool_choice": "auto"}, {"tools": [TOOL]}),
        ({"tools": [TOOL], "tool_choice": "none"}, {}),
        (
            {
                "user": "u",
                "stream_options": {},
                "store": True,
                "service_tier": "flex",
                "stream": False,
            },
            {},
        ),
        ({"n": 1, "logprobs": False, "parallel_tool_calls": True, "temperature": None}, {}),
    ],
)
def test_fields(body: dict[str, Any], fields: dict[str, Any]) -> None:
    assert sent(**body) == {"model": "m:7b", "stream": True, "messages": [USER], **fields}


@each_case(
    "message, translated",
    [
        ({"role": "developer", "content": "Be brief."}, {"role": "system", "content": "Be brief."}),
        ({"role": "user", "content": "Hi", "name": "Ann"}, {"role": "user", "content": "Hi"}),
        (
            {"role": "user", "content": "Hi", "images": ["aGk="]},
            {"role": "user", "content": "Hi", "images": ["aGk="]},
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is"},
                    {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
                    {"type": "image_url", "image_url": PIXEL},
                    {"type": "text", "text": "this?"},
                ],
            },
            {
                "role": "user",
                "content": "What is\nthis?",
                "images": ["iVBORw0KGgo=", "iVBORw0KGgo="],
            },
        ),
        ({"role": "assistant", "refusal": "No."}, {"role": "assistant", "content": "No."}),
        (
            {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm"},
            {"role": "assistant", "content": "Yes.", "thinking": "Hm"},
        ),
        (
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c",
                        "type": "function",
                        "function": {"name": "now", "arguments": '{"a":1}'},
                    }
                ],
            },
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"function": {"name": "now", "arguments": {"a": 1}}}],
            },
        ),
        (
            {"role": "tool", "tool_call_id": "?", "name": "now", "content": "9:00"},
            {"role": "tool", "content": "9:00", "tool_name": "now"},
        ),
        (
            {"role": "tool", "tool_name": "now", "content": "9:00"},
            {"role": "tool", "content": "9:00", "tool_name": "now"},
        ),
    ],
)
def test_messages(message: dict[str, Any], translated: dict[str, Any]) -> None:
    assert sent(messages=[USER, message])["messages"] == [USER, translated]


def test_a_result_is_named_by_the_call_that_it_answers() -> None:
    calls = [
        {"id": name, "function": {"name": f"tool-{name}", "arguments": ""}} for name in ("a", "b")
    ]
    results = [
        {"role": "tool", "tool_call_id": name, "content": [{"type": "text", "text": name}]}
        for name in "ba"
    ]
    messages = sent(messages=[USER, {"role": "assistant", "tool_calls": calls}, *results])[
        "messages"
    ]
    assert [message.get("tool_name") for message in messages] == [None, None, "tool-b", "tool-a"]


@each_case(
    "body, named",
    [
        ({"n": 2}, "n 2"),
        ({"logprobs": True}, "logprobs true"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"tools": [TOOL, OTHER], "tool_choice": "required"}, 'tool_choice "required"'),
        ({"tools": [OTHER], "tool_choice": NAMED}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "odd"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "now"}}}, "tool_choice"),
        ({"response_format": {"type": "grammar"}}, "response_format"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "https://x/y"}}],
                    }
                ]
            },
            r"messages\[0\].content\[0\].image_url, a link",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "file"}]}]},
            r"messages\[0\].content\[0\].type 'file'",
        ),
        ({"messages": [{"role": "function", "content": "x"}]}, r"messages\[0\]"),
        ({"messages": [{"role": "assistant", "audio": {"id": "x"}}]}, r"messages\[0\].audio"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"type": "custom"}]}]},
            "type 'custom'",
        ),
    ],
)
def test_untranslatable_field_is_named(body: dict[str, Any], named: str) -> None:
    with pytest.raises(CallerFault, match=named + ".* cannot be translated for Ollama") as caught:
        sent(**body)
    assert caught.value.kind == "not_translatable"


@pytest.mark.parametrize(("choice", "tools"), [("required", [TOOL]), (NAMED, [TOOL, OTHER])])
def test_a_required_call_is_asked_for_by_its_schema(choice: Any, tools: list[Any]) -> None:
    asked = {
        "messages": [USER],
        "tools": tools,
        "tool_choice": choice,
        "response_format": {"type": "json_object"},
    }
    call = Call(id="1", body=asked)
    encoded = ollama.encode(call, "m:7b", Quirks())
    body = json.loads(encoded.body)
    assert (encoded.as_tool, body["format"], body.get("tools")) == ("now", {"type": "object"}, None)
    assert body["messages"][0] == USER
    assert "function now" in body["messages"][-1]["content"]
    assert call.notes.dropped == ["response_format"]


def test_completions_are_refused() -> None:
    with pytest.raises(CallerFault, match="a call of completions"):
        ollama.encode(Call(id="1", operation="completions", body={"prompt": "Hi"}), "m", Quirks())


@each_case(
    "body, words",
    [
        ({"messages": []}, "no messages"),
        ({"messages": None}, "no messages"),
        ({"messages": "Hi"}, "messages: Expected `array`"),
        ({"messages": [{"role": "robot"}]}, r"messages\[0\].role is 'robot'"),
        ({"messages": [{"role": "user", "content": 7}]}, r"\$\[0\].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "not a part of type 'text'",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": "data:,x"}]}
                ]
            },
            "not a data URL in base64",
        ),
        (
            {"messages": [{"role": "tool", "content": "x", "tool_call_id": "?"}]},
            "no earlier tool call",
        ),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [{"function": {"name": "f", "arguments": "{"}}],
                    }
                ]
            },
            r"tool_calls\[0\].function.arguments is not",
        ),
        ({"options": [1]}, "options must be an object"),
        ({"temperature": Raw(b"{")}, "temperature is not JSON"),
    ],
)
def test_wrong_requests_are_the_callers_fault(body: dict[str, Any], words: str) -> None:
    with pytest.raises(CallerFault, match=words) as caught:
        sent(**body)
    assert caught.value.kind == "bad_request"


def test_missing_model_gets_the_hint_ollama_pull() -> None:
    fault = ollama.fault_from_response(404, {}, b'{"error":"model \'x\' not found"}')
    assert isinstance(fault, ProviderFault)
    assert fault.message == "HTTP 404: model 'x' not found"
    assert "ollama pull" in fault.hint


def test_other_refusals_are_read_as_for_openai() -> None:
    fault = ollama.fault_from_response(400, {}, b'{"error":"\\"m\\" does not support tools"}')
    assert isinstance(fault, CallerFault)
    assert fault.kind == "http_400"
    busy = ollama.fault_from_response(
        503, {"Retry-After": "2"}, b'{"error":"server busy, please try again"}'
    )
    assert isinstance(busy, ProviderFault)
    assert (busy.kind, busy.retry_after_ns) == ("http_503", 2_000_000_000)


def test_dropped_fields_are_noted_unless_at_their_default() -> None:
    call = Call(id="c", body={"messages": [{"role": "user", "content": "Hi"}], "verbosity": "low"})
    usual = Call(id="c", body={**call.body, "verbosity": "medium", "parallel_tool_calls": True})
    single = Call(id="c", body={**call.body, "parallel_tool_calls": False})
    for each in (call, usual, single):
        ollama.encode(each, "m", Quirks())
    assert (call.notes.dropped, usual.notes.dropped) == (["verbosity"], [])
    assert single.notes.dropped == ["verbosity", "parallel_tool_calls"]
