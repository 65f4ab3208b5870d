"""Checks of answers: whether they fit a JSON schema, call a tool rightly, or have expected words.

An answer is checked when its request has ended, so a check is part of no figure of that request.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from splitsecond.benchmark.workload.prompt_files import PromptFile
from splitsecond.core.errors import CallerFault, content_faults, file_faults
from splitsecond.core.events import Broken, Event, Token

INSTALL = "pip install 'splitsecond[schema]'"
_WORD = re.compile(r"\w+(?:[.,]\d+)*")


class AnswerChecks(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What every answer must be: JSON of `schema`, or calls of `tools` with arguments of their
    schemas. `expected`: the words that the answer to each prompt must have."""

    schema: dict[str, Any] | None = None
    tools: list[dict[str, Any]] = []
    expected: list[str] = []

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a request that ask for such answers."""
        fields: dict[str, Any] = {}
        if self.schema is not None:
            form = {"name": "answer", "schema": self.schema, "strict": True}
            fields["response_format"] = {"type": "json_schema", "json_schema": form}
        if self.tools:
            fields |= {"tools": self.tools, "tool_choice": "required"}
        return fields


class AnswerChecker:
    """Checks the answers of a run. Raises `CallerFault` for an invalid schema, or if the
    library for schemas is missing."""

    def __init__(self, checks: AnswerChecks) -> None:
        self._expected = [_words(text) for text in checks.expected]
        self._fits = None if checks.schema is None else _fitting(checks.schema)
        self._tools = {
            each["function"]["name"]: _fitting(each["function"].get("parameters") or {})
            for each in checks.tools
        }

    def is_valid(self, events: Sequence[Event], number: int) -> bool | None:
        """Return whether the answer to the prompt `number` is valid; None if it is not complete."""
        if events and isinstance(events[-1], Broken):
            return None
        text, calls = answer_of(events)
        if self._fits is not None and not _is_json(text, self._fits):
            return False
        if self._tools and not (calls and all(map(self._is_rightly_called, calls))):
            return False
        return not self._expected or self._expected[number % len(self._expected)] in _words(text)

    def _is_rightly_called(self, call: dict[str, Any]) -> bool:
        fits = self._tools.get(call["function"]["name"])
        return fits is not None and _is_json(call["function"]["arguments"], fits)


def _is_json(text: str, fits: Callable[[Any], bool]) -> bool:
    try:
        return fits(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def _fitting(schema: dict[str, Any]) -> Callable[[Any], bool]:
    try:
        import jsonschema  # an extra, and its import is slow
    except ImportError as error:
        raise CallerFault(
            "answers are checked by a schema only with the library jsonschema",
            kind="missing_library",
            hint=INSTALL,
        ) from error
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise CallerFault(f"not a JSON schema: {error.message}", kind="bad_schema") from error
    valid: Callable[[Any], bool] = kind(schema).is_valid
    return valid


def _words(text: str) -> str:
    """Return the words of a text between spaces, so that one text can be searched in another."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "


def answer_of(events: Sequence[Event]) -> tuple[str, list[dict[str, Any]]]:
    """Return the text of an answer, and its calls of tools."""
    text: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    for event in events:
        if not isinstance(event, Token) or event.index:
            continue
        if event.kind == "text":
            text.append(event.text)
        elif event.kind == "tool" and (part := event.tool) is not None:
            call = calls.setdefault(
                part.number,
                {
                    "id": part.id or f"call_{part.number}",
                    "type": "function",
                    "function": {"name": "", "arguments": ""},
                },
            )
            call["function"]["name"] += part.name
            call["function"]["arguments"] += event.arguments
    return "".join(text), list(calls.values())


class _Function(Struct):
    name: str
    parameters: dict[str, Any] | None = None


class _Tool(Struct):
    function: _Function


class _Question(Struct):
    question: str
    answer: str


def read_checks(schema: Path | None, tools: Path | None) -> AnswerChecks | None:
    """Read a JSON schema, and a list of tools in OpenAI's form; None without either. Raises
    `CallerFault`."""
    if schema is None and tools is None:
        return None
    offered: list[dict[str, Any]] = []
    if tools is not None:
        offered = _json_file(tools, list[dict[str, Any]])
        with content_faults(str(tools), kind="bad_tools"):
            if not msgspec.convert(offered, list[_Tool]):
                raise msgspec.ValidationError("expected at least one tool, got none")
    checks = AnswerChecks(
        schema=None if schema is None else _json_file(schema, dict[str, Any]), tools=offered
    )
    AnswerChecker(checks)  # finds what is wrong before the run begins
    return checks


def _json_file(path: Path, kind: Any) -> Any:
    with file_faults(f"cannot read {path}", kind="bad_schema"):
        data = path.read_bytes()
    with content_faults(str(path), kind="bad_schema"):
        return msgspec.json.decode(data, type=kind)


def read_questions(path: Path) -> tuple[PromptFile, list[str]]:
    """Read JSON lines with "question" and "answer". Return the prompts and the expected answers.
    Raises `CallerFault`."""
    with file_faults(f"cannot read the questions {path}", kind="bad_check"):
        lines = path.read_bytes().splitlines()
    questions: list[_Question] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            hint = 'Each line is {"question": "...", "answer": "..."}.'
            with content_faults(f"{path}:{number}", kind="bad_check", hint=hint):
                questions.append(msgspec.json.decode(line, type=_Question))
    expected = [each.answer for each in questions]
    if not all(_words(text).strip() for text in expected) or not questions:
        raise CallerFault(f"{path}: every question needs an answer with words", kind="bad_check")
    prompts = [{"messages": [{"role": "user", "content": each.question}]} for each in questions]
    return PromptFile(prompts=prompts, format="questions"), expected
