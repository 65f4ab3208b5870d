"""The fenced blocks of README and the documents, and how each is tested.

`tests/test_tutorials.py` runs each block, unless `ELSEWHERE` names the test that does, or `NOT_RUN`
the reason why no test can. `tests/test_blocks.py` fails if a block is in none of them.
"""

import re
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r'^```(\w*)(?: title="([^"\n]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
SHELL = ("sh", "console")
RUN = (*SHELL, "python", "sql", "text")
"""The kinds of blocks that run, or whose text is compared. A block of another kind needs a title:
the file's name."""

ELSEWHERE = {
    ("README", "python"): "tests/api/test_document.py",
    ("README", "yaml"): "tests/gateway/test_documents.py",
    ("docs/add-a-provider", "toml"): "tests/catalog/test_provider_file.py",
    ("docs/agents", "yaml"): "tests/gateway/test_documents.py",
    ("docs/clients", "toml"): "tests/clients/test_codex.py",
    ("docs/deployment", "sh"): "tests/deploy/test_document.py",
    ("docs/deployment", "yaml"): "tests/deploy/test_document.py",
    ("docs/fleet", "yaml"): "tests/gateway/test_documents.py",
    ("docs/gateway", "sql"): "tests/gateway/test_documents.py",
    ("docs/gateway", "yaml"): "tests/gateway/test_documents.py",
    ("docs/policies", "python"): "tests/gateway/test_documents.py",
    ("docs/policies", "yaml"): "tests/gateway/test_documents.py",
    ("docs/python", "python"): "tests/api/test_document.py",
    ("docs/sweeps", "toml"): "tests/runs/test_server_sweep.py",
    ("docs/simulator", "python"): "tests/simulator/test_document.py",
    ("docs/simulator", "toml"): "tests/simulator/test_document.py",
}
"""Which other test reads the blocks of a page and a kind."""

