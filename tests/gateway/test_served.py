"""The gateway over sockets, with the official library of OpenAI and with curl, before simulated
providers."""

import asyncio
import json
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
from openai.types.chat import (
    ChatCompletionMessageFunctionToolCall,
    ChatCompletionMessageParam,
    ChatCompletionToolParam,
)
from tests.gateway.conftest import KEY, ServedGateway, gateway, heard, ready
from tests.waiting import WITHIN_S, until

from splitsecond.routing.configuration.file_schema import schema_text

pytestmark = pytest.mark.system

ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object"}},
}


@pytest.fixture
def client(served: ServedGateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=served.base_url, api_key=KEY, max_retries=0, timeout=WITHIN_S
    ) as found:
        yield found


def closed_by_us(served: ServedGateway, count: int) -> None:
    """Return when the simulated provider has seen `count` more closed requests than when it was
    cleared."""
    until(lambda: closed(served) >= count, f"not {count} of the requests were closed")


def closed(served: ServedGateway) -> int:
    """Return how many closed requests the simulated provider has seen since it was cleared."""
    with urllib.request.urlopen(f"{served.simulated.origin}/truth", timeout=WITHIN_S) as answer:
        records: list[dict[str, Any]] = json.load(answer)
    return sum(record["closed_by_client"] for record in records)


def breaks_off(served: ServedGateway, ask: Callable[[], None]) -> None:
    """Call `ask` until the simulated provider sees that one of its requests was closed early.

    On a busy machine a request can be closed before it is sent.
    """
    before = closed(served)

    def asked() -> bool:
        ask()
        return closed(served) > before

    until(asked, "no request was closed after it had been sent")


def cleared(served: ServedGateway) -> None:
    request = urllib.request.Request(f"{served.simulated.origin}/truth", method="DELETE")
    urllib.request.urlopen(request, timeout=WITHIN_S).close()


def test_a_stream(client: openai.OpenAI) -> None:
    answer = client.chat.completions.with_raw_response.create(
        model="sim/quick", messages=ASK, stream=True
    )
    assert answer.headers["x-splitsecond-target"] == "sim/quick"
    assert answer.headers["x-splitsecond-attempts"] == "1"
    chunks = list(answer.parse())
    assert sum(bool(chunk.choices[0].delta.content) for chunk in chunks) == 20
    assert chunks[-1].choices[0].finish_reason
    asked = client.chat.completions.create(
        model="sim/quick", messages=ASK, stream=True, stream_options={"include_usage": True}
    )
    usage = list(asked)[-1].usage
    assert usage is not None
    assert usage.completion_tokens == 20


def test_an_answer_and_a_completion(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="sim/quick", messages=ASK, max_tokens=5)
    assert answer.choices[0].message.content
    assert answer.usage is not None
    completion = client.completions.create(model="sim/quick", prompt="hi", max_tokens=5)
    assert completion.choices[0].text


def test_tools_and_unknown_fields_pass_in_both_directions(
    client: openai.OpenAI, served: ServedGateway
) -> None:
    served.asked.clear()
    answer = client.chat.completions.create(
        model="canned/m",
        messages=ASK,
        tools=[TOOL],
        extra_headers={"cookie": "a=b"},
        extra_body={"odd": {"x": [1]}},
    )
    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    (call,) = calls
    assert isinstance(call, ChatCompletionMessageFunctionToolCall)
    assert (call.id, call.function.name, call.function.arguments) == (
        "c0",
        "weather",
        '{"city":"Bern"}',
    )
    raw = client.chat.completions.with_raw_response.create(
        model="canned/m", messages=ASK, tools=[TOOL], stream=True
    )
    assert "set-cookie" not in raw.headers
    chunks = list(raw.parse())
    assert all(chunk.choices for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    headers, body = served.asked[0]
    assert body["tools"] == [TOOL]
    assert body["odd"] == {"x": [1]}
    assert body["model"] == "m"
    assert headers["authorization"] == "Bearer sk-of-ours-123456"
    assert "cookie" not in {name.lower() for name in headers}


def test_policies_and_their_failures(client: openai.OpenAI, served: ServedGateway) -> None:
    cleared(served)

    def race() -> None:
        raced = client.chat.completions.with_raw_response.create(model="fast", messages=ASK)
        assert raced.headers["x-splitsecond-target"] == "sim/quick"
        assert raced.headers["x-splitsecond-attempts"] == "2"

    breaks_off(served, race)
    saved = client.chat.completions.with_raw_response.create(model="safe", messages=ASK)
    assert saved.headers["x-splitsecond-target"] == "sim/quick"
    with pytest.raises(openai.RateLimitError) as limited:
        client.chat.completions.create(model="down/quick", messages=ASK)
    assert limited.value.response.headers["retry-after"] == "7"
    with pytest.raises(openai.InternalServerError, match="100ms"):
        client.chat.completions.create(model="late", messages=ASK)


def test_truncated_response_is_an_error(client: openai.OpenAI) -> None:
    begun = client.chat.completions.create(model="cut/quick", messages=ASK, stream=True)
    with pytest.raises(openai.APIError, match="closed before the end"):
        list(begun)
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="cut/quick", messages=ASK)


