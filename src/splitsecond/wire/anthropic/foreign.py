"""What answers of other targets, told in Anthropic's dialect, have left in a conversation that goes on at Anthropic.

Thoughts told here have no signature, and Anthropic refuses those. Its own are never without; so the bytes are searched
for an empty one, and only a conversation that holds some is read. Where that leaves a call of a tool that is being
answered without the thought behind it, a model that thinks by a budget would be refused: it does not think then.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.service import Call
from splitsecond.wire.translation import left_out

_UNSIGNED = re.compile(rb'"signature"\s*:\s*""')
THOUGHTS = "thinking blocks"
"""What the client is told was left out."""


def own(call: Call) -> Mapping[str, Any]:
    """The body of `call`, a request of Anthropic's, without what is foreign in it; as it came where nothing is.

    What is left out is named in the call's notes.
    """
    body = call.body
    given = body.get("messages")
    if not isinstance(given, Raw) or not _UNSIGNED.search(given):
        return body
    turns = without_foreign_thoughts(given)
    if turns is given:
        return body
    left_out(call, THOUGHTS)
    made = {**body, "messages": turns}
    if _thinks_by_budget(body.get("thinking")) and lacks_thoughts(turns):
        left_out(call, "thinking")
        del made["thinking"]
    return made


def without_foreign_thoughts(messages: Raw) -> Any:
    """`messages` of a request without thoughts that nobody signed; as they came where there are none."""
    try:
        turns = msgspec.json.decode(messages)
    except (ValueError, RecursionError):
        return messages
    kept: list[Any] = []
    found = False
    for turn in turns if isinstance(turns, list) else ():
        match turn:
            case {"role": "assistant", "content": [*blocks]}:
                signed = [block for block in blocks if not _is_unsigned(block)]
                found = found or len(signed) < len(blocks)
                if signed or not blocks:
                    kept.append({**turn, "content": signed})
            case _:
                kept.append(turn)
    return kept if found else messages


def lacks_thoughts(turns: Sequence[Any]) -> bool:
    """Whether the last of the assistant's `turns` calls a tool and does not begin with a thought."""
    last = next((turn for turn in reversed(turns) if isinstance(turn, dict) and turn.get("role") == "assistant"), {})
    match last.get("content"):
        case [{"type": "thinking" | "redacted_thinking"}, *_]:
            return False
        case [*blocks]:
            return any(isinstance(block, dict) and block.get("type") == "tool_use" for block in blocks)
    return False


def _thinks_by_budget(thinking: Any) -> bool:
    try:
        given = msgspec.json.decode(thinking) if isinstance(thinking, Raw) else thinking
    except (ValueError, RecursionError):
        return False
    return isinstance(given, dict) and given.get("type") == "enabled"


def _is_unsigned(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "thinking" and not block.get("signature")
