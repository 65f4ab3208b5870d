"""Token producers: they hand a response's tokens to its sender at absolute times, from a table or
from an engine."""

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
    """Return the producer for a profile. Profiles of different names draw differently from the same
    seed.

    Its `start` returns the function that stops a response, and raises `Overloaded` if the provider
    is full.
    """
    cached_ns = _per_token_ns(
        profile.prompt_cache.cached_tokens_per_s if profile.prompt_cache else None
    )
    if profile.engine is not None:
        return EngineProducer(profile.engine, pacer, cached_ns=cached_ns)
    table = LatencyTable(profile.table, seed + crc32(profile.name.encode()))
    new_ns = _per_token_ns(profile.prefill_tokens_per_s)
    return TableProducer(table, _saves(profile), pacer, new_ns=new_ns, cached_ns=cached_ns)


def _saves(profile: Profile) -> float:
    """Return the share of the TTFT in the table that a fully cached prompt saves."""
    if profile.prompt_cache is None or profile.prefill_tokens_per_s is not None:
        return 0.0
    return DEFAULT_SAVES if profile.prompt_cache.saves is None else profile.prompt_cache.saves


def _per_token_ns(tokens_per_s: float | None) -> float:
    """Return the time of one token; 0 for None."""
    return 0.0 if tokens_per_s is None else clock.NS_PER_S / tokens_per_s


class TableProducer:
    """Produces each response independently, at times drawn from a table, with one timer for its
    next token.

    Each prompt token that is not cached adds `new_ns` to the TTFT in the table, and each cached one
    `cached_ns`.
    """

    def __init__(
        self, table: LatencyTable, saves: float, pacer: Pacer, *, new_ns: float, cached_ns: float
    ) -> None:
        self._new_ns = new_ns
        self._cached_ns = cached_ns
        self._table = table
        self._saves = saves
        self._pacer = pacer

    def start(
        self,
        sender: ResponseSender,
        *,
        arrived_ns: int,
        in_flight: int,
        prompt_tokens: int,
        cached_tokens: int,
    ) -> Callable[[], None]:
        """Start a response; return the function that stops it.

        Without a time for new tokens, the length of the prompt changes nothing, because the table
        was measured with one length. Its cached part does.
        """
        sender.began_ns = arrived_ns
        pace = self._table.draw(in_flight)
        ttft_ns = pace.ttft_ns * (1 - self._saves * cached_tokens / prompt_tokens)
        ttft_ns += self._new_ns * (prompt_tokens - cached_tokens) + self._cached_ns * cached_tokens
        pace = Pace(round(ttft_ns), pace.gap_ns)
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
    """Produces all responses from the steps of one engine, which loads a cached token in
    `cached_ns`."""

    def __init__(self, spec: EngineSpec, pacer: Pacer, *, cached_ns: float) -> None:
        self._cached_ns = cached_ns
        self.engine: Engine[int] = Engine(spec)
        self._pacer = pacer
        self._senders: dict[int, ResponseSender] = {}
        self._next_key = 0
        self._ticking = False

    def start(
        self,
        sender: ResponseSender,
        *,
        arrived_ns: int,
        in_flight: int,
        prompt_tokens: int,
        cached_tokens: int,
    ) -> Callable[[], None]:
        """Start a response; return the function that stops it. The engine counts the requests in
        flight itself."""
        key = self._next_key
        self._next_key += 1
        left = prompt_tokens - cached_tokens
        # on a busy machine the timer can be late: a step that began before this request arrived
        # must not contain it
        self._advance(arrived_ns)
        throttled_before_ns = self.engine.throttled_ns(arrived_ns)
        self.engine.submit(
            key,
            prompt_tokens=left,
            output_tokens=sender.tokens,
            now_ns=arrived_ns,
            load_ns=round(self._cached_ns * cached_tokens),
            cached_tokens=cached_tokens,
        )
        self._senders[key] = sender
        self._wait()

        def stop() -> None:
            throttled_ns = self.engine.throttled_ns(clock.now_ns())
            sender.throttled_ns = throttled_ns - throttled_before_ns
            del self._senders[key]
            self.engine.cancel(key)

        return stop

    def _wait(self) -> None:
        if not self._ticking and self.engine.next_ns is not None:
            self._ticking = True
            self._pacer.call_at(self.engine.next_ns, self._tick, self.engine.next_ns)

    def _tick(self, due_ns: int) -> None:
        self._ticking = False
        self._advance(max(due_ns, clock.now_ns()))
        self._wait()

    def _advance(self, now_ns: int) -> None:
        """End the steps that are over by `now_ns` and hand their tokens to the senders."""
        while (ends_ns := self.engine.next_ns) is not None and ends_ns <= now_ns:
            for emission in self.engine.advance():
                if (sender := self._senders.get(emission.key)) is not None:
                    sender.began_ns = emission.began_ns
                    sender.offer(emission.index, emission.at_ns)
            for key in self.engine.preempted:
                if (sender := self._senders.get(key)) is not None:
                    sender.preemptions += 1
