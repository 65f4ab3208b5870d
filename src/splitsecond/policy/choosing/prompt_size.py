"""How long a call's prompt is, and how long its answer will be: guessed from the request's bytes.

Nothing is decoded and no tokenizer runs. Speed and price differ between targets by factors, and a prompt's length by
orders of magnitude, so a fifth more or less in the number of tokens decides nothing, and counting them would cost more
than most routing decisions save.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.service import Call

BYTES_PER_TOKEN = 4
"""Of English prose in JSON, about. Other languages and code have fewer characters, but more bytes, to a token."""
PICTURE_TOKENS = 1000
"""An inline picture, whatever its bytes: between what the large providers count for a small and for a large one."""

USUAL_OUTPUT_TOKENS = 256
"""An answer, where no answer has been seen."""

_PROMPT = ("messages", "prompt", "input", "system", "instructions", "tools")
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_MAY_HOLD_PICTURES = 16_384
_PICTURE = re.compile(rb"[A-Za-z0-9+/]{2048,}")
"""Base64 data. Text has a space, or an escape, long before."""


def input_tokens(call: Call) -> int:
    """The tokens of the prompt, at least 1."""
    body, size = call.body, 0
    for name in _PROMPT:
        if name in body:
            data = raw_bytes(body[name])
            size += len(data)
            if len(data) > _MAY_HOLD_PICTURES:
                for picture in _PICTURE.finditer(data):
                    size += PICTURE_TOKENS * BYTES_PER_TOKEN - len(picture[0])
    return max(size // BYTES_PER_TOKEN, 1)


def most_output_tokens(call: Call) -> int | None:
    """The longest answer that the client takes. None: it did not say, or not as a positive whole number."""
    body = call.body
    for name in _LIMITS:
        if name in body:
            value = body[name]
            if isinstance(value, Raw):
                text = bytes(value)
                value = int(text) if text.isdigit() and len(text) < 10 else None
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None


def longest_output(call: Call) -> int:
    """The tokens of the longest answer that the client allows, or of a usual one. None at all for embeddings."""
    return 0 if call.operation == "embeddings" else most_output_tokens(call) or USUAL_OUTPUT_TOKENS


def output_tokens(call: Call, usual: Sequence[float]) -> int:
    """The tokens of the answer: the mean of what is `usual` at the targets in question, as far as the client allows.

    None at all for embeddings.
    """
    if call.operation == "embeddings":
        return 0
    mean = round(sum(usual) / len(usual)) if usual else USUAL_OUTPUT_TOKENS
    most = most_output_tokens(call)
    return max(mean if most is None else min(mean, most), 1)


def raw_bytes(value: Raw | Any) -> bytes | memoryview:
    """A field's JSON, without a copy where the client's own bytes are there."""
    return memoryview(value) if isinstance(value, Raw) else msgspec.json.encode(value)
