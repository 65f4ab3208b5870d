"""Results of tools that hold pictures, or are failures: where an API format has a place for that,
and where not."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core.service import Call
from splitsecond.core.upstream.target import API_FORMATS
from splitsecond.core.upstream.transcoding import request
from splitsecond.core.wire.api_format import Quirks
from splitsecond.core.wire.tool_results import mark_failures, text_results

SOURCE = {"type": "base64", "media_type": "image/png", "data": "AA=="}
URL = "data:image/png;base64,AA=="
PICTURE = {"type": "image_url", "image_url": {"url": URL}}
WHOSE = {"type": "text", "text": "Part of the result of a:"}
BESIDE = "See the next message."


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def result(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "a", "content": content, **more}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


@each_case(
    "messages, made",
    [
        ([result("one")], [result("one")]),
        ([result([text("one")])], [result([text("one")])]),
        ([result([PICTURE])], [result(BESIDE), user([WHOSE, PICTURE])]),
        ([result([text("one"), PICTURE])], [result([text("one")]), user([WHOSE, PICTURE])]),
        (
            [result([PICTURE]), result("two"), user("So?")],
            [result(BESIDE), result("two"), user([WHOSE, PICTURE, text("So?")])],
        ),
        (
            [result([PICTURE]), user([text("So?")])],
            [result(BESIDE), user([WHOSE, PICTURE, text("So?")])],
        ),
        (
            [result([PICTURE]), {"role": "assistant", "content": "x"}],
            [result(BESIDE), user([WHOSE, PICTURE]), {"role": "assistant", "content": "x"}],
        ),
        (
            [result([{"type": "document", "document": {}}])],
            [result([{"type": "document", "document": {}}])],
        ),
        ([result("no", is_error=True)], [result("Error: no")]),
        ([result("error: no", is_error=True)], [result("error: no")]),
        ([result("no", is_error=False)], [result("no")]),
        ([result([text("no")], is_error=True)], [result([text("Error:"), text("no")])]),
        ([result(None, is_error=True)], [result("Error: ")]),
        ("x", "x"),
        ([5, user("x")], [5, user("x")]),
    ],
)
def test_tool_results_become_text_and_user_messages(messages: Any, made: Any) -> None:
    assert text_results(messages) == made


def test_failures_are_marked_and_pictures_moved() -> None:
    failed = result([text("no"), PICTURE], is_error=True)
    assert text_results([failed], failures=True) == [
        result([text("no")], is_error=True),
        user([WHOSE, PICTURE]),
    ]
    assert mark_failures([failed, user("x")]) == [
        result([text("Error:"), text("no"), PICTURE]),
        user("x"),
    ]


TURNS = [
    user("hi"),
    {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
    user(
        [
            {
                "type": "tool_result",
                "tool_use_id": "a",
                "is_error": True,
                "content": [text("no"), {"type": "image", "source": SOURCE}],
            },
            text("So?"),
        ]
    ),
]


@pytest.mark.parametrize(
    ("api_format", "field", "expected"),
    [
        (
            "openai",
            "messages",
            [result([text("Error:"), text("no")]), user([WHOSE, PICTURE, text("So?")])],
        ),
        (
            "cohere",
            "messages",
            [result([text("Error:"), text("no")]), user([WHOSE, PICTURE, text("So?")])],
        ),
        (
            "ollama",
            "messages",
            [
                {"role": "tool", "content": "Error:\nno", "tool_name": "f"},
                {"role": "user", "content": "Part of the result of a:\nSo?", "images": ["AA=="]},
            ],
        ),
        (
            "gemini",
            "contents",
            [
                {
                    "role": "user",
                    "parts": [
                        {"functionResponse": {"id": "a", "name": "f", "response": {"error": "no"}}},
                        {"text": "Part of the result of a:"},
                        {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
                        {"text": "So?"},
                    ],
                }
            ],
        ),
        (
            "responses",
            "input",
            [
                {
                    "type": "function_call_output",
                    "call_id": "a",
                    "output": [
                        {"type": "input_text", "text": "Error:"},
                        {"type": "input_text", "text": "no"},
                        {"type": "input_image", "image_url": URL, "detail": "auto"},
                    ],
                },
                user("So?"),
            ],
        ),
    ],
)
def test_anthropic_tool_results_are_translated(api_format: str, field: str, expected: Any) -> None:
    body = {"messages": msgspec.Raw(msgspec.json.encode(TURNS))}
    call = Call(id="1", api_format="anthropic", body=body)
    encoded = request(call, api_format, API_FORMATS[api_format].encode, "m", Quirks())
    assert msgspec.json.decode(encoded.body)[field][2:] == expected
    assert call.notes.left_out.get("", []) == []


def test_responses_tool_results_are_translated_for_anthropic() -> None:
    given = [
        user("hi"),
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "a",
            "output": [{"type": "input_image", "image_url": URL}],
        },
    ]
    call = Call(
        id="1", api_format="responses", body={"input": msgspec.Raw(msgspec.json.encode(given))}
    )
    encoded = request(call, "anthropic", API_FORMATS["anthropic"].encode, "m", Quirks())
    assert msgspec.json.decode(encoded.body)["messages"][2]["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "a",
            "content": [{"type": "image", "source": SOURCE}],
        }
    ]


def test_is_error_of_a_chat_is_kept_for_anthropic() -> None:
    called = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = [user("hi"), {"role": "assistant", "tool_calls": [called]}, result("no", is_error=True)]
    encoded = request(
        Call(id="1", body={"messages": said}),
        "anthropic",
        API_FORMATS["anthropic"].encode,
        "m",
        Quirks(),
    )
    assert msgspec.json.decode(encoded.body)["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": [text("no")], "is_error": True}
    ]


PARTS = (
    st.none()
    | st.integers(0, 3)
    | st.sampled_from(["x", text("y"), PICTURE, {"type": "odd"}, {}, []])
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["tool", "user", "assistant"])},
    optional={
        "content": PARTS | st.lists(PARTS, max_size=3),
        "is_error": st.none() | st.booleans() | st.just("x"),
        "tool_call_id": st.sampled_from(["a", None]),
    },
)


@given(st.lists(MESSAGES | PARTS, max_size=5))
def test_any_messages_keep_all_parts(messages: list[Any]) -> None:
    before = str(messages)
    for made in (
        text_results(messages),
        text_results(messages, failures=True),
        mark_failures(messages),
    ):
        assert str(made).count("AA==") == before.count("AA==")
        assert str(made).count("'odd'") == before.count("'odd'")
    assert str(messages) == before
