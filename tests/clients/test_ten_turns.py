"""Ten turns of real agents, unchanged, through a gateway of two workers: one session, whose cache
the simulator knows.

`make build/claude/.installed build/codex/.installed` installs them.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from tests.clients.test_codex import CODEX, ECHO, LONGEST_S, SHELL, configuration
from tests.gateway.conftest import KEY, gateway, ready
from tests.waiting import WITHIN_S

from splitsecond.log.production.sessions import ReportedSession, reported
from splitsecond.log.store.log import Past
from splitsecond.simulator.process import run_simulator

pytestmark = pytest.mark.system

CLAUDE = Path(__file__).parents[2] / "build/claude/node_modules/.bin/claude"
TURNS = 10
PROMPT = "Run the command."
PROFILE = """
title = "A server with a prompt cache, for any model"
model = "*"
output_tokens = 16
natural_tokens = 16
prefill_tokens_per_s = 100000
[prompt_cache]
from_tokens = 64
block_tokens = 16
cached_tokens_per_s = 1000000
[[table]]
concurrency = 1
ttft_ms = {p50 = 20, p95 = 20}
tps = {p50 = 400, p95 = 400}
"""
SETTINGS = """
listen: {{workers: 2}}
log: sqlite:///{folder}/log.db
keys: [{{name: web, key: env:WEB_KEY}}]
providers:
  messages: {{base_url: '{url}', dialect: anthropic}}
  responses: {{base_url: '{url}', dialect: responses, quirks: {{drop_tools: [web_search]}}}}
routes: {{"*": {{policy: '"{provider}/m"'}}}}
"""
SAYS_HELLO = {
    "name": "Bash",
    "arguments": {"command": "echo hello-from-the-shell", "description": "Say hello"},
}


class Agent(Struct, frozen=True):
    """`program`: where it is installed. `provider`: that of its API format. `tool`: its shell,
    which makes `call`."""

    program: Path
    provider: str
    tool: str
    call: dict[str, Any]

    def start(self, url: str, home: Path) -> tuple[list[str], Mapping[str, str]]:
        """Return the arguments and the environment for one prompt at the gateway, without access to
        other servers."""
        nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1", "HOME": str(home)}
        if self.program == CODEX:
            (home / "config.toml").write_text(configuration(url))
            arguments = [
                "exec",
                "--skip-git-repo-check",
                "--sandbox",
                "danger-full-access",
                "-m",
                "m",
            ]
            return arguments, nowhere | {"CODEX_HOME": str(home), "SPLITSECOND_KEY": KEY}
        own = {
            "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": KEY,
            "CLAUDE_CONFIG_DIR": str(home),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "8000",  # the simulator's answers have at most 32,768
        }
        return ["--allowedTools", self.tool, "-p"], nowhere | own


AGENTS = {
    "claude": Agent(CLAUDE, "messages", "Bash", SAYS_HELLO),
    "codex": Agent(CODEX, "responses", SHELL, ECHO),
}


def played(agent: Agent, folder: Path) -> tuple[list[ReportedSession], list[dict[str, Any]]]:
    """Return the sessions of the log, and the simulator's records, after an agent has used its
    shell nine times."""
    if not agent.program.exists():
        name = agent.program.parents[2].name
        raise FileNotFoundError(
            f"{agent.program} does not exist: run `make build/{name}/.installed`"
        )
    profile, truth, home, work = (
        folder / name for name in ("cached.toml", "truth.jsonl", "home", "work")
    )
    profile.write_text(PROFILE)
    home.mkdir()
    work.mkdir()
    with run_simulator(str(profile), log=truth) as (simulated,):
        simulated.reply(offers=agent.tool, prompt=PROMPT, calls=[agent.call], times=1)
        simulated.reply(after=agent.tool, calls=[agent.call], times=TURNS - 2)
        simulated.reply("Nine times.")
        (folder / "splitsecond.yaml").write_text(
            SETTINGS.format(folder=folder, url=simulated.base_url, provider=agent.provider)
        )
        with gateway(folder) as process:
            arguments, environment = agent.start(ready(process), home)
            ran = subprocess.run(
                [agent.program, *arguments, PROMPT], cwd=work, env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=LONGEST_S, check=False,
            )  # fmt: skip
            assert ran.stdout.strip() == "Nine times.", ran.stdout[-1000:] + ran.stderr[-3000:]
            process.terminate()
            process.wait(WITHIN_S)
    until = datetime.now(UTC) + timedelta(minutes=1)
    since, past = until - timedelta(hours=1), Past.open(f"sqlite:///{folder}/log.db")
    sessions = [
        reported(list(past.calls(since, until, session=each.id)))
        for each in past.sessions(since, until)
    ]
    return sessions, [json.loads(line) for line in truth.read_text().splitlines()]


@pytest.mark.parametrize("name", AGENTS)
def test_ten_turns_of_an_agent_are_one_session(name: str, tmp_path: Path) -> None:
    (session,), records = played(AGENTS[name], tmp_path)
    assert [turn.turn for turn in session.turns] == list(range(1, TURNS + 1))
    assert session.agents == 1
    assert session.errors == 0
    truth = sum(each["cached_tokens"] for each in records) / sum(
        each["prompt_tokens"] for each in records
    )
    assert session.cached_share == pytest.approx(truth)
    assert truth > 0.5
    assert session.causes.total_s == pytest.approx(session.wall_s, rel=0.01)
    assert [turn.repeated for turn in session.turns] == [0, 0, 0, *range(3, TURNS)]
    assert session.turns[1].idle_s is not None
