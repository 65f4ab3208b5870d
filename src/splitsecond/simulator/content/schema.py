"""Values that fit a JSON schema, for the arguments of tool calls and for structured output.

The same schema gives the same value. It understands types, ``properties``, ``required``, ``enum``,
``const``, ``$ref`` inside the schema, choices (``anyOf``, ``oneOf``, ``allOf``), ``minimum``,
``maximum``, ``minItems`` and the most common formats, with the type names of Gemini too. Other
limits, such as ``pattern``, are ignored.
"""

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from splitsecond.core.errors import CallerFault

MAX_STEPS = 20_000
"""Subschemas that are looked at; a schema that needs more is refused."""
MAX_ITEMS = 10_000
_FORMATS: Mapping[str, str] = {
    "date-time": "2025-01-31T12:00:00Z",
    "date": "2025-01-31",
    "time": "12:00:00Z",
    "email": "user@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
Schema = Mapping[str, Any]


class _NoValue(Exception):
    """This subschema has no value that can be found here; another alternative may have one."""


def fill(schema: Any) -> Any:
    """Return a value that fits `schema`. Raises `CallerFault` if none is found."""
    try:
        return _Filler(schema).value(schema, "value", ())
    except (
        _NoValue,
        RecursionError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
    ) as error:
        why = f": {error}" if isinstance(error, _NoValue) and str(error) else ""
        raise CallerFault(
            f"the simulator finds no value that fits the JSON schema{why}",
            kind="schema",
            hint="Give the value in [[replies]].",
        ) from error


def is_open_object(schema: Any) -> bool:
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
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise CallerFault("the JSON schema is too complex for the simulator", kind="schema")
        if schema is False:
            raise _NoValue
        if schema is True or not schema:
            return f"simulated {name}"
        if (ref := schema.get("$ref")) is not None:
            if ref in refs:  # a schema that has a finite value has one without it
                raise _NoValue
            merged = _both(self._target(ref), _without(schema, "$ref"))
            return self.value(merged, name, (*refs, ref))
        if schema.get("allOf"):
            return self.value(_first_of_all(schema), name, refs)
        if key := next((key for key in ("anyOf", "oneOf") if key in schema), ""):
            return self._first(_alternatives(schema, key), name, refs)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return min(schema["enum"], key=lambda each: each is None)
        kinds = _types(schema)
        if len(kinds) > 1:
            return self._first([{**schema, "type": kind} for kind in kinds], name, refs)
        return self._typed(kinds[0], schema, name, refs)

    def _first(self, schemas: list[Any], name: str, refs: tuple[str, ...]) -> Any:
        for schema in schemas:
            try:
                return self.value(schema, name, refs)
            except _NoValue:
                continue
        raise _NoValue(f"at {name!r}")

    def _target(self, ref: Any) -> Any:
        if not isinstance(ref, str) or not ref.startswith("#"):
            raise _NoValue(f"the reference {ref!r} is not inside the schema")
        target = self._root
        for step in filter(None, ref[1:].split("/")):
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            try:
                target = target[int(step)] if isinstance(target, list) else target[step]
            except (KeyError, IndexError, ValueError, TypeError):
                raise _NoValue(f"the reference {ref!r} leads nowhere") from None
        return target

    def _typed(self, kind: str, schema: Schema, name: str, refs: tuple[str, ...]) -> Any:
        match kind:
            case "object":
                return self._object(schema, refs)
            case "array":
                return self._array(schema, name, refs)
            case "string":
                return _FORMATS.get(schema.get("format", ""), f"simulated {name}")
            case "integer":
                return math.ceil(_number(schema))
            case "number":
                return _number(schema)
            case "boolean":
                return True
            case "null":
                return None
        raise _NoValue(f"unknown type {kind!r}")

    def _object(self, schema: Schema, refs: tuple[str, ...]) -> dict[str, Any]:
        properties: Mapping[str, Any] = schema.get("properties") or {}
        required = schema.get("required") or ()
        extra = schema.get("additionalProperties", True)
        value: dict[str, Any] = {}
        for name in (*properties, *(name for name in required if name not in properties)):
            try:
                value[name] = self.value(properties.get(name, extra), name, refs)
            except _NoValue:
                if name in required:
                    raise
        return value

    def _array(self, schema: Schema, name: str, refs: tuple[str, ...]) -> list[Any]:
        least = int(schema.get("minItems", 0))
        if least > MAX_ITEMS:
            raise CallerFault(
                f"the JSON schema requires more than {MAX_ITEMS:,} items", kind="schema"
            )
        try:
            return [self.value(schema.get("items", True), name, refs)] * max(least, 1)
        except _NoValue:
            if least:
                raise
            return []


def _both(one: Any, other: Schema) -> Any:
    if one is False or not other:
        return one
    if one is True or not one:
        return other
    both = {**one, **other}
    for key in ("properties", "$defs"):
        if key in one and key in other:
            both[key] = {**one[key], **other[key]}
    if "required" in one and "required" in other:
        both["required"] = [*one["required"], *other["required"]]
    return both


def _without(schema: Schema, key: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name != key}


def _first_of_all(schema: Schema) -> Any:
    """Return `schema` with the first schema of its ``allOf`` merged into it."""
    first, *others = schema["allOf"]
    rest = _without(schema, "allOf")
    return _both(first, rest | {"allOf": others} if others else rest)


def _alternatives(schema: Schema, key: str) -> list[Any]:
    """Return `schema` once with each choice of its ``anyOf`` or ``oneOf``, null last."""
    rest = _without(schema, key)
    return [_both(choice, rest) for choice in sorted(schema[key], key=_is_null)]


def _types(schema: Schema) -> list[str]:
    kinds = schema.get("type")
    if kinds is None:
        return [
            "object"
            if schema.keys() & {"properties", "required"}
            else "array"
            if "items" in schema
            else "string"
        ]
    return sorted(
        (kind.lower() for kind in (kinds if isinstance(kinds, list) else [kinds])),
        key=lambda kind: kind == "null",
    )


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and str(schema.get("type")).lower() == "null"


def _number(schema: Schema) -> int | float:
    low: float
    high: float
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if above is not None:
        low = max(low, math.floor(above) + 1)
    if below is not None:
        high = min(high, math.ceil(below) - 1)
    if low > high:
        raise _NoValue
    return max(low, min(1, high))
