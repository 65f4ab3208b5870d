"""Our own client against the real engine: observations are complete, and closed connections lose no
request."""

import asyncio
import http.client
import json
import re
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from tests.waiting import WITHIN_S, until

from splitsecond.core import clock
from splitsecond.core.errors import Fault
from splitsecond.core.observation import ArrivalClock, Observation
from splitsecond.core.service import Call
from splitsecond.core.transport.client import Client
from splitsecond.core.transport.exchange import Origin, Request
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.upstream.target import Target, connect
from splitsecond.simulator.llama_cpp import EngineProcess

pytestmark = pytest.mark.system

MESSAGES = [{"role": "user", "content": "tell me about the river"}]


class HealthReceiver:
    """Waits for the end of one answer, and gives its status. A
    `core.transport.exchange.Receiver`."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._status = 0

    def head_received(self, at: int, status: int, headers: Mapping[str, str]) -> None:
        self._status = status

    def body_received(self, at: int, lag: int, source: ArrivalClock, data: bytes) -> None:
        pass

    def ended(self, at: int) -> None:
        self.answered.set_result(self._status)

    def failed(self, at: int, fault: Fault) -> None:
        self.answered.set_exception(fault)


def observe(engine: EngineProcess, ask: Callable[[Target], Awaitable[None]]) -> list[Observation]:
    """The observations of all that `ask` did with the engine as a target, within 30 s."""
    seen: list[Observation] = []

    async def run() -> None:
        target = connect(
            TargetSpec(name="engine/tiny", base_url=engine.base_url, model=engine.model),
            seen.append,
        )
        try:
            async with asyncio.timeout(WITHIN_S):
                await ask(target)
        finally:
            target.close()

    asyncio.run(run())
    return seen


def call(number: int, **body: Any) -> Call:
    return Call(id=str(number), body={"messages": MESSAGES, **body}, start_ns=clock.now_ns())


async def ask_in_full(target: Target, number: int, max_tokens: int) -> None:
    async with await target(call(number, max_tokens=max_tokens)) as reply:
        await reply.finished()


@pytest.mark.parametrize("concurrency", [1, 8, 32])
def test_every_token_is_counted_at_any_concurrency(engine: EngineProcess, concurrency: int) -> None:
    async def ask(target: Target) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(concurrency):
                tasks.create_task(ask_in_full(target, number, max_tokens=24))

    seen = observe(engine, ask)
    assert len(seen) == concurrency
    for observation in seen:
        assert observation.outcome == "ok"
        assert observation.output_tokens == len(observation.token_at) == 24
        assert observation.token_source == "usage"
        assert observation.server_timings["predicted_n"] == 24
        assert observation.sent_ns is not None
        assert observation.first_token_ns is not None
        assert observation.last_token_ns is not None
        assert (
            observation.sent_ns
            < observation.first_token_ns
            <= observation.last_token_ns
            <= observation.end_ns
        )


def test_closed_connections_lose_no_request(engine: EngineProcess) -> None:
    async def ask(target: Target) -> None:
        for number in range(50):
            await ask_in_full(target, number, max_tokens=1)

    assert [observation.outcome for observation in observe(engine, ask)] == ["ok"] * 50


def test_connection_is_replaced_after_100_requests(engine: EngineProcess) -> None:
    async def run() -> list[bool]:
        client = Client()
        origin, _ = Origin.parse(engine.address)
        health = Request(method="GET", path="/health")
        reused = []
        for _ in range(205):
            receiver = HealthReceiver()
            exchange = await client.send(origin, health, receiver)
            assert await asyncio.wait_for(receiver.answered, WITHIN_S) == 200
            reused.append(exchange.connection.reused)
        client.close()
        return reused

    assert [number for number, reused in enumerate(asyncio.run(run())) if not reused] == [
        0,
        100,
        200,
    ]


def test_closing_a_reply_after_its_first_token_frees_the_slot(engine: EngineProcess) -> None:
    asked, before = 15_000, predicted_tokens(engine)

    async def ask(target: Target) -> None:
        reply = await target(call(1, max_tokens=asked))
        await reply.aclose()

    (observation,) = observe(engine, ask)
    assert observation.outcome == "cancelled"
    assert observation.first_token_ns is not None
    wait_until_idle(engine)
    assert predicted_tokens(engine) - before < asked


def wait_until_idle(engine: EngineProcess) -> None:
    def idle() -> bool:
        return not any(slot["is_processing"] for slot in json.loads(page(engine, "/slots")))

    until(idle, "a slot is still busy after its reply was closed")


def predicted_tokens(engine: EngineProcess) -> int:
    found = re.search(
        rb"^llamacpp:tokens_predicted_total (\d+)", page(engine, "/metrics"), re.MULTILINE
    )
    assert found
    return int(found[1])


def page(engine: EngineProcess, path: str) -> bytes:
    with urllib.request.urlopen(engine.address + path, timeout=WITHIN_S) as response:
        assert isinstance(response, http.client.HTTPResponse)
        return response.read()
