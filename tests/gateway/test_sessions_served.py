"""Ten turns of an agent through a gateway of two workers: one session, whose cache the simulator
knows."""

import json
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.gateway.conftest import KEY, gateway, ready
from tests.waiting import WITHIN_S

from splitsecond.log.production.sessions import ReportedSession, reported
from splitsecond.log.store.log import Past
from splitsecond.simulator.process import run_simulator

pytestmark = pytest.mark.system

TURNS = 10
PROFILE = """
title = "A server with a prompt cache"
model = "cached"
output_tokens = 8
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
  chat: {{base_url: '{url}'}}
"""
TOOLS = [
    {"name": "shell", "description": "Runs a command. " * 40, "input_schema": {"type": "object"}}
]
SESSION = "6a8d8a0e-4f3b-4f6e-9a51-8f6a3b1c2d3e"


def messages(turn: int) -> tuple[str, dict[str, Any], dict[str, str]]:
    """A turn in Claude Code's form: the mark for the cache is on the latest message only."""
    said: list[dict[str, Any]] = []
    for number in range(turn):
        text = {"type": "text", "text": f"The result of command {number} is long. " * 60}
        mark = {"cache_control": {"type": "ephemeral"}} if number == turn - 1 else {}
        said += [{"role": "user", "content": [{**text, **mark}]}]
        if number < turn - 1:
            said += [
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": f"I run command {number + 1}."}],
                }
            ]
    system = [
        {"type": "text", "text": "You are an agent. " * 50, "cache_control": {"type": "ephemeral"}}
    ]
    body = {
        "model": "messages/cached",
        "max_tokens": 64,
        "stream": True,
        "tools": TOOLS,
        "system": system,
    }
    headers = {"x-claude-code-session-id": SESSION, "anthropic-version": "2023-06-01"}
    return "/messages", body | {"messages": said}, headers


def chat(turn: int) -> tuple[str, dict[str, Any], dict[str, str]]:
    """A turn of a client that names no session."""
    said: list[dict[str, Any]] = [{"role": "system", "content": "You are a chat. " * 80}]
    for number in range(turn):
        said += [{"role": "user", "content": f"Question {number} is long. " * 60}]
        said += [{"role": "assistant", "content": f"Answer {number}."}] if number < turn - 1 else []
    return "/chat/completions", {"model": "chat/cached", "stream": True, "messages": said}, {}


@pytest.fixture(scope="module")
def played(
    system: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, ReportedSession], Any]:
    """The reports of the sessions by their target, and the simulator's records by the same."""
    folder = tmp_path_factory.mktemp("sessions")
    profile, truth = folder / "cached.toml", folder / "truth.jsonl"
    profile.write_text(PROFILE)
    ids: dict[str, list[str]] = {}
    with run_simulator(str(profile), log=truth) as (simulated,):
        (folder / "splitsecond.yaml").write_text(
            SETTINGS.format(folder=folder, url=simulated.base_url)
        )
        with gateway(folder) as process:
            url = ready(process)
            for form in (messages, chat):
                for turn in range(1, TURNS + 1):
                    path, body, headers = form(turn)
                    given = {
                        "content-type": "application/json",
                        "authorization": f"Bearer {KEY}",
                        **headers,
                    }
                    request = urllib.request.Request(
                        f"{url}{path}", json.dumps(body).encode(), given
                    )
                    with urllib.request.urlopen(request, timeout=WITHIN_S) as response:
                        response.read()
                        ids.setdefault(body["model"], []).append(
                            response.headers["x-splitsecond-session"]
                        )
            process.terminate()
            process.wait(WITHIN_S)
    past, until = Past.open(f"sqlite:///{folder}/log.db"), datetime.now(UTC) + timedelta(minutes=1)
    reports = {}
    for target, named in ids.items():
        assert len(set(named)) == 1, target
        reports[target] = reported(
            list(past.calls(until - timedelta(hours=1), until, session=named[0]))
        )
    assert len(past.sessions(until - timedelta(hours=1), until)) == 2
    records = [json.loads(line) for line in truth.read_text().splitlines()]
    return reports, {"messages/cached": records[:TURNS], "chat/cached": records[TURNS:]}


@pytest.mark.parametrize("target", ["messages/cached", "chat/cached"])
def test_ten_turns_are_one_session(played: Any, target: str) -> None:
    reports, records = played
    report: ReportedSession = reports[target]
    assert [turn.turn for turn in report.turns] == list(range(1, TURNS + 1))
    prompt = sum(each["prompt_tokens"] for each in records[target])
    assert report.cached_share == pytest.approx(
        sum(each["cached_tokens"] for each in records[target]) / prompt
    )
    assert report.causes.total_s == pytest.approx(report.wall_s, rel=0.01)
    assert [turn.missed_tokens for turn in report.turns] == [0] * TURNS, "what could be cached was"
    assert report.turns[1].idle_s is not None
    assert report.cached_share is not None
    assert report.cached_share > 0.5
