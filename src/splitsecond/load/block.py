"""One block of requests, sent on its schedule: the heart of a benchmark.

A closed loop keeps `concurrency` requests under way: each slot sends its next one when its last has ended. To start
them all at once would measure a stampede, so the first goes alone, and the other slots start spread over the time that
its first token took. These first requests, one for each slot, are warm-ups: when the first measured request leaves, all
slots have started. Measured requests follow in the same loop without a gap, and the block ends when the last has; the
tail, in which slots have nothing left to do, is for the analysis to leave out.

An open loop sends at given times whatever the answers do. Only a cap on what is under way guards this process; a
request beyond it is not delayed, which would falsify the schedule, but counted as a failure of ours.

Each request knows when it was due: the scheduled time, or the moment at which its slot became free.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from splitsecond import clock
from splitsecond.errors import Fault, NetworkFault, Overloaded, TimedOut
from splitsecond.load.ledger import Ledger
from splitsecond.load.watch import Watch
from splitsecond.load.workload import Composer
from splitsecond.service import Call, Service
from splitsecond.timing.instrument import InstrumentReading
from splitsecond.timing.observation import Role

MOST_IN_FLIGHT = 4096
"""Requests under way at once in an open loop. A server that far behind does not answer to this rate any more."""
UNANSWERED = 10
"""After so many requests of a condition and no answer to any, the rest of it is not sent."""


class Block(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run of requests to one target under one condition: the first `warmups` of them to warm up, then `requests`.

    Closed loop: `concurrency`. Open loop: `due` holds an offset in ns from the start for each request. `begin_ns`:
    when to start, for slices that start together; 0: at once. Within their condition requests are numbered `first`,
    `first + stride`, … over all its blocks and slices. `opening`: the condition's first block. `cache_reuse`: all its
    condition's prompts begin alike, and the first warm-up fills the provider's cache for the others. `most_failures`:
    after so many measured requests that failed the rest is not sent; 0: whatever fails.
    """

    condition: str
    target: str
    requests: int
    warmups: int = 0
    concurrency: int | None = None
    due: list[int] = []
    begin_ns: int = 0
    first: int = 0
    stride: int = 1
    opening: bool = True
    cache_reuse: bool = False
    most_failures: int = 0


class Pacing(Protocol):
    """Something that waits for an absolute time: `pacing.Pacer`."""

    async def sleep_until(self, due_ns: int) -> None: ...


async def run_block(
    block: Block,
    service: Service,
    composer: Composer,
    ledger: Ledger,
    pacer: Pacing,
    emit: Callable[[InstrumentReading], None],
    *,
    worker: int = 0,
    most_in_flight: int = MOST_IN_FLIGHT,
) -> str:
    """Sends the block and returns when its last request has ended.

    Observations go through `ledger`, which must be the service's observer; `emit` gets the instrument's reading, also
    if the block is cancelled (which cancels what is under way). Returns why the rest of the condition should not be
    sent, "" if it should.
    """
    with Watch() as watch:
        run = _Run(block, service, composer, ledger, pacer, watch, most_in_flight)
        try:
            await (run.open_loop() if block.due else run.closed_loop(block.concurrency or 1))
        finally:
            emit(watch.reading(block.condition, worker))
    return run.abandoned


