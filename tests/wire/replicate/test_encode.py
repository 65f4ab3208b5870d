"""A call as a request for a prediction, and where its output will be."""

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.cases import each_case

from splitsecond.core.errors import CallerFault, ProviderFault
from splitsecond.core.service import Call, Operation
from splitsecond.core.wire import replicate
from splitsecond.core.wire.api_format import Quirks

USER = {"role": "user", "content": "Hi"}


def sent(operation: Operation = "chat", **body: Any) -> dict[str, Any]:
    given = (
        body if operation == "completions" or "messages" in body else {"messages": [USER], **body}
    )
    encoded = replicate.encode(Call(id="1", operation=operation, body=given), "o/m", Quirks())
    fields: dict[str, Any] = json.loads(encoded.body)
    assert fields.pop("stream") is True
    made: dict[str, Any] = fields.pop("input")
    assert not fields
    return made


def test_a_request() -> None:
    call = Call(
        id="1",
        body={"model": Raw(b'"route"'), "messages": Raw(b'[{"role":"user","content":"Hi"}]')},
    )
    encoded = replicate.encode(call, "meta/llama", Quirks())
    assert encoded.path == "/models/meta/llama/predictions"
    assert dict(encoded.headers) == {
        "content-type": "application/json",
        "accept": "application/json",
    }
    assert json.loads(encoded.body) == {"stream": True, "input": {"prompt": "Hi"}}
    assert encoded.follow is replicate.output_address


@pytest.mark.parametrize("name", ["llama", "a/b/c"])
def test_model_without_an_owner_is_refused(name: str) -> None:
    with pytest.raises(
        CallerFault, match=f"model as OWNER/NAME or OWNER/NAME:VERSION, got '{name}'"
    ):
        replicate.encode(Call(id="1", body={"messages": [USER]}), name, Quirks())


def test_a_version_has_its_own_path() -> None:
    encoded = replicate.encode(Call(id="1", body={"messages": [USER]}), "o/m:5c7d", Quirks())
    assert encoded.path == "/predictions"
    assert json.loads(encoded.body)["version"] == "5c7d"


def test_unstreamed_call_asks_to_wait_for_the_prediction() -> None:
    call = Call(id="1", body={"messages": [USER]}, stream=False)
    encoded = replicate.encode(call, "o/m", Quirks(stream_whole=False))
    assert dict(encoded.headers)["prefer"] == "wait"
    assert json.loads(encoded.body) == {"input": {"prompt": "Hi"}}
    assert (encoded.streamed, encoded.follow) == (False, None)


@each_case(
    "body, made",
    [
        (
            {"max_completion_tokens": 5, "temperature": 0, "top_p": 0.9, "seed": 7},
            {"max_tokens": 5, "temperature": 0, "top_p": 0.9, "seed": 7},
        ),
        ({"stop": ["a", "b"]}, {"stop_sequences": "a,b"}),
        ({"stop": "a"}, {"stop_sequences": "a"}),
        (
            {"min_tokens": 3, "image": "https://x.test/y"},
            {"min_tokens": 3, "image": "https://x.test/y"},
        ),
        ({"temperature": 1, "input": {"temperature": 0}}, {"temperature": 0}),
        (
            {
                "tools": [],
                "tool_choice": "auto",
                "response_format": {"type": "text"},
                "user": "u",
                "n": 1,
            },
            {},
        ),
    ],
)
def test_fields(body: dict[str, Any], made: dict[str, Any]) -> None:
    assert sent(**body) == {"prompt": "Hi", **made}


def test_system_messages_become_system_prompt() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    assert sent(messages=messages) == {"prompt": "a\nb", "system_prompt": "Be brief.\nBe kind."}


def test_completion_has_no_prompt_template() -> None:
    assert sent("completions", prompt="Once", max_tokens=3, model="x") == {
        "prompt": "Once",
        "prompt_template": "{prompt}",
        "max_tokens": 3,
    }


def test_native_input_passes_unchanged() -> None:
    call = Call(id="1", body={"input": {"prompt": "Hi"}})
    assert json.loads(replicate.encode(call, "o/m", Quirks()).body)["input"] == {"prompt": "Hi"}


@each_case(
    "operation, body, words",
    [
        (
            "chat",
            {"messages": [USER, {"role": "assistant", "content": "a"}, USER]},
            "a conversation",
        ),
        ("chat", {"messages": [{"role": "assistant", "content": "a"}]}, "a conversation"),
        (
            "chat",
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "'image_url'",
        ),
        ("chat", {"tools": [{"type": "function"}]}, "tools"),
        ("chat", {"response_format": {"type": "json_object"}}, "response_format"),
        ("completions", {"prompt": ["a", "b"]}, "prompt"),
        ("completions", {"prompt": "a", "echo": True}, "echo true"),
    ],
)
def test_untranslatable_field_is_named(
    operation: Operation, body: dict[str, Any], words: str
) -> None:
    with pytest.raises(CallerFault, match="cannot be translated for Replicate") as caught:
        sent(operation, **body)
    assert caught.value.kind == "not_translatable"
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("body", "words"), [({}, "no messages"), ({"prompt": "a", "input": 7}, "input must be")]
)
def test_invalid_request_is_refused_with_the_reason(body: dict[str, Any], words: str) -> None:
    with pytest.raises(CallerFault, match=words):
        replicate.encode(Call(id="1", body=body), "o/m", Quirks())


def test_output_address_is_the_stream_url() -> None:
    assert (
        replicate.output_address(b'{"status":"starting","urls":{"stream":"https://x.test/y"}}')
        == "https://x.test/y"
    )
    with pytest.raises(ProviderFault, match="has no stream") as caught:
        replicate.output_address(b'{"status":"starting","urls":{"get":"https://x.test/y"}}')
    assert "stream_whole" in caught.value.hint
