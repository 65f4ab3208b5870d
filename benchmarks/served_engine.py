"""The simulator's engine as a service in virtual time: many requests share its steps, as in continuous batching."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from splitsecond.core import clock
from splitsecond.core.errors import NetworkFault, Overloaded, ProviderFault
from splitsecond.core.pacing import Pacer
from splitsecond.simulator.engine import Engine
from splitsecond.simulator.profile import EngineSpec
from splitsecond.testing.fake_service import FakeCall, FakeService


class ServedEngine:
    """An engine that answers the calls of `service` while `serving` is open. The length of an answer is `max_tokens`.

    From `breaks_from` requests at once on, it is broken for good.
    """

    def __init__(self, spec: EngineSpec, *, prompt_tokens: int = 100, breaks_from: int | None = None) -> None:
        self.service = FakeService(target="t")
        self._engine: Engine[FakeCall] = Engine(spec)
        self._prompt_tokens = prompt_tokens
        self._breaks_from = breaks_from
        self._broken = False
        self._submitted = asyncio.Event()
        self._open: dict[FakeCall, int] = {}
        """Calls in the engine, with the tokens that are left of each."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Pacer]:
        """Answer calls. The pacer is for sending them."""
        with Pacer(asyncio.get_running_loop()) as pacer:
            tasks = [asyncio.create_task(self._take()), asyncio.create_task(self._step(pacer))]
            yield pacer
            for task in tasks:
                task.cancel()

    async def _take(self) -> None:
        while True:
            call = await self.service.expect()
            self._broken |= self._breaks_from is not None and len(self._open) + 1 >= self._breaks_from
            if self._broken:
                call.fail(NetworkFault("nobody listens", kind="refused", phase="connect"))
                continue
            tokens: int = call.call.body["max_tokens"]  # type: ignore[assignment]
            try:
                self._engine.submit(
                    call, prompt_tokens=self._prompt_tokens, output_tokens=tokens, now_ns=clock.now_ns()
                )
            except Overloaded as fault:
                call.fail(ProviderFault(str(fault), kind="http_503", phase="head", status=503))
            else:
                self._open[call] = tokens
            self._submitted.set()

    async def _step(self, pacer: Pacer) -> None:
        while True:
            while (ends_ns := self._engine.next_ns) is None:
                self._submitted.clear()
                await self._submitted.wait()
            await pacer.sleep_until(ends_ns)
            for call in [call for call in self._open if call.closed_at is not None]:
                self._engine.cancel(call)
                del self._open[call]
            for emission in self._engine.advance():
                call = emission.key
                if call not in self._open:
                    continue
                call.first_token()
                self._open[call] -= 1
                if not self._open[call]:
                    del self._open[call]
                    call.finish(input_tokens=self._prompt_tokens)