class _Run:
    """One block while it runs."""

    def __init__(
        self,
        block: Block,
        service: Service,
        composer: Composer,
        ledger: Ledger,
        pacer: Pacing,
        watch: Watch,
        most_in_flight: int,
    ) -> None:
        self.abandoned = ""
        self._block = block
        self._service = service
        self._composer = composer
        self._ledger = ledger
        self._pacer = pacer
        self._watch = watch
        self._most_in_flight = most_in_flight
        self._total = block.warmups + block.requests
        self._taken = 0
        self._unanswered: int | None = 0 if block.opening else None  # None: one was answered
        self._failures = 0
        self._first_ttft_ns = 0
        self._first_done = asyncio.Event()

    # Closed loop.

    async def closed_loop(self, concurrency: int) -> None:
        """Keeps `concurrency` requests under way until all are sent."""
        block, slots = self._block, min(concurrency, self._total)
        started = 0
        all_started = asyncio.Event()
        warms_up = block.warmups >= slots  # else no warm-up could fill the slots, and nothing waits for that
        begin_ns = await self._begin()

        async def slot(position: int) -> None:
            nonlocal started
            due_ns = begin_ns
            if position > 0 and block.warmups:
                await self._first_done.wait()
                due_ns = begin_ns + self._first_ttft_ns * (slots + position) // slots
                await self._pacer.sleep_until(due_ns)
                self._watch.dispatched(due_ns)
            started += 1
            if started == slots:
                all_started.set()
            while (index := self._take()) is not None:
                if warms_up and index >= block.warmups and not all_started.is_set():
                    await all_started.wait()
                    due_ns = clock.now_ns()
                self._watch.began()
                await self._send(index, due_ns)
                due_ns = clock.now_ns()

        async with asyncio.TaskGroup() as group:
            for position in range(slots):
                group.create_task(slot(position))

    def _take(self) -> int | None:
        if self._taken == self._total or self.abandoned:
            return None
        self._taken += 1
        return self._taken - 1

    # Open loop.

    async def open_loop(self) -> None:
        """Sends each request when it is due."""
        begin_ns = await self._begin()
        async with asyncio.TaskGroup() as group:
            for index, offset_ns in enumerate(self._block.due):
                due_ns = begin_ns + offset_ns
                await self._pacer.sleep_until(due_ns)
                if self.abandoned:
                    return
                self._watch.dispatched(due_ns)
                if self._watch.in_flight >= self._most_in_flight:
                    self._refuse(index, due_ns)
                else:
                    self._watch.began()
                    group.create_task(self._send(index, due_ns))
                await asyncio.sleep(0)  # a schedule that is behind must not keep its own requests from leaving

    def _refuse(self, index: int, due_ns: int) -> None:
        fault = Overloaded(
            f"{self._watch.in_flight} requests are under way, at most {self._most_in_flight} may be",
            target=self._block.target,
            hint="The target is far behind this rate: ask for a lower one.",
        )
        call = self._expect(index, due_ns, {})
        self._ledger.ended(call, fault)

    # Both.

    async def _begin(self) -> int:
        begin_ns = self._block.begin_ns or clock.now_ns()
        await self._pacer.sleep_until(begin_ns)
        return begin_ns

    def _expect(self, index: int, due_ns: int, body: dict[str, object]) -> Call:
        block = self._block
        role: Role = "warmup" if index < block.warmups else "measured"
        hints = self._composer.hints
        call = Call(id=self._identity(index), body=body, due_ns=due_ns, start_ns=clock.now_ns(), hints=hints)
        self._ledger.expect(call.id, condition=block.condition, target=block.target, role=role)
        return call

    def _identity(self, index: int) -> str:
        return f"{self._block.condition}-{self._block.first + index * self._block.stride}"

    async def _send(self, index: int, due_ns: int) -> None:
        """One request, to its end. Its failure is an observation, not an error of the block."""
        number = self._block.first + index * self._block.stride
        call = self._expect(index, due_ns, self._composer.body(self._identity(index), number))
        try:
            async with await self._service(call) as reply:
                self._ramp_may_begin(due_ns)
                self._unanswered = None
                await reply.finished()
        except Fault as fault:
            self._ledger.ended(call, fault)
            self._failed(index, fault)
        except asyncio.CancelledError:
            self._ledger.ended(call)
            raise
        else:
            self._ledger.ended(call)
        finally:
            self._watch.ended()
            self._ramp_may_begin(due_ns)

    def _ramp_may_begin(self, due_ns: int) -> None:
        """The first request, due at `due_ns`, has its first token; or it has failed, and the wait for that must do."""
        if not self._first_done.is_set():
            self._first_ttft_ns = clock.now_ns() - due_ns
            self._first_done.set()

    def _failed(self, index: int, fault: Fault) -> None:
        self._failures += index >= self._block.warmups
        if self._failures and self._failures == self._block.most_failures:
            self.abandoned = f"{self._failures} of its requests failed; the last: {fault}"
        if self._unanswered is None:
            return
        if not isinstance(fault, NetworkFault | TimedOut):
            self._unanswered = None  # an error answer is an answer
            return
        self._unanswered += 1
        if self._unanswered == UNANSWERED:
            self.abandoned = f"none of the first {UNANSWERED} requests was answered; the last: {fault}"
