"""Prompts from a file, whose format is recognised by the content.

A conversation of ShareGPT gives its first question, after its system message if it has one. Fields
beside `messages` are fields of the request. Of those beside `prompt` only the length of the
response is kept, because data sets have fields of their own there. A file may be larger than
memory: it is read piece by piece.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import msgspec
from msgspec import Struct

from splitsecond.benchmark.workload.input_lines import numbered_lines
from splitsecond.core.compressed_file import open_bytes
from splitsecond.core.errors import PARSER_ERRORS, CallerFault, file_faults, parser_words
from splitsecond.core.json_array import CHUNK, ArrayElements, ArrayError
from splitsecond.core.wording import counted_as

LENGTH_FIELDS = ("max_tokens", "max_completion_tokens")
OURS = ("model", "stream", "stream_options")
"""Fields that a measurement sets itself; those of a recorded request in a prompts file are
dropped."""
MAX_PROMPTS = 10_000
MAX_BYTES = 1 << 25
"""Most bytes of all prompts together, because every worker process holds them."""
LONGEST = 1 << 24
FORMATS = (
    'Known are JSON lines ({"prompt": "..."} or {"messages": [...]}), the JSON files of ShareGPT, '
    "and plain text with "
    "one prompt a line."
)
_MESSAGES = re.compile(rb'\[\s*\{\s*"(?:role|content)"\s*:')
"""The beginning of a list of messages. Such a list is one request, not an array of requests."""


class PromptFile(Struct, frozen=True, kw_only=True):
    """The request bodies of a file. `complete`: whether it has no others. `skipped`: conversations
    without question."""

    prompts: list[dict[str, Any]]
    format: str
    complete: bool = True
    skipped: int = 0

    def in_words(self, name: str) -> str:
        count = counted_as(len(self.prompts), "prompt")
        left_out = (
            f"; {counted_as(self.skipped, 'conversation')} without a question left out"
            if self.skipped
            else ""
        )
        return f"{name} ({self.format}): {'' if self.complete else 'the first '}{count}{left_out}."


class ConversationTurn(Struct):
    """One turn of a conversation of ShareGPT. Newer files name its fields as OpenAI does."""

    sender: str = msgspec.field(name="from", default="")
    value: str | None = None
    role: str = ""
    content: str | None = None

    def __post_init__(self) -> None:
        if not self.speaker:
            raise ValueError("a turn has neither `from` nor `role`")

    @property
    def speaker(self) -> str:
        return self.sender or self.role

    @property
    def text(self) -> str | None:
        return self.content if self.value is None else self.value


class _Message(Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None


def read_prompts(path: Path) -> PromptFile:
    """Read the prompts in a file. Raises `CallerFault` with the line for one that is not
    understood."""
    with (
        file_faults(f"cannot read the prompts {path}", kind="bad_prompts"),
        open_bytes(path) as file,
    ):
        return parse_prompts(file, str(path))


def parse_prompts(file: BinaryIO, name: str) -> PromptFile:
    """Parse the prompts in a file that is open at its beginning. Raises `CallerFault` with
    `name`:line."""
    beginning = file.read(CHUNK).removeprefix(b"\xef\xbb\xbf").lstrip()
    file.seek(0)
    if beginning.startswith(b"[") and not _MESSAGES.match(beginning):
        return _collected(name, "JSON", _elements(file, name), _request)
    lines = numbered_lines(file, name, LONGEST, "bad_prompts", FORMATS)
    if beginning.startswith((b"{", b"[")):
        return _collected(
            name, "JSON lines", lines, lambda line: _request(msgspec.json.decode(line))
        )
    return _collected(name, "plain text", lines, _plain)


def _collected(
    name: str,
    kind: str,
    items: Iterable[tuple[int, Any]],
    request: Callable[[Any], dict[str, Any] | None],
) -> PromptFile:
    prompts: list[dict[str, Any]] = []
    skipped = size = 0
    for number, item in items:
        try:
            prompt = request(item)
            size += len(msgspec.json.encode(prompt)) if prompt is not None else 0
        except PARSER_ERRORS as error:
            _refuse(name, number, parser_words(error))
        if prompt is None:
            skipped += 1
            continue
        if len(prompts) == MAX_PROMPTS or (prompts and size > MAX_BYTES):
            return PromptFile(prompts=prompts, format=kind, complete=False, skipped=skipped)
        prompts.append(prompt)
    if not prompts:
        raise CallerFault(
            f"{name}: no prompt found, expected one a line", kind="bad_prompts", hint=FORMATS
        )
    return PromptFile(prompts=prompts, format=kind, skipped=skipped)


def _refuse(name: str, line: int, why: str) -> NoReturn:
    raise CallerFault(f"{name}:{line}: {why}", kind="bad_prompts", hint=FORMATS)


def _plain(line: str) -> dict[str, Any]:
    if not line.replace("\t", " ").isprintable():
        raise msgspec.ValidationError("the line has control characters, so this is no text file")
    return _question(line)


def _question(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def _request(decoded: Any) -> dict[str, Any] | None:
    fields = {"messages": decoded} if isinstance(decoded, list) else decoded
    if not isinstance(fields, dict) or not fields.keys() & {"messages", "prompt", "conversations"}:
        raise msgspec.ValidationError(
            'expected a list of messages, or an object with "messages", "prompt" or "conversations"'
        )
    if "messages" in fields:
        if not msgspec.convert(fields["messages"], list[_Message]):
            raise msgspec.ValidationError("expected at least one message, got none")
        return {field: value for field, value in fields.items() if field not in OURS}
    if "prompt" in fields:
        lengths = {field: fields[field] for field in LENGTH_FIELDS if field in fields}
        return _question(msgspec.convert(fields["prompt"], str)) | msgspec.convert(
            lengths, dict[str, int]
        )
    return _opening(msgspec.convert(fields["conversations"], list[ConversationTurn]))


def _opening(turns: list[ConversationTurn]) -> dict[str, Any] | None:
    """Return the first question of a conversation, with a system message before it; None if there
    is no question."""
    question = next(
        (turn.text for turn in turns if turn.speaker in ("human", "user") and turn.text), None
    )
    if question is None:
        return None
    system = [turn.text for turn in turns[:1] if turn.speaker == "system" and turn.text]
    return {
        "messages": [{"role": "system", "content": text} for text in system]
        + _question(question)["messages"]
    }


def _elements(file: BinaryIO, name: str) -> Iterator[tuple[int, Any]]:
    try:
        for line, element in ArrayElements(io.TextIOWrapper(file, "utf-8-sig"), LONGEST):
            if not isinstance(element, dict | list):
                _refuse(name, line, "expected an object")
            yield line, element
    except ArrayError as error:
        _refuse(name, error.line, str(error))
