"""A model of a continuous-batching inference server, without a clock or sockets: the caller passes the time.

The server works in steps. In each step every sequence that is past its prompt gets one token, and up to
`prefill_chunk_tokens` of waiting prompts are processed, in order of arrival (chunked prefill, as in vLLM and
Sarathi-Serve). A prompt that is finished in a step gives its first token at the end of that step. A step lasts

    step_base_ms + step_per_sequence_ms × batch + prompt tokens / prefill_tokens_per_s

so more sequences raise throughput and slow each one down, until the slots are full. Steps follow each other at absolute
times without a gap, so a late caller does not slow the server down.
"""

from collections import deque
from typing import Generic, TypeVar

import msgspec

from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.errors import Overloaded
from splitsecond.simulator.profile import EngineSpec

Key = TypeVar("Key")
"""The caller's hashable key of a request."""


class Emission(msgspec.Struct, Generic[Key], frozen=True):
    """Token `index` (from 0) of request `key`, produced at the end of a step, at `at_ns`.

    `began_ns` is the begin of the first step that worked on the request's prompt.
    """

    key: Key
    index: int
    at_ns: int
    began_ns: int


class _Sequence(msgspec.Struct, Generic[Key]):
    key: Key
    prompt_left: int
    output_left: int
    produced: int = 0
    in_batch: bool = False
    began_ns: int = -1


class Engine(Generic[Key]):
    """The server: `submit` and `cancel` requests, and `advance` whenever `next_ns` is reached."""

    def __init__(self, spec: EngineSpec) -> None:
        self._spec = spec
        self._waiting: deque[_Sequence[Key]] = deque()
        self._running: dict[Key, _Sequence[Key]] = {}
        self._ends_ns: int | None = None
        self._ended_ns = 0

    @property
    def next_ns(self) -> int | None:
        return self._ends_ns

    def submit(self, key: Key, *, prompt_tokens: int, output_tokens: int, now_ns: int) -> None:
        limit, held = self._spec.queue_limit, len(self._running) + len(self._waiting)
        if limit is not None and held >= self._spec.slots + limit:
            raise Overloaded(
                f"{held:,} requests fill {self._spec.slots:,} slots and a queue of {limit:,}",
                hint="Try again later.",
            )
        self._waiting.append(_Sequence(key, max(prompt_tokens, 1), max(output_tokens, 1)))
        if self._ends_ns is None:
            self._begin_step(max(now_ns, self._ended_ns))

    def cancel(self, key: Key) -> None:
        if self._running.pop(key, None) is None:
            self._waiting = deque(sequence for sequence in self._waiting if sequence.key != key)

    def advance(self) -> list[Emission[Key]]:
        ended_ns = self._ends_ns
        if ended_ns is None:
            return []
        emissions: list[Emission[Key]] = []
        for sequence in list(self._running.values()):
            if not sequence.in_batch or sequence.prompt_left:
                continue
            emissions.append(Emission(sequence.key, sequence.produced, ended_ns, sequence.began_ns))
            sequence.produced += 1
            sequence.output_left -= 1
            if not sequence.output_left:
                del self._running[sequence.key]
        self._ended_ns = ended_ns
        self._begin_step(ended_ns)
        return emissions

    def __repr__(self) -> str:
        return f"<Engine {len(self._running)} of {self._spec.slots} slots, {len(self._waiting)} waiting>"

    def _begin_step(self, at_ns: int) -> None:
        spec = self._spec
        while self._waiting and len(self._running) < spec.slots:
            sequence = self._waiting.popleft()
            self._running[sequence.key] = sequence
        if not self._running:
            self._ends_ns = None
            return
        budget = spec.prefill_chunk_tokens
        batch = 0
        for sequence in self._running.values():
            taken = min(sequence.prompt_left, budget)
            sequence.in_batch = taken > 0 or not sequence.prompt_left
            sequence.prompt_left -= taken
            if taken and sequence.began_ns < 0:
                sequence.began_ns = at_ns
            budget -= taken
            batch += sequence.in_batch
        prefilled = spec.prefill_chunk_tokens - budget
        step_ms = spec.step_base_ms + spec.step_per_sequence_ms * batch
        self._ends_ns = at_ns + round(step_ms * NS_PER_MS + prefilled * NS_PER_S / spec.prefill_tokens_per_s)
