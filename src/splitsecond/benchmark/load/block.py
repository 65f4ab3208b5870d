"""Sends one block of requests on its schedule: the core of a benchmark.

Warm-up requests build the complete load up; cool-down requests keep it up until the last measured
one has ended, in all processes that send a part of the block.

The first request of a closed loop goes alone, and the other slots start spread over the time that
its first token took. The first warm-up of each slot has a uniformly random length, or responses of
equal length would keep the slots in step. A slot whose warm-up ends before most others have their
first token sends another one, of full length: short ones would wait for a first token more often
than the measured requests do, and lower the throughput.

An open loop sends at given times, whatever the target does. A request beyond the cap on the
requests in flight is counted as a failure of the client.
"""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Protocol

import msgspec
from msgspec.structs import replace

from splitsecond.benchmark.load.measured_call import MeasuredCall
from splitsecond.benchmark.load.self_monitor import SelfMonitor
from splitsecond.benchmark.workload.workload import Composer
from splitsecond.core import clock
from splitsecond.core.errors import Fault, NetworkFault, Overloaded, TimedOut
from splitsecond.core.observation import LOAD_ROLES, Observation, Role
from splitsecond.core.service import Call, Service
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.core.wording import counted_as

MAX_IN_FLIGHT = 4096
"""Requests in flight at once in an open loop. A server that is so far behind cannot serve this
rate."""
FILLED = 0.9
"""Share of the slots that must have had a first token before a request is measured. The slowest
would take long."""
UNANSWERED = 10
"""If none of the first 10 requests of a condition is answered, the rest is not sent."""