def test_keys_see_only_their_routes_and_models(
    client: openai.OpenAI, served: ServedGateway
) -> None:
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="nope", messages=ASK)
    assert [model.id for model in client.models.list()] == ["fast", "safe", "late"]
    small = client.with_options(api_key=KEY + "-2")
    assert [model.id for model in small.models.list()] == ["fast"]
    with pytest.raises(openai.NotFoundError):
        small.chat.completions.create(model="sim/quick", messages=ASK)
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()


def test_disconnect_of_a_client_closes_its_attempts(
    client: openai.OpenAI, served: ServedGateway
) -> None:
    cleared(served)
    stream = client.chat.completions.create(
        model="sim/quick", messages=ASK, stream=True, max_tokens=4000
    )
    next(iter(stream))
    stream.close()
    closed_by_us(served, 1)
    hurried = client.with_options(timeout=0.3).chat.completions
    for streamed in (True, False):

        def leave(streamed: bool = streamed) -> None:
            with pytest.raises(openai.APITimeoutError):
                hurried.create(model="stuck/quick", messages=ASK, stream=streamed)

        breaks_off(served, leave)


def test_the_asynchronous_library(served: ServedGateway) -> None:
    async def main() -> None:
        async with openai.AsyncOpenAI(
            base_url=served.base_url, api_key=KEY, max_retries=0, timeout=WITHIN_S
        ) as client:

            async def one() -> int:
                stream = await client.chat.completions.create(
                    model="sim/quick", messages=ASK, stream=True
                )
                return sum([1 async for chunk in stream if chunk.choices[0].delta.content])

            async with asyncio.TaskGroup() as group:
                asking = [group.create_task(one()) for _ in range(16)]
            assert [task.result() for task in asking] == [20] * 16

    asyncio.run(main())


def test_curl(served: ServedGateway) -> None:
    curl = shutil.which("curl")
    assert curl is not None
    body = '{"model":"sim/quick","stream":true,"messages":[{"role":"user","content":"hi"}]}'
    headers = ["-H", "content-type: application/json", "-H", f"authorization: Bearer {KEY}"]
    url = f"{served.base_url}/chat/completions"
    command = [curl, "-sSN", "--noproxy", "*", "--max-time", "10", *headers, "-d", body, url]
    ended = subprocess.run(command, capture_output=True, check=True, timeout=WITHIN_S)
    assert ended.stdout.endswith(b"data: [DONE]\n\n")
    assert ended.stdout.count(b'"content":') == 21


@pytest.mark.parametrize("head", [b"x: " + b"a" * 200_000, b"x: a\r\n" * 200 + b"\r\n"])
def test_endless_headers_are_refused_with_431(served: ServedGateway, head: bytes) -> None:
    place = urlsplit(served.base_url)
    with socket.create_connection(
        (place.hostname or "", place.port or 0), timeout=WITHIN_S
    ) as line:
        try:
            line.sendall(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n" + head)
            said = line.recv(4096)
        except ConnectionError:
            return  # closed while we were still sending
        assert said.startswith(b"HTTP/1.1 431 ")


@pytest.mark.system
def test_gateway_ends_cleanly_and_prints_no_keys(tmp_path: Path) -> None:
    (tmp_path / "splitsecond.yaml").write_text("keys: [{name: web, key: env:WEB_KEY}]")
    with gateway(tmp_path) as process:
        url = ready(process)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{url}/models?key={KEY}", timeout=WITHIN_S)
        refused.value.close()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=WITHIN_S)
    assert process.returncode in (0, -signal.SIGTERM)
    assert KEY.encode() not in out + err
    assert b"Traceback" not in err


def test_stream_in_flight_is_completed_after_sigterm(served: ServedGateway, tmp_path: Path) -> None:
    (tmp_path / "splitsecond.yaml").write_text(
        f"providers: {{sim: {{base_url: '{served.simulated.base_url}'}}}}"
    )
    with gateway(tmp_path) as process:
        with openai.OpenAI(
            base_url=ready(process), api_key="none", max_retries=0, timeout=WITHIN_S
        ) as client:
            stream = iter(
                client.chat.completions.create(
                    model="sim/quick", messages=ASK, stream=True, max_tokens=200
                )
            )
            next(stream)
            process.send_signal(signal.SIGTERM)
            assert sum(bool(chunk.choices[0].delta.content) for chunk in stream) == 200
        process.wait(WITHIN_S)


@pytest.mark.system
def test_start_on_a_public_address_without_keys_is_refused(tmp_path: Path) -> None:
    with gateway(tmp_path, "--host", "0.0.0.0") as process:
        _, err = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 2
    assert b"without keys" in err


@pytest.mark.system
def test_check_option_prints_the_checkup_and_exits_0(tmp_path: Path) -> None:
    (tmp_path / "splitsecond.yaml").write_text("routes: {}")
    with gateway(tmp_path, "--check") as process:
        out, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0
    assert b"ok: 0 routes, 0 keys, listens on 127.0.0.1:0, 1 worker" in out


@pytest.mark.system
def test_the_schema_is_printed(tmp_path: Path) -> None:
    with gateway(tmp_path, "--schema") as process:
        out, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0
    assert out.decode() == schema_text() + "\n"


@pytest.mark.system
def test_start_without_configuration_is_reported(tmp_path: Path) -> None:
    with gateway(tmp_path) as process:
        url = ready(process)
        assert "no configuration" in heard(process)
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(f"{url}/none", timeout=WITHIN_S)
        refused.value.close()
