"""Codex's command line, unchanged, before a gateway as it is run, whatever the target's format.

Its configuration is that of docs/clients.md.

`make build/codex/.installed` installs it.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct
from tests.gateway.conftest import KEY, gateway, ready

from splitsecond.simulator.process import RunningProvider, run_simulator

CODEX = Path(__file__).parents[2] / "build/codex/node_modules/.bin/codex"
FORMATS = {"openai": "/v1", "responses": "/v1", "anthropic": "/v1", "gemini": "/v1beta"}
PAGE = Path(__file__).parents[2] / "docs/clients.md"
QUIETER = "check_for_update_on_startup = false\n"
LESS_PATIENT = "request_max_retries = 0\nstream_max_retries = 1\n"
WEBSOCKETS = "supports_websockets = true\n"
"""The last table of the page's configuration is that of the provider, and so are these."""
SHELL = "exec_command"
ECHO = {"name": SHELL, "arguments": {"cmd": "echo hello-from-the-shell"}}
LONGEST_S = 900
FELL_BACK = "Falling back from WebSockets"


class Front(Struct):
    """A gateway with its access log, and the provider behind it."""

    base_url: str
    access_log: Path
    provider: RunningProvider


@pytest.fixture(scope="module")
def front(system: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("codex")
    with run_simulator("mock") as (provider,):
        access_log = folder / "access.jsonl"
        lines = [
            f"access_log: {access_log}",
            "keys: [{name: web, key: env:WEB_KEY}]",
            "providers:",
        ]
        for dialect, path in FORMATS.items():
            for name, fault in (
                (f"sim-{dialect}", ""),
                (f"down-{dialect}", "500"),
                (f"cut-{dialect}", "cut; after=1"),
            ):
                headers = f"headers: {{x-splitsecond-fault: '{fault}'}}, " if fault else ""
                address = f"base_url: '{provider.origin}{path}', dialect: {dialect}"
                lines.append(
                    f"  {name}: {{{address}, {headers}quirks: {{drop_tools: [web_search]}}}}"
                )
        (folder / "splitsecond.yaml").write_text("\n".join(lines))
        with gateway(folder) as process:
            yield Front(ready(process), access_log, provider)


def configuration(base_url: str, more: str = LESS_PATIENT) -> str:
    """Return the configuration of the page for the gateway at `base_url`, and `more` about the
    provider."""
    blocks: list[str] = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (shown,) = blocks
    assert shown.count("http://HOST:8800/v1") == 1
    return QUIETER + shown.replace("http://HOST:8800/v1", base_url) + more


def test_the_configuration_of_the_page_is_read() -> None:
    found = tomllib.loads(configuration("http://127.0.0.1:1/v1"))
    assert found["model_providers"][found["model_provider"]]["base_url"] == "http://127.0.0.1:1/v1"


def codex(
    front: Front,
    folder: Path,
    model: str,
    prompt: str,
    more: str = LESS_PATIENT,
) -> "subprocess.CompletedProcess[str]":
    """Run one prompt, without access to other servers."""
    if not CODEX.exists():
        raise FileNotFoundError(f"{CODEX} does not exist: run `make build/codex/.installed`")
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    (home / "config.toml").write_text(configuration(front.base_url, more))
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9", "CODEX_HOME": str(home), "SPLITSECOND_KEY": KEY}
    front.provider.reset()
    front.provider.reply(offers=SHELL, prompt="Run the command.", calls=[ECHO])
    front.provider.reply("It said hello.", after=SHELL)
    command = [
        "exec",
        "--skip-git-repo-check",
        "--sandbox",
        "danger-full-access",
        "-m",
        model,
        prompt,
    ]
    return subprocess.run(
        [CODEX, *command], cwd=work, env=os.environ | nowhere, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=LONGEST_S, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("dialect", FORMATS)
def test_codex_runs_a_command(front: Front, tmp_path: Path, dialect: str) -> None:
    ran = codex(front, tmp_path, f"sim-{dialect}/m", "Run the command.")
    assert ran.stdout.strip() == "It said hello.", ran.stderr[-3000:]
    first, second = front.provider.requests()
    assert "hello-from-the-shell" not in str(first.body)
    assert "hello-from-the-shell" in str(second.body).replace("echo hello-from-the-shell", "")
    assert "Run the command." in str(second.body)


def test_a_refused_websocket_is_followed_by_posts_at_once(front: Front, tmp_path: Path) -> None:
    """Codex tries it once, although it may repeat requests, and does not report that it was
    refused."""
    front.access_log.write_text("")
    ran = codex(front, tmp_path, "sim-responses/m", "Run the command.", WEBSOCKETS)
    assert ran.stdout.strip() == "It said hello.", ran.stderr[-3000:]
    assert FELL_BACK not in ran.stderr
    lines = [json.loads(line) for line in front.access_log.read_text().splitlines()]
    answers = [(line["method"], line["status"], line["fault"]) for line in lines]
    assert answers == [("GET", 426, "websocket_unsupported"), ("POST", 200, ""), ("POST", 200, "")]


@pytest.mark.parametrize("dialect", FORMATS)
def test_codex_reports_provider_failures(front: Front, tmp_path: Path, dialect: str) -> None:
    failures = {
        f"down-{dialect}/m": "502 Bad Gateway",
        # without a first token, and after one
        f"cut-{dialect}/m": "before (the end of the answer|response.completed)",
        "none": "unknown model",
    }
    for number, (model, words) in enumerate(failures.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        ran = codex(front, folder, model, "Say hi.")
        assert ran.returncode != 0
        assert re.search(words, ran.stderr), ran.stderr[-3000:]


def test_codex_runs_with_a_gateway_of_its_own(front: Front, tmp_path: Path) -> None:
    """`splitsecond run codex` needs no configuration; the provider is the vendor."""
    front.provider.reset()
    front.provider.reply("It said hello.")
    home = tmp_path / "home"
    home.mkdir()
    own = {
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "CODEX_HOME": str(home),
        "CODEX_API_KEY": "sk-canary-of-the-user-0123456789",
        "OPENAI_BASE_URL": f"{front.provider.origin}/v1",
    }
    options = [
        "--log",
        str(tmp_path / "runs.db"),
        "--",
        str(CODEX),
        "exec",
        "--skip-git-repo-check",
        "Say hello.",
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "splitsecond.cli", "run", *options], cwd=tmp_path,
        env=os.environ | own,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONGEST_S, check=False,
    )  # fmt: skip
    assert ran.stdout.strip() == "It said hello.", ran.stderr[-3000:]
    (request,) = front.provider.requests()
    assert request.path == "/v1/responses"
    assert request.headers["authorization"] == "[key]"
    assert request.headers["originator"] == "codex_exec"
    assert "for 1 call." in ran.stderr
    assert b"canary" not in (tmp_path / "runs.db").read_bytes()
