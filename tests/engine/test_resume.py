"""A response of a real engine that breaks in the middle and is resumed by the engine itself."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from splitsecond.core.errors import Fault, NetworkFault
from splitsecond.core.events import Event, Finish, Token
from splitsecond.core.service import Call, Reply, ReplyBase, Service
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.upstream.target import Target, connect
from splitsecond.core.wire.openai import decoder
from splitsecond.core.wire.openai.client_side import continuation_encoder
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.simulator.llama_cpp import EngineProcess

pytestmark = pytest.mark.system

TOKENS = 40
CUT = NetworkFault("cut by the test", kind="closed", phase="between tokens")


class CutReply(ReplyBase):
    """`reply`, until so many tokens of it have been read."""

    def __init__(self, reply: Reply, after: int) -> None:
        self._reply = reply
        self._after = after
        self._reading = decoder("chat")
        self.target = "a/m"
        self.empty = reply.empty
        self.token_ns = reply.token_ns

    async def read(self) -> bytes:
        data = b"" if self._after <= 0 else await self._reply.read()
        if not data:
            raise CUT
        self._after -= sum(isinstance(event, Token) for event in self._reading.feed(data, 0))
        return data

    def arrived(self) -> list[Event]:
        return []

    async def __anext__(self) -> Event:
        raise StopAsyncIteration

    async def finished(self) -> None:
        await self._reply.finished()

    async def aclose(self) -> None:
        await self._reply.aclose()


class Cut:
    """`service`, whose answers are cut after so many tokens."""

    def __init__(self, service: Service, after: int) -> None:
        self._service = service
        self._after = after

    async def __call__(self, call: Call) -> Reply:
        return CutReply(await self._service(call), self._after)


@pytest.fixture
def targets(engine: EngineProcess) -> Iterator[dict[str, Target]]:
    named = {
        name: connect(
            TargetSpec(name=name, base_url=engine.base_url, model=engine.model),
            lambda observation: None,
            environment={},
            raw=True,
        )
        for name in ("a/m", "b/m")
    }
    yield named
    for target in named.values():
        target.close()


async def heard(service: Service) -> list[Event]:
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "Tell me about the sea."}],
        "temperature": 0,
        "max_tokens": TOKENS,
    }
    data = b""
    async with await service(Call(id="c", body=body)) as reply:
        try:
            while read := await reply.read():
                data += read
        except Fault as fault:
            pytest.fail(f"{fault}")
    assert data.count(b"[DONE]") == 1
    return decoder("chat").feed(data, 0)


def text(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Token))


@pytest.mark.parametrize("after", [1, 7, TOKENS - 1])
def test_resumed_text_equals_the_uninterrupted_one(targets: dict[str, Target], after: int) -> None:
    async def main() -> None:
        whole = await heard(targets["b/m"])
        services: dict[str, Service] = {"a/m": Cut(targets["a/m"], after), "b/m": targets["b/m"]}
        service = build(
            parse('resume("a/m", "b/m")'),
            services.__getitem__,
            TargetStates(),
            make_encoder=continuation_encoder,
        )
        events = await heard(service)
        assert text(events) == text(whole)
        assert [event.reason for event in events if isinstance(event, Finish)] == ["length"]

    asyncio.run(main())
