"""How a mistake in the configuration is said: where it is, what is wrong there, and what may be meant."""

import difflib
import re
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from splitsecond.errors import CallerFault

_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
S = TypeVar("S")


def bad(place: str, words: str, hint: str = "") -> CallerFault:
    """The fault that says so. `place` is written as one finds it in the file: ``routes.fast.policy``."""
    return CallerFault(f"{place}: {words}", kind="bad_config", hint=hint)


def meant(name: str, known: Iterable[str]) -> str:
    """Which of `known` may be meant with `name`, as a question; "" where none is near."""
    near = difflib.get_close_matches(name, list(dict.fromkeys(known)), n=2, cutoff=0.5)
    return f"Did you mean {' or '.join(near)}?" if near else ""


def shaped(place: str, value: Any, shape: type[S]) -> S:
    """`value` as a `shape`. Raises `CallerFault` with the place of what does not fit."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        said, _, inside = str(error).partition(" - at `$")
        inside = inside.rstrip("`")
        where = f"{place}{inside}".lstrip(".") or "the file"
        unknown = _UNKNOWN.search(said)
        raise bad(where, said, meant(unknown[1], _fields(shape, inside)) if unknown else "") from None


def _fields(shape: Any, inside: str) -> tuple[str, ...]:
    """The fields that may stand at the path `inside` of a `shape`."""
    for step in filter(None, re.split(r"[.\[]", inside)):
        if isinstance(shape, type) and issubclass(shape, Struct):
            found = msgspec.structs.fields(shape)
            shape = next((field.type for field in found if field.encode_name == step), None)
        else:  # into a mapping or a list: `[...]` or `[0]`
            shape = next(reversed(getattr(shape, "__args__", (None,))))
    choices = (shape, *getattr(shape, "__args__", ()))
    structs = [choice for choice in choices if isinstance(choice, type) and issubclass(choice, Struct)]
    return structs[0].__struct_fields__ if structs else ()
