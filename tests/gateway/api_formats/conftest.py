"""A gateway process with simulated targets of every API format, and with a target that records its
requests."""

import json
import urllib.request
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct
from tests.gateway.conftest import KEY, gateway, ready
from tests.http_server import Received, Response, http_server
from tests.simulator.on_loopback import WAIT_S, Providers, providers
from tests.waiting import until

from splitsecond.core.events import Usage
from splitsecond.core.upstream.target import API_FORMATS
from splitsecond.core.wire.openai import StreamWriter

if TYPE_CHECKING:  # they take seconds to import, and the fast tests load this file too
    import anthropic
    import openai

PATHS = {
    "openai": "/v1",
    "anthropic": "/v1",
    "responses": "/v1",
    "gemini": "/v1beta",
    "cohere": "/v2",
    "ollama": "",
}
PATHS |= {"replicate": "/v1"}
TARGETS = {api_format: f"sim-{api_format}/quick-model" for api_format in API_FORMATS}
TARGETS["replicate"] = "sim-replicate/simulated/quick-model"
FAULTS = {
    "cut": "cut; after=6",
    "error": "error_event; after=6",
    "limited": "429; retry_after=3",
    "down": "500",
}
SECONDS_LEFT = ("1", "2", "3")
"""Values of `retry-after` for a limit of three seconds, which an earlier test may have hit."""
RESUMED = [
    (first, then)
    for first in ("openai", "anthropic", "responses")
    for then in ("openai", "anthropic", "responses")
]
"""Each pair has a route "FIRST-then-THEN": answers of the first target break, and the second
resumes them."""
WITH_TOOLS = [api_format for api_format in API_FORMATS if api_format not in ("ollama", "replicate")]
"""API formats in which a request can require a tool call."""


class TargetRequest(Struct):
    """A request that the recording target has received."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Behind(Struct):
    """A gateway, its simulated targets, and the requests that the recording target has received."""

    origin: str
    simulated: Providers
    requests: list[TargetRequest]

    def anthropic(self) -> "anthropic.Anthropic":
        import anthropic

        return anthropic.Anthropic(base_url=self.origin, api_key=KEY, max_retries=0, timeout=WAIT_S)

    def openai(self) -> "openai.OpenAI":
        import openai

        return openai.OpenAI(
            base_url=f"{self.origin}/v1", api_key=KEY, max_retries=0, timeout=WAIT_S
        )


def _configuration(simulated: Providers, noted: str) -> str:
    lines = ["keys: [{name: web, key: env:WEB_KEY}]", "providers:"]
    quick, thinker = simulated.quick.origin, simulated.thinker.origin
    for api_format, path in PATHS.items():
        lines.append(f"  sim-{api_format}: {{base_url: '{quick}{path}', api_format: {api_format}}}")
        lines.append(
            f"  thinks-{api_format}: {{base_url: '{thinker}{path}', api_format: {api_format}}}"
        )
        for word, fault in FAULTS.items():
            origin = simulated.slow.origin if "after" in fault else quick
            header = f'headers: {{x-splitsecond-fault: "{fault}"}}'
            lines.append(
                f"  {word}-sim-{api_format}: {{base_url: '{origin}{path}', api_format: "
                f"{api_format}, {header}}}"
            )
    lines += [
        f"  noted-{api_format}: {{base_url: '{noted}/v1', api_format: {api_format}, api_key: "
        f"env:OURS}}"
        for api_format in ("openai", "anthropic", "responses")
    ]
    lines.append(f"  noted-tools: {{base_url: '{noted}/v1', quirks: {{drop_tools: [web_search]}}}}")
    lines.append(f"  noted-prefix: {{base_url: '{noted}/v1', prefill: prefix}}")
    both = f'{TARGETS["replicate"]}", "{TARGETS["gemini"]}'
    lines += ["routes:", f"  either: {{policy: 'fallback(\"{both}\")'}}"]
    lines.append(
        f'  after-one-down: {{policy: \'fallback("down-{TARGETS["gemini"]}", '
        f'"{TARGETS["openai"]}")\'}}'
    )
    lines.append('  goes-on: {policy: \'fallback("noted-openai/m", "noted-prefix/m")\'}')
    # a provider of its own for each, so that none breaks often enough to be avoided
    for first, then in RESUMED:
        name, header = (
            f"{first}-then-{then}",
            f'headers: {{x-splitsecond-fault: "{FAULTS["cut"]}"}}',
        )
        place = f"{{base_url: '{quick}{PATHS[first]}', api_format: {first}, {header}}}"
        lines.insert(lines.index("providers:") + 1, f"  {name}: {place}")
        lines.append(
            f'  {name}: {{policy: \'fallback("{name}/quick-model", "{TARGETS[then]}")\', resume: '
            f"replay}}"
        )
    return "\n".join(lines)


def _answer(path: str) -> bytes:
    """Return a stream with text and a tool call, in the API format of `path`."""
    api_format = {"messages": "anthropic", "responses": "responses"}.get(
        path.rpartition("/")[2], "openai"
    )
    writer_of = API_FORMATS[api_format].StreamWriter  # type: ignore[attr-defined]
    writer: StreamWriter = writer_of("chat", "noted", id="id-1", created=1)
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
def behind(system: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    requests: list[TargetRequest] = []

    def record(request: Received) -> Response:
        requests.append(
            TargetRequest(request.path, dict(request.headers), json.loads(request.body))
        )
        data = (
            b'{"input_tokens":77}'
            if request.path.endswith("count_tokens")
            else _answer(request.path)
        )
        return Response(data, headers={"content-type": "text/event-stream"})

    folder = tmp_path_factory.mktemp("api_formats")
    with http_server(record) as noted, providers(folder) as simulated:
        (folder / "splitsecond.yaml").write_text(_configuration(simulated, noted))
        with gateway(folder) as process:
            yield Behind(ready(process).removesuffix("/v1"), simulated, requests)


@pytest.fixture
def claude(behind: Behind) -> "Iterator[anthropic.Anthropic]":
    behind.requests.clear()
    with behind.anthropic() as client:
        yield client


@pytest.fixture
def gpt(behind: Behind) -> "Iterator[openai.OpenAI]":
    behind.requests.clear()
    with behind.openai() as client:
        yield client


def attempts(behind: Behind, identity: str) -> list[str]:
    """Return the ids of the simulated provider for the requests of a call; waits for the first."""

    def known() -> list[str]:
        with urllib.request.urlopen(
            f"{behind.simulated.quick.origin}/truth", timeout=WAIT_S
        ) as answer:
            names = [str(record["request_id"]) for record in json.load(answer)]
        return [name for name in names if name.startswith(f"{identity}.")]

    return until(known, f"nothing was requests for {identity}")
