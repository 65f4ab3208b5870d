"""Values that fit a JSON schema: generated schemas, those of pydantic and of the formats, and those without a value."""

import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from splitsecond.errors import CallerFault
from splitsecond.simulator.pattern import text_for
from splitsecond.simulator.schema import fill, is_open_object

Schema = dict[str, Any]
_FORMATS = ("date-time", "date", "time", "email", "hostname", "ipv4", "ipv6", "uri", "uuid", "duration")
_PATTERNS = (
    r"^[A-Z]{3}$",
    r"^\d{5}(-\d{4})?$",
    "a+",
    r"^(red|green)$",
    r"^[^a-z]{2,}x$",
    r"^\+?[0-9 ]{7,}$",
    r"^v\d+$",
)
_CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER


def strings() -> st.SearchStrategy[Schema]:
    lengths = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(
        lambda pair: {"type": "string", "minLength": min(pair), "maxLength": max(pair)}
    )
    formats = st.sampled_from(_FORMATS).map(lambda name: {"type": "string", "format": name})
    patterns = st.sampled_from(
        [
            r"^[A-Z]{3}$",
            r"^\d{5}(-\d{4})?$",
            "a+",
            r"^(red|green)$",
            r"^[^a-z]{2,}x$",
            r"^\+?[0-9 ]{7,}$",
            r"^v\d+\.\d+$",
        ]
    ).map(lambda pattern: {"type": "string", "pattern": pattern})
    return st.one_of(st.just({"type": "string"}), lengths, formats, patterns)


def numbers() -> st.SearchStrategy[Schema]:
    def made(kind: str, low: int, width: int, open_ends: bool, sides: tuple[bool, bool]) -> Schema:
        lower, upper = ("exclusiveMinimum", "exclusiveMaximum") if open_ends else ("minimum", "maximum")
        bounds = {lower: low} if sides[0] else {}
        bounds |= {upper: low + width + 2} if sides[1] else {}
        return {"type": kind, **bounds}

    limited = st.builds(
        made,
        st.sampled_from(["integer", "number"]),
        st.integers(-3, 3) | st.integers(-1000, 1000),
        st.integers(0, 3) | st.integers(0, 50),
        st.booleans(),
        st.tuples(st.booleans(), st.booleans()),
    )
    multiples = st.tuples(st.sampled_from([2, 5, 10]), st.integers(-50, 50)).map(
        lambda pair: {"type": "integer", "multipleOf": pair[0], "minimum": pair[1]}
    )
    return limited | multiples


def scalars() -> st.SearchStrategy[Schema]:
    enums = st.lists(st.sampled_from(["a", "b", 1, 2.5, None, True]), min_size=1).map(lambda each: {"enum": each})
    constants = st.sampled_from(["x", 3, None, False, [1], {"a": 1}]).map(lambda each: {"const": each})
    return st.one_of(strings(), numbers(), enums, constants, st.sampled_from([{"type": "boolean"}, {"type": "null"}]))


def grown(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    def an_object(properties: dict[str, Schema], picked: list[bool], closed: bool) -> Schema:
        required = [name for name, wanted in zip(properties, picked, strict=False) if wanted]
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            **({"additionalProperties": False} if closed else {}),
        }

    names = st.sampled_from(["city", "n", "a b", "ünï", "x/y~z"])
    objects = st.builds(an_object, st.dictionaries(names, inner, max_size=4), st.lists(st.booleans()), st.booleans())
    arrays = st.builds(
        lambda items, least, room: {"type": "array", "items": items, "minItems": least, "maxItems": least + room},
        inner,
        st.integers(0, 3),
        st.integers(0, 3),
    )
    tuples = st.lists(inner, min_size=1, max_size=3).map(
        lambda each: {"type": "array", "prefixItems": each, "items": False, "minItems": len(each)}
    )
    choices = st.lists(inner, min_size=1, max_size=3).map(lambda each: {"anyOf": each})
    maps = inner.map(lambda each: {"type": "object", "additionalProperties": each, "minProperties": 2})
    nullable = inner.map(lambda each: {"anyOf": [each, {"type": "null"}]})
    alone = inner.map(lambda each: {"allOf": [each], "description": "one"})
    return st.one_of(objects, arrays, tuples, choices, maps, nullable, alone)


def check(schema: Any) -> Any:
    """Return the value for a schema after a check by jsonschema."""
    jsonschema.Draft202012Validator.check_schema(schema)
    value = fill(schema)
    validator: Any = jsonschema.Draft202012Validator(schema, format_checker=_CHECKER)
    validator.validate(value)
    return value


@given(st.recursive(scalars(), grown, max_leaves=12))
def test_a_value_fits_its_schema(schema: Schema) -> None:
    assert check(schema) == fill(schema)


