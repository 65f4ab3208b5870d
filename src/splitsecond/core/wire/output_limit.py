"""The limit on output tokens and the number of answers of a request, in the words of every API
format.

Targets may read any of these fields, so the largest number counts. A number may be written as text
and is rounded up. One beyond `MAX_TOKENS`, or unreadable, is `MAX_TOKENS`.
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.core.errors import PARSER_ERRORS
from splitsecond.core.service import Call
from splitsecond.core.validation import has_too_many_values, read_json

MAX_TOKENS = 10**9
"""The largest number of tokens or answers, so that every product fits in counters and log."""
LIMITS = {
    "max_tokens": "",
    "max_completion_tokens": "",
    "max_output_tokens": "",
    "maxOutputTokens": "",
    "num_predict": "",
    "generationConfig": "maxOutputTokens",
    "generation_config": "max_output_tokens",
    "options": "num_predict",
}
"""Fields with a limit on output tokens, each with the limit's name in it; "": it is the limit."""
_BUDGETS = {"reasoning": "max_tokens", "thinking": "budget_tokens"}
_ANSWERS = {
    "n": "",
    "best_of": "",
    "candidateCount": "",
    "generationConfig": "candidateCount",
    "generation_config": "candidate_count",
}
_MAX_BYTES = 1 << 18
"""Longer fields are not decoded, which would take an event loop too long."""
_limit_fields = frozenset(LIMITS).intersection
_budget_fields = frozenset(_BUDGETS).intersection
_decode = msgspec.json.Decoder().decode
_items = msgspec.json.Decoder(list[Raw]).decode


def output_limit(body: Mapping[str, Any]) -> int | None:
    """Return the largest limit on the tokens of one answer, reasoning included.

    None: there is no limit, or one is zero or negative, which some servers read as "unlimited".
    """
    largest = 0
    for field in _limit_fields(body):
        limit = _number(body[field], LIMITS[field])
        if limit is not None:
            if limit <= 0:
                return None
            if limit > largest:
                largest = limit
    if not largest:
        return None
    for field in _budget_fields(body):
        largest = max(largest, _number(body[field], _BUDGETS[field]) or 0)
    return largest


def answer_count(call: Call) -> int:
    """Return how many answers the request asks for: per prompt, times the number of prompts."""
    body, each = call.body, 1
    for field in body.keys() & _ANSWERS.keys():
        each = max(each, _number(body[field], _ANSWERS[field]) or 1)
    return min(each * _prompt_count(call), MAX_TOKENS)


def _prompt_count(call: Call) -> int:
    """Return how many prompts a request for completions holds; 1 for anything else."""
    prompt = call.body.get("prompt")
    if call.operation != "completions" or prompt is None:
        return 1
    data = prompt if isinstance(prompt, Raw) else msgspec.json.encode(prompt)
    if has_too_many_values(data):
        return bytes(data).count(b",") + 1  # or fewer; decoding them would take much memory
    items = read_json(data, _items)
    if not items or not bytes(items[0]).startswith((b'"', b"[")):
        return 1  # a text, or the ids of its tokens
    return len(items)


def _number(value: Any, name: str) -> int | None:
    """Return the number in a field, or under `name` in it; None if none is there."""
    if isinstance(value, Raw):
        data = memoryview(value)
        if len(data) > _MAX_BYTES:
            return _unreadable(data)
        try:
            value = _decode(data)
        except PARSER_ERRORS:  # a number beyond all bounds, or nesting without end
            return _unreadable(data)
    if name:
        value = value.get(name) if isinstance(value, Mapping) else None
    if type(value) is not int and (value := _whole(value)) is None:
        return None
    return min(value, MAX_TOKENS)


def _unreadable(data: memoryview) -> int:
    return -1 if bytes(data[:1]) == b"-" else MAX_TOKENS


def _whole(value: Any) -> int | None:
    """Return a number that is written as text or has a fraction, rounded up; None for anything
    else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return None if math.isnan(number) else math.ceil(min(max(number, -1), MAX_TOKENS))
