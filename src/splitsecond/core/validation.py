"""Conversion of untrusted data: with errors that name the place and suggest a correction, or
without any error."""

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Raw, Struct

from splitsecond.core.errors import PARSER_ERRORS, CallerFault, parser_words

T = TypeVar("T")
MakeFault = Callable[[str, str, str], CallerFault]
"""Makes a fault from a place ("routes.fast.policy"), a message and a hint."""
MAX_VALUES = 500_000
"""Values in a request that is decoded. The JSON of a value can have 3 bytes, and the value itself
64."""
_BEFORE_VALUES = (b",", b"[", b"{")
_MARKS = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{,\[]', re.DOTALL)
"""The marks that begin values in valid JSON, and texts, so that no mark in a text is found."""
_UNKNOWN_FIELD = re.compile(r"unknown field `([^`]*)`")


def read_json(
    data: bytes | str | memoryview | Raw, decode: Callable[[Any], T] = msgspec.json.decode
) -> T | None:
    try:
        return decode(data)
    except PARSER_ERRORS:
        return None


def has_too_many_values(*fields: bytes | memoryview | Raw) -> bool:
    """Return whether `fields`, which are valid JSON, consist of more than `MAX_VALUES` values
    together.

    Nothing is decoded: it takes no memory but a copy of the longest field that is not bytes, and
    0.3 s for 32 MiB.
    """
    views = [memoryview(each) for each in fields]
    if not may_have_too_many_values(*views):
        return False
    marks = (match[0] for each in views for match in _MARKS.finditer(each))
    count = len(views)
    for mark in marks:
        count += mark in _BEFORE_VALUES
        if count > MAX_VALUES:
            return True
    return False


def may_have_too_many_values(*fields: memoryview) -> bool:
    if sum(map(len, fields)) <= MAX_VALUES:
        return False
    return sum(1 + sum(map(bytes(each).count, _BEFORE_VALUES)) for each in fields) > MAX_VALUES


def plain_value(field: Raw | Any) -> Any:
    if not isinstance(field, Raw):
        return field
    return None if has_too_many_values(field) else read_json(field)


def converted(place: str, value: Any, shape: type[T], fault: MakeFault) -> T:
    """Return `value`, found at `place`, as a `shape`. Raises the `fault` made for the first part
    that does not fit."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        path = path.rstrip("`")
        raise fault(
            f"{place}{path}".lstrip("."), message, _hint(message, _type_at(shape, path))
        ) from None
    except RecursionError as error:
        raise fault(place, parser_words(error), "") from None


def nearest(name: str, possible: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(dict.fromkeys(possible)), n=2, cutoff=0.5)
    return f"Did you mean {' or '.join(near)}?" if near else ""


def wrong(name: str, got: object, expected: str) -> CallerFault:
    return CallerFault(f"{name}: got {got!r}, expected {expected}", kind="bad_option", param=name)


def one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise wrong(name, value, " or ".join(allowed))
    return value


def _hint(message: str, shape: Any) -> str:
    if get_origin(shape) is Annotated:
        shape = get_args(shape)[0]
    choices = (shape, *get_args(shape))
    if unknown := _UNKNOWN_FIELD.search(message):
        structs = [
            choice for choice in choices if isinstance(choice, type) and issubclass(choice, Struct)
        ]
        return nearest(unknown[1], structs[0].__struct_fields__) if structs else ""
    words = [word for choice in choices for word in get_args(choice) if isinstance(word, str)]
    return f"Expected one of {', '.join(dict.fromkeys(words))}." if words else ""


def _type_at(shape: Any, path: str) -> Any:
    for step in filter(None, re.split(r"[.\[]", path)):
        if isinstance(shape, type) and issubclass(shape, Struct):
            fields = msgspec.structs.fields(shape)
            shape = next((field.type for field in fields if field.encode_name == step), None)
        else:  # a mapping's value or a list's item: `[...]` or `[0]`
            shape = next((part for part in reversed(get_args(shape)) if part is not ...), None)
    return shape
