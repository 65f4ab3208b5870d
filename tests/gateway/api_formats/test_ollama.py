"""Ollama's official library as the client of a gateway, with targets of every API format."""

import base64
from collections.abc import Iterator
from typing import Any

import ollama
import pytest
from tests.gateway.api_formats.conftest import TARGETS, Behind
from tests.gateway.conftest import KEY
from tests.simulator.on_loopback import SAID, WAIT_S

from splitsecond.core.upstream.target import API_FORMATS

pytestmark = pytest.mark.system

HELLO = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
LIMIT = {"num_predict": 8}
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
PIXEL = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def llama(behind: Behind) -> Iterator[ollama.Client]:
    behind.requests.clear()
    with ollama.Client(
        host=behind.origin, headers={"authorization": f"Bearer {KEY}"}, timeout=WAIT_S
    ) as client:
        yield client


def chat(client: ollama.Client, stream: bool, model: str) -> None:
    ask: Any = client.chat
    list(ask(model=model, messages=HELLO, stream=stream))


@pytest.mark.parametrize("api_format", API_FORMATS)
def test_text(llama: ollama.Client, api_format: str) -> None:
    asked: dict[str, Any] = {"model": TARGETS[api_format], "messages": HELLO, "options": LIMIT}
    whole = llama.chat(**asked)
    assert (whole.message.role, whole.message.content, whole.done) == ("assistant", SAID, True)
    lines = list(llama.chat(stream=True, **asked))
    assert "".join(line.message.content or "" for line in lines) == SAID
    last = lines[-1]
    assert [line.done for line in lines] == [False] * (len(lines) - 1) + [True]
    assert (
        last.done_reason == whole.done_reason == ("stop" if api_format == "replicate" else "length")
    )
    if api_format != "replicate":  # its streams have no token counts
        assert last.eval_count == whole.eval_count == 8


@pytest.mark.parametrize("api_format", API_FORMATS)
def test_generated_text(llama: ollama.Client, api_format: str) -> None:
    asked: dict[str, Any] = {
        "model": TARGETS[api_format],
        "prompt": "hello",
        "system": "Be brief.",
        "options": LIMIT,
    }
    whole = llama.generate(**asked)
    assert (whole.response, whole.done) == (SAID, True)
    lines = list(llama.generate(stream=True, **asked))
    assert "".join(line.response or "" for line in lines) == SAID
    assert lines[-1].done


@pytest.mark.parametrize("api_format", ["openai", "anthropic", "gemini", "ollama"])
def test_reasoning(llama: ollama.Client, api_format: str) -> None:
    target = f"thinks-{api_format}/thinker"
    for message in (
        llama.chat(model=target, messages=HELLO, think=True).message,
        *[
            line.message
            for line in llama.chat(model=target, messages=HELLO, think=True, stream=True)
        ][:1],
    ):
        assert (message.thinking or "").strip() in ("A simulated", "A")
    assert llama.generate(model=target, prompt="hello", think=True).thinking == "A simulated"


@pytest.mark.parametrize("stream", [True, False])
def test_a_tool_call_and_its_result(llama: ollama.Client, behind: Behind, stream: bool) -> None:
    asked: dict[str, Any] = {"model": "noted-anthropic/m", "tools": [WEATHER]}
    if stream:
        messages = [line.message for line in llama.chat(messages=HELLO, stream=True, **asked)]
    else:
        messages = [llama.chat(messages=HELLO, **asked).message]
    (call,) = [call for message in messages for call in message.tool_calls or ()]
    assert (call.function.name, call.function.arguments) == ("weather", {"city": "Bern"})
    turns: list[Any] = [*HELLO, {"role": "assistant", "tool_calls": [call.model_dump()]}]
    llama.chat(
        messages=[*turns, {"role": "tool", "tool_name": "weather", "content": "Snow."}], **asked
    )
    made, answered = behind.requests[-1].body["messages"][1:]
    assert made["content"][0]["input"] == {"city": "Bern"}
    assert answered["content"][0]["tool_use_id"] == made["content"][0]["id"]


def test_the_request_that_a_target_receives(llama: ollama.Client, behind: Behind) -> None:
    llama.chat(
        model="noted-openai/m",
        messages=[
            {"role": "user", "content": "What?", "images": [base64.b64encode(PIXEL).decode()]}
        ],
        format={"type": "object"},
        options={"temperature": 0.5, "num_predict": 99, "num_ctx": 4096, "stop": ["END"]},
        keep_alive="5m",
    )
    (received,) = behind.requests
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    schema = {"name": "answer", "schema": {"type": "object"}, "strict": False}
    assert received.body == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": [{"type": "text", "text": "What?"}, image]}],
        "response_format": {"type": "json_schema", "json_schema": schema},
        "temperature": 0.5,
        "stop": ["END"],
        "max_tokens": 99,
    }


@pytest.mark.parametrize("api_format", ["openai", "gemini", "cohere", "ollama"])
def test_embeddings(llama: ollama.Client, api_format: str) -> None:
    answer = llama.embed(
        model=TARGETS[api_format], input=["a red house", "a blue car"], dimensions=16
    )
    house, car = answer.embeddings
    assert [len(house), len(car), house == car] == [16, 16, False]
    assert answer.prompt_eval_count or api_format == "gemini"
    one = llama.embeddings(model=TARGETS[api_format], prompt="a red house").embedding
    assert len(one) > 16


def test_models(llama: ollama.Client) -> None:
    assert "either" in [model.model for model in llama.list().models]


@pytest.mark.parametrize("stream", [True, False])
def test_errors(llama: ollama.Client, stream: bool) -> None:
    for model, status in (
        ("nope", 404),
        (f"limited-{TARGETS['openai']}", 429),
        (f"down-{TARGETS['gemini']}", 502),
    ):
        with pytest.raises(ollama.ResponseError) as failed:
            chat(llama, stream, model)
        assert failed.value.status_code == status
    with pytest.raises(ollama.ResponseError, match="suffix"):
        llama.generate(model=TARGETS["openai"], prompt="a", suffix="b")


@pytest.mark.parametrize("api_format", API_FORMATS)
@pytest.mark.parametrize("fault", ["cut", "error"])
def test_a_broken_answer(llama: ollama.Client, api_format: str, fault: str) -> None:
    for stream in (True, False):
        with pytest.raises(ollama.ResponseError):
            chat(llama, stream, f"{fault}-{TARGETS[api_format]}")