INSTALLING = {
    "make demo": "installs into .venv; tests/test_installed.py runs "
    "`splitsecond demo` of the wheel",
    ". .venv/bin/activate": "the tests run in that environment",
}
NOT_RUN = {
    "README": {
        **INSTALLING,
        "make test": "runs this suite",
        "splitsecond run claude": "the program is not installed; tests/cli/test_run.py runs one",
        "splitsecond sessions": "needs sessions in a log; "
        "tests/cli/test_logged_sessions.py has some",
    },
    "CONTRIBUTING": {"make ": "the targets run this suite, and build what CI builds"},
    "docs/accuracy": {
        "splitsecond doctor": "takes half a minute; tests/cli/test_doctor.py runs it shorter",
        "python -m benchmarks.instrument": "needs 16 cores; tests/cli/test_doctor.py measures two "
        "servers at once",
    },
    "docs/add-a-provider": {"pytest ": "is a part of this suite"},
    "docs/agents": {
        "$ splitsecond run": "the program is not installed; tests/cli/test_run.py runs one"
    },
    "docs/reference/commands": {
        "splitsecond batch ": "docs/questions.md and docs/python.md run batches",
        "splitsecond bench ": "takes a minute; README, docs/choosing.md and others run the same "
        "options for seconds",
        "splitsecond capacity ": "takes minutes; README and docs/capacity.md run it for seconds",
        "splitsecond compare runs/vllm": "needs hundreds of requests; "
        "tests/cli/test_report_and_compare.py has them",
        "splitsecond demo": "takes a minute; tests/test_installed.py runs it",
        "splitsecond doctor": "takes half a minute; tests/cli/test_doctor.py runs it shorter",
        "splitsecond explain groq": "needs another gateway; tests/cli/test_explain.py asks one",
        "splitsecond compare before": "needs files of other tools; tests/foreign has some",
        "splitsecond run ": "the programs are not installed; tests/cli/test_run.py runs one",
        "splitsecond sweep ": "starts a server; tests/runs/test_server_sweep.py does so",
        "splitsecond sessions": "needs sessions in a log; "
        "tests/cli/test_logged_sessions.py has some",
        "splitsecond watch ": "takes a minute; docs/watch.md runs it for seconds",
        "splitsecond what-if ": "needs a log of two targets; tests/cli/test_what_if.py has one",
        "splitsecond split ": "needs the log of a split; tests/cli/test_split.py has one",
    },
    "docs/capacity": {
        "$ splitsecond capacity --base-url http://127.0.0.1:8000/v1 --model mine --sessions": (
            "takes an hour or two; tests/loadgen/test_capacity_truth.py searches in virtual time"
        )
    },
    "docs/gateway": {
        "$ ANTHROPIC_BASE_URL": "Claude Code is not installed; tests/clients runs the libraries "
        "of its API",
        "splitsecond: groq rejects": "needs a provider that rejects a key; "
        "tests/gateway/test_advice.py has the words",
    },
    "docs/index": INSTALLING,
    "docs/many-machines": {
        "splitsecond ": "needs a Ray cluster of other machines; tests/runs/test_ray_nodes.py has "
        "one of this machine",
    },
    "docs/other-tools": {
        "$ splitsecond": "needs files of other tools; tests/foreign/test_formats.py has some"
    },
    "docs/performance": {"python -m benchmarks": "takes minutes; its figures are of the machine"},
    "docs/production": {
        "curl -u": "needs an account; tests/store/test_import.py imports such observations",
        "splitsecond import page1": "needs that file",
        "splitsecond cost --log langfuse": "needs that log",
        "$ splitsecond sessions": "needs sessions in a log; "
        "tests/cli/test_logged_sessions.py has some",
    },
    "docs/python": {
        "pip install": "downloads a release; tests/test_installed.py installs the wheel"
    },
    "docs/server-view": {
        "$ ": "need the engines; tests/server_view/test_discovery.py has their pages",
        "• TTFT p95": "the causes that are found depend on the load of the "
        "machine; that test has them",
    },
    "docs/sessions": {
        "Sessions at": "needs minutes for its intervals; "
        "tests/report/test_sessions.py has the table"
    },
    "docs/tutorials/own-server": {
        "• main handles": "the capacity that is found depends on the load of the machine"
    },
    "docs/sweeps": {
        "$ splitsecond sweep": "starts vLLM; tests/runs/test_server_sweep.py sweeps a simulator"
    },
    "docs/what-if": {
        "$ splitsecond what-if": "needs a log of two targets; tests/cli/test_what_if.py has one",
        "$ splitsecond split": "needs the log of a split; tests/cli/test_split.py has one",
        "$ per 1,000 calls": "is a line of what that prints",
    },
    "docs/watch": {
        "Continuing after": "twelve rounds, and a server that becomes slower: "
        "tests/cli/test_watch.py"
    },
}
"""Beginnings of commands and of whole blocks that cannot run here, and the reason. Commands are
still parsed, by `tests/test_documents.py`, and the targets of `make` exist."""


class Block(Struct, frozen=True):
    """A fenced block of a page. `page` is the path without its ending, such as "docs/gateway"."""

    page: str
    kind: str
    title: str
    text: str

    @property
    def parts(self) -> list[str]:
        """The commands of a block for a shell, in a console block each with what it prints; else
        the whole text."""
        if self.kind == "console":
            return re.split(r"(?m)(?<!\A)^(?=\$ )", self.text)
        return re.findall(r"(?:.*\\\n)*.*\n", self.text) if self.kind == "sh" else [self.text]

    @property
    def left_out(self) -> dict[str, str]:
        """The parts that cannot run here, with the entry of `NOT_RUN` for each."""
        beginnings = NOT_RUN.get(self.page, {})
        return {part: each for part in self.parts for each in beginnings if part.startswith(each)}

    @property
    def kept(self) -> str:
        """The text that runs in `tests/test_tutorials.py`, "" if nothing does."""
        if (self.page, self.kind) in ELSEWHERE:
            return ""
        return "".join(part for part in self.parts if part not in self.left_out)


def pages() -> list[Path]:
    """Return the pages with blocks: README, CONTRIBUTING, that of the examples, and all in docs."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples/README.md"]
    return [
        path
        for path in (*found, *sorted(ROOT.glob("docs/**/*.md")))
        if "```" in path.read_text("utf-8")
    ]


def name(page: Path) -> str:
    """Return the name of a page in the tables."""
    return page.relative_to(ROOT).with_suffix("").as_posix()


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page."""
    return [Block(name(page), *found) for found in BLOCK.findall(page.read_text("utf-8"))]


def untested(found: list[Block]) -> list[Block]:
    """Return the blocks that no test runs, and that are not left out with a reason."""
    return [each for each in found if each.kept and each.kind not in RUN and not each.title]
