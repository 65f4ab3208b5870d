"""What produces the tokens of an answer: a table's pace, or an engine's steps. Both by the pacer, at absolute times."""

from collections.abc import Callable
from typing import Protocol
from zlib import crc32

from splitsecond import clock
from splitsecond.pacing import Alarm, Pacer
from splitsecond.simulator.answer import Answer
from splitsecond.simulator.engine import Engine
from splitsecond.simulator.profile import EngineSpec, Profile
from splitsecond.simulator.table import Pace, Table

DEFAULT_SAVES = 0.8
"""What OpenAI and Anthropic say a prompt that is cached saves at best, of the time to first token."""


class Feed(Protocol):
    """Produces answers."""

    def start(
        self, answer: Answer, *, arrived_ns: int, in_flight: int, prompt_tokens: int, cached_tokens: int
    ) -> Callable[[], None]:
        """Begin to produce; what is returned stops it. Raises `Overloaded` when the provider is full.

        `prompt_tokens` are all of the prompt's, `cached_tokens` those of them that need not be worked off again.
        """
        ...


def feed_of(profile: Profile, pacer: Pacer, seed: int) -> Feed:
    """The feed that a profile asks for. Profiles of different names draw differently from the same seed."""
    if profile.engine is not None:
        return EngineFeed(profile.engine, pacer)
    return TableFeed(Table(profile.table, seed + crc32(profile.name.encode())), _saves(profile), pacer)


def _saves(profile: Profile) -> float:
    """The share of the time to first token that a prompt saves which is cached in full."""
    if profile.prompt_cache is None:
        return 0.0
    return DEFAULT_SAVES if profile.prompt_cache.saves is None else profile.prompt_cache.saves


class TableFeed:
    """Each answer by itself, at the pace drawn for it. It has one alarm at a time: that of its next token."""

    def __init__(self, table: Table, saves: float, pacer: Pacer) -> None:
        self._table = table
        self._saves = saves
        self._pacer = pacer

    def start(
        self, answer: Answer, *, arrived_ns: int, in_flight: int, prompt_tokens: int, cached_tokens: int
    ) -> Callable[[], None]:
        """The prompt's length changes nothing: the table was measured with one. What is cached of it does."""
        answer.began_ns = arrived_ns
        pace = self._table.draw(in_flight)
        if cached_tokens:
            ttft_ns = round(pace.ttft_ns * (1 - self._saves * cached_tokens / prompt_tokens))
            pace = Pace(ttft_ns, pace.gap_ns)
        return _Paced(answer, pace, arrived_ns, self._pacer).stop


class _Paced:
    def __init__(self, answer: Answer, pace: Pace, arrived_ns: int, pacer: Pacer) -> None:
        self._answer = answer
        self._pace = pace
        self._arrived_ns = arrived_ns
        self._pacer = pacer
        self._alarm = self._set(0)

    def stop(self) -> None:
        self._alarm.cancel()

    def _set(self, index: int) -> Alarm:
        due_ns = self._answer.due_ns(index, self._pace.planned_ns(self._arrived_ns, index))
        return self._pacer.call_at(due_ns, self._tick, index, due_ns)

    def _tick(self, index: int, due_ns: int) -> None:
        self._answer.send(index, due_ns)
        if not self._answer.over:
            self._alarm = self._set(index + 1)


class EngineFeed:
    """All answers from the steps of one engine."""

    def __init__(self, spec: EngineSpec, pacer: Pacer) -> None:
        self._engine: Engine[int] = Engine(spec)
        self._pacer = pacer
        self._answers: dict[int, Answer] = {}
        self._next_key = 0
        self._ticking = False

    def start(
        self, answer: Answer, *, arrived_ns: int, in_flight: int, prompt_tokens: int, cached_tokens: int
    ) -> Callable[[], None]:
        """The engine counts who is in flight itself."""
        key = self._next_key
        self._next_key += 1
        left = prompt_tokens - cached_tokens
        self._engine.submit(key, prompt_tokens=left, output_tokens=answer.tokens, now_ns=arrived_ns)
        self._answers[key] = answer
        self._wait()

        def stop() -> None:
            del self._answers[key]
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
                if (answer := self._answers.get(emission.key)) is not None:
                    answer.began_ns = emission.began_ns
                    answer.offer(emission.index, emission.at_ns)
        self._wait()
