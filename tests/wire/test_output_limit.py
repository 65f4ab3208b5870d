"""The output limit and the number of answers of a request: never smaller than what a target may
write."""

import json
from typing import Any

import msgspec
from msgspec import Raw
from tests.cases import each_case

from splitsecond.core.service import Call, Operation
from splitsecond.core.wire.output_limit import MAX_TOKENS, answer_count, output_limit


def sent(operation: Operation = "chat", **fields: Any) -> Call:
    """A call as a client sends it: every field is its JSON."""
    body = msgspec.json.decode(json.dumps(fields), type=dict[str, Raw])
    return Call(id="c", operation=operation, client="web", body=body)


@each_case(
    ("fields", "expected"),
    [
        ({}, None),
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 1, "max_tokens": 9000}, 9000),
        ({"max_completion_tokens": 9000, "max_tokens": 1}, 9000),
        ({"max_tokens": 1, "max_output_tokens": 5000}, 5000),
        ({"max_tokens": 1, "generationConfig": {"maxOutputTokens": 6000}}, 6000),
        ({"max_tokens": 1, "options": {"num_predict": 8000}}, 8000),
        ({"max_tokens": 1, "num_predict": 8000}, 8000),
        ({"max_tokens": 10, "thinking": {"budget_tokens": 4000}}, 4000),
        ({"max_tokens": "512"}, 512),
        ({"max_tokens": 1e3}, 1000),
        ({"max_tokens": 12.5}, 13),
        ({"max_tokens": 10**40}, MAX_TOKENS),
        ({"max_tokens": -1}, None),
        ({"max_tokens": 1, "options": {"num_predict": -1}}, None),
        ({"max_tokens": 0}, None),
        ({"max_tokens": -(10**40)}, None),
        ({"max_tokens": 10**400}, MAX_TOKENS),
        ({"max_tokens": -(10**400)}, None),
        ({"max_tokens": "9" * 400}, MAX_TOKENS),
        ({"max_tokens": "1e999"}, MAX_TOKENS),
        ({"max_tokens": "nan", "max_completion_tokens": 3}, 3),
        ({"max_tokens": 1, "options": {"num_predict": 10**400}}, MAX_TOKENS),
        ({"max_tokens": 1, "generationConfig": {"maxOutputTokens": 10**400}}, MAX_TOKENS),
        ({"max_tokens": True}, None),
        ({"max_output_tokens": 9}, 9),
        ({"options": "junk"}, None),
        ({"max_tokens": 5, "reasoning": {"effort": "low"}}, 5),
        ({"max_tokens": 10**12}, MAX_TOKENS),
        ({"max_tokens": "many"}, None),
        ({"max_tokens": [5]}, None),
        ({"max_tokens": None, "max_completion_tokens": 3}, 3),
    ],
)
def test_the_largest_limit_counts_in_whichever_words(
    fields: dict[str, Any], expected: int | None
) -> None:
    assert output_limit(sent(**fields).body) == expected
    assert output_limit(fields) == expected


@each_case(
    ("field", "value", "expected"),
    [
        ("max_tokens", b"1e999", MAX_TOKENS),
        ("max_tokens", b"-1e999", None),
        ("max_tokens", b"1" * 5000, MAX_TOKENS),
        ("options", b'{"num_predict":1e999}', MAX_TOKENS),
        ("options", b'{"num_predict":1,"a":"' + b"a" * (1 << 18) + b'"}', MAX_TOKENS),
        ("max_tokens", b"-" + b"1" * (1 << 18), None),
        ("options", b'{"num_predict":1,"a":' + b"[" * 5000 + b"]" * 5000 + b"}", MAX_TOKENS),
    ],
    ids=str,
)
def test_a_limit_that_cannot_be_read_is_the_largest(
    field: str, value: bytes, expected: int | None
) -> None:
    assert output_limit({"max_tokens": 5, field: Raw(value)}) == expected


@each_case(
    ("operation", "fields", "expected"),
    [
        ("chat", {}, 1),
        ("chat", {"n": 8}, 8),
        ("chat", {"n": "8"}, 8),
        ("chat", {"n": 7.5}, 8),
        ("chat", {"n": -3}, 1),
        ("chat", {"n": 0}, 1),
        ("chat", {"n": 10**30}, MAX_TOKENS),
        ("chat", {"n": 10**400}, MAX_TOKENS),
        ("completions", {"prompt": ["x", "y"], "best_of": 10**400}, MAX_TOKENS),
        ("chat", {"generationConfig": {"candidateCount": 4}}, 4),
        ("completions", {"prompt": "x", "n": 2, "best_of": 5}, 5),
        ("completions", {"prompt": "x", "n": 5, "best_of": 2}, 5),
        ("completions", {"prompt": ["x", "y", "z"], "n": 2}, 6),
        ("completions", {"prompt": [1, 2, 3]}, 1),
        ("completions", {"prompt": [[1, 2], [3]]}, 2),
        ("completions", {"prompt": []}, 1),
        ("chat", {"input": ["x", "y"]}, 1),
    ],
)
def test_answers_are_multiplied(
    operation: Operation, fields: dict[str, Any], expected: int
) -> None:
    assert answer_count(sent(operation, **fields)) == expected
