"""Ids of what a provider keeps: those in a request, and those that an answer names.

Files, containers and prompts are not among these: an operator makes them for several clients.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond.core.errors import CallerFault
from splitsecond.core.validation import MAX_VALUES, has_too_many_values, read_json
from splitsecond.core.wire.sse import SseDecoder

CONTINUES = {
    "previous_response_id": "previous_response_not_found",
    "conversation": "conversation_not_found",
    "thread": "thread_not_found",
}
"""Fields with the id of an earlier answer or conversation, and the error code for an unknown id."""
FIELDS = frozenset({*CONTINUES, "input"})
"""The fields of a chat that may hold ids, in any API format."""
_ITEM_BEGINS = b'"response.output_item.added"'
_MAY_HOLD_ID = (b'"id"', b"\\u006")
"""One of these is in each JSON with a field ``id``, two letters that JSON may write as escapes."""


class KeptAnswers(Struct, frozen=True):
    """The answers of an API format that a provider may keep.

    `begins` is in the event that begins a stream. `requested_by`: the field that requests keeping;
    "": every answer is kept.
    """

    begins: bytes
    requested_by: str = ""

    def ids(self, data: bytes) -> list[str]:
        """Return the ids in `data`, a whole answer or whole events of a stream."""
        if data[:1] == b"{":
            return _named(data)
        if self.begins not in data and _ITEM_BEGINS not in data:
            return []
        events = (event.data for event in SseDecoder().feed(data) if event.data)
        return [
            each
            for event in events
            if self.begins in event or _ITEM_BEGINS in event
            for each in _named(event)
        ]


RESPONSES = KeptAnswers(b'"response.created"')
MESSAGES = KeptAnswers(b'"message_start"', requested_by="thread")


class _Id(Struct):
    id: Any = None


class _Answer(_Id):
    conversation: _Id | None = None
    output: list[_Id] = []


class _AnswerOrEvent(_Answer):
    response: _Answer | None = None
    message: _Id | None = None
    item: _Id | None = None


_decode_answer = msgspec.json.Decoder(_AnswerOrEvent).decode


def _named(data: bytes) -> list[str]:
    outer = read_json(data, _decode_answer)
    if outer is None:
        return []
    answer = outer.response or outer
    holders = (answer, answer.conversation, *answer.output, outer.message, outer.item)
    return [each.id for each in holders if each is not None and isinstance(each.id, str)]


class _Reference(_Id):
    """What may refer to something by its id. The fields have any type: a provider may ignore a
    wrong one."""

    type: Any = None
    role: Any = None
    encrypted_content: Any = None
    previous_message_id: Any = None


_decode_reference = msgspec.json.Decoder(_Reference | str).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode


def ids_in_request(body: Mapping[str, Raw]) -> Iterator[tuple[str, str]]:
    """Yield the ids in a request, each with its field. Raises `CallerFault` for more values than
    are decoded."""
    for name in CONTINUES:
        link = read_json(body[name], _decode_reference) if name in body else None
        identities = (
            (link.id, link.previous_message_id) if isinstance(link, _Reference) else (link,)
        )
        yield from ((name, each) for each in identities if isinstance(each, str))
    items = bytes(body.get("input", b""))
    if not any(mark in items for mark in _MAY_HOLD_ID):
        return
    if has_too_many_values(items):
        message = f"input has more than {MAX_VALUES:,} values"
        raise CallerFault(message, kind="request_too_large", status=413, param="input")
    for item in read_json(items, _decode_list) or ():
        match read_json(item, _decode_reference):
            case _Reference(id=str(identity)) as reference if _is_kept(reference):
                yield "input", identity


def _is_kept(item: _Reference) -> bool:
    """Return whether a provider takes the content of `item` from what it keeps."""
    if item.type == "reasoning":
        return not item.encrypted_content
    return item.type == "item_reference" or not (item.type or item.role)
