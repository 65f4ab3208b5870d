"""docs/clients.md names the clients that the tests run, with the versions that they are pinned
to."""

import json
import re
from pathlib import Path

from tests.clients.test_clients import FEATURES, JAVASCRIPT, PYTHON
from tests.golden import Golden

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "clients.md"
WORDS = {
    "text": "text",
    "stream": "stream",
    "tools": "tool loop",
    "structured": "structured output",
    "error": "errors",
    "cancel": "cancellation",
}
PATHS = {
    "langchain-openai": "/v1/chat/completions",
    "langchain-anthropic": "/v1/messages",
    "pydantic-ai with openai": "/v1/chat/completions",
    "pydantic-ai with anthropic": "/v1/messages",
    "openai-agents": "/v1/responses",
    "litellm with openai": "/v1/chat/completions",
    "litellm with anthropic": "/v1/messages",
    "openai": "/v1/chat/completions",
    "@anthropic-ai/sdk": "/v1/messages",
    "ai with @ai-sdk/openai": "/v1/chat/completions",
    "ai with @ai-sdk/openai, responses": "/v1/responses",
    "ai with @ai-sdk/anthropic": "/v1/messages",
}
PACKAGES = {"pydantic-ai": "pydantic-ai-slim"}
"""Packages that have another name than the client."""


def pinned(file: str) -> dict[str, str]:
    """The versions in a file of requirements."""
    return dict(
        re.findall(r"^([a-z0-9._-]+)==(\S+)$", (ROOT / file).read_text("utf-8"), re.MULTILINE)
    )


def locked() -> dict[str, str]:
    """The versions of the packages in JavaScript."""
    lock = json.loads((ROOT / "tests/clients/package-lock.json").read_text("utf-8"))
    wanted: dict[str, str] = lock["packages"][""]["dependencies"]
    found = {name: lock["packages"][f"node_modules/{name}"]["version"] for name in wanted}
    assert found == wanted, "package-lock.json is of another package.json"
    return found


def row(client: str, language: str, versions: dict[str, str]) -> str:
    names = re.split(r" with |, ", client.replace(", responses", ""))
    shown = " with ".join(f"`{name}`" for name in names)
    version = ", ".join(versions[PACKAGES.get(name, name)] for name in names)
    return f"| {shown} for {language} | {version} | `{PATHS[client]}` |"


def test_the_table_of_further_clients_is_current(golden: Golden) -> None:
    python, javascript = pinned("tests/clients/requirements.txt"), locked()
    rows = [row(client, "Python", python) for client in PYTHON]
    rows += [row(client, "JavaScript", javascript) for client in JAVASCRIPT]
    table = "".join(f"{line}\n" for line in ("| client | version | path |", "|---|---|---|", *rows))
    before, rest = PAGE.read_text("utf-8").split("<!-- clients -->\n")
    _, after = rest.split("<!-- end -->\n")
    page = f"{before}<!-- clients -->\n{table}<!-- end -->\n{after}"
    if golden.update:
        PAGE.write_text(page, "utf-8")
    assert PAGE.read_text("utf-8") == page, (
        "docs/clients.md is not current: run with --update-golden"
    )


def test_the_page_names_the_features_of_further_clients() -> None:
    assert (
        f"Each of them is tested with {', '.join(WORDS[feature] for feature in FEATURES)}"
        in PAGE.read_text("utf-8")
    )


def test_library_versions_on_the_page_are_those_of_the_tests() -> None:
    table = PAGE.read_text("utf-8").partition("<!-- clients -->")[0]
    named = dict(
        re.findall(r"^\| `([a-z-]+)`(?: for Python)? \| ([0-9.]+) \|", table, re.MULTILINE)
    )
    versions = pinned("constraints.txt")
    assert {"openai", "anthropic", "google-genai", "ollama"} <= named.keys()
    assert named == {name: versions[name] for name in named}


def test_the_environment_is_pinned_and_complete() -> None:
    python = pinned("tests/clients/requirements.txt")
    wanted = (ROOT / "tests/clients/requirements.in").read_text("utf-8").split()
    assert {name.partition("[")[0] for name in wanted} <= python.keys()
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (newest,) = re.findall(r"^NPM_CLIENTS := (.+)$", makefile, re.MULTILINE)
    assert newest.split() == sorted(locked())
