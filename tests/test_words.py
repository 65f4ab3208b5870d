"""Retired words: the source, tests, documents, benchmarks and the help of the commands contain none
of them.

`docs/glossary.md` has the terms to use instead. `python -m tests.test_words` lists the hits by
room.
"""

import io
import keyword
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cases import each_case

from splitsecond.cli.app import app
from splitsecond.routing.configuration.file_schema import schema

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/splitsecond"
TEXTS = {".py", ".toml", ".js", ".html", ".css", ".md", ".j2", ".txt"}
MAX_TEST_NAME = 60
PAGES = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")

PHRASES = (
    # Riddles and inverted sentences
    "whoever", "whosoever", "whomever", "who asks", "asks for a "
    "model that", "that is none", "what is none",
    "is none of", "none of its", "none of the "
    "client's", "nobody's", "whom it", "hardly", "borne", "bears",
    "as it were", "of "
    "one's own", "in force", "goes on with", "go on with", "thereby", "beneath", "soon enough",
    "whose turn", "cannot but", "for who "
    "runs", "it is told", "what is said", "is said", "are said", "was said",
    "were "
    "said", "is told", "are told", "was told", "were "
    "told", "be told", "been told", "told so", "told "
    "again",
    "nobody tells",
    # Everyday words for technical terms
    "under way", "brought over", "brought "
    "up when", "broke off", "broken off", "becomes of", "became of",
    "kept connection", "not ill", "is ill", "how far to think", "how hard "
    "to press", "what is enough", "more figures",
    "what gives first", "surely what", "fall out", "falls out", "too few "
    "requests for p95", "retelling", "teller",
    "discreet", "discretion", "the books", "the crew", "thoughts", "knows its "
    "own error", "where the "
    "timing says",
    "yardstick", "in the place "
    "of those", "turned out closed", "became no call", "goes out before", "hardly meant",
)  # fmt: skip
"""In comments, docstrings, strings and documents. Between the words may be a line break."""

CLASSES = (
    "Visit", "Door", "Way", "Books", "Page", "Served", "Tally", "Seat", "Asked", "Stand",
    "Standing", "Described",
    "Facts", "Glance", "Story", "Told", "Retold", "Appended", "Recording", "Playback", "Retelling",
    "Teller",
    "Happening", "Terms", "Prelude", "Unread", "Gatherer", "Home", "Alarms", "Crew", "Member",
    "Climb", "Ledger",
    "Yardstick", "Spread", "Contrast", "Line", "Health",
)  # fmt: skip
"""Names in code, and in `backticks`."""

NAMES = (
    "wishes", "hire", "teach", "interpreter", "standing", "visit", "teller", "crew", "discreet",
    "discretion", "tally",
    "happening", "prelude", "gatherer", "playback", "retelling", "yardstick", "told", "retold",
    "under_way", "borne",
    "thoughts", "books", "relay_others", "assemble_others", "relay_other", "asked_by", "stands",
    "climb",
)  # fmt: skip
"""Names of functions, parameters, attributes and modules, exactly or as the part of a name between
underscores."""

INTERFACE = {"takes_thoughts", "thoughts_token_count", "include_thoughts"}
"""Names in files of users and in the APIs of providers."""

IN_TESTS = {"Page"}
"""Names that tests may use: `Page` is a page of HTML or of a browser."""

EXEMPT = {("tests/analysis/test_gate.py", "5 %"): "an input that the parser of gates accepts"}
"""Hits that must stay, by file and text, with the reason."""

GAP = r"(?:[\s#]|[\"'] *\n\s*f?[\"'])+"
"""Between two words of a phrase: spaces, a line break with the next comment mark, or two adjacent
strings."""


@cache
def _phrase(text: str) -> re.Pattern[str]:
    """Return the pattern of a phrase. It begins with a plain word, which Python searches fast."""
    first, *others = map(re.escape, text.split())
    return re.compile(GAP.join([rf"{first}(?<![\w-]{first})", *others]) + r"(?![\w-])")


WORDS = {phrase: phrase.split() for phrase in PHRASES}


def phrases_in(text: str) -> list[re.Match[str]]:
    """Return the retired phrases in a text in lower case: to ignore the case takes several times as
    long."""
    return [
        found
        for phrase, words in WORDS.items()
        if all(word in text for word in words)
        for found in _phrase(phrase).finditer(text)
    ]


