"""A simulator in its own process on the loopback, called by the official client and by plain
sockets."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from tests.processes import Process
from tests.simulator.on_loopback import QUICK, WAIT_S
from tests.waiting import until

from splitsecond.core.errors import CallerFault, NetworkFault
from splitsecond.simulator import process, profile, server
from splitsecond.simulator.process import RunningProvider, run_simulator

REFUSING = QUICK + '[[faults]]\nkind = "refused"\nevery = 2\n'
ENGINE = """
title = "Engine"
model = "engine-model"
output_tokens = 8
[engine]
slots = 2
prefill_tokens_per_s = 50000
prefill_chunk_tokens = 512
step_base_ms = 2
step_per_sequence_ms = 0.1
"""
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def simulators(
    system: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, RunningProvider]]:
    folder = tmp_path_factory.mktemp("profiles")
    paths = []
    for name, text in (("quick", QUICK), ("refusing", REFUSING), ("engine", ENGINE)):
        (folder / f"{name}.toml").write_text(text)
        paths.append(str(folder / f"{name}.toml"))
    with run_simulator(*paths, log=folder / "log.jsonl") as found:
        assert [one.name for one in found] == ["quick", "refusing", "engine"]
        yield {one.name: one for one in found}
    assert (folder / "log.jsonl").read_text()


@pytest.fixture
def quick(simulators: dict[str, RunningProvider]) -> RunningProvider:
    return simulators["quick"]


@pytest.fixture
def client(quick: RunningProvider) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=quick.base_url, api_key="none", max_retries=0, timeout=WAIT_S
    ) as made:
        yield made


def truth(of: RunningProvider) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{of.origin}/truth", timeout=WAIT_S) as answer:
        return list(json.loads(answer.read()))


def record(of: RunningProvider, request_id: str) -> dict[str, Any]:
    (found,) = [one for one in truth(of) if one["request_id"] == request_id]
    return found


def test_a_stream_to_the_official_client(client: openai.OpenAI, quick: RunningProvider) -> None:
    stream = client.chat.completions.create(
        model=quick.model,
        messages=HELLO,
        stream=True,
        stream_options={"include_usage": True},
        extra_headers={"x-client-request-id": "official"},
    )
    chunks = list(stream)
    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert [text for text in texts if text] == [
        "A",
        " simulated",
        " provider",
        " says",
        " nothing",
        " of",
        " interest",
        ",",
    ]
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (13, 8)
    found = record(quick, "official")
    assert len(found["planned_ns"]) == len(found["actual_ns"]) == 8
    assert all(
        actual >= planned
        for planned, actual in zip(found["planned_ns"], found["actual_ns"], strict=True)
    )
    assert found["closed_by_client"] is False
    assert found["first_written_ns"] > found["actual_ns"][0]
    if sys.platform == "linux":  # other systems do not stamp received packets
        # The stamp is that of the last packet of the request; the head may have arrived before it.
        assert 0 < found["received_ns"] < found["actual_ns"][0]


def test_whole_answers_and_completions_to_the_official_client(
    client: openai.OpenAI, quick: RunningProvider
) -> None:
    chat = client.chat.completions.create(model=quick.model, messages=HELLO, max_tokens=3)
    assert chat.choices[0].message.content == "A simulated provider"
    text = client.completions.create(model=quick.model, prompt="hello", max_tokens=2)
    assert text.choices[0].text == "A simulated"
    pieces = [
        chunk.choices[0].text
        for chunk in client.completions.create(model="quick", prompt="hello", stream=True)
    ]
    assert "".join(pieces).startswith("A simulated provider says")
    assert [model.id for model in client.models.list()] == [quick.model]


def test_an_engine_serves_the_official_client_side_by_side(
    simulators: dict[str, RunningProvider],
) -> None:
    engine = simulators["engine"]

    async def play() -> list[str | None]:
        async with openai.AsyncOpenAI(
            base_url=engine.base_url, api_key="none", max_retries=0, timeout=WAIT_S
        ) as client:

            async def ask(stream: bool) -> str | None:
                if not stream:
                    whole = await client.chat.completions.create(model=engine.model, messages=HELLO)
                    return whole.choices[0].message.content
                chunks = await client.chat.completions.create(
                    model=engine.model, messages=HELLO, stream=True
                )
                return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

            async with asyncio.TaskGroup() as tasks:
                asked = [tasks.create_task(ask(i % 2 == 0)) for i in range(8)]
            return [one.result() for one in asked]

    assert set(asyncio.run(play())) == {"A simulated provider says nothing of interest,"}


@pytest.mark.parametrize(
    ("fault", "error", "status"),
    [("429; retry_after=3", openai.RateLimitError, 429), ("500", openai.InternalServerError, 500)],
)
def test_http_errors_to_the_official_client(
    client: openai.OpenAI,
    quick: RunningProvider,
    fault: str,
    error: type[openai.APIStatusError],
    status: int,
) -> None:
    with pytest.raises(error) as caught:
        client.chat.completions.create(
            model=quick.model, messages=HELLO, extra_headers={"x-splitsecond-fault": fault}
        )
    assert caught.value.status_code == status
    assert caught.value.response.headers.get("retry-after") == ("3" if status == 429 else None)


def test_a_wrong_model_to_the_official_client(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="this provider serves 'quick-model'"):
        client.chat.completions.create(model="other", messages=HELLO)


def test_an_error_inside_a_200_to_the_official_client(
    client: openai.OpenAI, quick: RunningProvider
) -> None:
    stream = client.chat.completions.create(
        model=quick.model,
        messages=HELLO,
        stream=True,
        extra_headers={"x-splitsecond-fault": "error_event; after=2"},
    )
    with pytest.raises(openai.APIError, match="the model failed while it answered"):
        list(stream)


def test_an_early_close_ends_the_stream_on_the_server(
    client: openai.OpenAI, quick: RunningProvider
) -> None:
    stream = client.chat.completions.create(
        model=quick.model,
        messages=HELLO,
        max_tokens=30_000,
        stream=True,
        extra_headers={"x-client-request-id": "early"},
    )
    next(iter(stream))
    stream.close()
    found = until(
        lambda: [one for one in truth(quick) if one["request_id"] == "early"],
        "the server has no record",
    )
    assert found[0]["closed_by_client"] is True
    assert len(found[0]["actual_ns"]) < 30_000


def connect(to: RunningProvider, fault: str = "", *, send: bool = True) -> socket.socket:
    """A connection, with a request sent on it."""
    body = json.dumps({"model": to.model, "messages": HELLO, "stream": True}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: "
        f"close\r\ncontent-length: {len(body)}\r\n"
    )
    if fault:
        head += f"x-splitsecond-fault: {fault}\r\n"
    host, port = to.origin.removeprefix("http://").split(":")
    raw = socket.create_connection((host, int(port)), timeout=WAIT_S)
    if send:
        raw.sendall(head.encode() + b"\r\n" + body)
    return raw


def exchange(to: RunningProvider, fault: str = "", *, send: bool = True) -> bytes:
    """All the bytes of one answer, until the server closes. Raises what the socket raises."""
    with connect(to, fault, send=send) as raw:
        received = b""
        while data := raw.recv(65536):
            received += data
    return received


def test_each_token_is_one_chunk_of_a_complete_body(quick: RunningProvider) -> None:
    received = exchange(quick)
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert received.count(b"data: ") == 1 + 8 + 1 + 1
    assert (
        received.count(b"}\n\n\r\n") == 8
    )  # each token ends a chunk, the first one with the role; the tail is one more
    assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_a_cut_closes_in_the_middle_of_the_chunked_body(quick: RunningProvider) -> None:
    received = exchange(quick, "cut; after=3")
    assert received.count(b"data: ") == 1 + 3
    assert not received.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("fault", ["reset", "refused"])
def test_a_reset_comes_before_the_head(quick: RunningProvider, fault: str) -> None:
    with pytest.raises(ConnectionResetError):
        exchange(quick, fault)


def test_refusing_profile_resets_every_second_connection(
    simulators: dict[str, RunningProvider],
) -> None:
    refusing = simulators["refusing"]
    assert b"200 OK" in exchange(refusing)
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        exchange(refusing, send=False)
    assert b"200 OK" in exchange(refusing)


def test_server_still_answers_after_every_fault(quick: RunningProvider) -> None:
    for fault in (
        "malformed",
        "no_done",
        "buffered",
        "wrong_usage",
        "slow_head; seconds=0",
        "stall; seconds=0",
    ):
        assert exchange(quick, fault).endswith(b"0\r\n\r\n"), fault
    assert exchange(quick).endswith(b"0\r\n\r\n")


@pytest.mark.system
def test_simulator_that_cannot_start_reports_why() -> None:
    with pytest.raises(NetworkFault, match=r"unknown profile 'grok'.*groq"), run_simulator("grok"):
        pass


@pytest.mark.system
def test_simulator_that_is_not_ready_in_time_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "START_S", 0)
    with pytest.raises(NetworkFault, match="0 of 1 ready"), run_simulator("groq"):
        pass


def test_port_in_use_and_missing_profile_are_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CallerFault, match=f"cannot listen on 127.0.0.1:{port}"):
            server.serve(["groq"], port=port)
    with pytest.raises(CallerFault, match="no profile given"):
        server.serve([])


def test_the_same_profile_twice_is_two_providers() -> None:
    twice = server.with_unique_names(
        [profile.load(name) for name in ("groq", "steady", "groq-llama-3.1-70b")]
    )
    assert [one.name for one in twice] == [
        "groq-llama-3.1-70b",
        "steady-100",
        "groq-llama-3.1-70b#2",
    ]


def test_unwritable_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CallerFault, match="cannot write the log"):
        server.serve(["groq"], port=0, log=tmp_path / "absent" / "log.jsonl")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.system
def test_a_signal_ends_it_in_good_order(how: signal.Signals) -> None:
    command = [sys.executable, "-m", "splitsecond.simulator", "steady", "--port", "0"]
    with Process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        _, name, url, model = started.read_line().split()
        assert name == "steady-100"
        with connect(RunningProvider(name, url, model.removeprefix("model="))) as waiting:
            assert waiting.recv(1).startswith(b"H")  # in the middle of an answer
            started.send_signal(how)
            _, errors = started.communicate(timeout=WAIT_S)
    assert errors == ""
    assert started.returncode in (0, -how)
