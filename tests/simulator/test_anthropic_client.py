"""A simulator in its own process on loopback, asked by Anthropic's official client, synchronous and not."""

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic.types import MessageParam

from splitsecond.simulator.process import Running, running

QUICK = """
title = "Quick"
model = "quick-model"
output_tokens = 8
[[table]]
concurrency = 1
ttft_ms = { p50 = 20, p95 = 21 }
tps = { p50 = 500, p95 = 490 }
"""
HELLO: list[MessageParam] = [{"role": "user", "content": "hello"}]
SAID = "A simulated provider says nothing of interest,"
WAIT_S = 20


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    profile = tmp_path_factory.mktemp("profiles") / "quick.toml"
    profile.write_text(QUICK)
    with running(str(profile)) as (found,):
        yield found


@pytest.fixture
def client(quick: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=quick.origin, api_key="none", max_retries=0, timeout=WAIT_S) as made:
        yield made


def an_async_client(quick: Running) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=quick.origin, api_key="none", max_retries=0, timeout=WAIT_S)


def faulty(fault: str) -> dict[str, str]:
    return {"x-splitsecond-fault": fault}


def records(of: Running, request_id: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{of.origin}/truth", timeout=WAIT_S) as answer:
        return [one for one in json.loads(answer.read()) if one["request_id"] == request_id]


def test_a_stream(client: anthropic.Anthropic, quick: Running) -> None:
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
    assert all(actual >= planned for planned, actual in zip(found["planned_ns"], found["actual_ns"], strict=True))


def test_the_message_that_a_stream_amounts_to(client: anthropic.Anthropic, quick: Running) -> None:
    with client.messages.stream(model=quick.model, max_tokens=8, messages=HELLO) as stream:
        assert "".join(stream.text_stream) == SAID
        message = stream.get_final_message()
    assert (message.role, message.model, message.stop_reason) == ("assistant", quick.model, "max_tokens")
    assert message.id.startswith("msg_")
    assert (message.usage.input_tokens, message.usage.output_tokens) == (13, 8)


def test_a_whole_answer(client: anthropic.Anthropic, quick: Running) -> None:
    message = client.messages.create(model=quick.model, max_tokens=3, messages=HELLO)
    (block,) = message.content
    assert block.type == "text"
    assert block.text == "A simulated provider"
    assert (message.type, message.stop_reason, message.usage.output_tokens) == ("message", "max_tokens", 3)
    assert [model.id for model in client.models.list()] == [quick.model]


def test_side_by_side_and_async(quick: Running) -> None:
    async def play() -> list[str]:
        async with an_async_client(quick) as client:

            async def ask(stream: bool) -> str:
                if not stream:
                    whole = await client.messages.create(model=quick.model, max_tokens=8, messages=HELLO)
                    return "".join(block.text for block in whole.content if block.type == "text")
                async with client.messages.stream(model=quick.model, max_tokens=8, messages=HELLO) as streamed:
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
    client: anthropic.Anthropic, quick: Running, fault: str, error: type[anthropic.APIStatusError], kind: str
) -> None:
    with pytest.raises(error) as caught:
        client.messages.create(model=quick.model, max_tokens=8, messages=HELLO, extra_headers=faulty(fault))
    assert caught.value.status_code == int(fault[:3])
    assert caught.value.type == kind
    assert caught.value.response.headers.get("retry-after") == ("3" if "retry" in fault else None)


def test_requests_that_are_wrong(client: anthropic.Anthropic, quick: Running) -> None:
    with pytest.raises(anthropic.NotFoundError, match="does not exist here; this is 'quick-model'"):
        client.messages.create(model="other", max_tokens=8, messages=HELLO)
    with pytest.raises(anthropic.BadRequestError, match=r"\$.max_tokens"):
        client.messages.create(model=quick.model, max_tokens=0, messages=HELLO)
    with pytest.raises(anthropic.BadRequestError, match="is not a setting"):
        client.messages.create(model=quick.model, max_tokens=8, messages=HELLO, extra_headers=faulty("stall; share=1"))


def test_an_error_inside_a_200(client: anthropic.Anthropic, quick: Running) -> None:
    texts: list[str] = []
    with (
        pytest.raises(anthropic.APIStatusError, match="the model failed while it answered") as caught,
        client.messages.stream(
            model=quick.model, max_tokens=8, messages=HELLO, extra_headers=faulty("error_event; after=2")
        ) as stream,
    ):
        texts.extend(stream.text_stream)
    assert texts == ["A", " simulated"]
    assert (caught.value.status_code, caught.value.type) == (200, "api_error")


@pytest.mark.parametrize(
    ("fault", "words"), [("cut; after=3", "peer closed connection"), ("malformed; after=3", "Unterminated string")]
)
def test_a_stream_that_breaks(client: anthropic.Anthropic, quick: Running, fault: str, words: str) -> None:
    stream = client.messages.create(
        model=quick.model, max_tokens=8, messages=HELLO, stream=True, extra_headers=faulty(fault)
    )
    seen: list[str] = []
    with pytest.raises(Exception, match=words):
        seen.extend(event.type for event in stream)
    assert seen.count("content_block_delta") == 3


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_early_close_ends_the_stream_on_the_server(
    client: anthropic.Anthropic, quick: Running, asynchronous: bool
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
    found: list[dict[str, Any]] = []
    for _ in range(1_000):  # the server learns of it as soon as the packet is through
        found = records(quick, f"early {asynchronous}")
        if found:
            break
    assert found[0]["closed_by_client"] is True
    assert len(found[0]["actual_ns"]) < 30_000
