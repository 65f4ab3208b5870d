"""Estimate of a request's input tokens, from its bytes.

A token is a quarter of the text's bytes, or fewer bytes where there are many digits, punctuation
marks, short words or non-ASCII characters. Media count by their kind (`core.wire.media`), not by
their bytes.
"""

import re
import string
from random import Random

from msgspec import Struct

from splitsecond.core.service import Call
from splitsecond.core.upstream.prompt_size import BYTES_PER_TOKEN
from splitsecond.core.wire.media import request_content

MAX_PICTURE_TOKENS = 16_384
"""The most tokens that a picture of any size counts as, at the large providers: GPT-6 counts 14,400
for a photo, Qwen at most 16,384. Only GPT-4o mini counts up to 48,169, each at a sixteenth of
GPT-4o's price."""
UNKNOWN_CONTEXT_TOKENS = 1_000_000
"""Assumed context length of a model where it is not known: that of the longest common models."""
_LETTERS = string.ascii_letters.encode()
_DIGIT = re.compile(rb"\d")
_NOT_ASCII = bytes(range(0x80, 0x100))
_SAMPLES = 256
_SAMPLE_BYTES = 1024
_chance = Random()


class PromptSize(Struct, frozen=True):
    """Estimated size of a request. `tokens`: its text and its pictures. `unbounded`: there is also
    content whose length is not known."""

    tokens: int
    unbounded: bool

    def within(self, context_tokens: int | None) -> int:
        return (
            max(self.tokens, context_tokens or UNKNOWN_CONTEXT_TOKENS)
            if self.unbounded
            else self.tokens
        )


def prompt_size(call: Call) -> PromptSize:
    """Return the estimated size of `call`, which errs on the high side.

    It counts every field with text, and a client cannot lower it by text that looks like a picture.
    Takes linear time: 60 ms of CPU for 30 MB.
    """
    content = request_content(call)
    tokens = content.pictures * MAX_PICTURE_TOKENS
    for name, text in content.text.items():
        tokens += _text_tokens(text, may_be_ids=name in ("prompt", "input"))
    return PromptSize(max(tokens, 1), content.unbounded)


def _text_tokens(text: memoryview, *, may_be_ids: bool) -> int:
    ids = _token_ids(bytes(text)) if may_be_ids else None
    if ids is not None:
        return ids
    data = _sample(text)
    marks = data.replace(b"  ", b"").translate(None, _LETTERS)  # a run of spaces is one token
    foreign = 0 if data.isascii() else len(marks) - len(marks.translate(None, _NOT_ASCII))
    # JSON's own marks: of two quotes, about three
    syntax = (data.count(b'"') - data.count(b'\\"')) * 3 // 2
    tokens = max(len(data) // BYTES_PER_TOKEN, len(marks) - foreign // 2 - syntax)
    return tokens if len(data) == len(text) else tokens * len(text) // len(data)


def _token_ids(data: bytes) -> int | None:
    if not data.startswith(b"[") or b'"' in data or b"{" in data or not _DIGIT.search(data):
        return None
    return data.count(b",") + 1


def _sample(text: memoryview) -> bytes:
    """Return `text`, or a sample of a long one: pieces from random places, which a client cannot
    know."""
    if len(text) <= _SAMPLES * _SAMPLE_BYTES:
        return bytes(text)
    places = (_chance.randrange(len(text) - _SAMPLE_BYTES) for _ in range(_SAMPLES))
    return b"".join(text[at : at + _SAMPLE_BYTES] for at in places)
