"""Fields that a chat translated from another API format keeps for a provider of OpenAI's format."""

from typing import Any

import msgspec
import pytest
from tests.cases import each_case

from splitsecond.core.service import Call, Spoken
from splitsecond.core.upstream.target import API_FORMATS
from splitsecond.core.upstream.transcoding import request
from splitsecond.core.wire import openai
from splitsecond.core.wire.api_format import Quirks

HELLO: dict[Spoken, dict[str, Any]] = {
    "openai": {"messages": [{"role": "user", "content": "hi"}]},
    "anthropic": {"messages": [{"role": "user", "content": "hi"}]},
    "responses": {"input": "hi"},
}


def asked(client: Spoken, said: dict[str, Any], **quirks: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the fields beside the usual ones, and the names of what was left out."""
    body = {
        name: msgspec.Raw(msgspec.json.encode(value))
        for name, value in {**HELLO[client], **said}.items()
    }
    call = Call(id="1", api_format=client, body=body)
    encoded = request(call, "openai", openai.encode, "m", msgspec.convert(quirks, Quirks))
    sent = msgspec.json.decode(encoded.body)
    usual = {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        **HELLO["openai"],
    }
    return {
        name: value for name, value in sent.items() if usual.get(name) != value
    }, call.notes.left_out.get("", [])


@each_case(
    "client, said, takes, sent, named",
    [
        ("anthropic", {"top_k": 3}, ["top_k"], {"top_k": 3}, []),
        ("anthropic", {"top_k": 3}, [], {}, ["top_k"]),
        ("anthropic", {"metadata": {"user_id": "u"}}, ["user"], {"user": "u"}, []),
        ("anthropic", {"metadata": {"user_id": "u"}}, [], {}, ["metadata"]),
        ("anthropic", {"service_tier": "auto"}, [], {}, []),
        (
            "anthropic",
            {"service_tier": "standard_only"},
            ["service_tier"],
            {"service_tier": "default"},
            [],
        ),
        ("anthropic", {"service_tier": "standard_only"}, [], {}, ["service_tier"]),
        ("responses", {"text": {"verbosity": "medium"}}, [], {}, []),
        ("responses", {"text": {"verbosity": "low"}}, [], {}, ["verbosity"]),
        ("responses", {"text": {"verbosity": "low"}}, ["verbosity"], {"verbosity": "low"}, []),
        (
            "responses",
            {"prompt_cache_key": "k"},
            ["prompt_cache_key"],
            {"prompt_cache_key": "k"},
            [],
        ),
        ("responses", {"prompt_cache_key": "k", "user": "u"}, [], {}, ["user", "prompt_cache_key"]),
        ("openai", {"top_k": 3, "verbosity": "low"}, [], {"top_k": 3, "verbosity": "low"}, []),
    ],
)
def test_fields_that_few_providers_accept(
    client: Spoken, said: dict[str, Any], takes: list[str], sent: dict[str, Any], named: list[str]
) -> None:
    assert asked(client, said, takes=takes) == (sent, named)


CALLED: dict[Spoken, dict[str, Any]] = {
    "anthropic": {
        "messages": [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "xx"},
                    {"type": "tool_use", "id": "a", "name": "f", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "a", "content": "one"}],
            },
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "b", "name": "f", "input": {}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "b", "content": "two"}],
            },
        ]
    },
    "responses": {
        "input": [
            {"role": "user", "content": "hi"},
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "one"},
            {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "b", "output": "two"},
        ]
    },
}


@pytest.mark.parametrize(
    ("client", "named"), [("anthropic", "thinking blocks"), ("responses", "reasoning items")]
)
def test_reasoning_before_tool_calls(client: Spoken, named: str) -> None:
    sent, dropped = asked(client, CALLED[client])
    assert [message.get("reasoning_content") for message in sent["messages"]] == [None] * 5
    assert dropped == [named]
    sent, dropped = asked(client, CALLED[client], takes_thoughts=True)
    assert [message.get("reasoning_content") for message in sent["messages"]] == [
        None,
        "Hm.",
        None,
        "",
        None,
    ]
    assert dropped == []


SIGNED = {"google": {"thought_signature": "Qw=="}}
PLACEHOLDER = {"google": {"thought_signature": "skip_thought_signature_validator"}}


def signatures(client: Spoken, said: dict[str, Any], **quirks: Any) -> list[Any]:
    """The ``extra_content`` of each tool call that a target gets."""
    notes, _ = asked(client, said, **quirks)
    return [
        call.get("extra_content")
        for message in notes["messages"]
        for call in message.get("tool_calls", ())
    ]


def test_tool_calls_get_the_signature_that_gemini_requires() -> None:
    first: dict[str, Any] = {
        "id": "a",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
    }
    own: dict[str, Any] = {"messages": [{"role": "assistant", "tool_calls": [first, first]}]}
    own["messages"].append(
        {"role": "assistant", "tool_calls": [{**first, "extra_content": SIGNED}]}
    )
    assert signatures("openai", own, thought_signatures=True) == [PLACEHOLDER, None, SIGNED]
    assert signatures("openai", own) == [None, None, SIGNED]
    for client in ("anthropic", "responses"):
        assert set(map(str, signatures(client, CALLED[client], thought_signatures=True))) == {
            str(PLACEHOLDER)
        }
        assert set(signatures(client, CALLED[client])) == {None}


@pytest.mark.parametrize("api_format", ["anthropic", "cohere", "gemini", "ollama", "responses"])
def test_unknown_fields_are_left_out_by_name(api_format: str) -> None:
    said = {
        **HELLO["openai"],
        "chat_template_kwargs": {"a": 1},
        "provider": {"order": ["x"]},
        "transforms": [],
    }
    call = Call(
        id="1", body={name: msgspec.Raw(msgspec.json.encode(value)) for name, value in said.items()}
    )
    sent = request(
        call,
        api_format,
        API_FORMATS[api_format].encode,
        "m",
        Quirks(takes=("transforms",)),
        target="x",
    )
    body = msgspec.json.decode(sent.body)
    assert call.notes.left_out["x"] == ["chat_template_kwargs", "provider"]
    assert "transforms" in body
    assert {"chat_template_kwargs", "provider"}.isdisjoint(body)


@pytest.mark.parametrize("client", ["openai", "anthropic"])
def test_top_k_goes_to_responses_only_where_it_is_taken(client: Spoken) -> None:
    body = {
        name: msgspec.Raw(msgspec.json.encode(value))
        for name, value in {**HELLO[client], "top_k": 64}.items()
    }
    for takes, left in ((None, ["top_k"]), (("top_k",), [])):
        call = Call(id="1", api_format=client, body=body)
        sent = request(
            call, "responses", API_FORMATS["responses"].encode, "m", Quirks(takes=takes), target="x"
        )
        assert call.notes.left_out.get("x", []) == left
        assert ("top_k" in msgspec.json.decode(sent.body)) is not bool(left)
