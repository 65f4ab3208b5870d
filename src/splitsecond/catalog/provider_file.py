"""A provider's file, from TOML to a struct, and what is wrong in it: said with file, field and what may be meant.

A file that cannot be used is refused as a whole, when it is read.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, get_args

import msgspec

from splitsecond.catalog.model import Model
from splitsecond.catalog.price import Price, Tier
from splitsecond.catalog.published import Cost, Distance, Speed
from splitsecond.errors import CallerFault

S = TypeVar("S", bound=msgspec.Struct)
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_INSIDE = (Model, Speed, Cost, Distance)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What may stand in braces in an address: a variable of the environment, or ``model``."""


def parsed(file: str, text: str, shape: type[S], parts: Mapping[str, type[msgspec.Struct]]) -> S:
    """The file's `text` as a `shape`. `parts`: what the tables hold whose keys are names.

    Raises `CallerFault` where it is no TOML or does not fit.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise bad(file, str(error)) from None
    try:
        found = msgspec.convert(raw, shape)
    except msgspec.ValidationError as error:
        for table, part in parts.items():  # the error names no keys of tables, so each is tried by itself
            named = raw.get(table)
            for name, value in named.items() if isinstance(named, dict) else ():
                _try(file, f"{table}.{name}", value, part)
        raise _fault(file, "", shape, str(error)) from None
    for place, price, known in _prices(raw):
        for field in price.keys() - set(known.__struct_fields__):
            raise bad(f"{file}: {place}", f"unknown field `{field}`", _meant(field, known.__struct_fields__))
    return found


def check_address(place: str, url: str) -> None:
    """Raises `CallerFault` where `url`, its parts in braces filled in, is nothing that paths can be added to."""
    inside = [part.partition("}") for part in url.split("{")[1:]]
    if any(not brace or not _NAME.fullmatch(name) for name, brace, _ in inside):
        raise bad(place, f"got {url}, expected a variable of the environment between each pair of braces")
    if not url.startswith(("https://", "http://", "{")):
        raise bad(place, f"got {url}, expected an address that begins with https:// or http://")
    if url.endswith("/"):
        raise bad(place, f"got {url}, expected no / at the end: paths are added to it")


def bad(place: str, words: str, hint: str = "") -> CallerFault:
    """The fault that says what is wrong with a file, and where."""
    return CallerFault(f"{place}: {words}", kind="bad_catalogue", hint=hint)


def _try(file: str, place: str, value: Any, shape: type[msgspec.Struct]) -> None:
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise _fault(file, place, shape, str(error)) from None


def _fault(file: str, place: str, shape: type[msgspec.Struct], error: str) -> CallerFault:
    said, _, inside = error.partition(" - at `$")
    path = inside.rstrip("`")
    where = f"{place}{path}".lstrip(".")
    if unknown := _UNKNOWN.search(said):
        fields = {name for each in (shape, *_INSIDE) for name in each.__struct_fields__}
        hint = _meant(unknown[1], fields)
    else:
        hint = _allowed(shape, path.lstrip("."))
    return bad(f"{file}: {where}" if where else file, said, hint)


def _allowed(shape: type[msgspec.Struct], field: str) -> str:
    """The words that a field takes; "" where it takes anything else."""
    kind = next((each.type for each in msgspec.structs.fields(shape) if each.encode_name == field), None)
    words = [word for each in (kind, *get_args(kind)) for word in get_args(each) if isinstance(word, str)]
    return f"Expected one of {', '.join(dict.fromkeys(words))}." if words else ""


def _prices(raw: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], type[Price] | type[Tier]]]:
    """Each price and each tier, with its place and shape. Only here: a price in a run may be of a later version."""
    for name, model in raw.get("models", {}).items():
        price = model.get("price", {})
        yield f"models.{name}.price", price, Price
        for number, tier in enumerate(price.get("tiers", ())):
            yield f"models.{name}.price.tiers[{number}]", tier, Tier


def _meant(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=2, cutoff=0.5)
    return f"Did you mean {' or '.join(near)}?" if near else ""
