"""A simulator in its own process on the loopback, called by OpenAI's client: its Responses API, and
tools in a chat."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from tests.simulator.on_loopback import SAID, WAIT_S, closed_early, faulty, records

from splitsecond.simulator.process import RunningProvider

pytestmark = pytest.mark.system

WEATHER: dict[str, Any] = {
    "name": "weather",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}


def a_client(of: RunningProvider) -> openai.OpenAI:
    return openai.OpenAI(base_url=of.base_url, api_key="none", max_retries=0, timeout=WAIT_S)


@pytest.fixture
def client(quick: RunningProvider) -> Iterator[openai.OpenAI]:
    with a_client(quick) as made:
        yield made


def test_a_stream(client: openai.OpenAI, quick: RunningProvider) -> None:
    stream = client.responses.create(
        model=quick.model,
        input="hello",
        max_output_tokens=8,
        stream=True,
        extra_headers={"x-client-request-id": "responses"},
    )
    events = list(stream)
    assert [event.type.removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * 8,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "incomplete",
    ]
    (found,) = records(quick, "responses")
    assert len(found["planned_ns"]) == len(found["actual_ns"]) == 8


def test_the_response_that_a_stream_amounts_to(thinker: RunningProvider) -> None:
    with (
        a_client(thinker) as client,
        client.responses.stream(model=thinker.model, input="hello") as stream,
    ):
        final = stream.get_final_response()
    assert [item.type for item in final.output] == ["reasoning", "message"]
    assert (final.output_text, final.status) == ("A simulated provider says", "completed")
    assert final.usage is not None
    assert (final.usage.input_tokens, final.usage.output_tokens) == (13, 6)
    assert final.usage.output_tokens_details.reasoning_tokens == 2


def test_a_whole_answer(client: openai.OpenAI, quick: RunningProvider) -> None:
    answer = client.responses.create(model=quick.model, input="hello", max_output_tokens=3)
    assert (answer.output_text, answer.status) == ("A simulated provider", "incomplete")
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize("stream", [True, False])
def test_a_tool_call_in_a_response(
    client: openai.OpenAI, quick: RunningProvider, stream: bool
) -> None:
    asked: dict[str, Any] = {
        "model": quick.model,
        "input": "hello",
        "tools": [{"type": "function", **WEATHER}],
        "tool_choice": "required",
    }
    if stream:
        with client.responses.stream(**asked) as events:
            (call,) = events.get_final_response().output
    else:
        (call,) = client.responses.create(**asked).output
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments)) == ("weather", {})


@pytest.mark.parametrize("stream", [True, False])
def test_a_tool_call_in_a_chat(client: openai.OpenAI, quick: RunningProvider, stream: bool) -> None:
    asked: dict[str, Any] = {
        "model": quick.model,
        "messages": [{"role": "user", "content": "hello"}],
        "tools": [{"type": "function", "function": WEATHER}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
    }
    if stream:
        with client.chat.completions.stream(**asked) as events:
            completion = events.get_final_completion()
    else:
        completion = client.chat.completions.create(**asked)
    choice = completion.choices[0]
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert (call.id.partition("_")[0], call.function.name, choice.finish_reason) == (
        "call",
        "weather",
        "tool_calls",
    )
    assert json.loads(call.function.arguments) == {}


def test_async(quick: RunningProvider) -> None:
    async def play() -> tuple[str, str]:
        async with openai.AsyncOpenAI(
            base_url=quick.base_url, api_key="none", timeout=WAIT_S
        ) as client:
            whole = await client.responses.create(model=quick.model, input="hello")
            stream = await client.responses.create(model=quick.model, input="hello", stream=True)
            deltas = [
                event.delta async for event in stream if event.type == "response.output_text.delta"
            ]
            return whole.output_text, "".join(deltas)

    assert asyncio.run(play()) == (SAID, SAID)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("429; retry_after=3", openai.RateLimitError),
        ("500", openai.InternalServerError),
        ("401", openai.AuthenticationError),
    ],
)
def test_http_errors(
    client: openai.OpenAI, quick: RunningProvider, fault: str, error: type[openai.APIStatusError]
) -> None:
    with pytest.raises(error, match="a simulated error") as caught:
        client.responses.create(model=quick.model, input="hello", extra_headers=faulty(fault))
    assert caught.value.status_code == int(fault[:3])


def test_invalid_requests(client: openai.OpenAI, quick: RunningProvider) -> None:
    with pytest.raises(openai.NotFoundError, match="this provider serves 'quick-model'"):
        client.responses.create(model="other", input="hello")
    with pytest.raises(openai.BadRequestError, match=r"\$.max_output_tokens"):
        client.responses.create(model=quick.model, input="hello", max_output_tokens=0)


def test_an_error_inside_a_200(client: openai.OpenAI, quick: RunningProvider) -> None:
    asked = faulty("error_event; after=2")
    events = list(
        client.responses.create(model=quick.model, input="hello", stream=True, extra_headers=asked)
    )
    assert [event.type for event in events].count("response.output_text.delta") == 2
    assert events[-1].type == "error"
    assert "the model failed while it answered" in events[-1].message


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("cut; after=3", "Connection error"),
        ("malformed; after=3", "Unterminated string"),
    ],
)
def test_a_stream_that_breaks(
    client: openai.OpenAI, quick: RunningProvider, fault: str, words: str
) -> None:
    stream = client.responses.create(
        model=quick.model, input="hello", stream=True, extra_headers=faulty(fault)
    )
    seen: list[str] = []
    with pytest.raises(Exception, match=words):
        seen.extend(event.type for event in stream)
    assert seen.count("response.output_text.delta") == 3


def test_an_early_close_ends_the_stream_on_the_server(
    client: openai.OpenAI, quick: RunningProvider
) -> None:
    stream = client.responses.create(
        model=quick.model,
        input="hello",
        max_output_tokens=30_000,
        stream=True,
        extra_headers={"x-client-request-id": "early responses"},
    )
    next(iter(stream))
    stream.close()
    assert closed_early(quick, "early responses", 30_000)
