"""A simulator in its own process on the loopback, called by Anthropic's official client,
synchronous and async."""

import asyncio
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic.types import MessageParam
from tests.simulator.on_loopback import SAID, WAIT_S, closed_early, faulty, records

from splitsecond.simulator.process import RunningProvider

pytestmark = pytest.mark.system

HELLO: list[MessageParam] = [{"role": "user", "content": "hello"}]


@pytest.fixture
def client(quick: RunningProvider) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=quick.origin, api_key="none", max_retries=0, timeout=WAIT_S
    ) as made:
        yield made


def an_async_client(quick: RunningProvider) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(
        base_url=quick.origin, api_key="none", max_retries=0, timeout=WAIT_S
    )


def test_a_stream(client: anthropic.Anthropic, quick: RunningProvider) -> None:
    stream = client.messages.create(
        model=quick.model,
        max_tokens=8,
        system="Be brief.",
        messages=HELLO,
        stream=True,
        extra_headers={"x-client-request-id": "official"},
    )
    events = list(stream)
    assert [event.type for event in events] == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * 8,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    (found,) = records(quick, "official")
    assert len(found["planned_ns"]) == len(found["actual_ns"]) == 8
    assert all(
        actual >= planned
        for planned, actual in zip(found["planned_ns"], found["actual_ns"], strict=True)
    )


def test_the_message_that_a_stream_amounts_to(
    client: anthropic.Anthropic, quick: RunningProvider
) -> None:
    with client.messages.stream(model=quick.model, max_tokens=8, messages=HELLO) as stream:
        assert "".join(stream.text_stream) == SAID
        message = stream.get_final_message()
    assert (message.role, message.model, message.stop_reason) == (
        "assistant",
        quick.model,
        "max_tokens",
    )
    assert message.id.startswith("msg_")
    assert (message.usage.input_tokens, message.usage.output_tokens) == (13, 8)


def test_a_whole_answer(client: anthropic.Anthropic, quick: RunningProvider) -> None:
    message = client.messages.create(model=quick.model, max_tokens=3, messages=HELLO)
    (block,) = message.content
    assert block.type == "text"
    assert block.text == "A simulated provider"
    assert (message.type, message.stop_reason, message.usage.output_tokens) == (
        "message",
        "max_tokens",
        3,
    )
    assert [model.id for model in client.models.list()] == [quick.model]


@pytest.mark.parametrize("stream", [True, False])
def test_reasoning(thinker: RunningProvider, stream: bool) -> None:
    asked: dict[str, Any] = {"model": thinker.model, "max_tokens": 8, "messages": HELLO}
    with anthropic.Anthropic(
        base_url=thinker.origin, api_key="none", max_retries=0, timeout=WAIT_S
    ) as client:
        if stream:
            with client.messages.stream(**asked) as events:
                message = events.get_final_message()
        else:
            message = client.messages.create(**asked)
    thought, said = message.content
    assert thought.type == "thinking"
    assert thought.thinking == "A simulated"
    assert said.type == "text"
    assert (said.text, message.stop_reason) == ("A simulated provider says", "end_turn")


@pytest.mark.parametrize("stream", [True, False])
def test_a_tool_call(client: anthropic.Anthropic, quick: RunningProvider, stream: bool) -> None:
    asked: dict[str, Any] = {
        "model": quick.model,
        "max_tokens": 8,
        "messages": HELLO,
        "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "any"},
    }
    if stream:
        with client.messages.stream(**asked) as events:
            message = events.get_final_message()
    else:
        message = client.messages.create(**asked)
    (call,) = message.content
    assert call.type == "tool_use"
    assert (call.name, call.input, message.stop_reason) == ("weather", {"text": SAID}, "tool_use")


