"""A fake service that a test controls, step by step or by a script.

Step by step, the test waits for the call and then decides what happens on its stream:

    fake = FakeService()
    reply = asyncio.create_task(fake(call))
    pending = await fake.expect()
    pending.first_token(after=0.2)
    pending.finish(tokens=9, tps=100)

For many calls there is a script: `FakeService(script=lambda call: Script(ttft=0.2, tokens=10,
tps=100))`.

Steps follow one another: `after` counts seconds from the step before (or from now, if that has
passed). Every call enforces its deadline, its stall timeout and its floor, counts itself in the
call's notes, and leaves exactly one observation, made by the same `Timeline` as a real one.
`closed_at` is the time at which the caller closed the reply.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.errors import Fault, TimedOut
from splitsecond.core.events import Broken, Done, Event, Finish, Token, Usage
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call, RateFloor, ReplyBase
from splitsecond.core.timing.rate_floor import RateCheck
from splitsecond.core.timing.timeline import Sending, Timeline
from splitsecond.core.upstream.attempt_faults import too_slow
from splitsecond.core.upstream.transcoding import transcoder
from splitsecond.core.wire.openai import StreamWriter

Observer = Callable[[Observation], None]


class Script(Struct, frozen=True, kw_only=True):
    """The answer to one call: the first of `tokens` tokens after `ttft` seconds, the others at
    `tps` a second.

    With a `fault` the call fails after `ttft` instead, or, with `breaks_after`, the stream breaks
    after that many tokens. Without `input_tokens` the answer has no usage. If it `hangs`, nothing
    ever happens. `texts` are the texts of the first tokens; `finish` is the finish reason.
    """

    ttft: float = 0.2
    tokens: int = 10
    tps: float = 100.0
    input_tokens: int | None = None
    fault: Fault | None = None
    breaks_after: int = 0
    hangs: bool = False
    texts: tuple[str, ...] = ()
    finish: str = "stop"


class FakeCall(ReplyBase):
    """One call of a fake service, with the methods to answer it, and the reply that its caller
    holds."""

    def __init__(self, call: Call, target: str, observer: Observer | None) -> None:
        self.call = call
        self.closed_at: int | None = None
        self.replied = False
        self.observation: Observation | None = None
        self._target = target
        self._observer = observer
        self._events: deque[Event] = deque()
        # of a watched call, which is read both as events and as bytes
        self._unread: deque[Event] = deque()
        self._writer = StreamWriter(call.operation, target, id=call.id, created=0)
        self._transcoder = None if call.api_format == "openai" else transcoder(call, target)
        self._changed = asyncio.Event()
        self._steps: deque[tuple[int, Callable[[int], None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._cursor_ns = self._sent_ns = clock.now_ns()
        self._tokens = 0
        self._timeline = Timeline(
            attempt=f"{call.id}.{call.notes.attempts}",
            call=call.id,
            target=target,
            condition=call.notes.condition,
            role=call.notes.role,
            due_ns=call.due_ns,
            start_ns=call.start_ns or self._sent_ns,
        )
        self._stall: asyncio.TimerHandle | None = None
        self._rate: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        if call.deadline_ns is not None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_at(
                call.deadline_ns / clock.NS_PER_S, self._overdue, call.deadline_ns
            )

    def first_token(self, after: float = 0.0, text: str = "word") -> None:
        """Deliver a content-bearing event, the first one or a later one."""
        self._schedule(after, lambda at: self._take(Token(at, text)))
        self._tokens += 1

    def finish(
        self,
        after: float = 0.0,
        *,
        tokens: int = 0,
        tps: float = 100.0,
        input_tokens: int | None = None,
        cached_tokens: int | None = None,
        reason: str = "stop",
    ) -> None:
        """Deliver `tokens` more tokens at `tps` a second, and end the stream well `after` seconds
        later.

        Without `input_tokens` the answer has no usage.
        """
        for _ in range(tokens):
            self.first_token(1 / tps)
        output_tokens = self._tokens

        def end(at: int) -> None:
            counts = Usage(at, input_tokens, output_tokens, cached_tokens=cached_tokens)
            self._end(at, None if input_tokens is None else counts, reason)

        self._schedule(after, end)

    def fail(self, fault: Fault, after: float = 0.0) -> None:
        """Fail the call: the await raises `fault` before the first token, the stream breaks with it
        afterwards."""
        self._schedule(after, lambda at: self._break(fault, at))

    def play(self, script: Script) -> None:
        if script.hangs:
            return
        if script.fault is not None and script.breaks_after == 0:
            self.fail(script.fault, script.ttft)
            return
        tokens = script.tokens if script.fault is None else script.breaks_after
        for number in range(tokens):
            text = script.texts[number] if number < len(script.texts) else "word"
            self.first_token(script.ttft if number == 0 else 1 / script.tps, text)
        if script.fault is not None:
            self.fail(script.fault, 1 / script.tps)
        else:
            self.finish(
                0.0 if tokens else script.ttft,
                input_tokens=script.input_tokens,
                reason=script.finish,
            )

    def close(self) -> None:
        """Close the call. Before its end this makes it cancelled."""
        if self.closed_at is None:
            self.closed_at = clock.now_ns()
            self._settle(self.closed_at, cancelled=True)

    async def aclose(self) -> None:
        self.close()

    @property
    def target(self) -> str:
        return self._target

    @property
    def empty(self) -> bool:
        return self._timeline.ended_well and not self._timeline.has_token

    @property
    def token_ns(self) -> int:
        return self._timeline.last_activity_ns

    async def answered(self) -> None:
        """Return when the first token has arrived or the stream ended well; raise the `Fault`
        otherwise."""
        while not self._timeline.has_token and self.observation is None:
            await self._wait()
        if self._timeline.broken is not None and not self._timeline.has_token:
            raise self._timeline.broken

    async def __anext__(self) -> Event:
        return await self._next(self._events)

    async def read(self) -> bytes:
        unread = self._unread if self.call.watched else self._events
        while True:
            try:
                event = await self._next(unread)
            except StopAsyncIteration:
                return b""
            if isinstance(event, Broken):
                unread.appendleft(event)  # the next read raises it again
                raise event.fault
            if data := self._encoded(event):
                return data

    def arrived(self) -> list[Event]:
        events = list(self._events)
        self._events.clear()
        return events

    async def _next(self, events: deque[Event]) -> Event:
        while not events:
            if self.observation is not None:
                raise StopAsyncIteration
            await self._wait()
        return events.popleft()

    def _encoded(self, event: Event) -> bytes:
        if self._transcoder is not None:
            return self._transcoder.encode([event])
        return self._writer.event(event)

    async def finished(self) -> None:
        while self.observation is None:
            await self._wait()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _schedule(self, after: float, step: Callable[[int], None]) -> None:
        at = max(self._cursor_ns, clock.now_ns()) + round(after * clock.NS_PER_S)
        self._cursor_ns = at
        self._steps.append((at, step))
        if self._timer is None:
            self._advance()

    def _advance(self) -> None:
        self._timer = None
        while self._steps and (ahead_ns := self._steps[0][0] - clock.now_ns()) <= 0:
            at, step = self._steps.popleft()
            step(at)
        if self._steps:
            self._timer = asyncio.get_running_loop().call_later(
                ahead_ns / clock.NS_PER_S, self._advance
            )

    def _take(self, *events: Event) -> None:
        if self.observation is None:
            self._timeline.record_events(events)
            self._events.extend(events)
            if self.call.watched:
                self._unread.extend(events)
            self._changed.set()
            self._watch(any(isinstance(event, Token) for event in events))

    def _watch(self, progress: bool) -> None:
        if self.call.floor is not None and progress and self._rate is None:
            self._check_rate(self._timeline.rate_check(self.call.floor), self.call.floor)
        stall_ns = self.call.stall_ns
        if stall_ns is None or not progress:
            return
        if self._stall is not None:
            self._stall.cancel()
        self._stall = asyncio.get_running_loop().call_later(
            stall_ns / clock.NS_PER_S, self._silent, stall_ns
        )

    def _check_rate(self, check: RateCheck, floor: RateFloor) -> None:
        now_ns = clock.now_ns()
        rate = check.rate(now_ns) if now_ns >= check.due_ns else None
        if rate is not None:
            self._break(too_slow(rate, floor), now_ns)
        else:
            loop = asyncio.get_running_loop()
            self._rate = loop.call_at(check.due_ns / clock.NS_PER_S, self._check_rate, check, floor)

    def _silent(self, stall_ns: int) -> None:
        words = f"no further token for {stall_ns // clock.NS_PER_MS} ms"
        self._break(TimedOut(words, phase="between tokens", after_ns=stall_ns), clock.now_ns())

    def _end(self, at: int, usage: Usage | None, reason: str) -> None:
        self._take(Finish(at, reason), *([] if usage is None else [usage]), Done(at, marker=True))
        self._settle(at)

    def _break(self, fault: Fault, at: int) -> None:
        self._take(Broken(at, fault))
        self._settle(at)

    def _overdue(self, deadline_ns: int) -> None:
        after_ns = deadline_ns - self._sent_ns
        self._break(
            TimedOut("the deadline of the whole call passed", phase="total", after_ns=after_ns),
            clock.now_ns(),
        )

    def _settle(self, end_ns: int, *, cancelled: bool = False) -> None:
        if self.observation is not None:
            return
        self._steps.clear()
        for timer in (self._timer, self._stall, self._rate, self._deadline):
            if timer is not None:
                timer.cancel()
        self.observation = self._timeline.observe(
            end_ns=end_ns, cancelled=cancelled, sending=Sending(sent_ns=self._sent_ns, reused=True)
        )
        if self._observer is not None:
            self._observer(self.observation)
        if self.call.notes.observer is not None:
            self.call.notes.observer(self.observation)
        self._changed.set()


class FakeService:
    """A `Service` for tests. `calls` holds all of its calls, in order."""

    def __init__(
        self,
        *,
        script: Callable[[Call], Script] | None = None,
        target: str = "fake/model",
        observer: Observer | None = None,
    ) -> None:
        self.calls: list[FakeCall] = []
        self._script = script
        self._target = target
        self._observer = observer
        self._arrived: asyncio.Queue[FakeCall] = asyncio.Queue()

    @property
    def in_flight(self) -> int:
        """Calls that have not ended."""
        return sum(fake.observation is None for fake in self.calls)

    @property
    def left_open(self) -> int:
        """Calls that are in flight or whose reply was not closed."""
        return sum(
            fake.observation is None or (fake.replied and fake.closed_at is None)
            for fake in self.calls
        )

    async def expect(self) -> FakeCall:
        """Wait for the next call and return it. Only without a script."""
        return await self._arrived.get()

    async def __call__(self, call: Call) -> FakeCall:
        call.notes.attempts += 1
        fake = FakeCall(call, self._target, self._observer)
        self.calls.append(fake)
        if self._script is not None:
            fake.play(self._script(call))
        else:
            self._arrived.put_nowait(fake)
        try:
            await fake.answered()
        except asyncio.CancelledError:
            fake.close()
            raise
        fake.replied = True
        return fake

    def __repr__(self) -> str:
        return f'"{self._target}"'
