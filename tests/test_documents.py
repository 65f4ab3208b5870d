"""Documents: each link leads to a file, each module that they name exists, and each command that
they show can be read.

`tests/pages.py` has the test that runs each block.
"""

import re
import shlex
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cases import each_case

from splitsecond.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "examples/README.md",
)
DOCUMENTS = [ROOT / name for name in PAGES]
DOCUMENTS += sorted((ROOT / "docs").rglob("*.md"))
COMMAND = re.compile(r"^(?:\$ )?splitsecond ((?:.*\\\n)*.*)$", re.MULTILINE)
BLOCK = re.compile(r"^```(?:sh|console)?(?: [^\n]*)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
MODULE = re.compile(r"`((?:[a-z_]+/)+[a-z_*]*(?:\.[a-z]+)?)`")
"""A path of lower-case names, such as `routing/targets` or `benchmarks/instrument.py`."""
SOURCE = ROOT / "src/splitsecond"
PACKAGES = [path.parent for path in SOURCE.glob("*/__init__.py")]
ROOMS = [path.parent for path in SOURCE.glob("*/*/__init__.py")]
FOLDERS = {path.name for path in (*PACKAGES, *ROOMS)} | {"benchmarks", "tests", "docs"}


@each_case("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document: Path) -> None:
    links = LINK.findall(document.read_text("utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


@each_case("document", DOCUMENTS, ids=lambda path: path.name)
def test_modules_that_are_named_exist(document: Path) -> None:
    named = [
        name
        for name in MODULE.findall(document.read_text("utf-8"))
        if name.split("/")[0] in FOLDERS
    ]
    assert [name for name in named if not _exists(name)] == []


def test_the_architecture_names_each_room() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    assert len(ROOMS) > 20
    assert [room.name for room in ROOMS if not re.search(rf"\b{room.name}/`", text)] == []
    assert [
        package.name for package in PACKAGES if not re.search(rf"\b{package.name}[/`]", text)
    ] == []


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    """`make docs` fails otherwise."""
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    listed = re.findall(
        r"[: ]([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE
    )
    assert sorted(listed) == sorted(pages)


def _exists(name: str) -> bool:
    for folder in (SOURCE, *PACKAGES, ROOT):
        if any(folder.glob(name.rstrip("/"))) or any(folder.glob(f"{name}.py")):
            return True
    return False


@each_case("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_that_are_shown_can_be_read(
    document: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    root: Any = typer.main.get_command(app)
    for block in BLOCK.findall(document.read_text("utf-8")):
        for command in COMMAND.findall(block):
            words = _words(command)
            if words and words[0] in root.commands:
                _read(root.commands[words[0]], words)
            else:
                assert not words or words[0].startswith("--"), (
                    f"{document.name}: splitsecond {command}"
                )


def _words(command: str) -> list[str]:
    """Return the words of a command, up to a pipe or a second command."""
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    return list(takewhile(lambda word: word not in ("|", "&&", ">", "2>/dev/null"), words))


def _read(command: Any, words: list[str]) -> None:
    """Fail if the options are unknown or have values of another type."""
    try:
        command.make_context(words[0], words[1:], resilient_parsing=False)
    except SystemExit:  # --help, --version
        return
    except Exception as error:
        if type(error).__name__ != "Exit":
            pytest.fail(f"splitsecond {shlex.join(words)}: {error}")
