"""Server role: what the writers of answers share."""

from collections.abc import Sequence
from typing import Any

import msgspec

from splitsecond.core.events import Event, Finish, Token, Usage
from splitsecond.core.finish_reasons import openai_reason
from splitsecond.core.wire.api_format import CalledTool, ServerAnswer
from splitsecond.core.wire.sse import encode_event, malformed

to_json = msgspec.json.Encoder().encode
SLOT = "\0"
"""The text in a sample of an event in the place of a token's text."""
_SLOT = b'"\\u0000"'


def around_slots(event: bytes, slots: int = 1) -> list[bytes]:
    """Return the bytes of `event` around its last `slots` times `SLOT`, into which the JSON of a
    token is joined."""
    return event.rsplit(_SLOT, slots)


def typed_event(name: str, **fields: Any) -> bytes:
    return encode_event(to_json({"type": name, **fields}), name)


def function_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def call_arguments(name: str, arguments: str) -> msgspec.Raw:
    """Return the arguments of a call of the tool `name` as a JSON object without line feeds, which
    would end an event.

    Raises `ProviderFault` if they are no object: no client could read the answer.
    """
    try:
        msgspec.json.decode(arguments or "{}", type=dict[str, Any])
        return msgspec.Raw(msgspec.json.format(arguments.encode() or b"{}", indent=-1))
    except (ValueError, RecursionError):
        raise malformed(
            f"the arguments of a call of the tool {name!r:.60} are not the JSON of an object"
        ) from None


def known(**counts: int | None) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count is not None}


class _Parts(msgspec.Struct):
    """The content of one choice so far. `calls`: by number, id, name and fragments of arguments."""

    texts: dict[str, list[str]] = {}
    calls: dict[int, tuple[str, str, list[str]]] = {}
    finish: str = "stop"


def collected(events: Sequence[Event]) -> tuple[list[ServerAnswer], Usage]:
    choices: dict[int, _Parts] = {0: _Parts()}
    usage = Usage(0)
    for event in events:
        match event:
            case Token(kind="tool", tool=None):
                pass
            case Token(tool=part) if part is not None:
                calls = choices.setdefault(event.index, _Parts()).calls
                if part.number not in calls:
                    calls[part.number] = (part.id or f"call_{part.number}", part.name, [])
                calls[part.number][2].append(event.arguments)
            case Token():
                choices.setdefault(event.index, _Parts()).texts.setdefault(event.kind, []).append(
                    event.text
                )
            case Finish():
                choices.setdefault(event.index, _Parts()).finish = event.reason
            case Usage():
                usage = event
    return [_answer(parts) for _, parts in sorted(choices.items())], usage


def _answer(parts: _Parts) -> ServerAnswer:
    texts = {kind: "".join(parts.texts.get(kind, ())) for kind in ("text", "reasoning", "refusal")}
    calls = tuple(
        CalledTool(identity, name, "".join(pieces) or "{}")
        for identity, name, pieces in parts.calls.values()
    )
    return ServerAnswer(
        **texts, calls=calls, finish=openai_reason(parts.finish, called=bool(calls))
    )