@given(st.recursive(scalars(), grown, max_leaves=6), st.recursive(scalars(), grown, max_leaves=6))
def test_a_value_fits_a_schema_with_references(one: Schema, other: Schema) -> None:
    schema = {
        "type": "object",
        "properties": {
            "first": {"$ref": "#/$defs/one"},
            "list": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            "node": {"$ref": "#/$defs/node", "description": "a reference with a text"},
        },
        "required": ["first", "list", "node"],
        "$defs": {
            "one": one,
            "node": {
                "type": "object",
                "properties": {
                    "value": other,
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                },
                "required": ["value", "next", "children"],
                "additionalProperties": False,
            },
        },
    }
    value = check(schema)
    assert value["node"]["next"] is None
    assert value["node"]["children"] == []


class Colour(BaseModel):
    kind: str = Field(pattern="^#[0-9a-f]{6}$")
    share: float = Field(gt=0, le=1)


class Order(BaseModel):
    customer: str = Field(min_length=3, max_length=10)
    items: list[Colour] = Field(min_length=2)
    note: str | None = None
    tags: set[str] = Field(min_length=3)
    parent: "Order | None"


def test_pydantic_accepts_the_values_for_its_schemas() -> None:
    order = Order.model_validate(check(Order.model_json_schema()))
    assert len(order.items) == 2
    assert order.note == "simulated note"
    assert len(order.tags) == 3


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}, {"city": "simulated city"}),
        ({"properties": {"n": {"type": "integer"}}}, {"n": 1}),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 1}, 0.5),
        ({"type": ["null", "integer"]}, 1),
        ({"allOf": [{"type": "integer", "minimum": 5}, {"maximum": 5}]}, 5),
        ({"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"minimum": 7}}}]}, {"a": 7}),
        ({"oneOf": [{"const": "no", "type": "integer"}, {"const": "yes"}]}, "yes"),
        ({"type": "array", "uniqueItems": True, "minItems": 2, "items": {"enum": ["x", "y"]}}, ["x", "y"]),
        ({"type": "array", "items": [{"type": "boolean"}, {"type": "integer"}]}, [True, 1]),
        ({"definitions": {"a/b": {"const": 1}}, "$ref": "#/definitions/a~1b"}, 1),
        ({"type": "string", "pattern": "^[a-z]+$", "minLength": 4}, "aaaa"),
        ({"type": "integer", "multipleOf": 2.5}, 5),
        (True, "simulated value"),
        ({}, "simulated value"),
    ],
)
def test_what_a_schema_gives(schema: Any, value: Any) -> None:
    assert fill(schema) == value


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"enum": []},
        {"type": "integer", "minimum": 2, "maximum": 1},
        {"type": "string", "minLength": 2, "maxLength": 1},
        {"$ref": "#"},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#/$defs/missing"},
        {"$ref": 3},
        {"type": "thing"},
        {"type": "object", "properties": {"self": {"$ref": "#"}}, "required": ["self"]},
        {"type": "string", "pattern": "("},
        {"type": "string", "pattern": "^(a+)+$", "maxLength": 0},
        {"type": "string", "minLength": 10**9},
        {"type": "array", "minItems": 10**9},
        {"type": "object", "minProperties": 10**9},
        {"type": "array", "uniqueItems": True, "minItems": 3, "items": {"type": "boolean"}},
        {"properties": 3, "required": ["x"], "type": "object"},
        {"anyOf": 3},
    ],
)
def test_a_schema_without_a_value_is_refused(schema: Any) -> None:
    with pytest.raises(CallerFault) as caught:
        fill(schema)
    assert caught.value.kind == "schema"


def test_a_schema_of_many_alternatives_is_refused_in_time() -> None:
    choice: Any = False
    for _ in range(40):
        choice = {"anyOf": [choice, {"allOf": [choice, False]}]}
    with pytest.raises(CallerFault):
        fill(choice)


@pytest.mark.parametrize(
    "pattern", [r"(\w)-\1", r"[^\s]{3}", r"^(?:a|b)*c?$", r"\S+@\S+\.\w{2,3}", r"x{0,2}y", "(?i)abc"]
)
def test_a_text_matches_its_pattern(pattern: str) -> None:
    assert re.search(pattern, text_for(pattern))


@pytest.mark.parametrize(
    ("schema", "is_open"),
    [
        ({}, True),
        ({"type": "object"}, True),
        ({"type": "object", "properties": {}}, False),
        ({"type": "string"}, False),
    ],
)
def test_open_objects(schema: Any, is_open: bool) -> None:
    assert is_open_object(schema) is is_open
