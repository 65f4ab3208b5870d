"""The prompt of a conversation: its beginning, which all of its requests have in common, and its
text without marks."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.json import encode

from splitsecond.core.validation import MAX_VALUES, has_too_many_values

BEGINNING_BYTES = 1024
"""The part of a plain prompt that is its beginning. Providers cache from about as many tokens on,
but by then prompts differ already."""
MARK = b'"cache_control"'
_BEFORE = ("system", "instructions", "tools")
_CONVERSATIONS = ("messages", "input", "prompt")


class _Message(Struct, gc=False):
    role: str = ""
    content: Raw = Raw()


_messages = msgspec.json.Decoder(list[_Message]).decode


def conversation_beginning(body: Mapping[str, Raw | Any]) -> list[bytes | Raw] | None:
    """Return the system prompt, the tools, and the messages up to the first one of the user; None:
    there is no prompt.

    Takes time in proportion to the messages' size.
    """
    parts: list[bytes | Raw] = []
    for name in _CONVERSATIONS:
        if name in body:
            parts += first_messages(without_cache_marks(encode(body[name])))
    if not parts:
        return None
    for name in _BEFORE:
        if name in body:
            parts.append(without_cache_marks(encode(body[name])))
    return parts


def first_messages(data: bytes | Raw) -> list[bytes | Raw]:
    """Return the contents of the messages up to the first one of the user; of a text, its
    beginning."""
    try:
        messages = [] if len(data) > MAX_VALUES and has_too_many_values(data) else _messages(data)
    except (ValueError, RecursionError):  # a text, or a form that only the provider knows
        messages = []
    parts: list[bytes | Raw] = []
    for message in messages:
        parts.append(message.content)
        if message.role == "user":
            break
    return parts or [bytes(data)[:BEGINNING_BYTES]]


def without_cache_marks(data: bytes) -> bytes:
    """Return JSON without its fields ``cache_control``, which clients move to the end of the prompt
    with each turn.

    A mark is removed with the comma before it (or after it, if it is the first field). A text
    cannot look like one: its quotes are escaped.
    """
    if MARK not in data:
        return data
    view, done = memoryview(data), 0
    parts: list[memoryview] = []
    while (at := data.find(MARK, done)) >= 0:
        end = data.find(b"}", at) + 1 or len(data)  # the mark is an object of plain fields
        before = stripped(data, done, at)
        last = data[before - 1 : before] if before > done else b""
        parts.append(view[done : before - (last == b",")])
        done = end
        if last == b"{":  # it is the first field of its object
            done = (
                data.find(b",", end) + 1 if data[end : end + 8].lstrip().startswith(b",") else end
            )
    return b"".join([*parts, view[done:]])


def stripped(data: bytes, begin: int, end: int, of: bytes = b" \t\n\r") -> int:
    """Return the end of `data[begin:end]` without the bytes `of` at its end, which are mostly
    few."""
    while end > begin:
        piece = data[max(begin, end - 64) : end]
        if left := len(piece.rstrip(of)):
            return end - len(piece) + left
        end -= len(piece)
    return begin
