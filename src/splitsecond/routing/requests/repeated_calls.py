"""Loops of agents: the same tool call with the same arguments several times in a row at the end of
a conversation."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.core.service import Call
from splitsecond.core.upstream.prompt_size import raw_bytes
from splitsecond.core.validation import MAX_VALUES, has_too_many_values

MIN_REPEATED = 3
"""Calls in a row that are a loop."""
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_FIELDS: Mapping[str, str] = {"openai": "messages", "anthropic": "messages", "responses": "input"}
_ToolCall = tuple[str, Any]


def repeated_call(call: Call) -> tuple[str, int] | None:
    """Return the tool that the model has called at least `MIN_REPEATED` times in a row with the
    same arguments, and how often; None if it has not.

    Takes time in proportion to the messages' size for their borders, and reads only those of the
    loop.
    """
    field = call.body.get(_FIELDS[call.api_format])
    if field is None or "tools" not in call.body:
        return None
    data = raw_bytes(field)
    try:
        messages = (
            [] if len(data) > MAX_VALUES and has_too_many_values(data) else _decode_list(data)
        )
        calls = _calls_from_the_end(messages)
        last = next(calls, None)
        number = 1
        for each in calls:
            if each != last:
                break
            number += 1
    except (
        ValueError,
        RecursionError,
    ):  # not JSON that can be read: the provider says what is wrong
        return None
    return None if last is None or number < MIN_REPEATED else (last[0], number)


def _calls_from_the_end(messages: list[Raw]) -> Iterator[_ToolCall]:
    """Yield the tool calls since the user's last message, the latest first."""
    for raw in reversed(messages):
        match message := _decode(raw):
            case {"type": "function_call" | "custom_tool_call", "name": str(name)}:
                yield name, message.get("arguments", message.get("input"))
            case {"role": "assistant", "tool_calls": [*calls]}:
                for each in reversed(calls):
                    match each:
                        case {"function": {"name": str(name), "arguments": arguments}}:
                            yield name, arguments
            case {"role": "assistant", "content": [*parts]}:
                for each in reversed(parts):
                    match each:
                        case {"type": "tool_use", "name": str(name), "input": arguments}:
                            yield name, arguments
            case {"role": "user", "content": str()}:
                return
            case {"role": "user", "content": [*parts]} if not any(map(_is_result, parts)):
                return


def _is_result(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_result"
