"""How llama.cpp's server keeps and ends connections, and that it serves clients that are not
ours."""

import asyncio
import http.client
import json
import socket
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
from tests.waiting import WITHIN_S

from splitsecond.simulator.llama_cpp import EngineProcess

pytestmark = pytest.mark.system

BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "tell me about the river"}]}


def connect(engine: EngineProcess) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(engine.address).netloc, timeout=WITHIN_S)


def test_hundredth_response_closes_its_connection(engine: EngineProcess) -> None:
    connection = connect(engine)
    for request in range(1, 101):
        connection.request("GET", "/health")
        response = connection.getresponse()
        response.read()
        assert response.status == 200
        assert response.headers["connection"] == ("close" if request == 100 else None)
    connection.close()


def test_a_connection_that_idles_is_closed_by_the_server(engine: EngineProcess) -> None:
    connection = connect(engine)
    connection.request("GET", "/health")
    response = connection.getresponse()
    response.read()
    assert response.headers["keep-alive"] == "timeout=5, max=100"
    assert isinstance(connection.sock, socket.socket)
    assert connection.sock.recv(1) == b""  # after 5 s; the socket's own limit is 10 s
    connection.close()


def test_stream_closes_its_connection_despite_keep_alive(engine: EngineProcess) -> None:
    connection = connect(engine)
    connection.request(
        "POST", "/v1/chat/completions", json.dumps({**BODY, "stream": True, "max_tokens": 1})
    )
    response = connection.getresponse()
    assert response.headers["keep-alive"] == "timeout=5, max=100"
    assert response.headers["connection"] is None
    assert response.read().endswith(b"data: [DONE]\n\n")
    assert isinstance(connection.sock, socket.socket)
    connection.sock.settimeout(4)  # less than the 5 s after which an idle connection ends
    assert connection.sock.recv(1) == b""
    connection.close()


@pytest.mark.parametrize("concurrency", [1, 8, 32])
def test_the_official_client_gets_every_token_at_any_concurrency(
    engine: EngineProcess, concurrency: int
) -> None:
    async def ask(client: openai.AsyncOpenAI) -> tuple[int, int]:
        chunks = await client.chat.completions.create(
            model=engine.model,
            messages=BODY["messages"],
            max_tokens=24,
            stream=True,
            stream_options={"include_usage": True},
        )
        words, counted = 0, 0
        async for chunk in chunks:
            words += any(choice.delta.content for choice in chunk.choices)
            counted = chunk.usage.completion_tokens if chunk.usage else counted
        return words, counted

    async def ask_all() -> list[tuple[int, int]]:
        client = openai.AsyncOpenAI(
            base_url=engine.base_url, api_key="none", timeout=WITHIN_S, max_retries=0
        )
        async with client, asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(ask(client)) for _ in range(concurrency)]
        return [answer.result() for answer in asked]

    assert asyncio.run(ask_all()) == [(24, 24)] * concurrency


def test_official_client_reads_a_response_and_the_models(engine: EngineProcess) -> None:
    with openai.OpenAI(
        base_url=engine.base_url, api_key="none", timeout=WITHIN_S, max_retries=0
    ) as client:
        assert [model.id for model in client.models.list()] == ["tiny"]
        reply = client.completions.create(model=engine.model, prompt="the river", max_tokens=5)
    assert reply.usage
    assert reply.usage.completion_tokens == 5
    assert len(reply.choices[0].text.split()) == 5
