"""Values that fit a JSON schema: generated schemas, those of pydantic and of the formats, and those
without a value."""

from datetime import datetime
from typing import Any, Literal

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from tests.cases import each_case

from splitsecond.core.errors import CallerFault
from splitsecond.simulator.content.schema import fill, is_open_object

Schema = dict[str, Any]
_FORMATS = ("date-time", "date", "time", "email", "uri", "uuid")
_CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER


def strings() -> st.SearchStrategy[Schema]:
    return st.just({"type": "string"}) | st.sampled_from(_FORMATS).map(
        lambda name: {"type": "string", "format": name}
    )


def numbers() -> st.SearchStrategy[Schema]:
    def made(kind: str, low: int, width: int, sides: tuple[bool, bool]) -> Schema:
        bounds = {"minimum": low} if sides[0] else {}
        bounds |= {"maximum": low + width} if sides[1] else {}
        return {"type": kind, **bounds}

    kinds, sides = st.sampled_from(["integer", "number"]), st.tuples(st.booleans(), st.booleans())
    return st.builds(made, kinds, st.integers(-1000, 1000), st.integers(0, 50), sides)


def scalars() -> st.SearchStrategy[Schema]:
    enums = st.lists(st.sampled_from(["a", "b", 1, 2.5, None, True]), min_size=1).map(
        lambda each: {"enum": each}
    )
    constants = st.sampled_from(["x", 3, None, False, [1], {"a": 1}]).map(
        lambda each: {"const": each}
    )
    return st.one_of(
        strings(),
        numbers(),
        enums,
        constants,
        st.sampled_from([{"type": "boolean"}, {"type": "null"}]),
    )


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
    objects = st.builds(
        an_object, st.dictionaries(names, inner, max_size=4), st.lists(st.booleans()), st.booleans()
    )
    arrays = st.builds(
        lambda items, least: {"type": "array", "items": items, "minItems": least},
        inner,
        st.integers(0, 3),
    )
    choices = st.lists(inner, min_size=1, max_size=3).map(lambda each: {"anyOf": each})
    nullable = inner.map(lambda each: {"anyOf": [each, {"type": "null"}]})
    alone = inner.map(lambda each: {"allOf": [each], "description": "one"})
    return st.one_of(objects, arrays, choices, nullable, alone)


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


class Item(BaseModel):
    kind: Literal["red", "green"]
    share: float = Field(ge=0, le=1)
    made: datetime


class Order(BaseModel):
    customer: str
    items: list[Item] = Field(min_length=2)
    note: str | None = None
    parent: "Order | None"


def test_pydantic_accepts_the_values_for_its_schemas() -> None:
    order = Order.model_validate(check(Order.model_json_schema()))
    assert len(order.items) == 2
    assert order.note == "simulated note"


@each_case(
    "schema, value",
    [
        (
            {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}},
            {"city": "simulated city"},
        ),
        ({"properties": {"n": {"type": "integer"}}}, {"n": 1}),
        ({"type": ["null", "integer"]}, 1),
        ({"allOf": [{"type": "integer", "minimum": 5}, {"maximum": 5}]}, 5),
        ({"oneOf": [{"const": "yes"}, {"const": "no"}]}, "yes"),
        ({"type": "integer", "exclusiveMinimum": 2}, 3),
        ({"type": "string", "pattern": "^[a-z]+$"}, "simulated value"),
        ({"definitions": {"a/b": {"const": 1}}, "$ref": "#/definitions/a~1b"}, 1),
        (True, "simulated value"),
        ({}, "simulated value"),
    ],
)
def test_schema_is_filled_with_a_fixed_value(schema: Any, value: Any) -> None:
    assert fill(schema) == value


@each_case(
    "schema",
    [
        False,
        {"enum": []},
        {"type": "integer", "minimum": 2, "maximum": 1},
        {"$ref": "#"},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#/$defs/missing"},
        {"$ref": 3},
        {"type": "thing"},
        {"type": "object", "properties": {"self": {"$ref": "#"}}, "required": ["self"]},
        {"type": "array", "minItems": 10**9},
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