PERCENT = re.compile(r"\d[ \u00a0]%(?![\w.]|\s*\()")
NAME = re.compile(r"[A-Za-z_]\w*")
CODE_SPAN = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
TEST_NAME = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
DIALECT = re.compile(r"\bdialects?\b", re.IGNORECASE)
LIMIT = re.compile(r"_?(?:MOST|LEAST)(?:_|$)")
"""Names of limits that are called MAX_ and MIN_ instead."""


@cache
def files() -> dict[str, list[Path]]:
    """Return the files to check, by room."""
    found: dict[str, list[Path]] = {}
    for path in sorted(p for p in SOURCE.rglob("*") if p.suffix in TEXTS):
        parts = path.relative_to(SOURCE).parts
        if parts[:2] == ("testing", "streams") and path.suffix == ".toml":
            continue  # recorded bytes
        found.setdefault(parts[0] if len(parts) > 1 else "vocabulary", []).append(path)
    found["docs"] = [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / page for page in PAGES)]
    found["benchmarks"] = sorted((ROOT / "benchmarks").glob("*.py"))
    # this file lists the words
    found["tests"] = [path for path in files_of_tests() if path != Path(__file__)]
    return found


def files_of_tests() -> list[Path]:
    """Return the Python files of the tests."""
    return sorted((ROOT / "tests").rglob("*.py"))


def prose_and_names(text: str) -> tuple[str, list[tuple[str, int]]]:
    """Return a Python file with everything but strings and comments blanked, and its names with
    their lines."""
    lines = [" " * len(line) for line in text.splitlines()]
    names = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "NAME" and not keyword.iskeyword(token.string):
            names.append((token.string, token.start[0]))
        elif kind in ("STRING", "COMMENT", "FSTRING_MIDDLE"):
            row, column = token.start
            for offset, part in enumerate(token.string.split("\n")):
                at = column if offset == 0 else 0
                line = lines[row - 1 + offset]
                lines[row - 1 + offset] = line[:at] + part + line[at + len(part) :]
    return "\n".join(lines), names


@cache
def is_retired(name: str) -> bool:
    """Return whether a name of code, or one of its parts, is retired."""
    if name in INTERFACE:
        return False
    return (
        name in CLASSES
        or LIMIT.match(name) is not None
        or any(part in NAMES or f"_{part}" in NAMES for part in (name, *name.split("_")))
    )


def may_have_hits(text: str, allowed: set[str]) -> bool:
    """Return whether a Python file must be divided into tokens, which takes most of the time."""
    patterns = phrases_in(text.lower()) or PERCENT.search(text)
    return bool(patterns) or any(map(is_retired, {*NAME.findall(text)} - allowed))


def hits_in(path: Path) -> Iterator[tuple[int, str]]:
    """Return the line and the text of each hit in a file."""
    text = path.read_text("utf-8")
    allowed = IN_TESTS if path.is_relative_to(ROOT / "tests") else set()
    if path.suffix == ".py" and not may_have_hits(text, allowed):
        return
    prose, names = (text, []) if path.suffix != ".py" else prose_and_names(text)
    in_lower_case = prose.lower()
    for found in (*phrases_in(in_lower_case), *PERCENT.finditer(in_lower_case)):
        yield (
            prose.count("\n", 0, found.start()) + 1,
            " ".join(prose[found.start() : found.end()].split()),
        )
    for name, line in names:
        if is_retired(name) and name not in allowed:
            yield line, name
    if path.suffix == ".md":
        for span in CODE_SPAN.finditer(text):
            line = text.count("\n", 0, span.start()) + 1
            if not span[0].startswith("```"):
                yield from ((line, name) for name in NAME.findall(span[0]) if is_retired(name))
        for found in DIALECT.finditer(text):
            yield text.count("\n", 0, found.start()) + 1, found[0]


def hits(room: str) -> list[str]:
    """Return each hit of a room as `file:line: text`."""
    found = (
        (str(path.relative_to(ROOT)), line, text)
        for path in files()[room]
        for line, text in sorted(set(hits_in(path)))
    )
    return [f"{path}:{line}: {text}" for path, line, text in found if (path, text) not in EXEMPT]


def long_test_names(path: Path) -> Iterator[tuple[int, str]]:
    """Return the line and the name of each test whose name is too long."""
    text = path.read_text("utf-8")
    for found in TEST_NAME.finditer(text):
        if len(found[1]) > MAX_TEST_NAME:
            yield text.count("\n", 0, found.start()) + 1, found[1]


