"""README, docs, CONTRIBUTING and the page of the examples: the blocks of each page run, in one
folder and in order.

```sh, ```console and ```python blocks must end with 0, and ```sql is for DuckDB. Commands that
serve start in the background and must become READY. They end at once, unless the title is "Leave
this running". "Exits with 1" expects that code, and any other title is the name of a file to write.
Exported variables stay set. Lines of console blocks after `$ ` run and must print the other lines,
and ```text must have been printed: word for word on the pages `EXACT`, otherwise with any numbers,
and of a table its headings. The ports of the pages are replaced by free ones, servers and providers
by simulators (`tests/reader.py`). `tests/pages.py` says which blocks other tests run, and which
cannot run.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.conftest import run_splitsecond
from tests.pages import SHELL, blocks, name, pages
from tests.ports import free_ports
from tests.processes import Process
from tests.quick import with_quick_profiles
from tests.reader import LOGGED, keys, with_providers, write_files, write_log
from tests.reader import environment as environment  # fixtures
from tests.reader import servers as servers

from splitsecond.benchmark.rows import condition
from splitsecond.core.catalog import provider
from splitsecond.routing.router import settings
from splitsecond.simulator.process import RunningProvider

pytestmark = pytest.mark.system

PAGES = [page for page in pages() if any(block.kept for block in blocks(page))]
COLUMNS = {"docs/questions": "160", "docs/tutorials/own-server": "80"}
"""The width of a terminal in which the tables of a page were printed."""
EXACT = ("docs/command-line", "docs/traces")
QUICK = ("README", "docs/simulator")
"""Pages whose simulated providers are replaced by quicker ones."""
IN_PROCESSES = ("README", "docs/command-line", "examples/README")
"""Pages whose commands all run in a shell, and the tutorials. On other pages a command that needs
no shell runs in this process, because starting one takes a second of CPU; what it starts itself are
processes."""
CHANGES_SHELL = re.compile(r"^(export |cd |\w+=)", re.MULTILINE)
"""A command that the commands after it in the same shell depend on."""
GATEWAY = "listen: {port: 8800}\nroutes: {fast: {policy: sim/groq}}\n"
LOG = "log: sqlite:///splitsecond.db\nroutes:\n  fast: {policy: groq/openai/gpt-oss-120b}\n"
CONFIGURATIONS = {
    "docs/choosing": LOG,
    "docs/reference/commands": LOG + "  default: {policy: sim/groq}\n",
    "docs/production": LOG,
    "docs/questions": LOG,
    "docs/troubleshooting": GATEWAY,
}
"""The configuration of the gateway that the reader of a page has."""
MEASURED = (
    "splitsecond bench groq/openai/gpt-oss-120b cerebras/gpt-oss-120b -c 1 -n 4 --rounds 1 "
    "--out runs/monday"
)
RUNS = ("tuesday", "main", "branch", "vllm", "sglang", "20261120-190746-3fa")
BEFORE = {
    "docs/choosing": MEASURED,
    "docs/reference/commands": "\n".join(
        (
            MEASURED,
            *(f"cp -r runs/monday runs/{copy}" for copy in RUNS),
            "cp splitsecond.yaml gateway.yaml",
        )
    ),
    "docs/gateway": "splitsecond init --yes\nsplitsecond serve",
    "docs/production": MEASURED,
    "docs/troubleshooting": "splitsecond serve",
}
"""What a reader has done where a page begins. Servers stay."""
WITHOUT_KEYS = (
    "README",
    "docs/coming-from/litellm",
    "docs/coming-from/openrouter",
    "docs/gateway",
    "docs/tutorials/gateway",
    "examples/README",
)
"""Pages whose readers have no keys of providers yet."""
FEW = {"splitsecond bench ": "splitsecond bench -c 1 -n 4 --rounds 1 --no-html "}
AT_PROVIDERS = "http://127.0.0.1:9009/v1"
SHORTER = {
    "README": {
        "-c 1,8 -n 50": "-c 1 -n 5",
        "--for chat -c 8": "-c 1 -n 5",
        "-tokens 128": "-tokens 16",
        "-tokens 64": "-tokens 16",
        "--to 64": "--to 2 --output-tokens 16",
    },
    "docs/add-a-provider": {
        **FEW,
        "https://api.example.com/v1": AT_PROVIDERS,
        "https://bedrock-runtime.us-west-2.amazonaws.com/openai/v1": AT_PROVIDERS,
    },
    "docs/capacity": {"ttft=300ms,tpot=20ms": "ttft=3s,tpot=300ms --to 2 --output-tokens 64"},
    "docs/choosing": {**FEW, "http://10.0.0.5:8000/v1": "http://127.0.0.1:8000/v1"},
    "docs/command-line": {
        "gpu:8001": "gpu:8000",
        "gpu:": "127.0.0.1:",
        "-c 1,8,32": "-c 1 -n 5 --output-tokens 8",
    },
    "docs/reference/commands": {
        "--yes && splitsecond serve": "--yes new.yaml",
        "bench runs/monday/plan.toml": "bench sim/groq -c 1 -n 4 --rounds 1",
        "--fail-if 'ttft_ms.p50 > +10%' ": "",  # the runs have too few requests
        "--from litellm.yaml": "--from litellm.yaml routes.yaml",
        "splitsecond serve\n": "splitsecond serve --check\n",
        "--port 9000": "--check --port 9000",
        "https://api.openai.com": AT_PROVIDERS.removesuffix("/v1"),
        "simulate mock": "simulate mock --port 0",
        "simulate groq together": "simulate groq together --port 0",
        "openai.jsonl": "openai.jsonl --port 0",
    },
    "docs/gateway": {
        "splitsecond init ": "splitsecond init --force ",
        "$ splitsecond serve\n": "$ splitsecond serve --port 0\n",
        "serve  ": "serve --port 0 ",
        "serve splitsecond.yaml": "serve splitsecond.yaml --port 0",
    },
    "docs/policies": FEW,
    "docs/prompt-caching": {"-c 1,8 -n 100": "-c 1 -n 6 --rounds 2 --output-tokens 8"},
    "docs/questions": {
        "splitsecond bench ": "splitsecond bench --verbose -n 4 --rounds 1 --output-tokens 8 "
        "--no-html ",
        "tps.p50 < 100'": "tps.p50 < 100000' -c 1 -n 150 --rounds 6",
        "-c 4 -n 96": "-c 1",
        "-c 1 -n 24": "-c 1",
    },
    "docs/server-view": {"-c 1,16 -n 80": "-c 1 -n 4 --rounds 1"},
    "docs/sessions": {"-n 200 --rounds 5": "-n 12 --rounds 1 --no-html"},
    "docs/simulator": {
        **FEW,
        "https://api.openai.com": AT_PROVIDERS.removesuffix("/v1"),
        "--port 9001": "--port 0",
    },
    "docs/traces": {
        "bench sim/groq": "bench mine=http://127.0.0.1:8000/v1",
        "cached=http://gpu:8000": "cached=http://127.0.0.1:8000",
        "plain=http://gpu:8001": "plain=http://127.0.0.1:8000",
        "--time-scale 0.5": "--time-scale 0.02",
        "within 97.9 s": "within 3.9 s",
        "jsonl\n": "jsonl --time-scale 0.02\n",
    },
    "docs/tutorials/ci-gate": {"-tokens 32": "-tokens 16"},
    "docs/tutorials/own-server": {
        "-n 16 --output-tokens 64": "-n 8 --output-tokens 16",
        "ttft=300ms,tpot=20ms --from 4 --to 16": "ttft=3s,tpot=300ms --from 4 --to 4",
        "-tokens 32": "-tokens 8",
    },
    "docs/watch": {"splitsecond watch ": "splitsecond watch -n 4 --times 1 --output-tokens 8 "},
}
"""Changes of the commands of a page that save minutes, or that replace a machine of the reader."""
FACTS = {
    "README": ("mine handles (concurrency |c=)", "sim/groq", "chat.completion"),
    "docs/add-a-provider": (
        "Responses of its small models arrive in bursts",
        "example/their-model",
    ),
    "docs/capacity": ("/mine handles (concurrency |c=)",),
    "docs/choosing": ("Measured from: Frankfurt",),
    "docs/coming-from/litellm": (
        r"Not carried over: router_settings\.num_retries",
        "ok: 2 routes, 1 key",
        r"x-splitsecond-target: (groq|cerebras)/",
        f"{LOGGED} calls imported",
        "azure/gpt-4o misses the limit of 300 ms",
    ),
    "docs/coming-from/openrouter": (
        "x-splitsecond-target: groq/openai/gpt-oss-120b",
        f"{LOGGED} calls imported",
        " Amazon +3 ",
    ),
    "docs/command-line": (r"v1.*\n", r"\| v2 "),
    "docs/production": ("groq/openai/gpt-oss-120b",),
    "docs/questions": (r"FAILED: groq/\S+", "Measured from: Boston", r"answered in [\d.]+ s"),
    "docs/sessions": ("Sessions at concurrency 4", r"sessions? (takes|spend)"),
    "docs/troubleshooting": ("100%  sim/groq", "splitsecond_attempts_total"),
    "docs/tutorials/ci-gate": (r"FAILED: .*tps\.p50 went from",),
    "docs/tutorials/gateway": (
        "x-splitsecond-attempts: 2",
        "x-splitsecond-target: sim/groq",
        "route quick",
    ),
    "docs/tutorials/own-server": ("main handles (concurrency |c=)", "mistral-7b-instruct"),
    "examples/README": (r"target: +sim/\w+\nattempts: +1\n",),
}
"""What the commands of a page print, so that they do what the page says."""
PORTS = ("8000", "8800", "9001")
JSON = "content-type: application/json"
CHAT = '{"model": "any", "messages": [{"role": "user", "content": "Hello"}]}'
WITHIN_S = 600
LEAVE, FAILS = "Leave this running", "Exits with 1"
SERVES = re.compile(r"splitsecond (serve|simulate)\b(?![^#\n]* --(check|schema|list)\b)")
SQL = "import duckdb, sys; print(duckdb.sql(sys.argv[1]))"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_runs(
    page: Path, tmp_path: Path, environment: dict[str, str], servers: list[RunningProvider]
) -> None:
    reader = Reader(page, tmp_path, environment, servers)
    with ExitStack() as reader.running:
        reader.execute(with_ports(BEFORE.get(reader.name, ""), reader.ports), stay=True)
        for block in blocks(page):
            text = reader.changed(block.kept)
            if block.kind in SHELL:
                commands, output = divided(text) if block.kind == "console" else (text, [])
                printed = reader.execute(
                    commands, code=1 if block.title == FAILS else 0, stay=block.title == LEAVE
                )
                assert [line for line in output if line not in printed] == []
                reader.environment |= exported(text)
            elif block.kind in ("python", "sql") and text:
                reader.run("python", "-c", *([text] if block.kind == "python" else [SQL, text]))
            elif block.title:
                (reader.folder / block.title).write_text(text)
            elif block.kind == "text":
                printed = "\n".join(reader.printed)
                assert not_printed(text, printed, exact=reader.name in EXACT) == [], printed
    assert reader.printed
    for facts in FACTS.get(reader.name, ()):
        assert any(re.search(facts, printed) for printed in reader.printed), (facts, reader.printed)


class Reader:
    """Somebody who follows a page: a folder, an environment, what still runs, and what was
    printed."""

    def __init__(
        self, page: Path, folder: Path, environment: dict[str, str], servers: list[RunningProvider]
    ) -> None:
        server, provider = servers
        self.name, self.printed, self.running = name(page), list[str](), ExitStack()
        self.folder = folder / "reader"
        self.folder.mkdir()
        self.ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True)) | {
            "9009": port_of(provider)
        }
        if "--port 8000" not in page.read_text("utf-8"):  # otherwise the page starts it itself
            self.ports["8000"] = port_of(server)
        sources = with_providers(
            folder / "sources", provider, blocks(page) if self.name.endswith("a-provider") else []
        )
        here = {
            "COLUMNS": COLUMNS.get(self.name, "120"),
            "SPLITSECOND_URL": f"http://127.0.0.1:{self.ports['8800']}/v1",
        }
        known = {} if self.name in WITHOUT_KEYS else keys(sources, provider)
        self.environment = {**environment, **known, "PYTHONPATH": str(sources), **here}
        self.catalogue = sources / "splitsecond/core/catalog"
        write_files(self.folder)
        if self.name in CONFIGURATIONS:
            write_log(self.folder)
            (self.folder / "splitsecond.yaml").write_text(
                with_ports(CONFIGURATIONS[self.name], self.ports)
            )

    def changed(self, text: str) -> str:
        """Return a text of the page, shorter and with free ports."""
        for long, short in SHORTER.get(self.name, {}).items():
            text = text.replace(long, short)
        return with_ports(
            with_quick_profiles(text, self.folder) if self.name in QUICK else text, self.ports
        )

    def execute(self, commands: str, *, code: int = 0, stay: bool = False) -> str:
        """Run commands of a shell, which end with `code`, and start those that serve. Return what
        they print."""
        printed = ""
        here = self.name not in IN_PROCESSES and not self.name.startswith("docs/tutorials/")
        here = here and not CHANGES_SHELL.search(commands)
        lines = re.findall(r"(?:.*\\\n)*.+\n?", commands)
        for place, group in groupby(lines, lambda line: place_of(line, here=here)):
            if place == "background":
                for line in group:
                    self.start(line, self.running if stay else None)
            elif place == "here":
                printed += "".join(self.run_here(line, code=code) for line in group)
            else:
                printed += self.run("bash", "-e", "-o", "pipefail", "-c", "".join(group), code=code)
        return printed

    def run(self, *command: str, code: int = 0) -> str:
        """Run a program, which ends with `code`. Return what it prints."""
        ended = subprocess.run(
            command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True,
            timeout=WITHIN_S,
        )  # fmt: skip
        assert ended.returncode == code, f"{command[-1]}\n{ended.stdout}{ended.stderr}"
        return self.took(ended.stdout + ended.stderr)

    def run_here(self, command: str, *, code: int = 0) -> str:
        """Run a command of splitsecond in this process, which ends with `code`. Return what it
        prints."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            for variable in os.environ.keys() - self.environment.keys():
                patch.delenv(variable)
            for variable, value in self.environment.items():
                patch.setenv(variable, value)
            patch.setattr(condition, "invalid_reasons", lambda _: [])  # a reader's machine is idle
            with catalogue_of(self.catalogue, patch):
                ended = run_splitsecond(*words(command)[1:])
        assert ended.code == code, (command, ended)
        return self.took(ended.out + ended.err)

    def took(self, printed: str) -> str:
        """Keep what a command has printed, and return it. Let the gateway have a free port: `init`
        writes the usual one."""
        self.printed.append(printed)
        for config in self.folder.glob("splitsecond.yaml"):
            written = config.read_text()
            if (moved := with_ports(written, self.ports)) != written:
                config.write_text(moved)
        return printed

    def start(self, command: str, running: ExitStack | None) -> None:
        """Start a process, and wait until it is ready. It runs as long as `running`, or else
        ends."""
        shell = ["bash", "-c", f"exec {command}"]
        with ExitStack() as ended:
            process = Process(
                shell, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, text=True
            )
            (running or ended).enter_context(process)
            line = process.read_line()
            assert line.startswith("READY"), command
            if "--record" in command:
                self.run(
                    "curl",
                    "-sS",
                    "--fail",
                    f"{line.split()[2]}/chat/completions",
                    "-H",
                    JSON,
                    "-d",
                    CHAT,
                )


