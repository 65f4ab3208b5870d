"""Columns of a foreign file: what each is, and the value of a column in a line.

A column is named as in the file. `a.b` is the field `b` of a JSON object in the column `a`, `a|b`
the first of two columns that has a value, `a+b` their sum if `a` has one.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct

from splitsecond.log.store.foreign.lines import json_object

FIELDS = {
    "id": "id of the request",
    "time": "when it came in: ISO 8601 or seconds, ms, µs or ns since 1970",
    "end_time": "when its answer ended",
    "first_token_time": "when its first token came",
    "duration_s": "its whole time in seconds",
    "duration_ms": "its whole time in ms",
    "ttft_s": "its time to first token in seconds",
    "ttft_ms": "its time to first token in ms",
    "model": "name of the model",
    "provider": "name of the provider",
    "client": "name of the key or user",
    "input_tokens": "tokens of the prompt",
    "output_tokens": "tokens of the answer",
    "reasoning_tokens": "tokens of the answer that were reasoning",
    "cached_tokens": "tokens of the prompt from the provider's cache",
    "cache_write_tokens": "tokens of the prompt written to it",
    "cache_write_1h_tokens": "of these, tokens written for an hour",
    "status": "success, failure or an HTTP status",
    "error_status": "HTTP status of a failure",
    "streamed": "whether the answer was a stream",
    "cancelled": "whether the client left",
    "cache_hit": "whether it was answered without a provider",
    "cost_usd": "what it cost in US dollars, by that program",
    "team": "name of the team",
    "tags": "its tags: a list, or separated by commas",
}
"""What a column can be, for `--map`."""
_MAX = 1 << 62


class KnownFormat(Struct, frozen=True):
    """A program's format: the column of each field, the columns by which a file is recognised, and
    those of the program's names of providers that are its own."""

    title: str
    columns: Mapping[str, str]
    recognised_by: set[str]
    providers: dict[str, str] = {}


def heads(column: str) -> set[str]:
    """Return the columns of a file that `column` can be read from."""
    return {column, *(each.partition(".")[0] for each in re.split(r"[|+]", column))}


def value_of(values: Mapping[str, Any], column: str) -> Any:
    """Return the value of a column, of a field inside it, or of the first of several that has
    one."""
    if column in values:
        return values[column]
    for first, *more in _paths(column):
        value = _field(values, first)
        if value is not None and value != "":
            if not more:
                return value
            return (as_number(value) or 0) + sum(
                as_number(_field(values, each)) or 0 for each in more
            )
    return None


@lru_cache(maxsize=256)
def _paths(column: str) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Return the alternatives of a column: paths whose values are added, each as its names."""
    return tuple(
        tuple(tuple(path.split(".")) for path in each.split("+")) for each in column.split("|")
    )


def _field(values: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = values
    for name in path:
        if isinstance(value, str):
            value = json_object(value) if value else None
        value = value.get(name) if isinstance(value, dict) else None
        if value is None:
            return None
    return value


def as_number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < _MAX and not isinstance(value, bool) else None
