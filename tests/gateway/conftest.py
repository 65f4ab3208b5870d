"""The gateway as it is run: a process of its own, before a simulated provider and one that says
what a test wants."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from tests.http_server import Received, Response, http_server
from tests.processes import Process
from tests.report.browser import browser
from tests.waiting import START_S

from splitsecond.simulator.process import RunningProvider, run_simulator

# in CI a missing one must show
collect_ignore = [] if browser() or "CI" in os.environ else ["in_chromium"]
KEY = "a-key-of-a-client-of-ours"
SETTINGS = """
keys: [{{name: web, key: env:WEB_KEY}}, {{name: small, key: env:SMALL_KEY, routes: [fast]}}]
providers:
  sim: {{base_url: {simulated}}}
  cut: {{base_url: {simulated}, headers: {{x-splitsecond-fault: "cut; after=3"}}}}
  down: {{base_url: {simulated}, headers: {{x-splitsecond-fault: "429; retry_after=7"}}}}
  stuck: {{base_url: {simulated}, headers: {{x-splitsecond-fault: "slow_first_token; seconds=60"}}}}
  canned: {{base_url: {canned}, api_key: env:OURS}}
  whole: {{base_url: {canned}, api_key: env:OURS, stream: false}}
{refusing}
routes:
  fast: {{policy: 'race("sim/quick", "stuck/quick")'}}
  safe: {{policy: 'fallback("down/quick", "sim/quick")'}}
  late: {{policy: 'deadline("stuck/quick", ttft="100ms")'}}
"""

REFUSING = (
    "  says-{status}: {{base_url: {simulated}, headers: {{x-splitsecond-fault: '{status}'}}}}"
)
STATUSES = (400, 401, 403, 404, 413, 422, 429, 500, 502, 503, 529)
"""With which providers named after them refuse whatever they are asked."""

EMBEDDINGS = b'{"object":"list","data":[{"object":"embedding","index":0,\
"embedding":[0.25, 1.50]}],"model":"m","usage":\
{"prompt_tokens":2,"total_tokens":2}}'


class ServedGateway(Struct):
    """A gateway that answers, and what is behind it. `asked`: headers and bodies that the canned
    provider got."""

    folder: Path

    base_url: str
    process: "subprocess.Popen[bytes]"
    simulated: RunningProvider
    asked: list[tuple[dict[str, str], Any]]


FORMED = b'{"city":"Bern","days":3}'
"""What the canned provider says where it is asked for a form."""


def _formed() -> bytes:
    message = {"role": "assistant", "content": FORMED.decode(), "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    whole = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }
    return json.dumps(whole).encode()


def _stream() -> bytes:
    def call(**fields: Any) -> dict[str, Any]:
        delta = {"tool_calls": [{"index": 0, **fields}]}
        return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"} | {
            "choices": [{"index": 0, "delta": delta, "finish_reason": None}]
        }

    end = call() | {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    usage = call() | {
        "choices": [],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }
    chunks = [
        call(id="c0", type="function", function={"name": "weather", "arguments": ""}),
        call(function={"arguments": '{"city":'}),
        call(function={"arguments": '"Bern"}'}),
        end,
        usage,
    ]
    return (
        b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
        + b"data: [DONE]\n\n"
    )


@pytest.fixture(scope="session")
def served(
    quick_profile: Path, system: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedGateway]:
    folder = tmp_path_factory.mktemp("gateway")
    asked: list[tuple[dict[str, str], Any]] = []

    def canned(request: Received) -> Response:
        asked.append((dict(request.headers), json.loads(request.body)))
        if request.path.endswith("/embeddings"):
            data = EMBEDDINGS
        else:
            data = _formed() if b"json_schema" in request.body else _stream()
        kind = "application/json" if data.startswith(b"{") else "text/event-stream"
        return Response(data, headers={"content-type": kind, "set-cookie": "a=b"})

    with http_server(canned) as url, run_simulator(str(quick_profile)) as (simulated,):
        settings = SETTINGS.format(
            simulated=simulated.base_url,
            canned=f"{url}/v1",
            refusing="\n".join(
                REFUSING.format(status=each, simulated=simulated.base_url) for each in STATUSES
            ),
        )
        (folder / "splitsecond.yaml").write_text(settings)
        with gateway(folder) as process:
            yield ServedGateway(folder, ready(process), process, simulated, asked)


def gateway(folder: Path, *options: str, before: tuple[str, ...] = ()) -> "subprocess.Popen[bytes]":
    """The process of a gateway with the configuration in `folder`. `before`: a command that runs
    it."""
    environment = os.environ | {
        "WEB_KEY": KEY,
        "SMALL_KEY": KEY + "-2",
        "OURS": "sk-of-ours-123456",
    }
    return Process(
        [*before, sys.executable, "-m", "splitsecond.cli", "serve", "--port", "0", *options],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # so that `select` knows of each line that has come
    )


def ready(process: "subprocess.Popen[bytes]") -> str:
    """The base URL that the gateway prints when it answers."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], START_S)[0], "the gateway does not answer"
    word, url, page = process.stdout.readline().decode().split()
    assert (word, page) == ("READY", f"dashboard={url.removesuffix('/v1')}/dashboard")
    return url


def heard(process: "subprocess.Popen[bytes]", words: str = "") -> str:
    """The next line with `words` that the gateway prints to its operator."""
    assert process.stderr is not None
    while select.select([process.stderr], [], [], START_S)[0] and (
        line := process.stderr.readline().decode()
    ):
        if words in line:
            return line
    raise AssertionError(f"the gateway has not said {words!r}")
