"""Requests for ``/api/chat`` and ``/api/generate`` as chats: what becomes what, and what is
refused."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.core.wire import ollama

HI = {"role": "user", "content": "hi"}


def call(**body: Any) -> Call:
    """As the gateway makes it: the fields raw."""
    return Call(
        id="c", body={name: msgspec.Raw(msgspec.json.encode(value)) for name, value in body.items()}
    )


def chat(**fields: Any) -> dict[str, Any]:
    return dict(ollama.chat_to_chat(call(**{"messages": [HI], **fields})).body)


@pytest.mark.parametrize(
    ("fields", "made"),
    [
        ({"options": {"num_predict": 5, "top_k": 3}}, {"top_k": 3, "max_completion_tokens": 5}),
        ({"options": {"num_predict": -1}, "format": "", "tools": []}, {}),
        (
            {"format": "json", "think": "high"},
            {"response_format": {"type": "json_object"}, "think": "high"},
        ),
        ({"logprobs": False}, {}),
    ],
)
def test_fields(fields: dict[str, Any], made: dict[str, Any]) -> None:
    assert chat(**fields) == {"messages": [HI]} | made


def test_results_belong_to_calls() -> None:
    def made(name: str, **arguments: Any) -> dict[str, Any]:
        return {"function": {"name": name, "arguments": arguments}}

    messages = [
        {
            "role": "assistant",
            "content": "",
            "thinking": "Hm.",
            "tool_calls": [made("f", x=1), made("g"), made("f")],
        },
        {"role": "tool", "tool_name": "g", "content": "two"},
        {"role": "tool", "tool_name": "f", "content": "one"},
        {"role": "tool", "content": "three"},
    ]
    assistant, *results = chat(messages=messages)["messages"]
    assert assistant["reasoning_content"] == "Hm."
    ids = [each["id"] for each in assistant["tool_calls"]]
    assert len(set(ids)) == 3
    assert [each["tool_call_id"] for each in results] == [ids[1], ids[0], ids[2]]


def test_generate() -> None:
    asked = call(
        prompt="What?",
        system="Be brief.",
        images=["/9j/AA"],
        keep_alive="5m",
        options={"num_ctx": 9},
    )
    messages: Any = ollama.generate_to_chat(asked).body["messages"]
    system, user = messages
    assert system == {"role": "system", "content": "Be brief."}
    url = {"url": "data:image/jpeg;base64,/9j/AA"}
    assert user["content"] == [
        {"type": "text", "text": "What?"},
        {"type": "image_url", "image_url": url},
    ]
    assert asked.notes.dropped == ["num_ctx", "keep_alive"]


@each_case(
    "fields, words",
    [
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "user", "content": 5}]}, r"messages\[0\] must have a role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "answers no call"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "functions with names"),
        ({"messages": [{**HI, "images": [5]}]}, "images in base64"),
        ({"format": "xml"}, 'format must be "json"'),
        ({"logprobs": True}, "logprobs"),
        ({"options": 5}, "options must be an object"),
    ],
)
def test_invalid_or_untranslatable_fields_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(CallerFault, match=words):
        chat(**fields)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "prompt must be a text"),
        *(({"prompt": "x", name: "y"}, name) for name in ("suffix", "template", "context")),
    ],
)
def test_untranslatable_fields_of_generate_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(CallerFault, match=words):
        ollama.generate_to_chat(call(**fields))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "text", "user", "tool"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "tool_calls", "function", "name", "images"]),
            inner,
            max_size=3,
        )
    ),
)


@given(JSON, st.sampled_from(["messages", "options", "format", "tools", "think"]))
def test_any_request_is_read_or_refused(value: Any, name: str) -> None:
    with contextlib.suppress(CallerFault):
        chat(**{name: value})
