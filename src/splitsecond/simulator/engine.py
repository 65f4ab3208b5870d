"""A model of a continuous-batching inference server, without a clock or sockets: the caller passes
the time.

The server works in steps. In each step every sequence that is past its prompt gets one token, and
up to `prefill_chunk_tokens` of waiting prompts are processed, in order of arrival (chunked prefill,
as in vLLM and Sarathi-Serve). A prompt that is finished in a step gives its first token at the end
of that step. A step lasts

    step_base_ms + step_per_sequence_ms × batch + prompt tokens / prefill_tokens_per_s

and the time in which the cached tokens of the prompts that begin in it are loaded. So more
sequences raise throughput and slow each one down, until the slots are full. Then requests queue,
and TTFT grows with the queue. Steps follow each other at absolute times without a gap, so a late
caller does not slow the server down.

With a limited KV cache, a request begins when its prompt fits. If the cache is full in the middle
of answers, the request that began last loses its place (it is preempted, as in vLLM): it waits
first in the queue, and then its prompt and what it has answered are computed again. A GPU draws
more power with a larger batch; at its limit, steps slow down.
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


class EngineCounts(msgspec.Struct):
    preemptions: int = 0
    output_tokens: int = 0
    energy_j: float = 0.0
    throttled_ns: int = 0


class _Sequence(msgspec.Struct, Generic[Key]):
    key: Key
    prompt_left: int
    output_left: int
    load_ns: int
    produced: int = 0
    in_batch: bool = False
    began_ns: int = -1
    prompt: int = 0
    kept: int = 0

    @property
    def held(self) -> int:
        """Return how many tokens of the KV cache it holds: what of its prompt is there, and its
        answer."""
        return self.kept + self.prompt - self.prompt_left + self.produced


class Engine(Generic[Key]):
    """The server: `submit` and `cancel` requests, and `advance` whenever `next_ns` is reached."""

    def __init__(self, spec: EngineSpec) -> None:
        self._spec = spec
        self._waiting: deque[_Sequence[Key]] = deque()
        self._running: dict[Key, _Sequence[Key]] = {}
        self._ends_ns: int | None = None
        self._ended_ns = 0
        self._began_ns = 0
        self._power_w = spec.gpu.idle_w if spec.gpu else 0.0
        self._capped = False
        self.counts = EngineCounts()
        self.preempted: list[Key] = []
        """The requests that lost their places at the beginning of the current step."""

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def kv_use(self) -> float:
        """The share of the KV cache that running requests hold; 0 if it is not limited."""
        capacity = self._spec.kv_cache_tokens
        return sum(each.held for each in self._running.values()) / capacity if capacity else 0.0

    @property
    def power_w(self) -> float:
        return self._power_w

    @property
    def capped(self) -> bool:
        return self._capped

    def energy_j(self, now_ns: int) -> float:
        """Return the energy that the GPU has used from time 0 up to now."""
        return self.counts.energy_j + self._power_w * max(now_ns - self._began_ns, 0) / NS_PER_S

    def throttled_ns(self, now_ns: int) -> int:
        """Return for how long the power limit has slowed down steps from time 0 up to now."""
        return self.counts.throttled_ns + self._capped * max(now_ns - self._began_ns, 0)

    @property
    def next_ns(self) -> int | None:
        """The end of the current step; None while the server is idle."""
        return self._ends_ns

    def submit(
        self,
        key: Key,
        *,
        prompt_tokens: int,
        output_tokens: int,
        now_ns: int,
        load_ns: int = 0,
        cached_tokens: int = 0,
    ) -> None:
        """Add a request with `prompt_tokens` to process, after loading the cached ones for
        `load_ns`.

        Raises `Overloaded` if slots and queue are full.
        """
        limit, held = self._spec.queue_limit, len(self._running) + len(self._waiting)
        if limit is not None and held >= self._spec.slots + limit:
            raise Overloaded(
                f"{held:,} requests fill {self._spec.slots:,} slots and a queue of {limit:,}",
                hint="Try again later.",
            )
        prompt = max(prompt_tokens, 1)
        self._waiting.append(
            _Sequence(
                key, prompt, max(output_tokens, 1), load_ns, prompt=prompt, kept=cached_tokens
            )
        )
        if self._ends_ns is None:
            self._begin_step(max(now_ns, self._ended_ns))

    def cancel(self, key: Key) -> None:
        """Remove a request, running or waiting; its slot is free from the next step on. Unknown
        keys are ignored."""
        if self._running.pop(key, None) is None:
            self._waiting = deque(sequence for sequence in self._waiting if sequence.key != key)

    def advance(self) -> list[Emission[Key]]:
        """End the current step and begin the next one. Returns the tokens of the step that
        ended."""
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
        self.counts.output_tokens += len(emissions)
        self._ended_ns = ended_ns
        self._begin_step(ended_ns)
        return emissions

    def __repr__(self) -> str:
        return (
            f"<Engine {len(self._running)} of {self._spec.slots} slots, {len(self._waiting)} "
            f"waiting>"
        )

    def _begin_step(self, at_ns: int) -> None:
        spec = self._spec
        lost = self._preempt()
        while (
            not lost
            and self._waiting
            and len(self._running) < spec.slots
            and self._fits(self._waiting[0])
        ):
            sequence = self._waiting.popleft()
            self._running[sequence.key] = sequence
        if not self._running:
            self._ends_ns = None
            self._draw(at_ns, 0)
            return
        budget = spec.prefill_chunk_tokens
        batch = load_ns = 0
        for sequence in self._running.values():
            taken = min(sequence.prompt_left, budget)
            sequence.in_batch = taken > 0 or not sequence.prompt_left
            sequence.prompt_left -= taken
            if taken and sequence.began_ns < 0:
                sequence.began_ns = at_ns
                load_ns += sequence.load_ns
            budget -= taken
            batch += sequence.in_batch
        prefilled = spec.prefill_chunk_tokens - budget
        step_ms = spec.step_base_ms + spec.step_per_sequence_ms * batch
        slower = self._draw(at_ns, batch)
        step_ns = round(
            (step_ms * NS_PER_MS + prefilled * NS_PER_S / spec.prefill_tokens_per_s) * slower
        )
        self._ends_ns = at_ns + step_ns + load_ns

    def _fits(self, sequence: _Sequence[Key]) -> bool:
        """Return whether the KV cache has room for a prompt. One that is alone always begins."""
        capacity = self._spec.kv_cache_tokens
        if capacity is None or not self._running:
            return True
        return self._reserved() + sequence.held + sequence.prompt_left + 1 <= capacity

    def _reserved(self) -> int:
        """Return the tokens of the KV cache that running requests need for their prompts and their
        next tokens."""
        return sum(each.held + each.prompt_left + 1 for each in self._running.values())

    def _preempt(self) -> bool:
        """Take the places of the requests that began last, until the next tokens of the others fit.

        Return whether one lost its place: then no request begins in this step, as it would lose its
        own in the next.
        """
        capacity = self._spec.kv_cache_tokens
        self.preempted.clear()
        if capacity is None:
            return False
        while len(self._running) > 1 and self._reserved() > capacity:
            _, last = self._running.popitem()
            last.prompt_left = last.prompt = last.prompt + last.kept + last.produced
            # its answer is now part of what it computes again, and must not count twice
            last.kept = -last.produced
            last.in_batch = False
            self.preempted.append(last.key)
            self.counts.preemptions += 1
            self._waiting.appendleft(last)
        return bool(self.preempted)

    def _draw(self, at_ns: int, batch: int) -> float:
        """Set the power from now on; return how many times as long the step takes at the GPU's
        power limit."""
        self.counts.energy_j = self.energy_j(at_ns)
        self.counts.throttled_ns = self.throttled_ns(at_ns)
        self._began_ns = at_ns
        gpu = self._spec.gpu
        if gpu is None:
            return 1.0
        wanted_w = gpu.idle_w + (gpu.full_w - gpu.idle_w) * batch / self._spec.slots
        self._capped = gpu.limit_w is not None and wanted_w > gpu.limit_w
        self._power_w = gpu.limit_w if self._capped and gpu.limit_w is not None else wanted_w
        return wanted_w / self._power_w
