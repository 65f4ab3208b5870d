"""Estimates of the length of a call's prompt and of its answer, from the bytes of the request.

Nothing is decoded and no tokenizer runs. Speeds and prices of targets differ by factors, and
lengths of prompts by orders of magnitude, so an error of a fifth in the number of tokens decides
nothing, and counting them would cost more than most routing decisions save.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.core.service import WHOLE_OPERATIONS, Call
from splitsecond.core.wire.output_limit import output_limit

BYTES_PER_TOKEN = 4
"""About right for English prose in JSON. In other languages and code a token has fewer characters,
but more bytes."""
PICTURE_TOKENS = 1000
"""Tokens of an inline picture of any size: between what large providers count for a small and for a
large one."""
USUAL_OUTPUT_TOKENS = 256
"""The assumed length of an answer while no answer has been observed."""

_PROMPT = frozenset(
    {"messages", "prompt", "input", "system", "instructions", "tools", "query", "documents"}
)
_MAY_HOLD_PICTURES = 16_384
_MIN_PICTURE = 2048
"""Bytes. A shorter run of base64 counts as text; in real text, spaces or escapes end every run much
earlier."""
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_match_base64 = re.compile(rb"[A-Za-z0-9+/]*").match


def input_tokens(call: Call) -> int:
    """Return the estimated number of tokens of the prompt, at least 1.

    Policies compare targets with it, several times for one call: it is a typical value, and nothing
    is decoded for it. For limits and charges see
    `routing.router.prompt_tokens.prompt_size`.
    """
    size = 0
    for name, value in call.body.items():
        if name in _PROMPT:
            size += _size(raw_bytes(value))
    return max(size // BYTES_PER_TOKEN, 1)


def text_tokens(data: bytes | memoryview) -> int:
    size = len(data)
    return (size if size <= _MAY_HOLD_PICTURES else _size(data)) // BYTES_PER_TOKEN


def _size(data: bytes | memoryview) -> int:
    """Return the length of `data`, with as much for each inline picture as its tokens are worth."""
    size = len(data)
    if size > _MAY_HOLD_PICTURES:
        for picture in _picture_sizes(data):
            size += PICTURE_TOKENS * BYTES_PER_TOKEN - picture
    return size


def _picture_sizes(data: bytes | memoryview) -> Iterator[int]:
    """Yield the length of each run of base64 in `data` that is long enough for a picture.

    Such a run covers at least one multiple of `_MIN_PICTURE`, so only the runs around these
    positions are measured, and each byte is examined at most twice. A regular expression with a
    least length would start again at each byte of a run that is too short.
    """
    done = 0
    for place in range(0, len(data), _MIN_PICTURE):
        if place < done or data[place] not in _BASE64:
            continue
        before = bytes(data[max(done, place - _MIN_PICTURE) : place])
        begin = place - (len(before) - len(before.rstrip(_BASE64)))
        match = _match_base64(data, place)
        done = place if match is None else match.end()
        if done - begin >= _MIN_PICTURE:
            yield done - begin


def output_tokens(call: Call, usual: Sequence[float]) -> int:
    """Return the expected length of the answer in tokens: the mean of the `usual` lengths at the
    targets in question, at most the client's limit. 0 for embeddings.
    """
    if call.operation in WHOLE_OPERATIONS:
        return 0
    mean = round(sum(usual) / len(usual)) if usual else USUAL_OUTPUT_TOKENS
    most = output_limit(call.body)
    return max(mean if most is None else min(mean, most), 1)


def raw_bytes(value: Raw | Any) -> bytes | memoryview:
    """Return the JSON of a field of a body, without a copy if it is the client's bytes."""
    return memoryview(value) if isinstance(value, Raw) else msgspec.json.encode(value)
