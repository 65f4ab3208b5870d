"""A target keeps the contract of a service: the same kit that policies go through, over a transport without sockets."""

import asyncio
from collections.abc import Callable, Sequence

from tests.upstream.scripted_client import ScriptedClient, ScriptedExchange

from splitsecond.testing.conformance import Subject, check_service
from splitsecond.testing.fake_service import Script
from splitsecond.transport.exchange import Exchange, Origin, Receiver, Request
from splitsecond.upstream.spec import TargetSpec
from splitsecond.upstream.target import connect

SPEC = TargetSpec(name="x/m", base_url="http://x.test/v1/", model="m")


class PlayingClient(ScriptedClient):
    """Answers each request by the script."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script
        self._exchanged: list[ScriptedExchange] = []

    @property
    def left_open(self) -> int:
        return sum(exchange.closed_ns is None for exchange in self._exchanged)

    async def send(
        self, origin: Origin, request: Request, receiver: Receiver, *, connect_deadline_ns: int | None = None
    ) -> Exchange:
        sent = await super().send(origin, request, receiver, connect_deadline_ns=connect_deadline_ns)
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
    steps += [(script.ttft + number / script.tps, lambda: exchange.text("word")) for number in range(tokens)]
    if fault is not None:
        return [*steps, (script.ttft + tokens / script.tps, lambda: exchange.fail(fault))]
    end = script.ttft + max(tokens - 1, 0) / script.tps
    return [*steps, (end, exchange.finish), (end, exchange.end)]


def test_the_contract_is_kept() -> None:
    def make(script: Script) -> Subject:
        client = PlayingClient(script)
        target = connect(SPEC, lambda observation: None, environment={}, client=client.as_client())
        return Subject(target, lambda: client.left_open)

    check_service(make)
