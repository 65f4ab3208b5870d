"""OpenAI's official library over a WebSocket as the client of a gateway, with targets of every API format."""

import contextlib
import json
from typing import Any

import openai
import pytest
from openai.resources.responses.responses import ResponsesConnection
from tests.gateway.conftest import KEY
from tests.gateway.dialects.conftest import SECONDS_LEFT, TARGETS, WITH_TOOLS, Behind, attempts
from tests.simulator.on_loopback import SAID, WAIT_S, closed_early
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from splitsecond.upstream.target import DIALECTS

pytestmark = pytest.mark.filterwarnings(
    "ignore:connect\\(\\) must be used:DeprecationWarning"
)  # raised by the openai library
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}


def events(connection: ResponsesConnection, **asked: Any) -> list[Any]:
    """Return the events of a response, up to its last one."""
    connection.response.create(**asked)
    found: list[Any] = []
    for event in connection:
        found.append(event)
        if event.type in ("response.completed", "response.incomplete", "error"):
            break
    return found


@pytest.mark.parametrize(
    "dialect", [dialect for dialect in DIALECTS if dialect != "replicate"]
)  # Replicate takes one message
def test_a_conversation(gpt: openai.OpenAI, dialect: str) -> None:
    asked: dict[str, Any] = {"model": TARGETS[dialect], "store": False, "max_output_tokens": 8}
    with gpt.responses.connect() as connection:
        first = events(connection, input="hello", **asked)
        assert "".join(event.delta for event in first if event.type == "response.output_text.delta") == SAID
        numbers = [event.sequence_number for event in first]
        assert numbers == list(range(numbers[0], numbers[0] + len(first)))
        second = events(connection, input="more", previous_response_id=first[-1].response.id, **asked)
        assert second[-1].response.output_text == SAID
        assert second[-1].response.usage.input_tokens > first[-1].response.usage.input_tokens


@pytest.mark.parametrize("dialect", WITH_TOOLS)
def test_a_tool_loop(gpt: openai.OpenAI, dialect: str) -> None:
    asked: dict[str, Any] = {"model": TARGETS[dialect], "store": False, "tools": [WEATHER], "max_output_tokens": 8}
    with gpt.responses.connect() as connection:
        first = events(connection, input="hello", tool_choice="required", **asked)[-1].response
        (call,) = first.output
        assert (call.type, call.name) == ("function_call", "weather")
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "Snow."}
        last = events(connection, input=[result], previous_response_id=first.id, **asked)[-1]
        assert last.response.output_text == SAID


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "responses"])
def test_the_request_that_a_target_receives(gpt: openai.OpenAI, behind: Behind, dialect: str) -> None:
    asked: dict[str, Any] = {"model": f"noted-{dialect}/m", "store": False, "tools": [WEATHER]}
    with gpt.responses.connect() as connection:
        first = events(connection, input="hello", **asked)[-1].response
        call = first.output[-1]
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "Snow."}
        events(connection, input=[result], previous_response_id=first.id, **asked)
    body = behind.requests[1].body
    assert body["stream"] is True
    assert "previous_response_id" not in body
    whole = json.dumps(body["input" if dialect == "responses" else "messages"])
    assert [whole.count(words) for words in ("hello", "Well. ", "Bern", "Snow.")] == [1, 1, 1, 1]
    if dialect == "responses":
        assert body["store"] is False
        assert not any("id" in item for item in body["input"])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_errors(gpt: openai.OpenAI, dialect: str) -> None:
    target = TARGETS[dialect]
    with gpt.responses.connect() as connection:
        (limited,) = events(connection, model=f"limited-{target}", input="hello")
        assert (limited.status, limited.error.type) == (429, "rate_limit_error")
        assert limited.error.headers["retry-after"] in SECONDS_LEFT
        for fault in ("cut", "error"):
            seen = events(connection, model=f"{fault}-{target}", input="hello", max_output_tokens=8)
            assert any(event.type == "response.output_text.delta" for event in seen)
            assert (seen[-1].type, seen[-1].status) == ("error", 502)
        assert events(connection, model=target, input="hello", max_output_tokens=8)[-1].type != "error"


def socket(behind: Behind, path: str = "/v1/responses", key: str = KEY) -> ClientConnection:
    url = f"ws{behind.origin.removeprefix('http')}{path}"
    return connect(url, additional_headers={"authorization": f"Bearer {key}"}, open_timeout=WAIT_S)


@pytest.mark.parametrize(("path", "key", "status"), [("/v1/responses", "no", 401), ("/v1/messages", KEY, 426)])
def test_a_refused_upgrade(behind: Behind, path: str, key: str, status: int) -> None:
    with pytest.raises(InvalidStatus) as refused, socket(behind, path, key):
        pass
    assert refused.value.response.status_code == status


@pytest.mark.parametrize("closes", [True, False])
def test_a_client_that_leaves_ends_its_response(behind: Behind, closes: bool) -> None:
    with socket(behind) as connection:
        assert connection.ping().wait(WAIT_S)
        asked = {"type": "response.create", "model": TARGETS["anthropic"], "input": "hi", "max_output_tokens": 30_000}
        connection.send(json.dumps(asked))
        identity = json.loads(connection.recv(WAIT_S))["response"]["id"].replace("resp_", "req-")
        if not closes:
            connection.socket.close()
    assert any(closed_early(behind.simulated.quick, name, 30_000) for name in attempts(behind, identity))


def test_a_message_that_is_too_long_ends_the_websocket(behind: Behind) -> None:
    with socket(behind) as connection:
        with contextlib.suppress(ConnectionClosed):  # it fails while sending, or later
            connection.send(" " * ((32 << 20) + 1))
        with pytest.raises(ConnectionClosed):
            connection.recv(WAIT_S)
