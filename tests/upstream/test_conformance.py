"""A target keeps the contract of a service: the same kit that policies go through, over a transport
without sockets."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import pytest
from tests.upstream.scripted_client import ScriptedClient, ScriptedExchange

from splitsecond.core import clock
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call, Reply, Service
from splitsecond.core.transport.exchange import Exchange, Origin, Receiver, Request
from splitsecond.core.upstream.spec import TargetSpec, Timeouts
from splitsecond.core.upstream.target import connect
from splitsecond.testing.conformance import Subject, check_service
from splitsecond.testing.fake_service import Script
from splitsecond.testing.virtual_time import run_virtual

SPEC = TargetSpec(name="x/m", base_url="http://x.test/v1/", model="m")


class PlayingClient(ScriptedClient):
    """Answers each request by the script."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script
        self.connect_deadline_ns: int | None = None
        self._exchanged: list[ScriptedExchange] = []

    @property
    def left_open(self) -> int:
        return sum(exchange.closed_ns is None for exchange in self._exchanged)

    async def send(
        self,
        origin: Origin,
        request: Request,
        receiver: Receiver,
        *,
        connect_deadline_ns: int | None = None,
    ) -> Exchange:
        self.connect_deadline_ns = connect_deadline_ns
        sent = await super().send(origin, request, receiver)
        exchange = await self.exchange()
        self._exchanged.append(exchange)
        steps = _steps(self._script, exchange)
        for after_s in dict.fromkeys(moment for moment, _ in steps):
            arrives = [step for moment, step in steps if moment == after_s]
            asyncio.get_running_loop().call_later(after_s, _play, exchange, arrives)
        return sent


def _play(exchange: ScriptedExchange, steps: Sequence[Callable[[], None]]) -> None:
    for step in steps:
        if exchange.closed_ns is None:
            step()


def _steps(script: Script, exchange: ScriptedExchange) -> list[tuple[float, Callable[[], None]]]:
    """What arrives when, in seconds from the request."""
    if script.hangs:
        return []
    fault = script.fault
    if fault is not None and not script.breaks_after:
        return [(script.ttft, lambda: exchange.fail(fault))]
    tokens = script.breaks_after or script.tokens
    steps: list[tuple[float, Callable[[], None]]] = [(0.0, exchange.head)]
    steps += [
        (script.ttft + number / script.tps, lambda: exchange.text("word"))
        for number in range(tokens)
    ]
    if fault is not None:
        return [*steps, (script.ttft + tokens / script.tps, lambda: exchange.fail(fault))]
    end = script.ttft + max(tokens - 1, 0) / script.tps
    return [*steps, (end, exchange.finish), (end, exchange.end)]


def _watched(service: Service) -> Service:
    """`service`, each of whose calls is watched: of a raw target the events are had no other
    way."""

    async def watched(call: Call) -> Reply:
        return await service(msgspec.structs.replace(call, watched=True))

    return watched


@pytest.mark.parametrize("raw", [False, True])
def test_target_passes_the_conformance_kit(raw: bool) -> None:
    def make(script: Script) -> Subject:
        client = PlayingClient(script)
        target = connect(
            SPEC, lambda observation: None, environment={}, client=client.as_client(), raw=raw
        )
        return Subject(_watched(target) if raw else target, lambda: client.left_open)

    check_service(make)


@pytest.mark.parametrize(
    ("within_ms", "connects_within_ms"), [(None, 10_000), (60_000, 10_000), (500, 500)]
)
def test_connecting_keeps_the_calls_deadline(
    within_ms: int | None, connects_within_ms: int
) -> None:
    client = PlayingClient(Script())

    async def main() -> None:
        now_ns = clock.now_ns()
        deadline_ns = None if within_ms is None else now_ns + within_ms * clock.NS_PER_MS
        target = connect(SPEC, lambda observation: None, environment={}, client=client.as_client())
        async with await target(Call(id="c", body={}, start_ns=now_ns, deadline_ns=deadline_ns)):
            assert client.connect_deadline_ns == now_ns + connects_within_ms * clock.NS_PER_MS

    run_virtual(main())


def test_connecting_keeps_the_total_time_of_the_target() -> None:
    client = PlayingClient(Script())
    spec = msgspec.structs.replace(SPEC, timeouts=Timeouts(total_ms=700))

    async def main() -> None:
        now_ns = clock.now_ns()
        target = connect(spec, lambda observation: None, environment={}, client=client.as_client())
        async with await target(
            Call(id="c", body={}, start_ns=now_ns, deadline_ns=now_ns + clock.NS_PER_S)
        ):
            assert client.connect_deadline_ns == now_ns + 700 * clock.NS_PER_MS

    run_virtual(main())


def test_targets_number_the_attempts_of_a_call_in_common() -> None:
    client, seen = PlayingClient(Script(tokens=1)), list[Observation]()

    async def main() -> None:
        call = Call(id="c", body={}, start_ns=clock.now_ns())
        for _ in range(2):
            target = connect(SPEC, seen.append, environment={}, client=client.as_client())
            async with await target(call) as reply:
                await reply.finished()

    run_virtual(main())
    assert [observation.id for observation in seen] == ["c.1", "c.2"]