def test_side_by_side_and_async(quick: RunningProvider) -> None:
    async def play() -> list[str]:
        async with an_async_client(quick) as client:

            async def ask(stream: bool) -> str:
                if not stream:
                    whole = await client.messages.create(
                        model=quick.model, max_tokens=8, messages=HELLO
                    )
                    return "".join(block.text for block in whole.content if block.type == "text")
                async with client.messages.stream(
                    model=quick.model, max_tokens=8, messages=HELLO
                ) as streamed:
                    return "".join([text async for text in streamed.text_stream])

            async with asyncio.TaskGroup() as tasks:
                asked = [tasks.create_task(ask(i % 2 == 0)) for i in range(8)]
            return [one.result() for one in asked]

    assert set(asyncio.run(play())) == {SAID}


@pytest.mark.parametrize(
    ("fault", "error", "kind"),
    [
        ("429; retry_after=3", anthropic.RateLimitError, "rate_limit_error"),
        ("500", anthropic.InternalServerError, "api_error"),
        ("529", anthropic.InternalServerError, "overloaded_error"),
        ("401", anthropic.AuthenticationError, "authentication_error"),
    ],
)
def test_http_errors(
    client: anthropic.Anthropic,
    quick: RunningProvider,
    fault: str,
    error: type[anthropic.APIStatusError],
    kind: str,
) -> None:
    with pytest.raises(error) as caught:
        client.messages.create(
            model=quick.model, max_tokens=8, messages=HELLO, extra_headers=faulty(fault)
        )
    assert caught.value.status_code == int(fault[:3])
    assert caught.value.type == kind
    assert caught.value.response.headers.get("retry-after") == ("3" if "retry" in fault else None)


def test_invalid_requests(client: anthropic.Anthropic, quick: RunningProvider) -> None:
    with pytest.raises(anthropic.NotFoundError, match="this provider serves 'quick-model'"):
        client.messages.create(model="other", max_tokens=8, messages=HELLO)
    with pytest.raises(anthropic.BadRequestError, match=r"\$.max_tokens"):
        client.messages.create(model=quick.model, max_tokens=0, messages=HELLO)
    with pytest.raises(anthropic.BadRequestError, match="is not a setting"):
        client.messages.create(
            model=quick.model, max_tokens=8, messages=HELLO, extra_headers=faulty("stall; share=1")
        )


def test_an_error_inside_a_200(client: anthropic.Anthropic, quick: RunningProvider) -> None:
    texts: list[str] = []
    with (
        pytest.raises(
            anthropic.APIStatusError, match="the model failed while it answered"
        ) as caught,
        client.messages.stream(
            model=quick.model,
            max_tokens=8,
            messages=HELLO,
            extra_headers=faulty("error_event; after=2"),
        ) as stream,
    ):
        texts.extend(stream.text_stream)
    assert texts == ["A", " simulated"]
    assert (caught.value.status_code, caught.value.type) == (200, "api_error")


@pytest.mark.parametrize(
    ("fault", "words"),
    [("cut; after=3", "peer closed connection"), ("malformed; after=3", "Unterminated string")],
)
def test_a_stream_that_breaks(
    client: anthropic.Anthropic, quick: RunningProvider, fault: str, words: str
) -> None:
    stream = client.messages.create(
        model=quick.model, max_tokens=8, messages=HELLO, stream=True, extra_headers=faulty(fault)
    )
    seen: list[str] = []
    with pytest.raises(Exception, match=words):
        seen.extend(event.type for event in stream)
    assert seen.count("content_block_delta") == 3


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_early_close_ends_the_stream_on_the_server(
    client: anthropic.Anthropic, quick: RunningProvider, asynchronous: bool
) -> None:
    request: dict[str, Any] = {
        "model": quick.model,
        "max_tokens": 30_000,
        "messages": HELLO,
        "stream": True,
        "extra_headers": {"x-client-request-id": f"early {asynchronous}"},
    }

    async def play() -> None:
        async with an_async_client(quick) as other:
            stream = await other.messages.create(**request)
            await anext(aiter(stream))
            await stream.close()

    if asynchronous:
        asyncio.run(play())
    else:
        stream = client.messages.create(**request)
        next(iter(stream))
        stream.close()
    assert closed_early(quick, f"early {asynchronous}", 30_000)
