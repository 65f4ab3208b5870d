"""Estimate of a request's input tokens, from its bytes.

A token is a quarter of the text's bytes, or fewer bytes where there are many digits, punctuation marks, short words or
non-ASCII characters.
"""

import re
import string
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.policies.choosing.prompt_size import BYTES_PER_TOKEN, PICTURE_TOKENS, raw_bytes
from splitsecond.service import Call
from splitsecond.validation import read_json

_LETTERS = string.ascii_letters.encode()
_NOT_ASCII = bytes(range(0x80, 0x100))
_HOLDS_TEXT = (b'"', b"[", b"{")
_MAY_HOLD_MEDIA = 16_384
_BASE64 = re.compile(r"(?:data:[^,]{0,256};base64,)?[A-Za-z0-9+/]{2048,}={0,2}")
_MEDIA_FIELDS = frozenset({"url", "image_url", "data", "file_data"})
_read_list = msgspec.json.Decoder(list[Raw]).decode


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
    items = json_list(data)
    if not items:
        return None
    first = bytes(items[0])
    if first[:1].isdigit():
        return len(items)
    lists = [json_list(bytes(item)) for item in items] if first.startswith(b"[") else []
    return sum(len(each) for each in lists if each) if lists and all(each is not None for each in lists) else None


def json_list(data: bytes) -> list[Raw] | None:
    """Return the items of a JSON list; None for anything else."""
    return read_json(data, _read_list) if data.startswith(b"[") else None


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
    """Return the encoded media in `data`: base64 text in the fields where models read it as media, not as text."""
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
