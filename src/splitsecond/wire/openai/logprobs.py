"""The log-probabilities of an answer's tokens: read from a choice, and taken out of an answer again.

A chat has ``{"content": [{"token", "logprob", …}]}``, a completion ``{"token_logprobs": [-0.1, …]}``. Other shapes are
around; what is neither is no log-probability, and no reason to lose an answer.
"""

import re
from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond.wire.openai.shapes import NOTHING


class _TokenLogprob(Struct, gc=False):
    logprob: float | None = None


class _Logprobs(Struct, gc=False):
    content: list[_TokenLogprob] | None = None
    token_logprobs: list[float | None] | None = None


_decode = msgspec.json.Decoder(_Logprobs).decode
_LINE = re.compile(rb'^(data: ?)([^\r\n]*"logprobs"[^\r\n]*)', re.MULTILINE)


def token_logprobs(value: Raw) -> tuple[float, ...] | None:
    """The natural log-probability of each token; None: it does not say."""
    if value in NOTHING:
        return None
    try:
        said = _decode(value)
    except (ValueError, RecursionError):
        return None
    found = said.token_logprobs or [token.logprob for token in said.content or ()]
    return tuple(each for each in found if each is not None) or None


def without_logprobs(answer: bytes) -> bytes:
    """`answer`, a whole body, streamed or not, as it would have been had nobody asked for log-probabilities.

    Only events that hold some are written anew.
    """
    if b'"logprobs"' not in answer:
        return answer
    if answer.lstrip().startswith(b"{"):
        return _without(answer)
    return _LINE.sub(lambda line: line[1] + _without(line[2]), answer)


def _without(data: bytes) -> bytes:
    try:
        fields: Any = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return data
    choices = fields.get("choices") if isinstance(fields, dict) else None
    found = False
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("logprobs") is not None:
            choice["logprobs"] = None
            found = True
    return msgspec.json.encode(fields) if found else data
