"""Requests that continue a stored conversation: Anthropic's threads, and `previous_response_id` of
OpenAI's Responses.

The conversation is put together from the journal, so a request can continue any response that is
still there.
"""

from typing import Any

import msgspec

from splitsecond.core.errors import PARSER_ERRORS, CallerFault
from splitsecond.core.wire.provider_errors import THREADS
from splitsecond.simulator.journal import JournalEntry, RequestJournal

MAX_TURNS = 200
"""Requests of one conversation."""
_INHERITED = ("tools", "system")


def whole_body(body: bytes, journal: RequestJournal) -> bytes:
    """Return `body` with the conversation that it continues; otherwise unchanged.

    Raises `CallerFault` if that conversation is not known. Anthropic's library then sends it again
    as a whole.
    """
    if b'"thread"' not in body and b'"previous_response_id"' not in body:
        return body
    try:
        fields = msgspec.json.decode(body, type=dict[str, Any])
    except PARSER_ERRORS:
        return body  # its fault is found when it is parsed
    return msgspec.json.encode(_whole(fields, journal, MAX_TURNS))


def _whole(fields: dict[str, Any], journal: RequestJournal, turns: int) -> dict[str, Any]:
    place = "messages" if "messages" in fields else "input"
    match fields:
        case {"thread": {"type": "continue", "previous_message_id": str(previous)}}:
            code = f"{THREADS}unsupported_request"
        case {"previous_response_id": str(previous)}:
            code = "previous_response_not_found"
        case _:
            return fields
    entry = journal.answered(previous) if turns else None
    if entry is None:
        raise CallerFault(
            f"the response {previous!r}, which the request continues, is not known", kind=code
        )
    before = _whole(msgspec.json.decode(entry.body, type=dict[str, Any]), journal, turns - 1)
    inherited: dict[str, Any] = {
        name: before[name] for name in _INHERITED if name in before and name not in fields
    }
    return {
        **fields,
        **inherited,
        place: [*_turns(before.get(place)), *_answer(entry, place), *_turns(fields.get(place))],
    }


def _turns(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [{"role": "user", "content": value}]


def _answer(entry: JournalEntry, place: str) -> list[dict[str, Any]]:
    answer = entry.script.answer if entry.script is not None else None
    text = answer.text if answer is not None else ""
    calls = answer.calls if answer is not None else ()
    if place == "input":
        called = [
            {"call_id": call.id, "name": call.name, "arguments": call.arguments} for call in calls
        ]
        return [
            {"role": "assistant", "content": text},
            *({"type": "function_call", **call} for call in called),
        ]
    used = [
        {
            "type": "tool_use",
            "id": call.id,
            "name": call.name,
            "input": msgspec.Raw(call.arguments.encode()),
        }
        for call in calls
    ]
    return [
        {
            "role": "assistant",
            "content": [*([{"type": "text", "text": text}] if text else []), *used],
        }
    ]