class RequestBlock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Requests to one target under one condition: `warmups`, `requests` that are measured, at most
    `cooldowns`.

    An open loop has `due`, an offset in ns from the start for each request. `round` counts from 1.
    `begin_ns` is the start time for slices that start together; 0 means at once. Requests are
    numbered `first`, `first + stride`, … within their condition, over all its blocks and slices, or
    as in `numbers`. `opening` marks the condition's first block. A block of sessions has
    `concurrency` of them at its beginning, `due` for those that start later, `wait_s`, the mean
    tool time before a request, and `response_s`, about how long a response takes; its requests have
    no numbers, its sessions have. With `cache_reuse` the first warm-up fills the provider's cache
    for the others. After `most_failures` failed measured requests the rest is not sent; 0 means no
    limit. Its round begins `apart_s` after the round before it began, or as soon as that has ended.
    """

    condition: str
    target: str
    requests: int
    warmups: int = 0
    cooldowns: int = 0
    concurrency: int | None = None
    due: list[int] = []
    begin_ns: int = 0
    first: int = 0
    stride: int = 1
    numbers: list[int] = []
    round: int = 0
    opening: bool = True
    cache_reuse: bool = False
    most_failures: int = 0
    wait_s: float = 0.0
    response_s: float = 0.0
    apart_s: float = 0.0


class Hold:
    """Holds the cool-downs of a part of a block. `on_measured` is called when its measured requests
    have ended."""

    def __init__(self, on_measured: Callable[[], object]) -> None:
        self.on_measured = on_measured
        self.on_release: Callable[[], object] = lambda: None
        self.released = False

    def release(self) -> None:
        self.released = True
        self.on_release()


class Pacing(Protocol):
    async def sleep_until(self, due_ns: int) -> None: ...


class Account(Protocol):
    """Pays for the requests of a block (`cost_lease`)."""

    def reserve(self, call: str) -> None:
        """Count a request before it is sent. Raises the `Fault` that ends the block if it cannot
        be paid for."""

    def observed(self, o: Observation) -> None:
        """Count an attempt that has ended."""


class NotPaid(Fault):
    """A request was not sent, because it could exceed the cost limit. Neither the caller nor the
    provider is at fault."""


class RequestInFlight:
    """One request while it is sent: when its context ends, its end is recorded, and a `Fault` goes
    no further."""

    __slots__ = ("_request", "_run")

    def __init__(self, run: "BlockRun", call: Call, measured: MeasuredCall, role: Role) -> None:
        self._run = run
        self._request = (call, measured, role)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        self._run.ended(*self._request, error)
        return isinstance(error, Fault)


class BlockRun:
    """One block while it is sent. Subclasses send another kind of load.

    With `hold`, cool-downs go on until it is released. `account` pays for the requests.
    """

    _on_observation: Callable[[Observation], None]  # set by `send`

    def __init__(
        self,
        block: RequestBlock,
        service: Service,
        composer: Composer,
        pacer: Pacing,
        *,
        most_in_flight: int = MAX_IN_FLIGHT,
        hold: Hold | None = None,
        account: Account | None = None,
    ) -> None:
        self.abandoned = ""
        self.incomplete: list[MeasuredCall] = []
        """Calls that have ended before all of their attempts had, as an attempt can while its
        connection closes."""
        self._block = block
        self._service = service
        self._composer = composer
        self._pacer = pacer
        self._monitor = SelfMonitor()
        self._most_in_flight = most_in_flight
        self._hold = hold
        self._account = account
        self._left = {
            "warmup": block.warmups,
            "measured": block.requests,
            "cooldown": block.cooldowns,
        }
        self._numbers = iter(block.numbers) if block.numbers else count(block.first, block.stride)
        self._unfinished = block.requests  # measured requests that have not ended
        self._unmeasured: set[asyncio.Task[None]] = set()
        self._unanswered: int | None = 0 if block.opening else None  # None: the target has answered
        self._failures = 0
        if hold is not None:
            hold.on_release = self._close_unmeasured
            if not block.requests:
                hold.on_measured()
        self._first_ttft_ns = 0
        self._first_done = asyncio.Event()
        self._filled = asyncio.Event()
        """Set when the slots of a closed loop, without the slowest, have had a first token."""

    async def send(
        self,
        on_observation: Callable[[Observation], None],
        on_reading: Callable[[InstrumentReading], None],
    ) -> str:
        """Send the block and return when its last attempt has ended. Cancelling it cancels the
        requests in flight.

        `on_observation` gets each observation, and `on_reading` the instrument's reading, also
        after a cancellation. Returns the reason why the rest of the condition should not be sent,
        or "".
        """
        self._on_observation = on_observation
        block = self._block
        with self._monitor:
            try:
                await (self.open_loop() if block.due else self.closed_loop(block.concurrency or 1))
                for call in self.incomplete:
                    await call.complete.wait()
            finally:
                for call in self.incomplete:
                    call.report()
                on_reading(self._monitor.reading(block.condition))
        return self.abandoned

    def _emit(self, observation: Observation) -> None:
        inputs = self._composer.workload.inputs
        self._on_observation(replace(observation, round=self._block.round, inputs=inputs))
        if self._account is not None:
            self._account.observed(observation)

    # Closed loop.

    async def closed_loop(self, concurrency: int) -> None:
        block = self._block
        slots = min(concurrency, sum(self._left.values()))
        if fills := block.warmups >= slots:
            self._left["warmup"] -= slots  # each slot has one of its own
        else:
            self._filled.set()  # measured requests do not wait for slots that only they can fill
        begin_ns = await self._begin()

        async def slot(position: int) -> None:
            due_ns = begin_ns
            if position > 0 and block.warmups:
                await self._first_done.wait()
                due_ns = begin_ns + self._first_ttft_ns * (slots + position) // slots
                await self._pacer.sleep_until(due_ns)
                self._monitor.dispatched(due_ns)

            def has_token() -> None:
                streaming.add(position)
                if len(streaming) >= FILLED * slots:
                    self._filled.set()

            role = "warmup" if fills else self._take()
            shortened = role == "warmup"
            while role is not None and not self.abandoned:
                if role == "measured" and not self._filled.is_set():
                    await self._filled.wait()
                    due_ns = clock.now_ns()
                self._monitor.began()
                await self._send(role, due_ns, has_token, shortened=shortened)
                due_ns = clock.now_ns()
                shortened = False
                role = self._take()
            self._filled.set()  # nobody waits for a slot that sends nothing

        streaming: set[int] = set()
        async with asyncio.TaskGroup() as group:
            self._unmeasured = {group.create_task(slot(position)) for position in range(slots)}

    def _take(self) -> Role | None:
        """Return the role of the next request; None if no other is sent."""
        left = self._left
        if self.abandoned or self._over:
            return None
        if (
            not left["warmup"]
            and not self._filled.is_set()
            and 2 * left["cooldown"] > self._block.cooldowns
        ):
            left["cooldown"] -= 1
            return "warmup"
        role = next((role for role in LOAD_ROLES if left[role]), None)
        if role is not None:
            left[role] -= 1
        return role

    # Open loop.

    async def open_loop(self) -> None:
        begin_ns = await self._begin()
        async with asyncio.TaskGroup() as group:
            self._unmeasured.add(group.create_task(self._send_when_due(begin_ns, group)))

    async def _send_when_due(self, begin_ns: int, group: asyncio.TaskGroup) -> None:
        self._filled.set()
        for offset_ns in self._block.due:
            due_ns = begin_ns + offset_ns
            await self._pacer.sleep_until(due_ns)
            role = self._take()
            if role is None:
                return
            self._monitor.dispatched(due_ns)
            if self._monitor.in_flight >= self._most_in_flight:
                self._refuse(role, due_ns)
            else:
                self._monitor.began()
                sending = group.create_task(self._send(role, due_ns))
                if role != "measured":
                    self._unmeasured.add(sending)
            await asyncio.sleep(0)  # lets the requests leave while the schedule is behind

    def _refuse(self, role: Role, due_ns: int) -> None:
        held = counted_as(self._monitor.in_flight, "request is", "requests are")
        fault = Overloaded(
            f"{held} in flight; the maximum is {self._most_in_flight:,}",
            target=self._block.target,
            hint="The target is far behind this rate: ask for a lower one.",
        )
        call, measured = self._call(role, due_ns)
        measured.ended(call, fault)
        self._finished(role)

    # Both loops.

    @property
    def _complete(self) -> bool:
        return bool(self._block.requests) and not self._unfinished

    @property
    def _over(self) -> bool:
        return self._complete and (self._hold is None or self._hold.released)

    def _finished(self, role: Role) -> None:
        if role != "measured":
            return
        self._unfinished -= 1
        if self._complete and self._hold is not None:
            self._hold.on_measured()
        if self._over:
            self._close_unmeasured()

    def _close_unmeasured(self) -> None:
        for task in self._unmeasured - {asyncio.current_task()}:
            task.cancel()

    async def _begin(self) -> int:
        begin_ns = self._block.begin_ns or clock.now_ns()
        await self._pacer.sleep_until(begin_ns)
        return begin_ns

    def _call(
        self, role: Role, due_ns: int, *, shortened: bool = False
    ) -> tuple[Call, MeasuredCall]:
        block, number = self._block, next(self._numbers)
        identity = f"{block.condition}-{number}"
        checker = self._composer.checker
        measured = MeasuredCall(
            condition=block.condition,
            target=block.target,
            role=role,
            emit=self._emit,
            check=None if checker is None else lambda events: checker.is_valid(events, number),
        )
        workload = self._composer.workload
        call = Call(
            id=identity,
            operation=workload.operation,
            body=self._composer.body(identity, number, shortened=shortened),
            due_ns=due_ns,
            start_ns=clock.now_ns(),
            stream=not workload.inputs,
            hints=self._composer.hints,
            notes=measured.notes(),
        )
        return call, measured

    async def _send(
        self,
        role: Role,
        due_ns: int,
        has_token: Callable[[], object] = lambda: None,
        *,
        shortened: bool = False,
    ) -> None:
        """Send one request and wait for its end. Its failure is an observation, not an error of the
        block.

        `has_token` is called when its first token has arrived, or when it has failed without one.
        """
        call, measured = self._call(role, due_ns, shortened=shortened)
        try:
            with RequestInFlight(self, call, measured, role):
                self.pay(call)
                async with await self._service(call) as reply:
                    self._start_ramp(due_ns)
                    has_token()
                    self._unanswered = None
                    if measured.check is None:
                        await reply.finished()
                    else:
                        measured.valid = measured.check(await reply.collected())
        finally:
            self._start_ramp(due_ns)
            has_token()

    def pay(self, call: Call) -> None:
        if self._account is not None:
            self._account.reserve(call.id)

    def ended(
        self, call: Call, measured: MeasuredCall, role: Role, error: BaseException | None
    ) -> None:
        """Record the end of a request, by an error or (None) well."""
        if isinstance(error, NotPaid):
            self.abandoned = error.message
            self._monitor.ended()
            return
        fault = error if isinstance(error, Fault) else None
        if error is None or isinstance(error, Fault | asyncio.CancelledError):
            measured.ended(call, fault)
        if fault is not None:
            self._failed(role, fault)
        if not measured.complete.is_set():
            self.incomplete.append(measured)
        self._monitor.ended()
        self._finished(role)

    def _start_ramp(self, due_ns: int) -> None:
        if not self._first_done.is_set():
            self._first_ttft_ns = clock.now_ns() - due_ns
            self._first_done.set()

    def _failed(self, role: Role, fault: Fault) -> None:
        self._failures += role == "measured"
        if self._failures and self._failures == self._block.most_failures:
            self.abandoned = f"{counted_as(self._failures, 'request')} failed; the last: {fault}"
        if self._unanswered is None:
            return
        if not isinstance(fault, NetworkFault | TimedOut):
            self._unanswered = None  # an error response is an answer, too
            return
        self._unanswered += 1
        if self._unanswered == UNANSWERED:
            self.abandoned = (
                f"none of the first {UNANSWERED} requests was answered; the last: {fault}"
            )
