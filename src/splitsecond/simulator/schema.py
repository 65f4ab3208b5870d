"""Values that fit a JSON schema, for the arguments of tool calls and for structured output.

The same schema gives the same value. Every named property is filled, an optional one only if a value for it is found.
A reference is never followed inside itself: if a schema has a finite value, it has one without such a repetition.
It understands types, ``enum``, ``const``, ``$ref`` inside the schema, ``anyOf``, ``oneOf``, ``allOf``, the limits of
numbers, strings, arrays and objects, ``multipleOf``, ``uniqueItems``, ``prefixItems``, ``pattern`` and the usual
formats, with the type names of Gemini too. ``oneOf`` is read as ``anyOf``; conditions (``if``, ``not``) are ignored.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from splitsecond.errors import CallerFault
from splitsecond.simulator.pattern import PatternTooHard, text_for

MAX_STEPS = 20_000
"""Subschemas that are looked at; a schema whose alternatives need more is refused."""
MAX_DEPTH = 100
MAX_SIZE = 10_000
"""The most items of an array, and characters of a string, that a schema may require."""
_FORMATS: Mapping[str, str] = {
    "date-time": "2025-01-31T12:00:00Z",
    "date": "2025-01-31",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "user@example.com",
    "idn-email": "user@example.com",
    "hostname": "example.com",
    "idn-hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uri-reference": "/path",
    "iri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "json-pointer": "/path",
    "regex": ".*",
    "byte": "c2ltdWxhdGVk",
    "binary": "simulated",
}
_KEYWORDS_OF: Mapping[str, tuple[str, ...]] = {
    "object": ("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""Keywords that tell the type of a schema without one."""
_TIGHTER: Mapping[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
    "required": lambda one, other: [*one, *(name for name in other if name not in one)],
    "enum": lambda one, other: [value for value in one if value in other],
    "$defs": lambda one, other: {**one, **other},
}
Schema = Mapping[str, Any]


class _NoValue(Exception):
    """This subschema has no value that can be found here; another alternative may have one."""


