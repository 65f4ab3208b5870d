"""A refusal in the words of who asked, where the request had been brought into OpenAI's form before it was refused.

In that form fields have other names, and messages other places: a system prompt is one of them, the result of a tool
another. Which of the client's own was meant is found by bringing over what stands before it. Only a request that is
refused costs that.
"""

import bisect
import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, structs

from splitsecond.service import Call, Notes
from splitsecond.wire.translation import plain_fields

_PLACE = re.compile(r"messages\[(\d+)\](?:\.content\[\d+\])?(?:\.(type '(\w+)'|image_url, a link,))?")


class _Own(Struct, frozen=True):
    """What a dialect calls the list of messages, what stands before it, fields of OpenAI's, and parts of a message."""

    messages: str
    before: str
    fields: Mapping[str, str]
    parts: Mapping[str, str]


_OWN: Mapping[str, _Own] = {
    "anthropic": _Own(
        messages="messages",
        before="system",
        fields={"stop": "stop_sequences", "response_format": "output_config.format"},
        parts={"file": "document", "image_url": "image"},
    ),
    "responses": _Own(
        messages="input",
        before="instructions",
        fields={"response_format": "text.format", "max_completion_tokens": "max_output_tokens"},
        parts={"file": "input_file", "image_url": "input_image"},
    ),
}


def in_own_words(message: str, call: Call, to_chat: Callable[[Call], Call]) -> str:
    """`message`, which refuses `call` as `to_chat` has brought it into OpenAI's form, with the client's own names."""
    own = _OWN[call.dialect]
    if found := _PLACE.match(message):
        kind = found[3] or ("image_url" if found[2] else "")
        link = ", by its link" if found[2] and not found[3] else ""
        part = f", a part of type {own.parts.get(kind, kind)!r}{link}," if kind else ""
        return _place(call, own, int(found[1]), to_chat) + part + message[found.end() :]
    name, space, rest = message.partition(" ")
    return own.fields.get(name, name) + space + rest


def _place(call: Call, own: _Own, number: int, to_chat: Callable[[Call], Call]) -> str:
    """Where the client has what became the message of that `number`."""
    fields = plain_fields(call)
    turns = fields.get(own.messages)
    if not isinstance(turns, list):
        return own.messages
    head = {own.before: fields[own.before]} if own.before in fields else {}

    def brought(count: int) -> int:
        body: dict[str, Any] = {**head, own.messages: turns[:count]}
        messages: Any = to_chat(structs.replace(call, body=body, notes=Notes())).body["messages"]
        return len(messages)

    at = bisect.bisect_right(range(1, len(turns) + 1), number, key=brought)
    if at == 0 and head and number == 0:
        return own.before
    return f"{own.messages}[{min(at, len(turns) - 1)}]"