def place_of(command: str, *, here: bool) -> str:
    """Return where a command runs: in the background, in this process, or in a shell."""
    if SERVES.match(command):
        return "background"
    return "here" if here and command.startswith("splitsecond ") and is_plain(command) else "shell"


def is_plain(command: str) -> bool:
    """Return whether a command has only words, nothing that a shell replaces or connects."""
    lexer = shlex.shlex(command.replace("\\\n", ""), posix=True, punctuation_chars=True)
    operators = set(lexer.punctuation_chars)
    return not set(command) & set("$`*") and not any(set(word) <= operators for word in lexer)


def words(command: str) -> list[str]:
    """Return the words of a plain command."""
    return shlex.split(command.replace("\\\n", ""), comments=True)


@contextmanager
def catalogue_of(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this process read the providers of the catalogue in `folder`."""
    caches: tuple[Any, ...] = (provider._names, provider._read, settings.provider)
    patch.setattr(provider, "resources", SimpleNamespace(files=lambda _: folder))
    for each in caches:
        each.cache_clear()
    try:
        yield
    finally:
        for each in caches:
            each.cache_clear()


def port_of(provider: RunningProvider) -> str:
    return provider.origin.rpartition(":")[2]


def divided(console: str) -> tuple[str, list[str]]:
    """Return the commands of a console block, without `$ `, and the lines that they print."""
    commands = "".join(re.findall(r"(?m)^\$ ((?:.*\\\n)*.*\n)", console))
    return commands, re.sub(r"(?m)^\$ (?:.*\\\n)*.*\n", "", console).splitlines()


def exported(commands: str) -> dict[str, str]:
    """Return the variables that lines such as `export A=b C=d` set."""
    found = re.findall(r"(?m)^export (.*)$", commands)
    return dict(word.split("=", 1) for line in found for word in shlex.split(line))


def with_ports(text: str, ports: dict[str, str]) -> str:
    """Return `text` with free ports instead of those of the page."""
    return re.sub(r"\b\d{4}\b", lambda found: ports.get(found[0], found[0]), text)


def not_printed(text: str, printed: str, *, exact: bool) -> list[str]:
    """Return the lines of a block that are not in what was printed, of a table those of its
    headings."""
    lines = text.splitlines()
    rules = [number for number, line in enumerate(lines) if set(line.strip()) == {"─"}]
    if rules:
        lines = lines[: rules[0]]
        lines = lines[
            max((number + 1 for number, line in enumerate(lines) if not line.strip()), default=0) :
        ]
    found = normal(printed, exact=exact)
    return [line for line in lines if normal(line, exact=exact) not in found]


def normal(text: str, *, exact: bool) -> str:
    """Return a text on one line, with a sign for each number unless it is to be exact."""
    return " ".join(
        (text if exact else re.sub(r"[−-]?\d[\d.,]*", "#", text)).removesuffix(" …").split()
    )
