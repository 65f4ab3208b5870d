"""A split route of two workers, before and after a restart: each conversation keeps its arm, and
the log agrees with the hash."""

import json
import urllib.request
from pathlib import Path

import pytest
from tests.gateway.conftest import KEY, ServedGateway, gateway, ready
from tests.waiting import WITHIN_S

from splitsecond.cli.log_source import LoggedTraffic
from splitsecond.cli.replaying import LoggedRoute
from splitsecond.replay.arms import SplitComparison, compare_arms
from splitsecond.replay.history import CANCELLED

pytestmark = pytest.mark.system

SETTINGS = """
listen: {{workers: 2}}
log: sqlite:///{folder}/log.db
keys: [{{name: web, key: env:WEB_KEY}}]
providers: {{first: {{base_url: '{url}'}}, second: {{base_url: '{url}'}}}}
routes: {{chat: {{policy: '{policy}'}}}}
"""
POLICY = 'split("first/quick", "second/quick", share=0.5)'
CONVERSATIONS = 24


def ask(url: str, conversation: int, turn: int) -> None:
    said = [{"role": "user", "content": f"Conversation {conversation} begins."}]
    for number in range(turn):
        said += [
            {"role": "assistant", "content": f"Answer {number}."},
            {"role": "user", "content": f"Question {number}."},
        ]
    body = {"model": "chat", "messages": said, "max_tokens": 2}
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    urllib.request.urlopen(request, timeout=WITHIN_S).close()


def compared(folder: Path) -> SplitComparison:
    logged = LoggedTraffic("", folder / "splitsecond.yaml", 1.0)
    route = LoggedRoute(logged, "chat", "", 1000)
    assert not (route.requests.calls.outcome == CANCELLED).all()
    info = logged.facts(route.requests.targets)
    return compare_arms(route.requests, route.now, info, route="chat", within=0.05)


def test_conversations_keep_their_arm(served: ServedGateway, tmp_path: Path) -> None:
    settings = SETTINGS.format(folder=tmp_path, url=served.simulated.base_url, policy=POLICY)
    (tmp_path / "splitsecond.yaml").write_text(settings)
    for turn in range(2):  # the second in other processes
        with gateway(tmp_path) as process:
            url = ready(process)
            for conversation in range(CONVERSATIONS):
                ask(url, conversation, turn)
            process.terminate()
            process.wait(WITHIN_S)
    found = compared(tmp_path)  # raises where the log does not agree with the hash
    assert found.others == 0
    assert sum(arm.units for arm in found.arms) == CONVERSATIONS
    assert sum(arm.calls for arm in found.arms) == 2 * CONVERSATIONS
    assert min(arm.units for arm in found.arms) > 0
