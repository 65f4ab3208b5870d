"""Estimate of a request's input tokens, from its bytes.

A token is a quarter of the text's bytes, or fewer bytes where there are many digits, punctuation marks, short words or
non-ASCII characters.
"""

import re
import string
from collections.abc import Iterator
from typing import Any

import msgspec

from splitsecond.policies.choosing.prompt_size import BYTES_PER_TOKEN, PICTURE_TOKENS, raw_bytes
from splitsecond.service import Call
from splitsecond.validation import has_too_many_values

_LETTERS = string.ascii_letters.encode()
_DIGIT = re.compile(rb"\d")
_NOT_ASCII = bytes(range(0x80, 0x100))
_HOLDS_TEXT = (b'"', b"[", b"{")
_MAY_HOLD_MEDIA = 16_384
_BASE64 = re.compile(r"(?:data:[^,]{0,256};base64,)?[A-Za-z0-9+/]{2048,}={0,2}")
_MEDIA_FIELDS = frozenset({"url", "image_url", "data", "file_data"})


def conservative_input_tokens(call: Call) -> int:
    """Return an estimate of the input tokens, of the whole request, that errs on the high side.

    Limits and charges use it. So it counts every field with text, and a client cannot lower it by text that looks like
    a picture. It decodes large requests for that. For decisions see `policies.choosing.prompt_size.input_tokens`.
    """
    total = 0
    for name, value in call.body.items():
        data = bytes(raw_bytes(value))
        if name == "model" or not data.startswith(_HOLDS_TEXT):
            continue
        ids = _token_ids(data) if name in ("prompt", "input") else None
        total += _text_tokens(data) if ids is None else ids
    return max(total, 1)


def _token_ids(data: bytes) -> int | None:
    """Return the number of tokens where `data` holds token ids, in one list or in several; None where it does not."""
    if not data.startswith(b"[") or b'"' in data or b"{" in data or not _DIGIT.search(data):
        return None
    return data.count(b",") + 1


def _text_tokens(data: bytes) -> int:
    """Return an estimate of the tokens of JSON text. Media count as `PICTURE_TOKENS` each."""
    media = _media_in(data) if len(data) > _MAY_HOLD_MEDIA else []
    marks = data.replace(b"  ", b"").translate(None, _LETTERS)  # a run of spaces is one token
    foreign = len(marks) - len(marks.translate(None, _NOT_ASCII))
    size = len(data) - sum(map(len, media))
    mark_count = len(marks) - sum(len(each.translate(None, _LETTERS)) for each in media)
    syntax = (data.count(b'"') - data.count(b'\\"')) * 3 // 2  # JSON's own marks: of two quotes, about three
    return len(media) * PICTURE_TOKENS + max(size // BYTES_PER_TOKEN, mark_count - foreign // 2 - syntax)


def _media_in(data: bytes) -> list[bytes]:
    """Return the encoded media in `data`: base64 text in the fields where models read it as media, not as text.

    There are none in data of so many values that decoding them would take much memory.
    """
    if has_too_many_values(data):
        return []
    try:
        return [found.encode() for found in _media(msgspec.json.decode(data))]
    except (ValueError, RecursionError):
        return []


def _media(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _media(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if not isinstance(each, str):
                yield from _media(each)
            elif name in _MEDIA_FIELDS and value.get("type") != "text" and _BASE64.fullmatch(each):
                yield each
