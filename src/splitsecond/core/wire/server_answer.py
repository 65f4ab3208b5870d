"""Server role: what the writers of answers share."""

from typing import Any

import msgspec

from splitsecond.core.wire.sse import encode_event, malformed

to_json = msgspec.json.Encoder().encode
SLOT = "\0"
"""The text in a sample of an event whose place the text of a token takes."""
_SLOT = b'"\\u0000"'


def around_slot(event: bytes) -> tuple[bytes, bytes]:
    """Return the bytes of `event` before and after `SLOT`: a token then costs its own JSON and one concatenation."""
    before, _, after = event.rpartition(_SLOT)
    return before, after


def around_slots(event: bytes, slots: int) -> list[bytes]:
    """Return the bytes of `event` around its last `slots` times `SLOT`, for a text that an event repeats."""
    return event.rsplit(_SLOT, slots)


def typed_event(name: str, **fields: Any) -> bytes:
    """Return an event whose JSON repeats its name as the type."""
    return encode_event(to_json({"type": name, **fields}), name)


def function_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Return a tool call as OpenAI's chat and Cohere have it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def call_arguments(name: str, arguments: str) -> msgspec.Raw:
    """Return the arguments of a call of the tool `name` as a JSON object, for formats in which they are one.

    Raises `ProviderFault` if they are not: no client could read the answer.
    """
    try:
        msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except (ValueError, RecursionError):
        raise malformed(f"the arguments of a call of the tool {name!r:.60} are not the JSON of an object") from None
    return msgspec.Raw(arguments.encode() or b"{}")


def known(**counts: int | None) -> dict[str, int]:
    """Return the counts that are known."""
    return {name: count for name, count in counts.items() if count is not None}
