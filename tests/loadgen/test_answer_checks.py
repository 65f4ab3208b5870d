"""Checks of answers: schemas, calls of tools, expected words."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cases import each_case

from splitsecond.benchmark.workload.answer_checks import (
    AnswerChecker,
    AnswerChecks,
    read_checks,
    read_questions,
)
from splitsecond.core.errors import CallerFault, ProviderFault
from splitsecond.core.events import Broken, Done, Event, Token, ToolPart

SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]


def said(*texts: str) -> list[Event]:
    return [*(Token(0, text) for text in texts), Done(0, True)]


def called(name: str, *fragments: str) -> list[Event]:
    first, *others = fragments
    events: list[Event] = [Token(0, name + first, "tool", tool=ToolPart(0, "c", name))]
    return [*events, *(Token(0, each, "tool", tool=ToolPart(0)) for each in others)]


@each_case(
    ("events", "valid"),
    [
        (said('{"age"', ": 3}"), True),
        (said('{"age": "3"}'), False),
        (said('{"age": 3'), False),
        (said("Three."), False),
        ([Broken(0, ProviderFault("gone", kind="truncated", phase="between tokens"))], None),
    ],
)
def test_answer_is_valid_if_it_fits_the_schema(events: list[Event], valid: bool | None) -> None:
    assert AnswerChecker(AnswerChecks(schema=SCHEMA)).is_valid(events, 0) is valid


@each_case(
    ("events", "valid"),
    [
        (called("weather", '{"age":', "3}"), True),
        (called("weather", "{}"), False),
        (called("other", '{"age":3}'), False),
        (said('{"age": 3}'), False),
    ],
)
def test_tool_call_is_right_by_name_and_arguments(events: list[Event], valid: bool) -> None:
    assert AnswerChecker(AnswerChecks(tools=TOOLS)).is_valid(events, 0) is valid


@each_case(
    ("text", "number", "valid"),
    [
        ("It is PARIS, of course.", 0, True),
        ("It is Parisian.", 0, False),
        ("Paris", 1, False),
        ("That is 4.", 1, True),
        ("That is 4.5", 1, False),
        ("That is 4.", 3, True),
    ],
)
def test_expected_words_are_found_as_whole_words(text: str, number: int, valid: bool) -> None:
    checker = AnswerChecker(AnswerChecks(expected=["Paris", "4"]))
    assert checker.is_valid(said(text), number) is valid


def test_questions_are_prompts_with_expected_answers(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "2 + 2?", "answer": "4"}\n\n')
    prompts, expected = read_questions(path)
    assert prompts.prompts == [{"messages": [{"role": "user", "content": "2 + 2?"}]}]
    assert expected == ["4"]


@pytest.mark.parametrize("text", ["", '{"question": "2 + 2?"}', '{"question": "a", "answer": "!"}'])
def test_questions_without_answers_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(text)
    with pytest.raises(CallerFault, match=r"q\.jsonl"):
        read_questions(path)


@pytest.mark.parametrize("value", [{"type": "thing"}, [], "{"])
def test_file_that_is_no_schema_is_refused(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "schema.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    with pytest.raises(CallerFault):
        read_checks(path, None)


def test_requests_ask_for_what_is_checked() -> None:
    form = AnswerChecks(schema=SCHEMA).fields["response_format"]
    assert form["json_schema"]["schema"] == SCHEMA
    assert AnswerChecks(tools=TOOLS).fields == {"tools": TOOLS, "tool_choice": "required"}
