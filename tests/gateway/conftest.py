"""The gateway as it is run: a process of its own, before a simulated provider and one that says what a test wants."""

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from tests.report.browser import browser

from splitsecond.simulator.process import Running, running

collect_ignore = [] if browser() or "CI" in os.environ else ["in_chromium"]  # in CI a missing one must show
KEY = "a-key-of-a-client-of-ours"
PROFILE = """
title = "Quick"
model = "quick"
source = "a test"
measured = "2025-06"
output_tokens = 20

[[table]]
concurrency = 1
ttft_ms = { p50 = 20, p95 = 22 }
tps = { p50 = 400, p95 = 380 }
"""
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

REFUSING = "  says-{status}: {{base_url: {simulated}, headers: {{x-splitsecond-fault: '{status}'}}}}"
STATUSES = (400, 401, 403, 404, 413, 422, 429, 500, 502, 503, 529)
"""With which providers named after them refuse whatever they are asked."""

EMBEDDINGS = b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.25, 1.50]}],"model":"m","usage":\
{"prompt_tokens":2,"total_tokens":2}}'


class Served(Struct):
    """A gateway that answers, and what is behind it. `asked`: headers and bodies that the canned provider got."""

    folder: Path

    base_url: str
    process: "subprocess.Popen[bytes]"
    simulated: Running
    asked: list[tuple[dict[str, str], Any]]


FORMED = b'{"city":"Bern","days":3}'
"""What the canned provider says where it is asked for a form."""


def _formed() -> bytes:
    message = {"role": "assistant", "content": FORMED.decode(), "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    whole = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return json.dumps(whole).encode()


def _stream() -> bytes:
    def call(**fields: Any) -> dict[str, Any]:
        delta = {"tool_calls": [{"index": 0, **fields}]}
        return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"} | {
            "choices": [{"index": 0, "delta": delta, "finish_reason": None}]
        }

    end = call() | {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    usage = call() | {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}
    chunks = [
        call(id="c0", type="function", function={"name": "weather", "arguments": ""}),
        call(function={"arguments": '{"city":'}),
        call(function={"arguments": '"Bern"}'}),
        end,
        usage,
    ]
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("gateway")
    asked: list[tuple[dict[str, str], Any]] = []

    class Canned(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            asked.append((dict(self.headers.items()), json.loads(body)))
            data = (
                EMBEDDINGS if self.path.endswith("/embeddings") else _formed() if b"json_schema" in body else _stream()
            )
            self.send_response(200)
            self.send_header("content-type", "application/json" if data.startswith(b"{") else "text/event-stream")
            self.send_header("set-cookie", "a=b")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nobody reads it."""

    (folder / "quick.toml").write_text(PROFILE)
    with ThreadingHTTPServer(("127.0.0.1", 0), Canned) as canned, running(str(folder / "quick.toml")) as (simulated,):
        thread = threading.Thread(target=canned.serve_forever)
        thread.start()
        try:
            settings = SETTINGS.format(
                simulated=simulated.base_url,
                canned=f"http://127.0.0.1:{canned.server_address[1]}/v1",
                refusing="\n".join(REFUSING.format(status=each, simulated=simulated.base_url) for each in STATUSES),
            )
            (folder / "splitsecond.yaml").write_text(settings)
            with gateway(folder) as process:
                yield Served(folder, ready(process), process, simulated, asked)
        finally:
            canned.shutdown()
            thread.join()


def gateway(folder: Path, *options: str) -> "subprocess.Popen[bytes]":
    """The process of a gateway with the configuration in `folder`."""
    environment = os.environ | {"WEB_KEY": KEY, "SMALL_KEY": KEY + "-2", "OURS": "sk-of-ours-123456"}
    return _Stopped(
        [sys.executable, "-m", "splitsecond.cli", "serve", "--port", "0", *options],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # so that `select` knows of each line that has come
    )


class _Stopped(subprocess.Popen[bytes]):
    """Stopped when its context ends."""

    def __exit__(self, *raised: Any) -> None:
        self.terminate()
        try:
            self.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()
        super().__exit__(*raised)


def ready(process: "subprocess.Popen[bytes]") -> str:
    """The base URL that the gateway prints when it answers."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 30)[0], "the gateway does not answer"
    word, url = process.stdout.readline().decode().split()
    assert word == "READY"
    return url


def heard(process: "subprocess.Popen[bytes]", words: str = "") -> str:
    """The next line with `words` that the gateway prints to its operator."""
    assert process.stderr is not None
    while select.select([process.stderr], [], [], 30)[0] and (line := process.stderr.readline().decode()):
        if words in line:
            return line
    raise AssertionError(f"the gateway has not said {words!r}")
