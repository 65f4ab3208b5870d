"""Conversations with the reasoning of other makers' models that continue at Anthropic."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from splitsecond.core.service import Call
from splitsecond.core.wire import anthropic
from splitsecond.core.wire.api_format import Quirks

UNSIGNED = {"type": "thinking", "thinking": "Hm.", "signature": ""}
SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "Eq"}
USE = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "one"}
BUDGET = {"type": "enabled", "budget_tokens": 2000}


def passed(*blocks: Any, then: Any = RESULT, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    """What Anthropic is asked after an answer of these `blocks`, and what is named as left out."""
    turns = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": list(blocks)},
        {"role": "user", "content": [then]},
    ]
    asked = {"messages": turns, "max_tokens": 4000, **fields}
    body = {name: Raw(msgspec.json.encode(value)) for name, value in asked.items()}
    call = Call(id="1", api_format="anthropic", body=body)
    return msgspec.json.decode(anthropic.pass_on(call, "m", Quirks()).body), call.notes.dropped


@pytest.mark.parametrize("signature", [{"signature": ""}, {"signature": None}, {}])
def test_unsigned_thinking_blocks_are_dropped_and_noted(signature: dict[str, Any]) -> None:
    unsigned = {"type": "thinking", "thinking": "Hm.", **signature}
    made, dropped = passed(
        unsigned, {"type": "text", "text": "Yes?"}, then={"type": "text", "text": "So?"}
    )
    assert made["messages"][1]["content"] == [{"type": "text", "text": "Yes?"}]
    assert dropped == ["thinking blocks"]


@pytest.mark.parametrize(
    ("blocks", "thinking", "kept"),
    [
        ((UNSIGNED, USE), BUDGET, False),
        ((UNSIGNED, USE), {"type": "adaptive"}, True),
        ((SIGNED, UNSIGNED, USE), BUDGET, True),
        (({"type": "redacted_thinking", "data": "x"}, UNSIGNED, USE), BUDGET, True),
        ((UNSIGNED, {"type": "text", "text": "x"}), BUDGET, True),
    ],
)
def test_thinking_is_off_if_a_tool_call_lost_its_thinking(
    blocks: tuple[Any, ...], thinking: Any, kept: bool
) -> None:
    made, dropped = passed(*blocks, thinking=thinking)
    assert ("thinking" in made) is kept
    assert dropped == (["thinking blocks"] if kept else ["thinking blocks", "thinking"])


def test_conversations_of_anthropic_pass_byte_for_byte() -> None:
    odd = Raw(
        b'[ {"role":"user","content":"say \\"signature\\":\\"\\" 1.50"}, {"role":"assistant", '
        b'"content": ['
        b'{"thinking":"\\"type\\":\\"thinking\\"", "signature":"Eq", "type":"thinking"}]} ]'
    )
    call = Call(
        id="1",
        api_format="anthropic",
        body={"messages": odd, "thinking": Raw(b'{"type":"enabled"}')},
    )
    assert bytes(odd) in anthropic.pass_on(call, "m", Quirks()).body
    made, dropped = passed(USE, thinking=BUDGET)
    assert made["thinking"] == BUDGET
    assert dropped == []
