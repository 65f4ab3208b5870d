"""Clients that people use, unchanged, before a gateway as it is run: two API formats behind it, six
features each.

The Python clients run in an environment of their own, the JavaScript ones in Node.js; `make
clients` installs both. Each client is one process, and prints what it made of the responses.
"""

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from tests.gateway.conftest import KEY, gateway, ready
from tests.simulator.on_loopback import WAIT_S
from tests.waiting import until

from splitsecond.simulator.process import RunningProvider, run_simulator

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENVIRONMENT = Path(os.environ.get("SPLITSECOND_CLIENTS", ROOT / "build/clients"))
PYTHON = (
    "langchain-openai",
    "langchain-anthropic",
    "pydantic-ai with openai",
    "pydantic-ai with anthropic",
    "openai-agents",
    "litellm with openai",
    "litellm with anthropic",
)
JAVASCRIPT = (
    "openai",
    "@anthropic-ai/sdk",
    "ai with @ai-sdk/openai",
    "ai with @ai-sdk/openai, responses",
    "ai with @ai-sdk/anthropic",
)
TARGETS = ("chat", "messages")
FEATURES = ("text", "stream", "tools", "structured", "error", "cancel")
LONGEST_S = 900
PARIS, SUNNY = "Paris is the capital of France.", "Take sunglasses to Bern."
MODEL = """
title = "A model"
model = "m"
[[table]]
concurrency = 1
ttft_ms = {{ p50 = 5, p95 = 6 }}
tps = {{ p50 = {tps}, p95 = {tps} }}
[[replies]]
prompt = "capital of France"
text = "{paris}"
[[replies]]
offers = "weather"
calls = [{{ name = "weather", arguments = {{ city = "Bern" }} }}]
[[replies]]
after = "weather"
text = "{sunny}"
"""
FORMATS = {"chat": "openai", "messages": "anthropic"}


class Front(Struct):
    """A gateway at `origin`, and the slow provider behind it."""

    origin: str
    slow: RunningProvider


@pytest.fixture(scope="module")
def front(system: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("clients")
    for name, tps in (("quick", 2000), ("slow", 20)):
        (folder / f"{name}.toml").write_text(MODEL.format(tps=tps, paris=PARIS, sunny=SUNNY))
    with run_simulator(str(folder / "quick.toml"), str(folder / "slow.toml")) as (quick, slow):
        lines = ["keys: [{name: web, key: env:WEB_KEY}]", "providers:"]
        for name, dialect in FORMATS.items():
            limited = 'headers: {x-splitsecond-fault: "429; retry_after=1"}'
            lines += [
                f"  {name}: {{base_url: '{quick.base_url}', dialect: {dialect}}}",
                f"  slow-{name}: {{base_url: '{slow.base_url}', dialect: {dialect}}}",
                f"  limited-{name}: {{base_url: '{quick.base_url}', dialect: {dialect}, "
                f"{limited}}}",
            ]
        (folder / "splitsecond.yaml").write_text("\n".join(lines))
        with gateway(folder) as process:
            yield Front(ready(process).removesuffix("/v1"), slow)


def results(
    command: list[str], script: str, client: str, front: Front
) -> dict[tuple[str, str], dict[str, Any]]:
    """What a client made of the responses, by target and feature."""
    if not ENVIRONMENT.exists():
        raise FileNotFoundError(f"{ENVIRONMENT} does not exist: run `make clients`")
    cancelled = closed(front.slow)
    ran = subprocess.run(
        [*command, "-", client, front.origin, KEY, *TARGETS],
        input=(HERE / script).read_text("utf-8"),
        cwd=ENVIRONMENT, capture_output=True, text=True, timeout=LONGEST_S, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"target"')]
    expected = cancelled + len(TARGETS)
    until(
        lambda: closed(front.slow) == expected, "the provider is not told that the client has gone"
    )
    return {(each["target"], each["feature"]): each["result"] for each in found}


def closed(provider: RunningProvider) -> int:
    """Return how many requests were closed before their end."""
    with urllib.request.urlopen(f"{provider.origin}/truth", timeout=WAIT_S) as answer:
        return sum(bool(one["closed_by_client"]) for one in json.loads(answer.read()))


def judge(found: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Fail where a feature did not work."""
    assert list(found) == [(target, feature) for target in TARGETS for feature in FEATURES]
    for (target, feature), result in found.items():
        where = f"{feature} of {target}: {result}"
        assert "failed" not in result, where
        match feature:
            case "text":
                assert result["text"] == PARIS, where
                assert result["tokens"] > 3, where
            case "stream":
                assert result["text"] == PARIS, where
                assert result["parts"] >= 2, where
            case "tools":
                assert result == {"called": "weather", "city": "Bern", "text": SUNNY}, where
            case "structured":
                assert isinstance(result["city"], str), where
                assert isinstance(result["days"], int), where
            case "error":
                assert result == {"status": 429, "typed": True}, where
            case "cancel":
                assert result == {"aborted": True}, where


@pytest.mark.parametrize("client", PYTHON)
def test_a_python_client(front: Front, client: str) -> None:
    judge(results([str(ENVIRONMENT / "bin/python")], "clients.py", client, front))


@pytest.mark.parametrize("client", JAVASCRIPT)
def test_a_javascript_client(front: Front, client: str) -> None:
    judge(results(["node", "--input-type=module"], "clients.mjs", client, front))
