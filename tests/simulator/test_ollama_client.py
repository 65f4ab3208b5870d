"""A simulator in its own process on the loopback, called by Ollama's official client, synchronous
and async."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import ollama
import pytest
from tests.simulator.on_loopback import SAID, WAIT_S, closed_early, faulty, records

from splitsecond.simulator.process import RunningProvider

pytestmark = pytest.mark.system

HELLO = [{"role": "user", "content": "hello"}]
WEATHER = [
    {
        "type": "function",
        "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
    }
]


@contextmanager
def a_client(of: RunningProvider, **headers: str) -> Iterator[ollama.Client]:
    with ollama.Client(host=of.origin, timeout=WAIT_S, headers=headers) as made:
        yield made


@pytest.fixture
def client(quick: RunningProvider) -> Iterator[ollama.Client]:
    with a_client(quick) as made:
        yield made


def test_a_stream(quick: RunningProvider) -> None:
    with a_client(quick, **{"x-client-request-id": "ollama"}) as client:
        lines = list(
            client.chat(model=quick.model, messages=HELLO, stream=True, options={"num_predict": 8})
        )
    assert [line.done for line in lines] == [False] * 8 + [True]
    assert "".join(line.message.content or "" for line in lines) == SAID
    last = lines[-1]
    assert (last.done_reason, last.prompt_eval_count, last.eval_count) == ("length", 13, 8)
    (found,) = records(quick, "ollama")
    assert len(found["planned_ns"]) == len(found["actual_ns"]) == 8


def test_a_whole_answer(client: ollama.Client, quick: RunningProvider) -> None:
    answer = client.chat(model=quick.model, messages=HELLO, options={"num_predict": 3})
    assert (answer.message.content, answer.done_reason, answer.eval_count) == (
        "A simulated provider",
        "length",
        3,
    )


@pytest.mark.parametrize("stream", [True, False])
def test_reasoning(thinker: RunningProvider, stream: bool) -> None:
    with a_client(thinker) as client:
        if stream:
            lines = list(client.chat(model=thinker.model, messages=HELLO, stream=True))
        else:
            lines = [client.chat(model=thinker.model, messages=HELLO)]
    assert "".join(line.message.thinking or "" for line in lines) == "A simulated"
    assert "".join(line.message.content or "" for line in lines) == "A simulated provider says"
    assert (lines[-1].done_reason, lines[-1].eval_count) == ("stop", 6)


@pytest.mark.parametrize("stream", [True, False])
def test_offered_tool_is_called_until_its_result_arrives(
    client: ollama.Client, quick: RunningProvider, stream: bool
) -> None:
    if stream:
        lines = list(client.chat(model=quick.model, messages=HELLO, tools=WEATHER, stream=True))
    else:
        lines = [client.chat(model=quick.model, messages=HELLO, tools=WEATHER)]
    (call,) = [call for line in lines for call in line.message.tool_calls or ()]
    assert (call.function.name, call.function.arguments) == ("weather", {})
    result = {"role": "tool", "tool_name": "weather", "content": "warm"}
    after = client.chat(model=quick.model, messages=[*HELLO, result], tools=WEATHER)
    assert (after.message.content, after.message.tool_calls) == (SAID, None)


def test_async(quick: RunningProvider) -> None:
    async def play() -> tuple[str | None, str]:
        async with ollama.AsyncClient(host=quick.origin, timeout=WAIT_S) as client:
            whole = await client.chat(model=quick.model, messages=HELLO)
            stream = await client.chat(model=quick.model, messages=HELLO, stream=True)
            return whole.message.content, "".join(
                [line.message.content or "" async for line in stream]
            )

    assert asyncio.run(play()) == (SAID, SAID)


@pytest.mark.parametrize("fault", ["429; retry_after=3", "500", "401"])
@pytest.mark.parametrize("stream", [True, False])
def test_http_errors(quick: RunningProvider, fault: str, stream: bool) -> None:
    with a_client(quick, **faulty(fault)) as client, pytest.raises(ollama.ResponseError) as caught:
        list(client.chat(model=quick.model, messages=HELLO, stream=stream))  # type: ignore[call-overload]
    assert caught.value.status_code == int(fault[:3])
    assert "a simulated error" in caught.value.error


def test_invalid_requests(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="this provider serves 'quick-model'"):
        client.chat(model="other", messages=HELLO)


def test_an_error_inside_a_200(quick: RunningProvider) -> None:
    texts: list[str | None] = []
    with (
        a_client(quick, **faulty("error_event; after=2")) as client,
        pytest.raises(ollama.ResponseError, match="the model failed while it answered"),
    ):
        texts.extend(
            line.message.content
            for line in client.chat(model=quick.model, messages=HELLO, stream=True)
        )
    assert texts == ["A", " simulated"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [("cut; after=3", "peer closed connection"), ("malformed; after=3", "Unterminated string")],
)
def test_a_stream_that_breaks(quick: RunningProvider, fault: str, words: str) -> None:
    seen: list[Any] = []
    with (
        a_client(quick, **faulty(fault)) as client,
        pytest.raises((httpx.HTTPError, ValueError), match=words),
    ):
        seen.extend(client.chat(model=quick.model, messages=HELLO, stream=True))
    assert len(seen) == 3


def test_an_early_close_ends_the_stream_on_the_server(quick: RunningProvider) -> None:
    with a_client(quick, **{"x-client-request-id": "early ollama"}) as client:
        next(
            iter(
                client.chat(
                    model=quick.model, messages=HELLO, stream=True, options={"num_predict": 30_000}
                )
            )
        )
    assert closed_early(quick, "early ollama", 30_000)