def all_long_test_names() -> list[str]:
    """Return each test whose name is too long as `file:line: name`."""
    return [
        f"{path.relative_to(ROOT)}:{line}: {len(name)} characters: {name}"
        for path in files_of_tests()
        for line, name in long_test_names(path)
    ]


def help_texts(command: Any, name: str) -> Iterator[tuple[str, str]]:
    """Return the help of a command and of its options, with the command's name."""
    yield name, f"{command.help or ''} [{getattr(command, 'rich_help_panel', '')}]"
    for parameter in command.params:
        yield (
            name,
            f"{getattr(parameter, 'help', '')} [{getattr(parameter, 'rich_help_panel', '')}]",
        )
    for inner, child in getattr(command, "commands", {}).items():
        yield from help_texts(child, f"{name} {inner}")


def schema_texts(node: Any, place: str) -> Iterator[tuple[str, str]]:
    """Return the descriptions of the configuration's JSON schema, with their places."""
    for key, value in (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    ):
        if key == "description" and isinstance(value, str):
            yield place, value
        yield from schema_texts(value, f"{place}.{key}")


def help_hits() -> list[str]:
    """Return each hit in the help of the commands and in the schema of the configuration."""
    texts = [
        *help_texts(typer.main.get_command(app), "splitsecond"),
        *schema_texts(schema(), "schema"),
    ]
    return [
        f"{name}: {hit[0]} in: {' '.join(text.split())[:100]}"
        for name, text in texts
        for lower in [text.lower()]
        for hit in (
            *phrases_in(lower),
            *PERCENT.finditer(lower),
            *DIALECT.finditer(lower),
        )
    ]


def fail_with(found: list[str]) -> None:
    """Fail with all of `found`, each on its line, if there are any."""
    if found:
        pytest.fail("\n".join([f"{len(found)} hits:", *found]), pytrace=False)


@each_case("room", files())
def test_no_retired_words(room: str) -> None:
    fail_with(hits(room))


def test_no_retired_words_in_the_help() -> None:
    fail_with(help_hits())


def test_names_of_tests_have_at_most_60_characters() -> None:
    fail_with(all_long_test_names())


def test_each_exemption_is_needed() -> None:
    unused = [
        f"{file}: {text}"
        for file, text in EXEMPT
        if text not in {hit for _, hit in hits_in(ROOT / file)}
    ]
    fail_with(unused)


def test_long_names_of_tests_are_found(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    name = "test_" + "a" * (MAX_TEST_NAME - 5)
    file.write_text(f"def {name}(): ...\nclass A:\n    async def {name}b(self): ...\n")
    assert list(long_test_names(file)) == [(3, f"{name}b")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""Requests that are under\n    way."""\n', [(1, "under way")]),
        ("# Whoever calls\n# this is\n# told nothing.\n", [(1, "Whoever"), (2, "is # told")]),
        (
            'x = (\n    "what is "\n    "said here"\n)\n',
            [(2, 'is " "said'), (2, 'what is " "said')],
        ),
        ("x = 5 % 3  # 95 % of them\n", [(1, "5 %")]),
        ("class Teller:\n    pass\n", [(1, "Teller")]),
        ("def f(standing, my_tally): ...\n", [(1, "standing"), (1, "my_tally")]),
        ("# The target state, in flight, is closed.\nx = 5 % 3\n", []),
    ],
)
def test_hits_are_found_across_line_breaks_and_in_names(
    tmp_path: Path, text: str, found: list[tuple[int, str]]
) -> None:
    file = tmp_path / "file.py"
    file.write_text(text)
    assert sorted(hits_in(file)) == sorted(found)


def test_documents_call_an_api_format_by_no_other_name(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text("Set `api_format`.\nEach dialect.\n")
    assert list(hits_in(file)) == [(2, "dialect")]


def _report(found: Iterable[tuple[str, list[str]]], *, listed: bool) -> int:
    total = 0
    for room, lines in found:
        total += len(lines)
        print(f"{len(lines):5} {room}")
        if listed:
            print("".join(f"      {line}\n" for line in lines), end="")
    print(f"{total:5} in all")
    return 1 if total else 0


if __name__ == "__main__":
    wanted = [name for name in sys.argv[1:] if not name.startswith("-")]
    rooms = [(room, hits(room)) for room in files() if not wanted or room in wanted]
    if not wanted or "help" in wanted:
        rooms.append(("help", help_hits()))
    if not wanted or "names" in wanted:
        rooms.append(("names", all_long_test_names()))
    sys.exit(_report(rooms, listed=bool(wanted) or "-v" in sys.argv))