def fill(schema: Any) -> Any:
    """Return a value that fits `schema`. Raises `CallerFault` if none is found."""
    try:
        return _Filler(schema).value(schema, "value", ())
    except (_NoValue, RecursionError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = f": {error}" if isinstance(error, _NoValue) and str(error) else ""
        raise CallerFault(
            f"the simulator finds no value that fits the JSON schema{why}",
            kind="schema",
            hint="Give the value in [[replies]].",
        ) from error


def is_open_object(schema: Any) -> bool:
    """Return whether `schema` describes an object of any properties."""
    return (
        isinstance(schema, dict)
        and not (schema.keys() - {"type", "description", "title", "$schema"})
        and (str(schema.get("type", "object")).lower() == "object")
    )


class _Filler:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._steps = 0

    def value(self, schema: Any, name: str, refs: tuple[str, ...]) -> Any:
        """Return a value for the property `name`; `refs` are the references that lead to `schema`."""
        self._steps += 1
        if self._steps > MAX_STEPS or len(refs) > MAX_DEPTH:
            raise CallerFault("the JSON schema is too complex for the simulator", kind="schema")
        if schema is False:
            raise _NoValue
        if schema is True or not schema:
            return f"simulated {name}"
        for plain, inner in self._alternatives(schema, refs):
            try:
                return self._plain_value(plain, name, inner)
            except _NoValue:
                continue
        raise _NoValue(f"at {name!r}")

    def _alternatives(self, schema: Schema, refs: tuple[str, ...]) -> Iterator[tuple[Schema, tuple[str, ...]]]:
        """Yield the schemas without references and choices that `schema` allows."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise CallerFault("the JSON schema is too complex for the simulator", kind="schema")
        if "$ref" in schema:
            ref = schema["$ref"]
            if ref in refs:
                return
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            yield from self._joined(self._target(ref), rest, (*refs, ref))
        elif schema.get("allOf"):
            first, *others = schema["allOf"]
            rest = {key: value for key, value in schema.items() if key != "allOf"}
            yield from self._joined(first, {**rest, "allOf": others} if others else rest, refs)
        elif (key := next((key for key in ("anyOf", "oneOf") if key in schema), None)) is not None:
            rest = {name: value for name, value in schema.items() if name != key}
            choices = sorted(schema[key], key=_is_null)
            for choice in choices:
                yield from self._joined(choice, rest, refs)
        else:
            yield schema, refs

    def _joined(self, one: Any, other: Schema, refs: tuple[str, ...]) -> Iterator[tuple[Schema, tuple[str, ...]]]:
        """Yield the alternatives of a schema that must fit both."""
        if one is False:
            return
        if one is True or not one:
            yield from self._alternatives(other, refs)
            return
        for plain, inner in self._alternatives(one, refs):
            if not other:
                yield plain, inner
            elif other.keys() & {"$ref", "allOf", "anyOf", "oneOf"}:
                for second, innermost in self._alternatives(other, inner):
                    yield _both(plain, second), innermost
            else:
                yield _both(plain, other), inner

    def _target(self, ref: Any) -> Any:
        if not isinstance(ref, str) or not ref.startswith("#"):
            raise _NoValue(f"the reference {ref!r} is not inside the schema")
        found = self._root
        for step in filter(None, ref[1:].split("/")):
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(step)] if isinstance(found, list) else found[step]
            except (KeyError, IndexError, ValueError, TypeError):
                raise _NoValue(f"the reference {ref!r} leads nowhere") from None
        return found

    def _plain_value(self, schema: Schema, name: str, refs: tuple[str, ...]) -> Any:
        if "const" in schema:
            value = schema["const"]
            if value not in schema.get("enum", (value,)) or not _has_type(value, schema):
                raise _NoValue
            return value
        if "enum" in schema:
            for value in sorted(schema["enum"], key=lambda value: value is None):
                if _has_type(value, schema):
                    return value
            raise _NoValue
        for kind in _types(schema):
            try:
                return self._typed(kind, schema, name, refs)
            except _NoValue:
                continue
        raise _NoValue

    def _typed(self, kind: str, schema: Schema, name: str, refs: tuple[str, ...]) -> Any:
        match kind:
            case "object":
                return self._object(schema, refs)
            case "array":
                return self._array(schema, name, refs)
            case "string":
                return _string(schema, name)
            case "integer":
                return _number(schema, whole=True)
            case "number":
                return _number(schema, whole=False)
            case "boolean":
                return True
            case "null":
                return None
        raise _NoValue(f"unknown type {kind!r}")

    def _object(self, schema: Schema, refs: tuple[str, ...]) -> dict[str, Any]:
        properties: Mapping[str, Any] = schema.get("properties") or {}
        required = list(schema.get("required") or ())
        extra = schema.get("additionalProperties", True)
        value: dict[str, Any] = {}
        for name in required:
            value[name] = self.value(properties.get(name, extra), name, refs)
        most = schema.get("maxProperties", math.inf)
        least = schema.get("minProperties", 0)
        for name, inner in properties.items():
            if name not in value and len(value) < most:
                try:
                    value[name] = self.value(inner, name, refs)
                except _NoValue:
                    continue
        number = 0
        while len(value) < least:
            number += 1
            name = f"key{number}"
            if name not in properties:
                value[name] = self.value(extra, name, refs)
            _check_size(len(value))
        if len(value) > most:
            raise _NoValue
        return {name: value[name] for name in sorted(value, key=_order(properties))}

    def _array(self, schema: Schema, name: str, refs: tuple[str, ...]) -> list[Any]:
        first = schema.get("prefixItems") or []
        items = schema.get("items", True)
        if isinstance(items, list):  # the older form of prefixItems
            first, items = items, schema.get("additionalItems", True)
        least, most = int(schema.get("minItems", 0)), schema.get("maxItems", math.inf)
        _check_size(least)
        value: list[Any] = []
        wanted = least if least > 0 else 1
        while len(value) < min(max(wanted, len(first)), most):
            inner = first[len(value)] if len(value) < len(first) else items
            try:
                value.append(self.value(inner, name, refs))
            except _NoValue:
                if len(value) < least:
                    raise
                break
        if schema.get("uniqueItems"):
            return self._unique(value, items, name, refs, least)
        return value

    def _unique(self, value: list[Any], items: Any, name: str, refs: tuple[str, ...], least: int) -> list[Any]:
        """Return `value` without repetitions, with other items in their places."""
        unique: list[Any] = []
        for item in value:
            if item not in unique or len(unique) >= least:
                unique.append(item) if item not in unique else None
                continue
            other = next((each for each in self._others(items, name, refs) if each not in unique), _MISSING)
            if other is _MISSING:
                raise _NoValue("too few different items")
            unique.append(other)
        return unique

    def _others(self, items: Any, name: str, refs: tuple[str, ...]) -> Iterator[Any]:
        """Yield more values of `items`."""
        if items is True or not items:
            yield from (f"simulated {name} {number}" for number in range(MAX_SIZE))
            return
        for schema, inner in self._alternatives(items, refs):
            if "enum" in schema:
                yield from (value for value in schema["enum"] if _has_type(value, schema))
                continue
            for kind in _types(schema):
                if kind == "string" and not schema.get("pattern") and not schema.get("format"):
                    yield from (_string(schema, f"{number} {name}") for number in range(MAX_SIZE))
                elif kind in ("integer", "number"):
                    step = schema.get("multipleOf", 1)
                    low = _number(schema, whole=kind == "integer")
                    yield from _within(schema, (low + step * number for number in range(MAX_SIZE)))
                    yield from _within(schema, (low - step * number for number in range(MAX_SIZE)))
                elif kind == "boolean":
                    yield from (True, False)
                else:
                    yield self._typed(kind, schema, name, inner)


_MISSING = object()


def _both(one: Schema, other: Schema) -> Schema:
    """Return a schema that fits only what fits both."""
    joined = dict(one)
    for key, value in other.items():
        if key not in joined:
            joined[key] = value
        elif key == "properties":
            mine = joined[key]
            joined[key] = mine | {
                name: {"allOf": [mine[name], inner]} if name in mine else inner for name, inner in value.items()
            }
        elif key == "type":
            joined[key] = _common_types(joined[key], value)
        elif key in _TIGHTER:
            joined[key] = _TIGHTER[key](joined[key], value)
        elif key in ("items", "additionalProperties"):
            joined[key] = {"allOf": [joined[key], value]}
        elif key == "const" and joined[key] != value:
            raise _NoValue
        elif key == "multipleOf":
            joined[key] = math.lcm(joined[key], value) if isinstance(value, int) else max(joined[key], value)
        elif key == "pattern":
            joined[key] = joined[key] if joined[key] == value else f"(?={value}){joined[key]}"
    return joined


def _common_types(one: Any, other: Any) -> list[str]:
    mine, theirs = (value if isinstance(value, list) else [value] for value in (one, other))
    common = [kind for kind in mine if kind in theirs]
    if "integer" in (*mine, *theirs) and "integer" not in common and "number" in (*mine, *theirs):
        common.append("integer")
    if not common:
        raise _NoValue
    return common


def _types(schema: Schema) -> list[str]:
    """Return the types that `schema` allows, null last."""
    given = schema.get("type")
    if given is None:
        return [next((kind for kind, words in _KEYWORDS_OF.items() if any(word in schema for word in words)), "string")]
    kinds = [kind.lower() for kind in (given if isinstance(given, list) else [given])]
    return sorted(kinds, key=lambda kind: kind == "null")


_CLASSES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def _has_type(value: Any, schema: Schema) -> bool:
    if "type" not in schema:
        return True
    if isinstance(value, bool):
        return "boolean" in _types(schema)
    return any(isinstance(value, _CLASSES.get(kind, ())) for kind in _types(schema)) or (
        isinstance(value, float) and value.is_integer() and "integer" in _types(schema)
    )


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and str(schema.get("type")).lower() == "null"


def _order(properties: Mapping[str, Any]) -> Callable[[str], int]:
    places = {name: number for number, name in enumerate(properties)}
    return lambda name: places.get(name, len(places))


def _check_size(size: float) -> None:
    if size > MAX_SIZE:
        raise CallerFault(f"the JSON schema requires more than {MAX_SIZE:,} items or characters", kind="schema")


def _string(schema: Schema, name: str) -> str:
    least, most = int(schema.get("minLength", 0)), schema.get("maxLength", math.inf)
    _check_size(least)
    if least > most:
        raise _NoValue
    if pattern := schema.get("pattern"):
        try:
            text = text_for(pattern, least)
        except (PatternTooHard, re.error) as error:
            raise _NoValue(f"pattern {pattern!r}: {error}") from error
        if not least <= len(text) <= most:
            raise _NoValue(f"pattern {pattern!r} with these lengths")
        return text
    text = _FORMATS.get(schema.get("format", ""), f"simulated {name}")
    if len(text) < least:
        text = (text + " and more") * (least // len(text) + 1)
        return text[:least]
    return text if len(text) <= most else text[: int(most)]


def _number(schema: Schema, *, whole: bool) -> int | float:
    (low, _), (high, _) = _bounds(schema)
    step = schema.get("multipleOf", 1 if whole else None)
    candidates: tuple[int | float, ...]
    if step is not None:
        if whole and not float(step).is_integer():
            step = _whole_multiple(step)
        near = step if low == -math.inf else max(step, math.ceil(low / step) * step)
        near = near if high == math.inf else min(near, math.floor(high / step) * step)
        candidates = (near, near + step, near - step)
    elif low == -math.inf or high == math.inf:
        start = 1.5 if low < 1.5 < high else (low if low > -math.inf else high)
        candidates = (start, start + 1, start - 1)
    else:
        candidates = ((low + high) / 2, low, high)
    found = next(_within(schema, candidates), None)
    if found is None:
        raise _NoValue
    return int(found) if whole else found


def _bounds(schema: Schema) -> tuple[tuple[float, bool], tuple[float, bool]]:
    """Return the least and the greatest number, each with whether it is excluded itself."""
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    above, below = schema.get("exclusiveMinimum", False), schema.get("exclusiveMaximum", False)
    if not isinstance(above, bool):  # in draft 4 it is a switch
        low, above = max(low, above), above >= low
    if not isinstance(below, bool):
        high, below = min(high, below), below <= high
    return (low, above), (high, below)


def _whole_multiple(step: float) -> int:
    """Return the smallest integer that is a multiple of `step`, up to 1,000 times it."""
    for times in range(1, 1001):
        if (step * times).is_integer():
            return int(step * times)
    raise _NoValue


def _within(schema: Schema, numbers: Iterable[int | float]) -> Iterator[int | float]:
    """Yield those of `numbers` that are within the limits of `schema`."""
    (low, above), (high, below) = _bounds(schema)
    for number in numbers:
        if low <= number <= high and not (above and number == low) and not (below and number == high):
            yield number
