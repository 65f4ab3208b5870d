"""Requests of every client's API format that are nearly right, for targets of every api_format:
written, or refused."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case, sampled_cases

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Spoken
from splitsecond.core.upstream import transcoding
from splitsecond.core.upstream.target import API_FORMATS
from splitsecond.core.wire.api_format import Quirks
from splitsecond.core.wire.reasoning import ReasoningStyle

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
URL = "data:image/png;base64,AA=="
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}
CALLED = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"city":"Bern"}'}}
ASKED: dict[Spoken, dict[str, Any]] = {
    "openai": {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hi"},
                    {"type": "image_url", "image_url": {"url": URL}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [CALLED],
                "reasoning_content": "Hm.",
            },
            {
                "role": "tool",
                "tool_call_id": "a",
                "content": [{"type": "text", "text": "one"}],
                "is_error": True,
            },
            {
                "role": "user",
                "content": [{"type": "file", "file": {"file_data": URL, "filename": "a.pdf"}}],
            },
        ],
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "x", "schema": SCHEMA, "strict": True},
        },
        "max_completion_tokens": 2000,
        "reasoning_effort": "low",
        "reasoning": {"effort": "low", "max_tokens": 100, "exclude": True, "enabled": True},
        "thinking": {"type": "enabled", "budget_tokens": 1500, "display": "omitted"},
        "think": True,
        "enable_thinking": True,
        "thinking_budget": 7,
        "stop": ["a"],
        "user": "u",
        "service_tier": "default",
        "verbosity": "low",
        "n": 1,
        "temperature": 0.5,
        "options": {},
        "generationConfig": {},
        "output_config": {},
        "text": {},
    },
    "anthropic": {
        "model": "m",
        "stream": True,
        "max_tokens": 2000,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hi"},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "AA=="},
                    },
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "x"},
                        "title": "T",
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": ""},
                    {"type": "tool_use", "id": "a", "name": "f", "input": {"city": "Bern"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "a",
                        "is_error": True,
                        "content": [
                            {"type": "image", "source": {"type": "url", "url": "https://x/a.png"}}
                        ],
                    }
                ],
            },
            {"role": "assistant", "content": "Once"},
        ],
        "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA, "strict": True}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 1500, "display": "omitted"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
        "metadata": {"user_id": "u"},
        "stop_sequences": ["a"],
        "service_tier": "standard_only",
        "top_k": 3,
    },
    "responses": {
        "model": "m",
        "stream": True,
        "instructions": "Be brief.",
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "hi"},
                    {"type": "input_image", "image_url": URL},
                ],
            },
            {
                "type": "reasoning",
                "id": "rs_resp_1",
                "summary": [{"type": "summary_text", "text": "Hm."}],
            },
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Let me see."}],
            },
            {
                "type": "function_call",
                "id": "fc",
                "call_id": "a",
                "name": "f",
                "arguments": '{"city":"Bern"}',
            },
            {
                "type": "function_call_output",
                "call_id": "a",
                "output": [{"type": "input_image", "image_url": URL}],
            },
        ],
        "tools": [{"type": "function", **FUNCTION}],
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": False,
        "text": {
            "verbosity": "low",
            "format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True},
        },
        "reasoning": {"effort": "low", "summary": "auto"},
        "max_output_tokens": 2000,
        "user": "u",
        "prompt_cache_key": "k",
        "service_tier": "default",
        "store": False,
        "truncation": "disabled",
    },
}
QUIRKS = [
    Quirks(),
    Quirks(takes_thoughts=True, takes=(), thinking=(), stream_whole=False),
    Quirks(
        takes=("top_k", "service_tier"),
        thinking=(ReasoningStyle(field="reasoning"),),
        on_vertex=True,
    ),
    Quirks(thinking=(ReasoningStyle(field="thinking"),), stream_options=False),
    Quirks(thinking=(ReasoningStyle(field="enable_thinking"),)),
    Quirks(thinking=(ReasoningStyle(efforts=("low", "high")),)),
]
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(
        [
            "",
            "x",
            "auto",
            "none",
            "text",
            "user",
            "assistant",
            "tool",
            "data:,x",
            "enabled",
            "{",
            "[]",
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["type", "text", "role", "content", "name", "effort"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=4,
)


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything in `value`."""
    entries = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in entries:
        yield (*way, key)
        yield from places(inner, (*way, key))


PLACES = {client: list(places(asked)) for client, asked in ASKED.items()}


def changed(value: Any, way: tuple[Any, ...], change: Any) -> Any:
    """`value` with something else at the end of the `way`; None: with nothing there."""
    key, *rest = way
    made = dict(value) if isinstance(value, dict) else list(value)
    if rest:
        made[key] = changed(made[key], tuple(rest), change)
    elif change is None:
        del made[key]
    else:
        made[key] = change[0]
    return made


def tried(
    client: Spoken, asked: dict[str, Any], api_format: str, quirks: Quirks, prefill: Any
) -> None:
    body = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in asked.items()}
    call = Call(id="1", api_format=client, body=body, stream=bool(asked.get("stream")))
    encode = API_FORMATS[api_format].encode
    try:
        encoded = transcoding.request(
            call, api_format, encode, "gemini-2.5-pro", quirks, prefill=prefill
        )
    except CallerFault:
        pass  # and nothing else may be raised
    else:
        assert isinstance(msgspec.json.decode(encoded.body), dict)
    assert all(
        isinstance(name, str) and "," not in name for name in call.notes.left_out.get("", [])
    )
    assert len(set(call.notes.left_out.get("", []))) == len(call.notes.left_out.get("", []))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("api_format", API_FORMATS)
@pytest.mark.parametrize("client", ["openai", "anthropic", "responses"])
@given(data=st.data())
def test_any_changed_request_is_encoded_or_refused(
    client: Spoken, api_format: str, data: st.DataObject
) -> None:
    asked = ASKED[client]
    for _ in range(data.draw(st.integers(1, 3))):
        way = data.draw(st.sampled_from(PLACES[client]))
        try:
            asked = changed(asked, way, data.draw(st.none() | st.tuples(JUNK)))
        except (KeyError, IndexError, TypeError):
            continue  # what was changed before has left nothing there
    quirks, prefill = (
        data.draw(st.sampled_from(QUIRKS)),
        data.draw(st.sampled_from([None, True, "prefix"])),
    )
    tried(client, asked, api_format, quirks, prefill)


@sampled_cases(10)
@each_case("api_format", API_FORMATS)
@each_case("client", ["openai", "anthropic", "responses"])
def test_odd_value_in_any_place_is_encoded_or_refused(client: Spoken, api_format: str) -> None:
    junks: list[Any] = [
        None,
        (None,),
        (5,),
        ("x",),
        ([],),
        ({},),
        ([5],),
        ([{}],),
        ({"type": 5},),
        ([{"type": {}}],),
    ]
    for way in PLACES[client]:
        for junk in junks:
            tried(client, changed(ASKED[client], way, junk), api_format, QUIRKS[0], True)
