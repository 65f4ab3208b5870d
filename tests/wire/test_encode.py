"""What goes out to a provider: the caller's fields untouched, and the four that are ours."""

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.cases import each_case

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Operation
from splitsecond.core.wire import openai
from splitsecond.core.wire.api_format import Quirks


def sent(
    body: dict[str, Any], quirks: Quirks | None = None, operation: Operation = "chat"
) -> dict[str, Any]:
    call = Call(id="1", operation=operation, body=body)
    fields: dict[str, Any] = json.loads(openai.encode(call, "m", quirks or Quirks()).body)
    return fields


def test_a_request() -> None:
    call = Call(
        id="1",
        body={"model": Raw(b'"route"'), "messages": Raw(b'[ {"role": "user"} ]'), "x": Raw(b"1e3")},
    )
    encoded = openai.encode(call, "real-name", Quirks())
    assert encoded.path == "/chat/completions"
    assert dict(encoded.headers) == {
        "content-type": "application/json",
        "accept": "text/event-stream",
    }
    assert b'"messages":[ {"role": "user"} ]' in encoded.body
    assert b'"x":1e3' in encoded.body
    fields = json.loads(encoded.body)
    assert (fields["model"], fields["stream"]) == ("real-name", True)
    assert fields["stream_options"] == {"include_usage": True}


def test_completions_have_their_own_path() -> None:
    call = Call(id="1", operation="completions", body={"prompt": "Hi"})
    assert openai.encode(call, "m", Quirks()).path == "/completions"


def test_the_callers_stream_is_always_on() -> None:
    assert sent({"stream": Raw(b"false")})["stream"] is True


@pytest.mark.parametrize(
    "given",
    [{"include_obfuscation": False}, Raw(b'{"include_obfuscation":false,"include_usage":false}')],
)
def test_the_callers_stream_options_are_kept(given: Any) -> None:
    options = sent({"stream_options": given})["stream_options"]
    assert options == {"include_obfuscation": False, "include_usage": True}


@pytest.mark.parametrize("given", [None, Raw(b"null")])
def test_stream_options_may_be_null(given: Any) -> None:
    assert sent({"stream_options": given})["stream_options"] == {"include_usage": True}


def test_a_provider_that_takes_no_stream_options_gets_none() -> None:
    assert "stream_options" not in sent(
        {"stream_options": {"include_usage": True}}, Quirks(stream_options=False)
    )


@pytest.mark.parametrize("wrong", [7, Raw(b"[1]"), Raw(b"{"), Raw(b'"x"')])
def test_stream_options_of_a_wrong_type_are_the_callers_fault(wrong: Any) -> None:
    with pytest.raises(CallerFault, match="stream_options must be an object"):
        sent({"stream_options": wrong})


@each_case(
    "operation, field, body, expected",
    [
        ("chat", "max_tokens", {"max_tokens": 5}, {"max_tokens": 5}),
        ("chat", "max_tokens", {"max_completion_tokens": 5}, {"max_tokens": 5}),
        ("chat", "max_completion_tokens", {"max_tokens": 5}, {"max_completion_tokens": 5}),
        (
            "chat",
            "max_completion_tokens",
            {"max_tokens": 5, "max_completion_tokens": 6},
            {"max_completion_tokens": 6},
        ),
        (
            "chat",
            "max_tokens",
            {"max_tokens": Raw(b"null"), "max_completion_tokens": Raw(b"6")},
            {"max_tokens": 6},
        ),
        ("chat", "max_tokens", {"max_tokens": None}, {}),
        ("chat", "max_completion_tokens", {}, {}),
        ("completions", "max_completion_tokens", {"max_tokens": 5}, {"max_tokens": 5}),
    ],
)
def test_the_limit_on_output_tokens_takes_the_providers_name(
    operation: Operation, field: str, body: dict[str, Any], expected: dict[str, int]
) -> None:
    fields = sent(body, Quirks(max_tokens_field=field), operation)
    assert {name: value for name, value in fields.items() if "max" in name} == expected
