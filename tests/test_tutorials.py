"""README, docs/tutorials, docs/coming-from and `CONSOLES`: every block of each page runs, in one folder and in order.

```sh and ```python blocks run and must end with 0. The title "Leave this running" starts a process in the background
until it is READY, "Exits with 1" expects that code, and any other title is the name of a file to write. Exported
variables stay set. In `CONSOLES`, lines of console blocks after `$ ` run and must print the other lines, and blocks
without a kind must have been printed. All other blocks are illustrations. The ports of the pages are replaced by free
ones, and providers by a simulator.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from tests.ports import free_ports
from tests.processes import Process
from tests.quick import with_quick_profiles
from tests.store.test_import import LITELLM, OPENROUTER, as_csv

from splitsecond import clock

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
CONSOLES = [ROOT / "docs" / f"{name}.md" for name in ("command-line", "traces", "troubleshooting")]
PAGES = [README, *sorted([*ROOT.glob("docs/tutorials/*.md"), *ROOT.glob("docs/coming-from/*.md")]), *CONSOLES]
MINE = """title = "The reader's server"
model = "mine"
[[table]]
concurrency = 1
ttft_ms = { p50 = 5, p95 = 6 }
tps = { p50 = 2000, p95 = 1900 }
"""
"""The server of the reader, as a profile of the simulator."""
SERVER = "splitsecond simulate mine.toml --port 8000"
BEFORE = {
    "README": SERVER,
    "command-line": SERVER,
    "traces": SERVER,
    "troubleshooting": "splitsecond serve",
    "litellm": "splitsecond simulate mock --port 8000",
    "openrouter": "splitsecond simulate mock --port 8000",
}
"""What already runs where a page begins."""
SIMULATED = {"litellm": ("groq", "cerebras", "openai"), "openrouter": ("groq", "cerebras", "openrouter")}
"""Providers that the simulator replaces in the configuration that `init` writes."""
LOGGED = 600
"""Calls in the logs of other programs: as many as a grade needs, and more."""
GATEWAY = "routes: {fast: {policy: sim/groq}}\n"
"""The configuration of the gateway that already runs."""
SHORTER = {
    "README": {
        "-c 1,8 -n 50": "-c 1 -n 5",
        "-c 1,8 -n 30": "-c 1 -n 5",
        "-tokens 128": "-tokens 16",
        "-tokens 64": "-tokens 16",
        "--to 64": "--to 2 --output-tokens 16",
        "doctor ": "doctor --help ",
    },
    "own-server": {
        "-n 16 --output-tokens 64": "-n 8 --output-tokens 16",
        "ttft=300ms,tpot=20ms --from 4 --to 16": "ttft=3s,tpot=300ms --from 4 --to 4",
        "-tokens 32": "-tokens 8",
    },
    "ci-gate": {"-tokens 32": "-tokens 16"},
    "command-line": {"gpu:8001": "gpu:8000", "gpu:": "127.0.0.1:", "-c 1,8,32": "-c 1 -n 5 --output-tokens 8"},
    "traces": {
        "bench sim/groq": "bench mine=http://127.0.0.1:8000/v1",
        "cached=http://gpu:8000": "cached=http://127.0.0.1:8000",
        "plain=http://gpu:8001": "plain=http://127.0.0.1:8000",
        "--time-scale 0.5": "--time-scale 0.02",
        "within 97.9 s": "within 3.9 s",
        "jsonl\n": "jsonl --time-scale 0.02\n",
    },
}
"""Changes of the commands of a page that save minutes, or that replace a machine of the reader."""
BLOCK = re.compile(r'^```(\w*)(?: title="([^"\n]*)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
PORTS = ("8000", "8800")
WITHIN_S = 600
LEAVE, FAILS = "Leave this running", "Exits with 1"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment with the commands `splitsecond` and `python`, and without anybody's keys."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, module in (("splitsecond", " -m splitsecond.cli"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable}{module} "$@"\n')
        (programs / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_TOKEN"))}
    return {**kept, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "120"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_runs(page: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "reader"
    folder.mkdir()
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    ran = []
    (folder / "mine.toml").write_text(MINE)
    (folder / "docs").symlink_to(ROOT / "docs")
    write_foreign_logs(folder)
    if page.stem == "troubleshooting":
        (folder / "splitsecond.yaml").write_text(f"listen: {{port: {ports['8800']}}}\n{GATEWAY}")
    with ExitStack() as running:
        if page.stem in BEFORE:
            start(running, with_ports(BEFORE[page.stem], ports), folder, environment)
        for kind, title, text in blocks(page, ports, folder):
            if kind == "sh" and title == LEAVE:
                start(running, text, folder, environment)
            elif kind in ("sh", "python", "console"):
                program = ["python", "-c"] if kind == "python" else ["bash", "-e", "-o", "pipefail", "-c"]
                commands, output = divided(text) if kind == "console" else (text, [])
                ended = subprocess.run(
                    [*program, commands], cwd=folder, env=environment, capture_output=True, text=True, timeout=WITHIN_S
                )
                expected = 1 if title == FAILS else 0
                assert ended.returncode == expected, f"{text}\n{ended.stdout}{ended.stderr}"
                ran.append(ended.stdout + ended.stderr)
                assert [line for line in output if line not in ran[-1]] == []
                environment |= exported(text)
                for config in folder.glob("splitsecond.yaml"):  # `init` writes the usual port
                    written = with_ports(config.read_text(), ports)
                    if page.stem in SIMULATED and "\nproviders:" not in written:
                        url = f"base_url: http://127.0.0.1:{ports['8000']}/v1"
                        written += "providers:\n" + "".join(f"  {name}: {{{url}}}\n" for name in SIMULATED[page.stem])
                    config.write_text(written)
            elif title:
                (folder / title).write_text(text)
            elif page in CONSOLES:
                assert any(" ".join(text.split()) in " ".join(printed.split()) for printed in ran), text
    assert ran
    for facts in FACTS.get(page.stem, ()):
        assert any(re.search(facts, printed) for printed in ran), (facts, ran)


def divided(console: str) -> tuple[str, list[str]]:
    """Return the commands of a console block, without `$ `, and the lines that they print."""
    commands = "".join(re.findall(r"(?m)^\$ ((?:.*\\\n)*.*\n)", console))
    return commands, re.sub(r"(?m)^\$ (?:.*\\\n)*.*\n", "", console).splitlines()


def exported(commands: str) -> dict[str, str]:
    """Return the variables that lines such as `export A=b C=d` set."""
    found = re.findall(r"(?m)^export (.*)$", commands)
    return dict(word.split("=", 1) for line in found for word in shlex.split(line))


def write_foreign_logs(folder: Path) -> None:
    """Write the logs that readers have of other programs, of the last hours: LiteLLM's and OpenRouter's."""
    spend, activity = [], []
    for number in range(LOGGED):
        began = clock.wall_time() - timedelta(minutes=number, days=1)
        times = {"startTime": 0.0, "completionStartTime": 0.4, "endTime": 2 + number % 7 / 10}
        stamps = {name: (began + timedelta(seconds=after)).isoformat() for name, after in times.items()}
        spend.append({**LITELLM, **stamps, "request_id": f"chatcmpl-{number}"})
        created = f"{began:%Y-%m-%d %H:%M:%S.%f}"
        activity.append({**OPENROUTER, "created_at": created, "generation_id": f"gen-{number}"})
    as_csv(folder / "spend-logs.csv", spend)
    as_csv(folder / "activity.csv", activity)


def start(running: ExitStack, command: str, folder: Path, environment: dict[str, str]) -> None:
    """Start a process that runs as long as `running`, and wait until it is ready."""
    shell = ["bash", "-c", f"exec {command}"]
    process = running.enter_context(Process(shell, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True))
    assert process.read_line().startswith("READY"), command


FACTS = {
    "README": ("mine handles concurrency", "sim/groq", "chat.completion"),
    "own-server": ("main handles concurrency", "mistral-7b-instruct"),
    "gateway": ("x-splitsecond-attempts: 2", "x-splitsecond-target: sim/groq", "route quick"),
    "ci-gate": (r"FAILED: .*tps\.p50 went from",),
    "command-line": (r"v1.*\n", r"\| v2 "),
    "troubleshooting": ("100%  sim/groq", "splitsecond_attempts_total"),
    "litellm": (
        r"Not carried over: router_settings\.num_retries",
        "ok: 2 routes, 1 key",
        r"x-splitsecond-target: (groq|cerebras)/",
        f"{LOGGED} calls imported",
        "azure/gpt-4o misses the limit of 300 ms",
    ),
    "openrouter": ("x-splitsecond-target: groq/openai/gpt-oss-120b", f"{LOGGED} calls imported", " Amazon +3 "),
}
"""What the commands of a page print, so that they do what the page says."""


def blocks(page: Path, ports: dict[str, str], folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield kind, title and text of each block of a page that runs in `folder`."""
    for kind, title, text in BLOCK.findall(page.read_text("utf-8")):
        for long, short in SHORTER.get(page.stem, {}).items():
            text = text.replace(long, short)
        if page == README:
            text = with_quick_profiles(text, folder)
        if kind == "console" and page not in CONSOLES:
            continue
        if page != README or kind == "sh":  # other tests read README's Python and YAML
            yield kind, title, with_ports(text, ports)


def with_ports(text: str, ports: dict[str, str]) -> str:
    """Return `text` with free ports instead of those of the page."""
    return re.sub(r"\b\d{4}\b", lambda found: ports.get(found[0], found[0]), text)
