"""What answers of other targets, told in Anthropic's dialect, have left in a conversation that goes on at Anthropic.

Thoughts told here have no signature, and Anthropic refuses those. Its own are never without; so the bytes are searched
for an empty one, and only a conversation that holds some is read.
"""

import re
from typing import Any

import msgspec
from msgspec import Raw

_UNSIGNED = re.compile(rb'"signature"\s*:\s*""')


def without_foreign_thoughts(messages: Any) -> Any:
    """`messages` of a request without thoughts that nobody signed; as they came where there are none."""
    if not isinstance(messages, Raw) or not _UNSIGNED.search(messages):
        return messages
    try:
        turns = msgspec.json.decode(messages)
    except (ValueError, RecursionError):
        return messages
    kept: list[Any] = []
    for turn in turns if isinstance(turns, list) else ():
        match turn:
            case {"role": "assistant", "content": [*blocks]}:
                signed = [block for block in blocks if not _is_unsigned(block)]
                if signed or not blocks:
                    kept.append({**turn, "content": signed})
            case _:
                kept.append(turn)
    return kept


def _is_unsigned(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "thinking" and not block.get("signature")
