"""A simulator in its own process on the loopback, called by Cohere's official client, synchronous
and async."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import cohere
import httpx
import pytest
from cohere.core.api_error import ApiError
from tests.simulator.on_loopback import SAID, WAIT_S, closed_early, faulty, records

from splitsecond.simulator.process import RunningProvider

pytestmark = pytest.mark.system

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
WEATHER: dict[str, Any] = {
    "tools": [
        {
            "type": "function",
            "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
        }
    ],
    "tool_choice": "REQUIRED",
}


@pytest.fixture
def client(quick: RunningProvider) -> Iterator[cohere.ClientV2]:
    with httpx.Client(timeout=WAIT_S) as connections:
        yield cohere.ClientV2(api_key="none", base_url=quick.origin, httpx_client=connections)


def options(fault: str = "", request_id: str = "") -> Any:
    named = {"x-client-request-id": request_id} if request_id else {}
    return {"max_retries": 0, "additional_headers": {**(faulty(fault) if fault else {}), **named}}


def texts(events: list[Any]) -> list[str]:
    return [event.delta.message.content.text for event in events if event.type == "content-delta"]


def test_a_stream(client: cohere.ClientV2, quick: RunningProvider) -> None:
    stream = client.chat_stream(
        model=quick.model, messages=HELLO, max_tokens=8, request_options=options("", "cohere")
    )
    events: list[Any] = list(stream)
    assert [event.type for event in events] == [
        "message-start",
        "content-start",
        *["content-delta"] * 8,
        "content-end",
        "message-end",
    ]
    assert "".join(texts(events)) == SAID
    end = events[-1].delta
    assert end.finish_reason == "MAX_TOKENS"
    assert (end.usage.tokens.input_tokens, end.usage.tokens.output_tokens) == (13, 8)
    (found,) = records(quick, "cohere")
    assert len(found["planned_ns"]) == len(found["actual_ns"]) == 8


def test_a_whole_answer(client: cohere.ClientV2, quick: RunningProvider) -> None:
    answer = client.chat(model=quick.model, messages=HELLO, max_tokens=3)
    assert answer.message.content is not None
    (block,) = answer.message.content
    assert block.type == "text"
    assert (block.text, answer.finish_reason) == ("A simulated provider", "MAX_TOKENS")


def test_reasoning(thinker: RunningProvider) -> None:
    with httpx.Client(timeout=WAIT_S) as connections:
        client = cohere.ClientV2(api_key="none", base_url=thinker.origin, httpx_client=connections)
        answer = client.chat(model=thinker.model, messages=HELLO)
        events: list[Any] = list(client.chat_stream(model=thinker.model, messages=HELLO))
    assert answer.message.content is not None
    assert [block.type for block in answer.message.content] == ["thinking", "text"]
    assert [event.type for event in events].count("content-start") == 2
    assert answer.finish_reason == events[-1].delta.finish_reason == "COMPLETE"


def test_a_tool_call(client: cohere.ClientV2, quick: RunningProvider) -> None:
    answer = client.chat(model=quick.model, messages=HELLO, **WEATHER)
    assert answer.message.tool_calls is not None
    (call,) = answer.message.tool_calls
    assert call.function is not None
    assert (call.id, call.function.name, answer.finish_reason) == (
        answer.id.replace("cohere-", "call_"),
        "weather",
        "TOOL_CALL",
    )
    assert json.loads(call.function.arguments or "") == {}
    events: list[Any] = list(client.chat_stream(model=quick.model, messages=HELLO, **WEATHER))
    (start,) = [event for event in events if event.type == "tool-call-start"]
    assert start.delta.message.tool_calls.function.name == "weather"
    fragments = [event for event in events if event.type == "tool-call-delta"]
    arguments = "".join(event.delta.message.tool_calls.function.arguments for event in fragments)
    assert json.loads(arguments) == {}


def test_async(quick: RunningProvider) -> None:
    async def play() -> tuple[str, str]:
        async with httpx.AsyncClient(timeout=WAIT_S) as connections:
            client = cohere.AsyncClientV2(
                api_key="none", base_url=quick.origin, httpx_client=connections
            )
            whole: Any = await client.chat(model=quick.model, messages=HELLO)
            events = [
                event async for event in client.chat_stream(model=quick.model, messages=HELLO)
            ]
            return whole.message.content[0].text, "".join(texts(events))

    assert asyncio.run(play()) == (SAID, SAID)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("429; retry_after=3", cohere.TooManyRequestsError),
        ("500", cohere.InternalServerError),
        ("401", cohere.UnauthorizedError),
    ],
)
def test_http_errors(
    client: cohere.ClientV2, quick: RunningProvider, fault: str, error: type[ApiError]
) -> None:
    with pytest.raises(error) as caught:
        client.chat(model=quick.model, messages=HELLO, request_options=options(fault))
    assert caught.value.status_code == int(fault[:3])
    assert "a simulated error" in str(caught.value.body)


def test_invalid_requests(client: cohere.ClientV2, quick: RunningProvider) -> None:
    with pytest.raises(cohere.NotFoundError, match="this provider serves 'quick-model'"):
        client.chat(model="other", messages=HELLO)
    with pytest.raises(cohere.BadRequestError, match=r"\$.max_tokens"):
        client.chat(model=quick.model, messages=HELLO, max_tokens=0)


def test_an_error_inside_a_200(client: cohere.ClientV2, quick: RunningProvider) -> None:
    asked = options("error_event; after=2")
    events: list[Any] = list(
        client.chat_stream(model=quick.model, messages=HELLO, request_options=asked)
    )
    assert texts(events) == ["A", " simulated"]
    assert events[-1].delta.finish_reason == "ERROR"
    assert "the model failed while it answered" in events[-1].delta.error


def test_a_stream_that_is_cut(client: cohere.ClientV2, quick: RunningProvider) -> None:
    events: list[Any] = []
    with pytest.raises(Exception, match="peer closed connection"):
        events.extend(
            client.chat_stream(
                model=quick.model, messages=HELLO, request_options=options("cut; after=3")
            )
        )
    assert len(texts(events)) == 3


def test_an_early_close_ends_the_stream_on_the_server(quick: RunningProvider) -> None:
    with httpx.Client(timeout=WAIT_S) as connections:
        client = cohere.ClientV2(api_key="none", base_url=quick.origin, httpx_client=connections)
        asked = options("", "early cohere")
        next(
            iter(
                client.chat_stream(
                    model=quick.model, messages=HELLO, max_tokens=30_000, request_options=asked
                )
            )
        )
    assert closed_early(quick, "early cohere", 30_000)
