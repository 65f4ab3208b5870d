"""A gateway as it is run, before simulated targets of every dialect and before one that notes what it is asked."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anthropic
import openai
import pytest
from msgspec import Struct
from tests.gateway.conftest import KEY, gateway, ready
from tests.simulator.on_loopback import PATIENCE, WAIT_S, Providers, providers

from splitsecond.events import Usage
from splitsecond.upstream.target import DIALECTS
from splitsecond.wire.openai import StreamWriter

PATHS = {"openai": "/v1", "anthropic": "/v1", "responses": "/v1", "gemini": "/v1beta", "cohere": "/v2", "ollama": ""}
PATHS |= {"replicate": "/v1"}
TARGETS = {dialect: f"sim-{dialect}/quick-model" for dialect in DIALECTS}
TARGETS["replicate"] = "sim-replicate/simulated/quick-model"
FAULTS = {"cut": "cut; after=6", "error": "error_event; after=6", "limited": "429; retry_after=3", "down": "500"}
CARRIED_ON = [
    (first, then) for first in ("openai", "anthropic", "responses") for then in ("openai", "anthropic", "responses")
]
"""There is a route for each, "FIRST-then-THEN", whose first target's answers break and are carried on by the other."""
WITH_TOOLS = [dialect for dialect in DIALECTS if dialect not in ("ollama", "replicate")]
"""Those to which one may say that a tool must be called."""


class Asked(Struct):
    """What the target that writes down was asked."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Behind(Struct):
    """A gateway, and what is behind it."""

    origin: str
    simulated: Providers
    asked: list[Asked]

    def anthropic(self) -> anthropic.Anthropic:
        return anthropic.Anthropic(base_url=self.origin, api_key=KEY, max_retries=0, timeout=WAIT_S)

    def openai(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.origin}/v1", api_key=KEY, max_retries=0, timeout=WAIT_S)


def _configuration(simulated: Providers, noted: str) -> str:
    lines = ["keys: [{name: web, key: env:WEB_KEY}]", "providers:"]
    quick, thinker = simulated.quick.origin, simulated.thinker.origin
    for dialect, path in PATHS.items():
        lines.append(f"  sim-{dialect}: {{base_url: '{quick}{path}', dialect: {dialect}}}")
        lines.append(f"  thinks-{dialect}: {{base_url: '{thinker}{path}', dialect: {dialect}}}")
        for word, fault in FAULTS.items():
            header = f'headers: {{x-splitsecond-fault: "{fault}"}}'
            lines.append(f"  {word}-sim-{dialect}: {{base_url: '{quick}{path}', dialect: {dialect}, {header}}}")
    lines += [
        f"  noted-{dialect}: {{base_url: '{noted}/v1', dialect: {dialect}, api_key: env:OURS}}"
        for dialect in ("openai", "anthropic", "responses")
    ]
    lines.append(f"  noted-prefix: {{base_url: '{noted}/v1', prefill: prefix}}")
    both = f'{TARGETS["replicate"]}", "{TARGETS["gemini"]}'
    lines += ["routes:", f"  either: {{policy: 'fallback(\"{both}\")'}}"]
    lines.append(f'  after-one-down: {{policy: \'fallback("down-{TARGETS["gemini"]}", "{TARGETS["openai"]}")\'}}')
    lines.append('  goes-on: {policy: \'fallback("noted-openai/m", "noted-prefix/m")\'}')
    for first, then in CARRIED_ON:  # each breaks too seldom to be left out
        name, header = f"{first}-then-{then}", f'headers: {{x-splitsecond-fault: "{FAULTS["cut"]}"}}'
        place = f"{{base_url: '{quick}{PATHS[first]}', dialect: {first}, {header}}}"
        lines.insert(lines.index("providers:") + 1, f"  {name}: {place}")
        lines.append(f'  {name}: {{policy: \'fallback("{name}/quick-model", "{TARGETS[then]}")\', resume: replay}}')
    return "\n".join(lines)


def _answer(path: str) -> bytes:
    """A stream with text and a call, in the dialect of `path`."""
    dialect = {"messages": "anthropic", "responses": "responses"}.get(path.rpartition("/")[2], "openai")
    writer: StreamWriter = DIALECTS[dialect].StreamWriter("chat", "noted", id="id-1", created=1)  # type: ignore[attr-defined]
    return b"".join(
        [
            writer.opening(),
            writer.token("Well. "),
            writer.tool_call("weather", "call_1"),
            writer.token('{"city":', "tool"),
            writer.token('"Bern"}', "tool"),
            writer.finish("tool_calls"),
            writer.usage(Usage(0, 20, 9, cached_tokens=5)),
            writer.done(),
        ]
    )


@pytest.fixture(scope="session")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    asked: list[Asked] = []

    class Noting(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            asked.append(Asked(self.path, {k.lower(): v for k, v in self.headers.items()}, json.loads(body)))
            data = b'{"input_tokens":77}' if self.path.endswith("count_tokens") else _answer(self.path)
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nobody reads it."""

    folder = tmp_path_factory.mktemp("dialects")
    with ThreadingHTTPServer(("127.0.0.1", 0), Noting) as noting, providers(folder) as simulated:
        thread = threading.Thread(target=noting.serve_forever)
        thread.start()
        try:
            noted = f"http://127.0.0.1:{noting.server_address[1]}"
            (folder / "splitsecond.yaml").write_text(_configuration(simulated, noted))
            with gateway(folder) as process:
                yield Behind(ready(process).removesuffix("/v1"), simulated, asked)
        finally:
            noting.shutdown()
            thread.join()


@pytest.fixture
def claude(behind: Behind) -> Iterator[anthropic.Anthropic]:
    behind.asked.clear()
    with behind.anthropic() as client:
        yield client


@pytest.fixture
def gpt(behind: Behind) -> Iterator[openai.OpenAI]:
    behind.asked.clear()
    with behind.openai() as client:
        yield client


def attempts(behind: Behind, identity: str) -> list[str]:
    """The names under which the simulated provider knows the requests for that call; waits for one."""
    for _ in range(PATIENCE):
        with urllib.request.urlopen(f"{behind.simulated.quick.origin}/truth", timeout=WAIT_S) as answer:
            known = [str(record["request_id"]) for record in json.load(answer)]
        if found := [name for name in known if name.startswith(f"{identity}.")]:
            return found
    raise AssertionError(f"nothing was asked for {identity}")
