"""The schema for editors: it takes what the gateway takes, and marks what it refuses."""

from typing import Any

import jsonschema
import pytest
import yaml
from tests.cases import each_case
from tests.gateway.test_settings import EXAMPLE, GOOD

from splitsecond.routing.configuration.file_schema import DRAFT, ConfigFile, schema


def checked(text: str) -> None:
    checker: Any = jsonschema.Draft202012Validator(schema())
    checker.validate(yaml.safe_load(text))


def test_schema_is_valid_json_schema() -> None:
    assert schema()["$schema"] == DRAFT
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize(
    "text",
    ["{}", GOOD, EXAMPLE, "log: {url: 'env:LOG', keep_days: 7}", "log: 'off'", "routes: {a: b/c}"],
)
def test_schema_accepts_valid_configurations(text: str) -> None:
    checked(text)


@each_case(
    ("text", "complaint"),
    [
        ("lisen: {}", "'lisen' was unexpected"),
        ("listen: {port: 70000}", "70000 is greater than the maximum"),
        ("listen: {workers: 0}", "0 is less than the minimum"),
        ("listen: {metrics: open}", "'open' is not one of"),
        ("keys: [{name: a, key: sk-in-the-file}]", "'sk-in-the-file' does not match"),
        ("keys: [{name: a}]", "'key' is a required property"),
        ("providers: {x: {base_ulr: 'http://x'}}", "'base_ulr' was unexpected"),
        ("providers: {x: {timeouts: {stall: 1w}}}", "'1w' is not valid"),
        ("providers: {x: {base_url: 'http://x', prefill: begun}}", "'begun' is not valid"),
        ("routes: {fast: 7}", "7 is not valid"),
        ("routes: {fast: {policy: a, resume: rewind}}", "'rewind'} is not valid"),
    ],
)
def test_schema_rejects_invalid_configurations(text: str, complaint: str) -> None:
    with pytest.raises(jsonschema.ValidationError, match=complaint):
        checked(text)


def test_schema_describes_every_field() -> None:
    found = schema()["$defs"]["ConfigFile"]["properties"]
    assert set(found) == set(ConfigFile.__struct_fields__)
    assert all("description" in each or "$ref" in each for each in found.values())
