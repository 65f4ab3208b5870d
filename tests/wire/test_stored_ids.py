"""Ids of what providers keep, in requests and in answers."""

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.cases import each_case
from tests.examples import examples

from splitsecond.core.wire.sse import encode_event
from splitsecond.core.wire.stored_ids import (
    FIELDS,
    MESSAGES,
    RESPONSES,
    KeptAnswers,
    ids_in_request,
)


def fields(body: dict[str, Any]) -> dict[str, Raw]:
    return {
        name: value if isinstance(value, Raw) else Raw(msgspec.json.encode(value))
        for name, value in body.items()
    }


ITEMS = [
    {"type": "item_reference", "id": "msg_1"},
    {"type": None, "id": "msg_2"},
    {"id": "msg_3", "role": ""},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "reasoning", "id": "rs_2", "encrypted_content": "AA"},
    {"type": "message", "role": "assistant", "id": "msg_4", "content": "whole"},
    {"role": "assistant", "id": "msg_5", "content": "whole"},
    {"type": "item_reference", "id": 5},
    "no item",
]


@each_case(
    "body, expected",
    [
        ({"previous_response_id": "resp_1", "input": "hi"}, [("previous_response_id", "resp_1")]),
        ({"conversation": "conv_1"}, [("conversation", "conv_1")]),
        ({"conversation": {"id": "conv_1"}, "input": [5, None]}, [("conversation", "conv_1")]),
        ({"input": ITEMS}, [("input", each) for each in ("msg_1", "msg_2", "msg_3", "rs_1")]),
        ({"input": Raw(rb'[{"\u0069\u0064":"m\u0073g_1"}]')}, [("input", "msg_1")]),
        ({"thread": {"type": "continue", "previous_message_id": "msg_1"}}, [("thread", "msg_1")]),
        (
            {"thread": {"id": "msg_2", "previous_message_id": "msg_1"}},
            [("thread", "msg_2"), ("thread", "msg_1")],
        ),
        ({"thread": {"type": "create", "previous_message_id": 5}}, []),
        ({"previous_response_id": None, "conversation": 5, "input": None, "thread": [1]}, []),
        (
            {
                "previous_response_id": Raw(b'"\xff"'),
                "conversation": Raw(b"{"),
                "input": Raw(b'[{"id":"\xff"}]'),
            },
            [],
        ),
    ],
)
def test_stored_ids_are_found_in_requests(
    body: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert list(ids_in_request(fields(body))) == expected


RESPONSE = {
    "id": "resp_1",
    "conversation": {"id": "conv_1"},
    "metadata": {"id": "resp_forged"},
    "output": [
        {"type": "function_call_output", "id": "fco_1", "output": "text"},
        {"id": "msg_1"},
        {"id": None},
    ],
}
MESSAGE = {"id": "msg_1", "type": "message", "content": [{"id": "toolu_1"}]}


def event(name: str, **more: Any) -> bytes:
    return encode_event(json.dumps({"type": name, **more}).encode(), name)


@each_case(
    "kept, answer, expected",
    [
        (RESPONSES, json.dumps(RESPONSE).encode(), ["resp_1", "conv_1", "fco_1", "msg_1"]),
        (
            RESPONSES,
            event("response.created", response=RESPONSE | {"output": [], "conversation": None})
            + event("response.output_text.delta", item_id="msg_7", delta='"id":"msg_8"')
            + event("response.output_item.added", item={"id": "msg_2", "content": []}),
            ["resp_1", "msg_2"],
        ),
        (RESPONSES, event("response.output_item.done", item={"id": "msg_2"}), []),
        (RESPONSES, event("response.created", response="odd"), []),
        (MESSAGES, json.dumps(MESSAGE).encode(), ["msg_1"]),
        (MESSAGES, event("message_start", message=MESSAGE), ["msg_1"]),
        (MESSAGES, event("content_block_start", content_block={"id": "toolu_1"}), []),
        (MESSAGES, b"", []),
    ],
)
def test_stored_ids_are_found_in_responses(
    kept: KeptAnswers, answer: bytes, expected: list[str]
) -> None:
    assert kept.ids(answer) == expected


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["id", "item_reference", "reasoning"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "type", "role", "output", "item", "response", "message"]), inner
        )
    ),
)


@examples(100)
@given(values)
def test_any_value_is_read_without_an_error(value: Any) -> None:
    found = [identity for _, identity in ids_in_request(fields(dict.fromkeys(FIELDS, value)))]
    for kept in (RESPONSES, MESSAGES):
        for answer in (
            msgspec.json.encode(value),
            event("response.created", response=value, item=value),
        ):
            found += kept.ids(answer)
    assert all(isinstance(identity, str) for identity in found)
