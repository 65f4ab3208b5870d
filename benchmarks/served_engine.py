"""The simulator's engine as a service in virtual time: many requests share its steps, as in
continuous batching."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.errors import NetworkFault, Overloaded, ProviderFault
from splitsecond.core.pacing import Pacer
from splitsecond.core.service import Call
from splitsecond.simulator.content.tokens import CHARACTERS_PER_TOKEN
from splitsecond.simulator.engine import Engine
from splitsecond.simulator.profile import EngineSpec, PromptCacheSpec
from splitsecond.simulator.prompt_cache import PromptCache, PromptPrefixes, automatic_prefixes
from splitsecond.testing.fake_service import FakeCall, FakeService


class _Message(Struct):
    content: str


_decode = msgspec.json.Decoder(list[_Message]).decode


class _Open(Struct):
    """A call in the engine: how many tokens are left of its answer, and its prompt. `prefixes`
    None: not cached."""

    left: int
    prompt_tokens: int
    cached_tokens: int | None = None
    prefixes: PromptPrefixes | None = None


class ServedEngine:
    """An engine that answers the calls of `service` while `serving` is open. The length of an
    answer is `max_tokens`.

    From `breaks_from` requests at once on, it is broken for good. With `prompt_cache` the length of
    a prompt is that of its messages, which are JSON; otherwise it is `prompt_tokens`.
    """

    def __init__(
        self,
        spec: EngineSpec,
        *,
        prompt_tokens: int = 100,
        breaks_from: int | None = None,
        prompt_cache: PromptCacheSpec | None = None,
    ) -> None:
        self.service = FakeService(target="t")
        self._cache_spec = prompt_cache
        self._cache = None if prompt_cache is None else PromptCache(prompt_cache)
        self._engine: Engine[FakeCall] = Engine(spec)
        self._prompt_tokens = prompt_tokens
        self._breaks_from = breaks_from
        self._broken = False
        self._submitted = asyncio.Event()
        self._open: dict[FakeCall, _Open] = {}

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
            self._broken |= (
                self._breaks_from is not None and len(self._open) + 1 >= self._breaks_from
            )
            if self._broken:
                call.fail(NetworkFault("nobody listens", kind="refused", phase="connect"))
                continue
            opened = self._opened(call.call)
            try:
                self._engine.submit(
                    call,
                    prompt_tokens=opened.prompt_tokens - (opened.cached_tokens or 0),
                    output_tokens=opened.left,
                    now_ns=clock.now_ns(),
                )
            except Overloaded as fault:
                call.fail(ProviderFault(str(fault), kind="http_503", phase="head", status=503))
            else:
                self._open[call] = opened
            self._submitted.set()

    def _opened(self, call: Call) -> _Open:
        tokens: int = call.body["max_tokens"]  # type: ignore[assignment]
        if self._cache is None or self._cache_spec is None:
            return _Open(tokens, self._prompt_tokens)
        text = "\n".join(each.content for each in _decode(call.body["messages"]))
        prefixes = automatic_prefixes(self._cache_spec, text)
        known = self._cache.look_up(prefixes, clock.now_ns())
        self._cache.use(known)
        return _Open(tokens, len(text) // CHARACTERS_PER_TOKEN, known.read_tokens, prefixes)

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
                opened = self._open[call]
                if not emission.index and self._cache is not None and opened.prefixes is not None:
                    self._cache.store(opened.prefixes.prefixes, clock.now_ns())
                call.first_token()
                opened.left -= 1
                if not opened.left:
                    del self._open[call]
                    call.finish(
                        input_tokens=opened.prompt_tokens, cached_tokens=opened.cached_tokens
                    )
