"""Token producers: they hand a response's tokens to its sender at absolute times, from a table or from an engine."""

from collections.abc import Callable
from zlib import crc32

from splitsecond.core import clock
from splitsecond.core.pacing import Pacer, Timer
from splitsecond.simulator.engine import Engine
from splitsecond.simulator.profile import EngineSpec, Profile
from splitsecond.simulator.sender import ResponseSender
from splitsecond.simulator.table import LatencyTable, Pace

DEFAULT_SAVES = 0.8
"""The best saving of TTFT by a cached prompt that OpenAI and Anthropic state."""


def producer_for(profile: Profile, pacer: Pacer, seed: int) -> "TableProducer | EngineProducer":
    """Return the producer for a profile. Profiles of different names draw differently from the same seed.

    Its `start` returns the function that stops a response, and raises `Overloaded` if the provider is full.
    """
    if profile.engine is not None:
        return EngineProducer(profile.engine, pacer)
    return TableProducer(LatencyTable(profile.table, seed + crc32(profile.name.encode())), _saves(profile), pacer)


def _saves(profile: Profile) -> float:
    if profile.prompt_cache is None:
        return 0.0
    return DEFAULT_SAVES if profile.prompt_cache.saves is None else profile.prompt_cache.saves


class TableProducer:
    """Produces each response independently, at times drawn from a table, with one timer for its next token."""

    def __init__(self, table: LatencyTable, saves: float, pacer: Pacer) -> None:
        self._table = table
        self._saves = saves
        self._pacer = pacer

    def start(
        self, sender: ResponseSender, *, arrived_ns: int, in_flight: int, prompt_tokens: int, cached_tokens: int
    ) -> Callable[[], None]:
        """Start a response; return the function that stops it.

        The prompt's length changes nothing, because the table was measured with one length. Its cached part does.
        """
        sender.began_ns = arrived_ns
        pace = self._table.draw(in_flight)
        if cached_tokens:
            ttft_ns = round(pace.ttft_ns * (1 - self._saves * cached_tokens / prompt_tokens))
            pace = Pace(ttft_ns, pace.gap_ns)
        return _PacedTokens(sender, pace, arrived_ns, self._pacer).stop


class _PacedTokens:
    def __init__(self, sender: ResponseSender, pace: Pace, arrived_ns: int, pacer: Pacer) -> None:
        self._sender = sender
        self._pace = pace
        self._arrived_ns = arrived_ns
        self._pacer = pacer
        self._timer = self._set(0)

    def stop(self) -> None:
        self._timer.cancel()

    def _set(self, index: int) -> Timer:
        due_ns = self._sender.due_ns(index, self._pace.planned_ns(self._arrived_ns, index))
        return self._pacer.call_at(due_ns, self._tick, index, due_ns)

    def _tick(self, index: int, due_ns: int) -> None:
        self._sender.send(index, due_ns)
        if not self._sender.over:
            self._timer = self._set(index + 1)


class EngineProducer:
    def __init__(self, spec: EngineSpec, pacer: Pacer) -> None:
        self._engine: Engine[int] = Engine(spec)
        self._pacer = pacer
        self._senders: dict[int, ResponseSender] = {}
        self._next_key = 0
        self._ticking = False

    def start(
        self, sender: ResponseSender, *, arrived_ns: int, in_flight: int, prompt_tokens: int, cached_tokens: int
    ) -> Callable[[], None]:
        key = self._next_key
        self._next_key += 1
        left = prompt_tokens - cached_tokens
        self._engine.submit(key, prompt_tokens=left, output_tokens=sender.tokens, now_ns=arrived_ns)
        self._senders[key] = sender
        self._wait()

        def stop() -> None:
            del self._senders[key]
            self._engine.cancel(key)

        return stop

    def _wait(self) -> None:
        if not self._ticking and self._engine.next_ns is not None:
            self._ticking = True
            self._pacer.call_at(self._engine.next_ns, self._tick, self._engine.next_ns)

    def _tick(self, due_ns: int) -> None:
        self._ticking = False
        now = max(due_ns, clock.now_ns())
        while (ends_ns := self._engine.next_ns) is not None and ends_ns <= now:
            for emission in self._engine.advance():
                if (sender := self._senders.get(emission.key)) is not None:
                    sender.began_ns = emission.began_ns
                    sender.offer(emission.index, emission.at_ns)
        self._wait()
